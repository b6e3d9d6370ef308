"""Whether text can be written at all: no file can hold half characters (lone surrogates).

This module loads nothing heavy, because every command checks its paths with it.
"""

from __future__ import annotations

import re
from typing import Any

_SURROGATE = re.compile("[\ud800-\udfff]")


def is_unicode(value: Any) -> bool:
    """Return whether every text in a value, its lists and its mappings (keys included) can be written as UTF-8."""
    if isinstance(value, str):
        return value.isascii() or _SURROGATE.search(value) is None
    if isinstance(value, dict):
        return all(is_unicode(key) and is_unicode(inner) for key, inner in value.items())
    return all(map(is_unicode, value)) if isinstance(value, list | tuple) else True
