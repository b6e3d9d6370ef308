"""Paths as people write them: ``~`` for a home folder, and names that are text."""

from __future__ import annotations

import re
from pathlib import Path

from privsyn.base.errors import RequestError
from privsyn.data_contracts.unicode import is_unicode


def expand_path(path: str | Path, field: str) -> Path:
    """Return the path with ``~`` expanded.

    Raises RequestError that names ``field`` for an unknown user.
    """
    try:
        return Path(path).expanduser()
    except RuntimeError:
        problem = f"{str(path)[:200]!r} begins with the home folder of an unknown user"
        raise RequestError(problem, "Write the folder's whole path", field) from None


def refuse_undecodable(path: str | Path, field: str) -> None:
    """Raise RequestError that names ``field`` for a non-UTF-8 path, which tables, records and ledger cannot name.

    Non-UTF-8 bytes appear in a path as lone surrogates.
    """
    if not is_unicode(str(path)):
        raise RequestError(f"{str(path)[:200]!r} is not UTF-8 text", "Rename the file or folder", field)


SAFE_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,80}")


def make_safe_name(name: str, field: str = "") -> str:
    """Return ``name`` if it is safe in a path (lower-case letters, digits, - and _); RequestError otherwise."""
    if not SAFE_NAME.fullmatch(name):
        cure = "Use small letters, digits, - and _, at most 81, a letter or digit first"
        raise RequestError(f"{name!r} is not a valid file name", cure, field)
    return name
