"""Chains of rows beside the entries: each row is numbered and has the hash of itself and its predecessor."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, TypeVar

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from privsyn.ledgers.audit import GENESIS, Dataset, find_broken_link, format_canonically
from privsyn.ledgers.schema import CHAINED_TABLES, metadata


@dataclass(frozen=True)
class ChainedRow:
    """A row of a chain; a kind of rows adds its own columns."""

    id: int
    dataset: str
    created: str
    prev_hash: str
    hash: str


Row = TypeVar("Row", bound=ChainedRow)


def hash_row(row: ChainedRow) -> str:
    """Return the SHA-256 of a row without its own hash, as canonical JSON."""
    hashed: dict[str, Any] = {name: value for name, value in asdict(row).items() if name != "hash"}
    return hashlib.sha256(format_canonically(hashed).encode()).hexdigest()


def list_chain(connection: Connection, table: str, kind: type[Row], dataset: str | None = None) -> list[Row]:
    """Return the rows of a chain, or of one data set in it, oldest first; the table must exist."""
    columns = metadata.tables[table].c
    query = sa.select(*(columns[name] for name in kind.__dataclass_fields__)).order_by(columns.id)
    if dataset is not None:
        query = query.where(columns.dataset == dataset)
    return [kind(int(number), *values) for number, *values in connection.execute(query)]


def append_row(connection: Connection, table: str, row: ChainedRow) -> None:
    """Append a row to its chain, with its number and hashes; the transaction holds the ledger's lock."""
    chain = CHAINED_TABLES[table]
    count, head = connection.execute(sa.select(chain.c.rows, chain.c.head)).one()
    row = replace(row, id=int(count) + 1, prev_hash=str(head))
    values = {**asdict(row), "hash": hash_row(row)}
    connection.execute(metadata.tables[table].insert().values(**values))
    connection.execute(chain.update().values(rows=values["id"], head=values["hash"]))


def audit_chain(
    connection: Connection, table: str, rows: Sequence[ChainedRow], datasets: Mapping[str, Dataset]
) -> list[str]:
    """Return the problems in a chain's numbers, hashes and length, as sentences."""
    chain = CHAINED_TABLES[table]
    count, head = connection.execute(sa.select(chain.c.rows, chain.c.head)).one()
    problems = find_broken_link(rows, datasets, f"row {{}} of the {table}", hash_row)
    if len(rows) != count or (rows[-1].hash if rows else GENESIS) != head:
        problems.append(f"the ledger has {len(rows)} rows of {table}, but its own count and last hash say {count}")
    return problems
