"""Periods in the ledger: the run that began and the run that released each period of a data set, at most one each.

A period's life is begin -> release.  A run begins its period in the transaction that reserves its charges.  So two runs
never both draw for one period, wherever they run; a run releases the period when its folder is published.  The run that
began a period also finishes it.  Another run may begin the period again only if that costs no second charge: if the
first run no longer holds any, or the other asks for none.  Rows are only ever added, and hashed in a chain of their
own.  The charges of a period name it in their detail, and the audit compares the two.

The periods whose release the budget has refused are in the ledger, too, each once.  A refusal spends nothing.  It tells
a period that was asked for in vain from one that nobody asked for.

The calendar of a data set has each period from the first that was begun to the current one, and where it stands.
"""

from __future__ import annotations

import datetime as dt
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from sqlalchemy.engine import Connection

from privsyn.base.calendar_periods import name_next_period, name_period, parse_period
from privsyn.base.errors import LedgerError, PeriodReleasedError, RequestError
from privsyn.ledgers.audit import ChainedRow, Dataset, Entry, append_row, audit_chain, charge_states, list_chain

TABLE = "periods"


@dataclass(frozen=True)
class PeriodRow(ChainedRow):
    """One row: a run began or released a period."""

    period: str
    run: str
    event: str

    @property
    def released(self) -> bool:
        """Whether the period is released."""
        return self.event == "release"


def list_period_rows(connection: Connection, dataset: str | None = None) -> list[PeriodRow]:
    """Return the rows, oldest first; the table must exist."""
    return list_chain(connection, TABLE, PeriodRow, dataset)


def find_latest(rows: Sequence[PeriodRow], dataset: str, period: str) -> PeriodRow | None:
    """Return the latest row of a period; None if it was never begun."""
    return next((row for row in reversed(rows) if (row.dataset, row.period) == (dataset, period)), None)


def refuse_second_release(
    rows: Sequence[PeriodRow], entries: Sequence[Entry], dataset: str, period: str, run: str, *, charges: bool
) -> bool:
    """Return whether ``run`` has to begin the period; False if it has already begun it.

    ``entries``: the data set's; ``charges``: whether the run asks for new ones.  Raises PeriodReleasedError for a
    released period, RequestError if another run has begun it and holds charges for it.
    """
    stands = find_latest(rows, dataset, period)
    if stands is None:
        return True
    if stands.released:
        raise PeriodReleasedError(dataset, period, stands.run)
    if stands.run != run and charges and _holds_charges(entries, period):
        raise RequestError(
            f"the run {stands.run} has begun the period {period} of {dataset!r}, holds charges for it and is not "
            "finished; nothing was spent",
            "Finish that run: the same spec and the same private folder, and its data if they were not read yet",
            "release.period",
        )
    return stands.run != run


def _holds_charges(entries: Sequence[Entry], period: str) -> bool:
    """Return whether a charge for the period was reserved and not given back: its noise may have been drawn."""
    states = charge_states(entries)
    mine = {e.key for e in entries if e.event == "reserve" and e.detail.get("period") == period}
    return any(states[key].event != "cancel" for key in mine)


def append(connection: Connection, dataset: str, period: str, run: str, event: str, now: str) -> None:
    """Append one row to the chain; the caller's transaction holds the ledger's lock."""
    append_row(connection, TABLE, PeriodRow(0, dataset, now, "", "", period, run, event))


def close(connection: Connection, rows: Sequence[PeriodRow], dataset: str, period: str, run: str, now: str) -> None:
    """Record, once, that the period's release is published.  Raises LedgerError if the run has not begun it."""
    stands = find_latest(rows, dataset, period)
    if stands is None or stands.run != run:
        raise LedgerError(
            f"the run {run} releases the period {period} of {dataset!r}, which it has not begun",
            "Report this: a run released a period it does not hold",
        )
    if not stands.released:
        append(connection, dataset, period, run, "release", now)


def audit_periods(
    connection: Connection, *, present: bool, entries: Sequence[Entry], datasets: Mapping[str, Dataset]
) -> list[str]:
    """Return all problems of the periods, as sentences; ``present``: whether their tables exist."""
    if not present:
        return _find_uncovered_charges([], entries)
    rows = list_period_rows(connection)
    problems = audit_chain(connection, TABLE, rows, datasets)
    return problems + _order(rows) + _find_uncovered_charges(rows, entries)


def _order(rows: Sequence[PeriodRow]) -> list[str]:
    """Return violations of the order: each period is begun, and released once by the run that began it last."""
    problems: list[str] = []
    stands: dict[tuple[str, str], PeriodRow] = {}
    for row in rows:
        before = stands.get((row.dataset, row.period))
        after_release = before is not None and before.released
        unbegun = row.released and (before is None or before.run != row.run)
        if after_release or unbegun:
            problems.append(f"row {row.id} of the periods ({row.event}) does not follow from those before it")
        stands[row.dataset, row.period] = row
    return problems


def _find_uncovered_charges(rows: Sequence[PeriodRow], entries: Sequence[Entry]) -> list[str]:
    """Return charges that name a period which their run has not begun: rows are missing."""
    begun = {(row.dataset, row.period, row.run) for row in rows}
    return [
        f"entry {e.id} is a charge for the period {e.detail['period']}, which its run has not begun"
        for e in entries
        if e.event == "reserve" and "period" in e.detail and (e.dataset, e.detail["period"], e.run) not in begun
    ]


REFUSALS = "refusals"


@dataclass(frozen=True)
class RefusalRow(ChainedRow):
    """The first refusal of a period, and its place in the chain."""

    period: str


def list_refusals(connection: Connection, dataset: str | None = None) -> list[RefusalRow]:
    """Return the rows, oldest first; the table must be there."""
    return list_chain(connection, REFUSALS, RefusalRow, dataset)


def note_refusal(connection: Connection, dataset: str, period: str, now: str) -> None:
    """Add a period's refusal, once; the caller's transaction holds the ledger's lock."""
    if not any(row.period == period for row in list_refusals(connection, dataset)):
        append_row(connection, REFUSALS, RefusalRow(0, dataset, now, "", "", period))


def audit_refusals(
    connection: Connection, *, present: bool, entries: Sequence[Entry], datasets: Mapping[str, Dataset]
) -> list[str]:
    """Return everything that is wrong with the refusals, in sentences; ``present``: whether their table is there."""
    return audit_chain(connection, REFUSALS, list_refusals(connection), datasets) if present else []


PeriodState = Literal["released", "begun", "refused", "missed", "current"]

LAST = 12
"""How many periods of each length a calendar shows where nobody says."""


@dataclass(frozen=True)
class CalendarDay:
    """A period of a data set: ``run`` is empty where none began it, ``since`` (UTC, to the second) without an event."""

    dataset: str
    period: str
    state: PeriodState
    run: str = ""
    since: str = ""


def build_calendar(
    dataset: str, rows: Sequence[PeriodRow], refusals: Sequence[RefusalRow], now: dt.datetime, last: int = LAST
) -> list[CalendarDay]:
    """Return the ``last`` periods of each length that a data set has asked for, the shortest lengths first.

    ``rows`` and ``refusals``: the ledger's; ``now``: the moment, aware, whose period is the current one in UTC.
    """
    known = {row.period: _stand(row, "refused") for row in refusals if row.dataset == dataset}
    for row in rows:
        if row.dataset == dataset:
            known[row.period] = _stand(row, "released" if row.released else "begun", row.run)
    days: list[CalendarDay] = []
    for every in sorted({parse_period(period)[0] for period in known}, key=str):
        asked = sorted((p for p in known if parse_period(p)[0] == every), key=_find_start)
        current = name_period(now, every, "UTC")
        for period in deque(_iterate(asked[0], max(current, asked[-1], key=_find_start)), maxlen=last):
            unasked = CalendarDay(dataset, period, "current" if period == current else "missed")
            days.append(known.get(period, unasked))
    return days


def _find_start(period: str) -> dt.datetime:
    return parse_period(period)[1]


def _iterate(first: str, last: str) -> Iterator[str]:
    while first != last:
        yield first
        first = name_next_period(first)
    yield last


def _stand(row: PeriodRow | RefusalRow, state: PeriodState, run: str = "") -> CalendarDay:
    return CalendarDay(row.dataset, row.period, state, run, row.created[:19].replace("T", " "))
