"""Marks in the ledger: identifiers of a charge's one draw of noise and of a data set's tables, and stated reasons.

A mark is an HMAC under the key of a private root, so it reveals nothing about the noise or the table.  With that root,
one can tell whether two are the same.  Marks are only ever added, and hashed in a chain of their own.

    draw    subject: the number of a charge's reservation; text: the HMAC of its noise.  One a charge.
    table   subject: a run; text: the HMAC of its private table (privsyn/ledgers/known_tables.py).
    reason  subject: another data set with the same table; text: why the two have a budget each.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sqlalchemy.engine import Connection

from privsyn.base.errors import LedgerError
from privsyn.ledgers.audit import Dataset, Entry
from privsyn.ledgers.chains import ChainedRow, append_row, audit_chain, list_chain

TABLE = "marks"


@dataclass(frozen=True)
class Mark(ChainedRow):
    """One mark, and its place in the chain."""

    kind: str
    subject: str
    text: str


def mark_rows(connection: Connection, dataset: str | None = None) -> list[Mark]:
    """Return the marks, or one data set's, oldest first; the table must exist."""
    return list_chain(connection, TABLE, Mark, dataset)


def claim_charge(
    connection: Connection, dataset: Dataset, entries: Sequence[Entry], key: str, draw: str, now: str
) -> None:
    """Record the one draw of a reserved charge.  Idempotent.

    ``entries``: the data set's.  Raises LedgerError for another draw, and for a charge that is not reserved.
    """
    charge, last = _charge(entries, key)
    entered = _draw_of(mark_rows(connection, dataset.name), charge) if charge is not None else None
    if charge is not None and entered is not None and entered.text != draw:
        raise LedgerError(
            f"the noise of the step {charge.step!r} of {charge.run} was already drawn in another copy of this private "
            "folder; nothing was read here",
            "Continue in the folder that has drawn it, and keep one private folder a data set",
        )
    if charge is None or last != "reserve":
        raise LedgerError(
            f"the charge {key[:16]} of {dataset.name!r} is not reserved, so no noise may be drawn for it",
            "Nothing was read; run the release from its start",
        )
    if entered is None:
        append_row(connection, TABLE, Mark(0, dataset.name, now, "", "", "draw", str(charge.id), draw))


def read_draw(marks: Sequence[Mark], entries: Sequence[Entry], key: str) -> str | None:
    """Return the draw recorded for the latest charge of this key, or None.

    Both arguments are of one data set.
    """
    charge, _ = _charge(entries, key)
    entered = _draw_of(marks, charge) if charge is not None else None
    return None if entered is None else entered.text


def audit_marks(
    connection: Connection, *, present: bool, entries: Sequence[Entry], datasets: Mapping[str, Dataset]
) -> list[str]:
    """Return all problems of the marks, as sentences; ``present``: whether their table exists."""
    if not present:
        return []
    rows = mark_rows(connection)
    return audit_chain(connection, TABLE, rows, datasets) + _find_unfitting_draws(rows, entries)


def _charge(entries: Sequence[Entry], key: str) -> tuple[Entry | None, str]:
    """Return the latest reservation of a key, and its last event."""
    of_key = [e for e in entries if e.key == key]
    return next((e for e in reversed(of_key) if e.event == "reserve"), None), of_key[-1].event if of_key else ""


def _draw_of(marks: Sequence[Mark], charge: Entry) -> Mark | None:
    return next((m for m in marks if m.kind == "draw" and m.subject == str(charge.id)), None)


def _find_unfitting_draws(rows: Sequence[Mark], entries: Sequence[Entry]) -> list[str]:
    """Return draws without a charge, second draws of a charge, and charges given back after their noise was drawn."""
    problems: list[str] = []
    charges = {str(e.id): e for e in entries if e.event == "reserve"}
    drawn: set[tuple[str, str]] = set()
    seen: set[str] = set()
    for row in (r for r in rows if r.kind == "draw"):
        charge = charges.get(row.subject)
        if charge is None or charge.dataset != row.dataset or row.subject in seen:
            problems.append(f"row {row.id} of the marks is a draw without a charge, or a second draw of a charge")
        else:
            drawn.add((charge.dataset, row.subject))
        seen.add(row.subject)
    return problems + _list_given_back(entries, drawn)


def _list_given_back(entries: Sequence[Entry], drawn: set[tuple[str, str]]) -> list[str]:
    reserved: dict[tuple[str, str], Entry] = {}
    problems = []
    for entry in entries:
        if entry.event == "reserve":
            reserved[entry.dataset, entry.key] = entry
        charge = reserved.get((entry.dataset, entry.key))
        if entry.event == "cancel" and charge is not None and (entry.dataset, str(charge.id)) in drawn:
            problems.append(f"entry {entry.id} gives back a charge whose noise was drawn")
    return problems
