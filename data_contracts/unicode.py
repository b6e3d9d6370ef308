"""Whether text can be written at all: half characters (lone surrogates) are in no file.

Belongs here: that check, for the models of a spec and for names of files alike.  Does not belong here: what is said
where it fails.  Nothing heavy is loaded: every command checks its paths.
"""

from __future__ import annotations

import re
from typing import Any

_SURROGATE = re.compile("[\ud800-\udfff]")


def is_unicode(value: Any) -> bool:
    """Whether every text in a value, its lists and its mappings, whose keys count too, can be written as UTF-8."""
    if isinstance(value, str):
        return value.isascii() or _SURROGATE.search(value) is None
    if isinstance(value, dict):
        return all(is_unicode(key) and is_unicode(inner) for key, inner in value.items())
    return all(map(is_unicode, value)) if isinstance(value, list | tuple) else True
