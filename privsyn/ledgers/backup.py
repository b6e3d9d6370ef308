"""Backup, restore and export of a ledger: a checked copy in a file, a ledger made from it, and JSON or CSV.

A copy may be taken while others write.  It is an SQLite ledger for any database, so PostgreSQL needs no other program,
and only the settings' password.
"""

from __future__ import annotations

import csv
import io
import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import asdict
from fractions import Fraction
from pathlib import Path

import sqlalchemy as sa

from privsyn.base.errors import LedgerError, PrivsynError, RequestError
from privsyn.base.wording import mention, refer_to_action
from privsyn.ledgers.audit import format_exactly
from privsyn.ledgers.database import Database
from privsyn.ledgers.ledger import Ledger
from privsyn.ledgers.schema import CHAINED_TABLES, FIRST_TABLES, ledger_table, metadata
from privsyn.storage.disk import OF_THE_DISK, replace_file, translate_os_errors


def back_up(address: str, target: Path) -> int:
    """Copy the ledger at ``address`` to the new file ``target`` (mode 0600), and return the number of entries.

    The copy is a consistent snapshot, whatever is written meanwhile.  Its chain and sums are recomputed; a copy that
    does not add up is not a backup.  Raises RequestError for an existing target, LedgerError for a ledger that is
    missing or does not add up; then no target is left behind.
    """
    source = Database(address, create=False)
    if target.exists():
        raise RequestError(f"{target} exists already", "Choose another name, or move the file away", "backup.file")
    with _translate_errors(target), replace_file(target) as copy:
        if source.sqlite:
            with (
                closing(sqlite3.connect(str(source.url.database))) as original,
                closing(sqlite3.connect(copy)) as copied,
            ):
                original.backup(copied)
        else:
            _copy_rows(source, Database(copy))
        return _verify_entries(copy, f"the ledger {source.name} does not add up, so no backup was made")


_SQLITE = b"SQLite format 3\0"
"""The first bytes of an SQLite file, and so of a backup."""


def restore(file: Path, address: str) -> int:
    """Fill the empty ledger at ``address`` from a backup, and return the number of entries.

    Raises RequestError for a missing file or a ledger that already holds data sets, LedgerError for a backup that does
    not add up; then the ledger is unchanged.
    """
    if not file.is_file():
        raise RequestError(f"{file} is not a file", "Name a backup", "backup.file")
    with translate_os_errors(file), file.open("rb") as opened:
        if opened.read(len(_SQLITE)) != _SQLITE:
            raise RequestError(f"{file} is not a backup of a ledger", "Name one", "backup.file")
    entries = _verify_entries(file, f"the backup {file} does not add up, so nothing was restored")
    target = Database(address)
    with target.read() as connection:
        if connection.execute(sa.select(sa.func.count()).select_from(metadata.tables["datasets"])).scalar_one():
            raise RequestError(
                f"the ledger {target.name} already holds data sets; nothing was changed",
                "Move it away first, or name another one in " + mention("settings.ledger"),
                "settings.ledger",
            )
    _copy_rows(Database(file, create=False), target)
    return entries


def _copy_rows(source: Database, target: Database) -> None:
    """Copy all rows of one snapshot of a ledger into an empty one, in one transaction."""
    with source.read() as from_source, target.write() as into_target:
        tables = [*FIRST_TABLES, *(name for name in CHAINED_TABLES if source.has(from_source, name))]
        for name in tables:
            if name in CHAINED_TABLES:
                target.make(into_target, name)
            rows = from_source.execute(sa.select(metadata.tables[name])).mappings().all()
            if rows:
                into_target.execute(metadata.tables[name].insert(), [dict(row) for row in rows])
        for state_table in (ledger_table, *(CHAINED_TABLES[name] for name in tables if name in CHAINED_TABLES)):
            row = from_source.execute(sa.select(state_table)).mappings().one()
            into_target.execute(state_table.update().values({k: v for k, v in row.items() if k != "id"}))


def _verify_entries(file: Path, problem: str) -> int:
    """Return the number of entries of a ledger in a file; LedgerError, with ``problem``, if it does not add up."""
    ledger = Ledger(file, create=False)
    problems = ledger.verify()
    if problems:
        raise LedgerError(f"{problem}: {problems[0]}", "Keep the last backup that does; look with " + _VERIFY)
    return len(ledger.entries())


_VERIFY = refer_to_action("verify_ledger")


@contextmanager
def _translate_errors(target: Path) -> Iterator[None]:
    """Raise RequestError that names ``target`` if it cannot be created; a full disk has its usual message."""
    try:
        with translate_os_errors(target):
            yield
    except PrivsynError as error:
        cause = error.__cause__
        if not isinstance(cause, OSError) or cause.errno in OF_THE_DISK:
            raise
        cure = "Choose a folder that exists and is writable"
        raise RequestError(f"cannot write {target}: {cause.strerror}", cure, "backup.file") from None


EXPORT_VERSION = 1
FIELDS = (
    "id",
    "created",
    "dataset",
    "run",
    "step",
    "event",
    "rho",
    "rho_decimal",
    "key",
    "detail",
    "prev_hash",
    "hash",
)


def export_json(ledger: Ledger, dataset: str | None = None) -> str:
    """Return every cap, entry and period row, with exact sums as text ("numerator/denominator")."""
    caps = [
        {
            "dataset": s.dataset,
            "epsilon": s.cap.epsilon,
            "delta": s.cap.delta,
            "rho": format_exactly(s.cap_rho),
            "created": s.created,
            "spent": format_exactly(s.rho),
        }
        for s in ledger.summary(dataset)
    ]
    content = {
        "schema_version": EXPORT_VERSION,
        "datasets": caps,
        "entries": ledger.export(dataset),
        "periods": [asdict(row) for row in ledger.periods(dataset)],
    }
    return json.dumps(content, indent=2) + "\n"


def export_csv(ledger: Ledger, dataset: str | None = None) -> str:
    """Return one line an entry; ``detail`` is JSON text, ``rho_decimal`` the nearest float to ``rho``."""
    text = io.StringIO(newline="")
    table = csv.DictWriter(text, FIELDS, lineterminator="\n")
    table.writeheader()
    for entry in ledger.export(dataset):
        detail = json.dumps(entry["detail"], sort_keys=True, separators=(",", ":"))
        table.writerow({**entry, "detail": detail, "rho_decimal": repr(float(Fraction(entry["rho"])))})
    return text.getvalue()
