"""Restrict the folder of Prefect's server, PREFECT_HOME, and its SQLite files to one account, even if they exist.

The server's history has the parameters of runs, such as paths of private tables, and the login is beside it.
"""

from __future__ import annotations

import stat
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from privsyn.base.errors import RequestError
from privsyn.storage.disk import translate_os_errors

UMASK = 0o077
"""The umask of a server, so that only its account can read its files."""

_DATABASE = "prefect.db"
_BESIDE = ("", "-wal", "-shm", "-journal")
"""Endings of the files of an SQLite database."""

_OTHERS = stat.S_IRWXG | stat.S_IRWXO


def make_home_private(home: Path, database: str = "") -> None:
    """Create or restrict the folder: mode 0700, and 0600 for the SQLite files of the server's history.

    ``database``: the URL of the history, if set; its file in another folder is restricted too, but not that folder.
    Raises RequestError if the folder or a file belongs to another account and is open to other users.
    """
    with translate_os_errors(home):
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        _restrict(home, 0o700)
        for file in _list_files(home, database):
            with suppress(FileNotFoundError):
                _restrict(file, 0o600)


def _list_files(home: Path, database: str) -> Iterator[Path]:
    """Yield the SQLite files that may exist."""
    files = [home / _DATABASE]
    if database.startswith("sqlite"):
        stated = database.partition("?")[0].partition(":///")[2]
        files += [home / stated] if stated and not stated.startswith((":", "file:")) else []
    for file in dict.fromkeys(files):
        yield from (file.with_name(file.name + ending) for ending in _BESIDE)


def _restrict(path: Path, mode: int) -> None:
    """Set ``mode`` on the path if other users have any rights on it."""
    if not path.stat().st_mode & _OTHERS:
        return
    try:
        path.chmod(mode)
    except PermissionError:
        raise RequestError(
            f"{path} belongs to another account and is open to other users, and it has to be private",
            "Name a folder of this account, or let its owner take it from others (`chmod go=`)",
            "PREFECT_HOME",
        ) from None
