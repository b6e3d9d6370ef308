"""Whether text can be written at all (no file can hold half characters, lone surrogates), and its equal spellings.

This module loads nothing heavy, because every command checks its paths with it.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from typing import Any
from unicodedata import normalize

_SURROGATE = re.compile("[\ud800-\udfff]")


def is_unicode(value: Any) -> bool:
    """Return whether every text in a value, its lists and its mappings (keys included) can be written as UTF-8."""
    if isinstance(value, str):
        return value.isascii() or _SURROGATE.search(value) is None
    if isinstance(value, dict):
        return all(is_unicode(key) and is_unicode(inner) for key, inner in value.items())
    return all(map(is_unicode, value)) if isinstance(value, list | tuple) else True


def adopt_names(names: Sequence[str], known: Collection[str]) -> tuple[str, ...]:
    """Return the names in the spelling of the ``known`` ones: an accent may be a character of its own, or none (NFC).

    A name that is known as it is stays, and so does one whose known spelling is another name of the table.
    """
    if all(map(str.isascii, names)):
        return tuple(names)
    there = {*names}
    spellings = {normalize("NFC", name): name for name in known if name not in there}
    return tuple(name if name in known else spellings.get(normalize("NFC", name), name) for name in names)


def adopt_spellings(text: str, known: Collection[str]) -> str:
    """Return a text in which the ``known`` names are spelled as they are there: its own spelling may be NFC or NFD."""
    if not text.isascii():
        for name in known:
            for form in ("NFC", "NFD"):
                text = text.replace(normalize(form, name), name)
    return text


def compose_names(names: Collection[str]) -> dict[str, str]:
    """Return each name -> its spelling with fewest characters (NFC), or itself where two names have the same one."""
    composed = [normalize("NFC", name) for name in names]
    return {name: short if composed.count(short) == 1 else name for name, short in zip(names, composed, strict=True)}
