"""The calendar of a data set: each period from the first that was begun to the current one, and where it stands.

It follows from the ledger alone.  Nothing notes that a release was refused: a period that was not released is called
refused where it comes after all released ones and the cap has no room for another release like the last.
"""

from __future__ import annotations

import datetime as dt
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from privsyn.ledgers.calendar_periods import name_next_period, name_period, parse_period
from privsyn.ledgers.dataset_summary import DatasetSummary
from privsyn.ledgers.released_periods import PeriodRow

PeriodState = Literal["released", "begun", "refused", "missed", "current"]

LAST = 12
"""How many periods of each length a calendar shows where nobody says."""


@dataclass(frozen=True)
class CalendarDay:
    """A period of a data set: ``run`` and ``since`` (UTC, to the second) are empty where no run began it."""

    dataset: str
    period: str
    state: PeriodState
    run: str = ""
    since: str = ""


def build_calendar(
    summary: DatasetSummary, rows: Sequence[PeriodRow], now: dt.datetime, last: int = LAST
) -> list[CalendarDay]:
    """Return the ``last`` periods of each length that a data set has begun, the shortest lengths first.

    ``rows``: the ledger's of the data set; ``now``: the moment, aware, whose period is the current one in UTC.
    """
    stands = {row.period: row for row in rows if row.dataset == summary.dataset}
    days: list[CalendarDay] = []
    lengths = {parse_period(period)[0] for period in stands}
    for every in sorted(lengths, key=str):
        begun = sorted((p for p in stands if parse_period(p)[0] == every), key=lambda p: parse_period(p)[1])
        current = name_period(now, every, "UTC")
        until = max(current, begun[-1], key=lambda p: parse_period(p)[1])
        for period in deque(_iterate(begun[0], until), maxlen=last):
            if period in stands:
                days.append(_stand(stands[period]))
            else:
                days.append(CalendarDay(summary.dataset, period, _judge(period, current, begun[-1], summary)))
    return days


def _iterate(first: str, last: str) -> Iterator[str]:
    while first != last:
        yield first
        first = name_next_period(first)
    yield last


def _stand(row: PeriodRow) -> CalendarDay:
    state: PeriodState = "released" if row.released else "begun"
    return CalendarDay(row.dataset, row.period, state, row.run, row.created[:19].replace("T", " "))


def _judge(period: str, current: str, latest: str, summary: DatasetSummary) -> PeriodState:
    """Return where a period stands that no run began; ``latest``: the last one that one did."""
    is_full = summary.last_rho is not None and summary.remaining_rho < summary.last_rho
    if is_full and parse_period(period)[1] > parse_period(latest)[1]:
        return "refused"
    return "current" if period == current else "missed"
