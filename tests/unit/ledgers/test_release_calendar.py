"""The calendar of a data set, from its rows in the ledger: every period until now, and where it stands."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace
from fractions import Fraction

from privsyn.data_contracts.promise import Guarantee
from privsyn.ledgers.dataset_summary import DatasetSummary
from privsyn.ledgers.release_calendar import build_calendar
from privsyn.ledgers.released_periods import PeriodRow

NOW = dt.datetime(2026, 11, 20, tzinfo=dt.UTC)
SUMMARY = DatasetSummary(
    "people", Guarantee(epsilon=4, delta=1e-9), Fraction(4), Fraction(2), 6, "2026-01-01", "tight", Fraction(1)
)


def rows(*events: tuple[str, str]) -> list[PeriodRow]:
    return [PeriodRow(i, "people", "2026-08-01T00:00:00", "", "", p, f"run-{p}", e) for i, (p, e) in enumerate(events)]


def states(summary: DatasetSummary, *events: tuple[str, str], last: int = 12) -> dict[str, str]:
    return {day.period: day.state for day in build_calendar(summary, rows(*events), NOW, last)}


JULY = [("2026-07", "begin"), ("2026-07", "release")]
SEPTEMBER = [("2026-09", "begin")]


def test_every_period_from_the_first_to_the_current_one_has_its_state() -> None:
    assert states(SUMMARY, *JULY, *SEPTEMBER) == {
        "2026-07": "released",
        "2026-08": "missed",
        "2026-09": "begun",
        "2026-10": "missed",
        "2026-11": "current",
    }


def test_what_comes_after_the_last_release_is_refused_where_the_cap_has_no_room_for_another() -> None:
    full = replace(SUMMARY, rho=Fraction(7, 2))
    assert states(full, *JULY, *SEPTEMBER) == {
        "2026-07": "released",
        "2026-08": "missed",
        "2026-09": "begun",
        "2026-10": "refused",
        "2026-11": "refused",
    }


def test_only_the_last_periods_of_each_length_are_shown_and_an_early_one_is_not_lost() -> None:
    early = [("2026-12", "begin"), ("2026-12", "release")]
    assert states(SUMMARY, *JULY, *early, last=3) == {"2026-10": "missed", "2026-11": "current", "2026-12": "released"}
    days = states(SUMMARY, *JULY, ("2026-11-19", "begin"), last=2)
    assert days == {"2026-11-19": "begun", "2026-11-20": "current", "2026-10": "missed", "2026-11": "current"}


def test_a_data_set_without_periods_has_no_calendar() -> None:
    assert states(SUMMARY) == {}
