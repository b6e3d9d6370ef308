"""A database's reason, in words that say what to do and hold nothing of its own text."""

from __future__ import annotations

import pytest

from privsyn.base.wording import API
from privsyn.ledgers.database import describe_database_error, is_gone

ADDRESS = "postgresql://privsyn:hunter2@db.example.org/privsyn"


OF_A_SERVER = [
    ("fe_sendauth: no password supplied", "asks for a password", "PRIVSYN_DATABASE_PASSWORD_FILE"),
    ('FATAL:  password authentication failed for user "privsyn"', "refuses the user or", "PRIVSYN_LEDGER"),
    ('FATAL:  role "nobody" does not exist', "refuses the user or", "PRIVSYN_LEDGER"),
    ("permission denied for table entries", "refuses this user a right", "privsyn ledger create"),
    ("must be owner of table entries", "refuses this user a right", "ledger_role.sql"),
    ("cannot execute UPDATE in a read-only transaction", "cannot be opened for writing", "not a read-only copy"),
    ('FATAL:  database "none" does not exist', "is in a database that does not exist", "Create the database"),
    ('could not translate host name "db" to address', "cannot be found", "Correct the host"),
    ("server does not support SSL, but SSL was required", "as safely as its address asks", "sslmode"),
    ("FATAL:  sorry, too many clients already", "has no connection left", "max_connections"),
    ("could not extend file: No space left on device", "the disk is full", "database's computer"),
    ("connection failed: Connection refused", "does not answer", "Start the database"),
    ("FATAL:  the database system is starting up", "does not answer", "Start the database"),
    ("something new", "cannot be used (OSError)", "Check that the database is running"),
]
OF_A_FILE = [
    ("attempt to write a readonly database", "cannot be opened for writing", "write the file and its folder"),
    ("[Errno 13] Permission denied", "cannot be opened for writing", "write the file and its folder"),
    ("file is not a database", "is damaged or not a ledger", "Restore it from a backup"),
    ("database or disk is full", "the disk is full", "Free some space and start again"),
    ("something new", "cannot be used (OSError)", "Check that it is the right file"),
]


def said(text: str, *, is_file: bool) -> list[str]:
    error = OSError(f"connection to {ADDRESS} failed: {text}")
    return [API.text(part) for part in describe_database_error(error, is_file=is_file)]


@pytest.mark.parametrize(("text", "problem", "cure"), OF_A_SERVER)
def test_a_database_s_reason_is_named_without_the_driver_s_words(text: str, problem: str, cure: str) -> None:
    words = said(text, is_file=False)
    assert problem in words[0] and cure in words[1]
    assert "hunter2" not in " ".join(words)
    assert "the file" not in " ".join(words) and "folder" not in " ".join(words)


@pytest.mark.parametrize(("text", "problem", "cure"), OF_A_FILE)
def test_a_file_s_reason_speaks_of_files(text: str, problem: str, cure: str) -> None:
    words = said(text, is_file=True)
    assert problem in words[0] and cure in words[1]
    assert "hunter2" not in " ".join(words)


def test_only_a_database_that_may_be_starting_again_is_waited_for() -> None:
    assert {text for text, *_ in OF_A_SERVER if is_gone(OSError(text))} == {
        "connection failed: Connection refused",
        "FATAL:  the database system is starting up",
    }
