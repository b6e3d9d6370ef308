"""The calendar of a data set: each period from the first that was begun to the current one, and where it stands.

It follows from the ledger alone: from the runs that began a period, and from the refusals of its budget.
"""

from __future__ import annotations

import datetime as dt
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from privsyn.base.calendar_periods import name_next_period, name_period, parse_period
from privsyn.ledgers.released_periods import PeriodRow, RefusalRow

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
