"""Whether text can be written (no file can hold lone surrogates), and equal spellings of names.

This module loads nothing heavy, because every command checks its paths with it.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from typing import Any
from unicodedata import normalize

_SURROGATE = re.compile("[\ud800-\udfff]")


def is_unicode(value: Any) -> bool:
    """Return whether every text in a value, its lists and its mappings (including keys) can be written as UTF-8."""
    if isinstance(value, str):
        return value.isascii() or _SURROGATE.search(value) is None
    if isinstance(value, dict):
        return all(is_unicode(key) and is_unicode(inner) for key, inner in value.items())
    return all(map(is_unicode, value)) if isinstance(value, list | tuple) else True


def adopt_names(names: Sequence[str], known: Collection[str]) -> tuple[str, ...]:
    """Return the names in the spelling of the ``known`` names, if they are equal by Unicode normalization (NFC).

    A known name stays, and so does a name whose known spelling is another name of the table.
    """
    if all(map(str.isascii, names)):
        return tuple(names)
    there = {*names}
    spellings = {normalize("NFC", name): name for name in known if name not in there}
    return tuple(name if name in known else spellings.get(normalize("NFC", name), name) for name in names)


def adopt_spellings(text: str, known: Collection[str]) -> str:
    """Return a text with the ``known`` names in their known spelling, replacing their NFC and NFD forms."""
    if not text.isascii():
        for name in known:
            for form in ("NFC", "NFD"):
                text = text.replace(normalize(form, name), name)
    return text


def compose_names(names: Collection[str]) -> dict[str, str]:
    """Map each name to its shortest spelling (NFC), or to itself if two names share one."""
    composed = [normalize("NFC", name) for name in names]
    return {name: short if composed.count(short) == 1 else name for name, short in zip(names, composed, strict=True)}
