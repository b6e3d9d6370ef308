"""What went wrong with a ledger's database, in words."""

from __future__ import annotations

import re

from privsyn.base.wording import Text, mention

_PROBLEMS = (
    (
        r"no password supplied",
        "asks for a password, and none was given",
        "Write it into a file that only this user reads, and name that in "
        + mention("settings.database_password_file")
        + " (or use PostgreSQL's own .pgpass)",
    ),
    (
        r"password authentication failed",
        "refuses the user or the password",
        "Correct them in " + mention("settings.ledger") + " or " + mention("settings.database_password_file"),
    ),
    (
        r"locked|lock timeout|LockNotAvailable",
        "has been locked by another process for too long",
        "Wait for the other run, or end it, and start again",
    ),
    (
        r"readonly|read-only|permission denied|unable to open|is a directory",
        "cannot be opened for writing",
        "Give this user the right to write the file and its folder, or name another ledger in "
        + mention("settings.ledger"),
    ),
    (
        r"not a database|malformed|UnicodeDecodeError|could not decode|no such (column|table)|Undefined(Table|Column)",
        "is damaged or not a ledger",
        "Restore it from a backup; do not start a new one for data that has been released before",
    ),
    (
        r"disk is full|disk I/O|No space",
        "cannot be written: the disk is full or failing",
        "Free some space and start again",
    ),
    (r"append-only", "refused a change of its history", "Entries are only ever added"),
    (r"No module named", "needs the PostgreSQL driver", "Install privsyn-flows[postgres]"),
)


def describe_database_error(error: BaseException) -> tuple[str, Text]:
    """Return the end of a sentence about the ledger, and the cure; the error's own text is not in it."""
    text = f"{type(error).__name__} {type(getattr(error, 'orig', None)).__name__} {error}"
    for pattern, what, cure in _PROBLEMS:
        if re.search(pattern, text, re.IGNORECASE):
            return what, cure
    kind = type(getattr(error, "orig", None) or error).__name__
    return f"cannot be used ({kind})", "Check that the database is running and the address is right"
