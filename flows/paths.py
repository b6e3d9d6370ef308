"""Paths as people write them: ``~`` for a home folder, and names that are text.

Belongs here: what an argument or a variable may not hold, refused with its name.  Does not belong here: where things
lie (flows/settings.py), what is in the files.
"""

from __future__ import annotations

from pathlib import Path

from data_contracts.unicode import is_unicode
from flows.errors import RequestError


def expanded(path: str | Path, field: str) -> Path:
    """The path with ``~`` as the home folder; RequestError that names ``field`` where nobody is of that name."""
    try:
        return Path(path).expanduser()
    except RuntimeError:
        problem = f"{str(path)[:200]!r} begins with the home folder of a user that is not known here"
        raise RequestError(problem, "Write the folder's whole path", field) from None


def refuse_undecodable(path: str | Path, field: str) -> None:
    """RequestError that names ``field`` for a path that is not UTF-8, which tables, records and ledger cannot name.

    Bytes of a name that are not UTF-8 stand in it as lone surrogates.
    """
    if not is_unicode(str(path)):
        raise RequestError(f"{str(path)[:200]!r} is not UTF-8 text", "Rename the file or folder", field)
