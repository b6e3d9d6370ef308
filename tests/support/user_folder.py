"""A user's folder whose modules have the names of this project's folders, and a script that makes a release there."""

from __future__ import annotations

from pathlib import Path

COMMON_NAMES = ("tasks.py", "data_contracts.py", "flows/__init__.py", "flows/release.py", "flows/other.py")

_MODULE = """\
from pathlib import Path

OWNER = "user"
Path(__file__).with_suffix(".imported").touch()
"""

RELEASE_SCRIPT = """\
import data_contracts
import flows.release
import tasks

import privsyn

if __name__ == "__main__":
    import sys

    assert {m.OWNER for m in (tasks, data_contracts, flows, flows.release)} == {"user"}
    print(privsyn.release(None, sys.argv[1]).folder)
"""
"""Imports the user's modules by their names, then releases the spec of its argument; prints the release's folder."""


def write_modules_of_common_names(folder: Path) -> None:
    """Write COMMON_NAMES; each leaves a mark when it is imported."""
    for name in COMMON_NAMES:
        path = folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(_MODULE, encoding="utf-8")


def imported_modules(folder: Path) -> list[str]:
    """Which of them have been imported, in any process."""
    return [name for name in COMMON_NAMES if (folder / name).with_suffix(".imported").exists()]
