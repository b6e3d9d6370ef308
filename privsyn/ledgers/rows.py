"""Reading the rows of the ledger's tables."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from privsyn.base.errors import LedgerError
from privsyn.ledgers.audit import Dataset, Entry
from privsyn.ledgers.schema import datasets_table, entries_table


def read_entries(connection: Connection, dataset: str | None = None) -> list[Entry]:
    """Return the entries of the ledger, or of one data set, oldest first.

    Raises LedgerError for a row that cannot be read.
    """
    query = sa.select(entries_table).order_by(entries_table.c.id)
    if dataset is not None:
        query = query.where(entries_table.c.dataset == dataset)
    return [_read(Entry.from_row, row) for row in connection.execute(query).mappings()]


def read_datasets(connection: Connection) -> dict[str, Dataset]:
    """Return every data set by its name.  Raises LedgerError for a row that cannot be read."""
    rows = connection.execute(sa.select(datasets_table).order_by(datasets_table.c.name)).mappings()
    return {row["name"]: _read(Dataset.from_row, row) for row in rows}


def _read(make: Any, row: Any) -> Any:
    try:
        return make(row)
    except (ValueError, TypeError, ZeroDivisionError) as error:
        raise LedgerError("the ledger holds a row that cannot be read", "Restore it from a backup") from error
