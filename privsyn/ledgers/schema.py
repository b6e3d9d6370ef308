"""The ledger's tables, and the triggers that make them append-only."""

from __future__ import annotations

from collections.abc import Sequence

import sqlalchemy as sa

SCHEMA_VERSION = 1

metadata = sa.MetaData()


def _make_chain_table(name: str) -> sa.Table:
    """Return a table of one row: the number of rows of a chained table, and its last row's hash."""
    return sa.Table(
        name,
        metadata,
        sa.Column("id", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("rows", sa.BigInteger, nullable=False),
        sa.Column("head", sa.String(64), nullable=False),
    )


def _make_history(name: str, *own: sa.schema.SchemaItem, is_indexed: bool = False) -> sa.Table:
    """Return an append-only table: its rows, of data sets, are numbered and hashed together with the row before."""
    return sa.Table(
        name,
        metadata,
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer, "sqlite"), primary_key=True, autoincrement=False),
        sa.Column("dataset", sa.String(100), sa.ForeignKey("datasets.name"), nullable=False, index=is_indexed),
        *own,
        sa.Column("created", sa.Text, nullable=False),
        sa.Column("prev_hash", sa.String(64), nullable=False),
        sa.Column("hash", sa.String(64), nullable=False),
    )


ledger_table = sa.Table(
    "ledger",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("version", sa.Integer, nullable=False),
    sa.Column("entries", sa.BigInteger, nullable=False),
    sa.Column("head", sa.String(64), nullable=False),
)
"""One row: the schema's version, the number of entries and the last entry's hash; locked by every writer."""

datasets_table = sa.Table(
    "datasets",
    metadata,
    sa.Column("name", sa.String(100), primary_key=True),
    sa.Column("epsilon", sa.Text, nullable=False),
    sa.Column("delta", sa.Text, nullable=False),
    sa.Column("rho", sa.Text, nullable=False),
    sa.Column("created", sa.Text, nullable=False),
)
"""The lifetime cap of each data set; ``rho`` is exact, "numerator/denominator"."""

entries_table = _make_history(
    "entries",
    sa.Column("run", sa.Text, nullable=False),
    sa.Column("step", sa.Text, nullable=False),
    sa.Column("key", sa.Text, nullable=False),
    sa.Column("event", sa.String(10), nullable=False),
    sa.Column("rho", sa.Text, nullable=False),
    sa.Column("detail", sa.Text, nullable=False),
    sa.CheckConstraint("event IN ('reserve', 'spent', 'abandon', 'cancel')", name="known_event"),
    is_indexed=True,
)
"""The history, numbered 1, 2, 3 ..., each entry hashed together with its predecessor."""

periods_table = _make_history(
    "periods",
    sa.Column("period", sa.Text, nullable=False),
    sa.Column("run", sa.Text, nullable=False),
    sa.Column("event", sa.String(10), nullable=False),
    sa.CheckConstraint("event IN ('begin', 'release')", name="known_period_event"),
    sa.Index(
        "one_release_a_period",
        "dataset",
        "period",
        unique=True,
        sqlite_where=sa.text("event = 'release'"),
        postgresql_where=sa.text("event = 'release'"),
    ),
)
"""The runs that began and that released each period of a data set, chained like the entries.

Created when the first period begins: ledgers of earlier versions lack this table and the next.
"""

period_chain_table = _make_chain_table("period_chain")

marks_table = _make_history(
    "marks",
    sa.Column("kind", sa.String(10), nullable=False),
    sa.Column("subject", sa.Text, nullable=False),
    sa.Column("text", sa.Text, nullable=False),
    sa.CheckConstraint("kind IN ('draw', 'table', 'reason')", name="known_mark"),
    sa.Index(
        "one_draw_a_charge",
        "subject",
        unique=True,
        sqlite_where=sa.text("kind = 'draw'"),
        postgresql_where=sa.text("kind = 'draw'"),
    ),
)
"""The marks of draws and tables (privsyn/ledgers/known_tables.py), chained like the entries.

Ledgers of earlier versions get this table and the next with their first mark.
"""

mark_chain_table = _make_chain_table("mark_chain")

refusals_table = _make_history(
    "refusals",
    sa.Column("period", sa.Text, nullable=False),
    sa.UniqueConstraint("dataset", "period", name="one_refusal_a_period"),
)
"""The periods that the budget has refused, each once, chained like the entries.

Ledgers of versions before get this table and the next with their first refusal.
"""

refusal_chain_table = _make_chain_table("refusal_chain")

FIRST_TABLES = ("datasets", "entries")
"""The append-only tables that every ledger has."""
CHAINED_TABLES = {"periods": period_chain_table, "marks": mark_chain_table, "refusals": refusal_chain_table}
"""Later append-only table -> the table of its number of rows and last hash."""
REFUSAL = "the ledger is append-only"

_GUARD_BODY = f" BEGIN RAISE EXCEPTION '{REFUSAL}'; END "
GUARD_COUNT = {
    "sqlite": "SELECT count(*) FROM sqlite_master WHERE type = 'trigger' AND tbl_name = '{table}'",
    "postgresql": "SELECT count(*) FROM pg_trigger t JOIN pg_proc f ON f.oid = t.tgfoid "  # noqa: S608 - constants
    "WHERE t.tgname ~ '_no_(change|truncate)$' AND t.tgenabled <> 'D' AND f.prosrc = $body$" + _GUARD_BODY + "$body$ "
    "AND t.tgrelid = '{schema}.{table}'::regclass",
}
"""Query for the number of triggers that keep a table append-only."""
SQLITE_GUARDS, POSTGRES_GUARDS = 3, 2
REPLACE_REFUSED_VERSION = 1
"""SQLite's ``user_version`` of a ledger whose tables refuse REPLACE; earlier versions had no guard and left it 0."""
_UNIQUE = {
    "datasets": "name = NEW.name",
    "entries": "id = NEW.id",
    "periods": "id = NEW.id OR (NEW.event = 'release' AND event = 'release' AND dataset = NEW.dataset "
    "AND period = NEW.period)",
    "marks": "id = NEW.id OR (NEW.kind = 'draw' AND kind = 'draw' AND subject = NEW.subject)",
    "refusals": "id = NEW.id OR (dataset = NEW.dataset AND period = NEW.period)",
}
"""Append-only table -> the condition under which a new row would replace an old one."""


ARE_PERIODS_NARROW = (
    "SELECT 1 FROM information_schema.columns WHERE table_schema = '{schema}' AND table_name = 'periods' "
    "AND column_name = 'period' AND character_maximum_length IS NOT NULL"
)
WIDEN_PERIODS = "ALTER TABLE {schema}.periods ALTER COLUMN period TYPE text"
"""For a ledger in PostgreSQL of versions before, where the label of an hour was too long for its column."""


def list_sqlite_guards(names: Sequence[str]) -> list[str]:
    """Return the statements that make these tables append-only in SQLite."""
    return [
        f"CREATE TRIGGER IF NOT EXISTS {table}_no_{verb.lower()} BEFORE {verb} ON {table} "
        f"BEGIN SELECT RAISE(ABORT, '{REFUSAL}'); END"
        for table in names
        for verb in ("UPDATE", "DELETE")
    ] + [make_sqlite_replace_guard(table) for table in names]


def make_sqlite_replace_guard(table: str) -> str:
    """Return a trigger that refuses REPLACE, which deletes the old row without a DELETE trigger by default."""
    taken = f"EXISTS (SELECT 1 FROM {table} WHERE {_UNIQUE[table]})"  # noqa: S608
    return (
        f"CREATE TRIGGER IF NOT EXISTS {table}_no_replace BEFORE INSERT ON {table} WHEN {taken} "
        f"BEGIN SELECT RAISE(ABORT, '{REFUSAL}'); END"
    )


def list_postgres_guards(names: Sequence[str], schema: str) -> list[str]:
    """Return the statements that make these tables of ``schema`` append-only in PostgreSQL."""
    function = f"{schema}.privsyn_append_only()"
    return [
        f"CREATE OR REPLACE FUNCTION {function} RETURNS trigger LANGUAGE plpgsql AS $${_GUARD_BODY}$$",
        *(
            f"CREATE OR REPLACE TRIGGER {table}_no_{name} BEFORE {verbs} ON {schema}.{table} "
            f"FOR EACH {level} EXECUTE FUNCTION {function}"
            for table in names
            for name, verbs, level in (("change", "UPDATE OR DELETE", "ROW"), ("truncate", "TRUNCATE", "STATEMENT"))
        ),
    ]
