"""A copy of an SQLite ledger, taken while others write, and checked before it counts."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from privsyn.errors import LedgerError, PrivsynError, RequestError
from privsyn.ledgers.database import Database
from privsyn.ledgers.ledger import Ledger
from privsyn.storage.disk import OF_THE_DISK, in_words, replacing


def back_up(address: str, target: Path) -> int:
    """Copy the ledger at ``address`` to the new file ``target`` (mode 0600); the number of entries in the copy.

    The copy is one moment of the ledger, whatever is written meanwhile; its chain and sums are recomputed, and a copy
    that does not add up is not a backup.  Raises RequestError for a ledger in PostgreSQL and a target that exists,
    LedgerError for a ledger that is missing or does not add up; no target is left behind then.
    """
    source = Database(address, create=False)
    if not source.sqlite:
        raise RequestError(
            f"{source.name} is in PostgreSQL", "Use pg_dump, as docs/operations.md shows", "settings.ledger"
        )
    if target.exists():
        raise RequestError(f"{target} exists already", "Choose another name, or move the file away", "backup.file")
    with _in_words(target), replacing(target) as copy:
        with closing(sqlite3.connect(str(source.url.database))) as here, closing(sqlite3.connect(copy)) as there:
            here.backup(there)
        ledger = Ledger(copy, create=False)
        problems = ledger.verify()
        if problems:
            raise LedgerError(
                f"the ledger {source.name} does not add up, so no backup was made: {problems[0]}",
                "Keep the last backup; docs/operations.md says how to recover from it",
            )
        return len(ledger.entries())


@contextmanager
def _in_words(target: Path) -> Iterator[None]:
    """Raises RequestError that names ``target`` if it cannot be made; a full disk has its usual message."""
    try:
        with in_words(target):
            yield
    except PrivsynError as error:
        cause = error.__cause__
        if not isinstance(cause, OSError) or cause.errno in OF_THE_DISK:
            raise
        cure = "Choose a folder that exists and is writable"
        raise RequestError(f"cannot write {target}: {cause.strerror}", cure, "backup.file") from None
