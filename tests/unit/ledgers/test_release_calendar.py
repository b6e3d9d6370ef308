"""The calendar of a data set, from its rows in the ledger: every period until now, and where it stands."""

from __future__ import annotations

import datetime as dt

from privsyn.ledgers.released_periods import PeriodRow, RefusalRow, build_calendar

NOW = dt.datetime(2026, 11, 20, tzinfo=dt.UTC)
WHEN = "2026-08-01T00:00:00"


def states(*events: tuple[str, str], refused: tuple[str, ...] = (), last: int = 12) -> dict[str, str]:
    rows = [PeriodRow(i, "people", WHEN, "", "", p, f"run-{p}", e) for i, (p, e) in enumerate(events)]
    refusals = [RefusalRow(i, name, WHEN, "", "", p) for i, p in enumerate(refused) for name in ("people", "others")]
    return {day.period: day.state for day in build_calendar("people", rows, refusals, NOW, last)}


JULY = [("2026-07", "begin"), ("2026-07", "release")]
SEPTEMBER = [("2026-09", "begin")]


def test_every_period_from_the_first_to_the_current_one_has_its_state() -> None:
    assert states(*JULY, *SEPTEMBER) == {
        "2026-07": "released",
        "2026-08": "missed",
        "2026-09": "begun",
        "2026-10": "missed",
        "2026-11": "current",
    }


def test_only_what_the_budget_refused_is_called_so_and_a_later_release_outweighs_it() -> None:
    assert states(*JULY, *SEPTEMBER, refused=("2026-10", "2026-09", "2026-07")) == {
        "2026-07": "released",
        "2026-08": "missed",
        "2026-09": "begun",
        "2026-10": "refused",
        "2026-11": "current",
    }
    assert states(refused=("2026-10",)) == {"2026-10": "refused", "2026-11": "current"}


def test_only_the_last_periods_of_each_length_are_shown_and_an_early_one_is_not_lost() -> None:
    early = [("2026-12", "begin"), ("2026-12", "release")]
    assert states(*JULY, *early, last=3) == {"2026-10": "missed", "2026-11": "current", "2026-12": "released"}
    days = states(*JULY, ("2026-11-19", "begin"), last=2)
    assert days == {"2026-11-19": "begun", "2026-11-20": "current", "2026-10": "missed", "2026-11": "current"}


def test_a_data_set_without_periods_has_no_calendar() -> None:
    assert states() == {}
