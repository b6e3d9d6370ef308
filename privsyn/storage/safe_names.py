"""Names that are safe as parts of a path."""

from __future__ import annotations

import re

from privsyn.base.errors import RequestError

SAFE_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,80}")


def make_safe_name(name: str, field: str = "") -> str:
    """``name`` if it is safe as part of a path: small letters, digits, - and _; RequestError otherwise."""
    if not SAFE_NAME.fullmatch(name):
        cure = "Use small letters, digits, - and _, at most 81, a letter or digit first"
        raise RequestError(f"{name!r} is not a name for a file", cure, field)
    return name
