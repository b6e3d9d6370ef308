"""What went wrong with a ledger's database, in words that hold nothing of the driver's own text."""

from __future__ import annotations

import re
from dataclasses import dataclass

from privsyn.base.errors import LedgerError
from privsyn.base.wording import Text, mention


class DatabaseGoneError(LedgerError):
    """The database does not answer, or broke a connection off: it may be starting again."""


@dataclass(frozen=True)
class _Problem:
    """What an error of this ``pattern`` is called, and its cure where the ledger is a file and where it is not."""

    pattern: str
    words: str
    file_cure: Text
    server_cure: Text


_ADDRESS = mention("settings.ledger")
_RESTORE = "Restore it from a backup; do not start a new one for data that has been released before"
_GONE = (
    r"connection refused|starting up|shutting down|in recovery mode|terminating connection|server closed the connection"
    r"|connection is (lost|closed)|running locally and accepting|connection timeout|ConnectionTimeout|AdminShutdown"
    r"|CannotConnectNow|consuming input failed|connection reset"
)
_PROBLEMS = (
    _Problem(
        r"no password supplied",
        "asks for a password, and none was given",
        "",
        "Write it into a file that only this user reads, and name that in "
        + mention("settings.database_password_file")
        + " (or use PostgreSQL's own .pgpass)",
    ),
    _Problem(
        r"password authentication failed|role \"[^\"]*\" does not exist|no pg_hba.conf entry",
        "refuses the user or the password",
        "",
        "Correct them in " + _ADDRESS + " or " + mention("settings.database_password_file"),
    ),
    _Problem(
        r"certificate|SSL (is not enabled|error|connection)|does not support SSL",
        "cannot be reached as safely as its address asks",
        "",
        "Look at sslmode in " + _ADDRESS + ", at PGSSLROOTCERT and at the server's certificate",
    ),
    _Problem(
        r"translate host name|Name or service not known|failed to resolve host",
        "is on a computer that cannot be found",
        "",
        "Correct the host in " + _ADDRESS,
    ),
    _Problem(
        r"database \"[^\"]*\" does not exist",
        "is in a database that does not exist",
        "",
        "Create the database, or correct its name in " + _ADDRESS,
    ),
    _Problem(
        r"too many (connections|clients)|remaining connection slots",
        "has no connection left to give",
        "",
        "Wait for the other runs, or raise max_connections",
    ),
    _Problem(
        r"locked|lock timeout|LockNotAvailable",
        "has been locked by another process for too long",
        "Wait for the other run, or end it, and start again",
        "Wait for the other run, or end it, and start again",
    ),
    _Problem(
        r"permission denied|must be owner|InsufficientPrivilege",
        "refuses this user a right that it needs",
        "",
        "Let the owner of the tables make them (`privsyn ledger create`) and run ledger_role.sql again",
    ),
    _Problem(
        r"readonly|read-only|unable to open|is a directory|permission denied",
        "cannot be opened for writing",
        "Give this user the right to write the file and its folder, or name another ledger in " + _ADDRESS,
        "Name the database that takes changes in " + _ADDRESS + ", not a read-only copy of it",
    ),
    _Problem(
        r"not a database|malformed|UnicodeDecodeError|could not decode|no such (column|table)|Undefined(Table|Column)",
        "is damaged or not a ledger",
        _RESTORE,
        _RESTORE,
    ),
    _Problem(
        r"disk is full|disk I/O|No space|DiskFull",
        "cannot be written: the disk is full or failing",
        "Free some space and start again",
        "Free some space on the database's computer and start again",
    ),
    _Problem(
        r"append-only", "refused a change of its history", "Entries are only ever added", "Entries are only ever added"
    ),
    _Problem(r"No module named", "needs the PostgreSQL driver", "", "Install privsyn-flows[postgres]"),
    _Problem(
        _GONE,
        "does not answer",
        "",
        "Start the database, or correct its address in "
        + _ADDRESS
        + "; the same request then goes on where it stopped",
    ),
)


def describe_database_error(error: BaseException, *, is_file: bool) -> tuple[str, Text]:
    """Return the end of a sentence about the ledger, and the cure; ``is_file``: whether it is an SQLite file."""
    text = _join_texts(error)
    for problem in _PROBLEMS:
        cure = problem.file_cure if is_file else problem.server_cure
        if cure and re.search(problem.pattern, text, re.IGNORECASE):
            return problem.words, cure
    kind = type(getattr(error, "orig", None) or error).__name__
    if is_file:
        return f"cannot be used ({kind})", "Check that it is the right file, and that this user may write it"
    return f"cannot be used ({kind})", "Check that the database is running and the address is right"


def is_gone(error: BaseException) -> bool:
    """Return whether the database does not answer, or broke the connection off, as one does that is restarted."""
    return bool(getattr(error, "connection_invalidated", False) or re.search(_GONE, _join_texts(error), re.IGNORECASE))


def _join_texts(error: BaseException) -> str:
    return f"{type(error).__name__} {type(getattr(error, 'orig', None)).__name__} {error}"
