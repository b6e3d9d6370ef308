"""Refusals in the ledger: the periods of a data set whose release the budget has refused, each once.

A refusal spends nothing.  It tells a period that was asked for in vain from one that nobody asked for.  Rows are only
ever added, and hashed in a chain of their own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sqlalchemy.engine import Connection

from privsyn.ledgers.audit import Dataset, Entry
from privsyn.ledgers.chains import ChainedRow, append_row, audit_chain, list_chain

TABLE = "refusals"


@dataclass(frozen=True)
class RefusalRow(ChainedRow):
    """The first refusal of a period, and its place in the chain."""

    period: str


def list_refusals(connection: Connection, dataset: str | None = None) -> list[RefusalRow]:
    """Return the rows, oldest first; the table must be there."""
    return list_chain(connection, TABLE, RefusalRow, dataset)


def note_refusal(connection: Connection, dataset: str, period: str, now: str) -> None:
    """Add a period's refusal, once; the caller's transaction holds the ledger's lock."""
    if not any(row.period == period for row in list_refusals(connection, dataset)):
        append_row(connection, TABLE, RefusalRow(0, dataset, now, "", "", period))


def audit_refusals(
    connection: Connection, *, present: bool, entries: Sequence[Entry], datasets: Mapping[str, Dataset]
) -> list[str]:
    """Return everything that is wrong with the refusals, in sentences; ``present``: whether their table is there."""
    return audit_chain(connection, TABLE, list_refusals(connection), datasets) if present else []
