"""A database's reason, in words that say what to do and hold nothing of its own text."""

from __future__ import annotations

import pytest

from privsyn.ledgers.database import describe_database_error

ADDRESS = "postgresql://privsyn:hunter2@db.example.org/privsyn"


@pytest.mark.parametrize(
    ("text", "problem", "cure"),
    [
        ("fe_sendauth: no password supplied", "asks for a password", "PRIVSYN_DATABASE_PASSWORD_FILE"),
        ('FATAL:  password authentication failed for user "privsyn"', "refuses the user or", "PRIVSYN_LEDGER"),
        ("permission denied for table entries", "cannot be opened for writing", "PRIVSYN_LEDGER"),
        ("something new", "cannot be used (OSError)", "Check that the database is running"),
    ],
)
def test_the_reason_is_named_without_the_drivers_words(text: str, problem: str, cure: str) -> None:
    said = [str(part) for part in describe_database_error(OSError(f"connection to {ADDRESS} failed: {text}"))]
    assert problem in said[0] and cure in said[1]
    assert "hunter2" not in " ".join(said)
