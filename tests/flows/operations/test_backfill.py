"""`privsyn backfill`: prices first, then the periods that were missed, in order; and the calendar before and after."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from privsyn.api.ledger import LedgerView
from privsyn.base.settings import Settings
from privsyn.flows.budget import read_budgets
from privsyn.ledgers.ledger import Ledger
from tests.flows.operations.test_period_cli import SPEC as ONE_RELEASE
from tests.flows.operations.test_period_cli import write_spec
from tests.support.commands import privsyn


@pytest.fixture
def spec(places: Path) -> Path:
    return write_spec(places, ONE_RELEASE.replace("epsilon: 1.2", "epsilon: 2.2"))  # the cap fits four releases


def periods() -> list[str]:
    return [row.period for row in Ledger(Settings().ledger).periods() if row.released]


def test_what_was_missed_is_released_in_order_and_what_is_released_is_left_out(spec: Path) -> None:
    assert privsyn("release", spec, "--period", "2026-02").exit_code == 0
    done = privsyn("backfill", spec, "--from", "2026-01", "--to", "2026-04", "--yes", "--json")
    assert done.exit_code == 0, done.output
    answer = json.loads(done.stdout)
    assert answer["periods"] == dict(
        zip(("2026-01", "2026-02", "2026-03", "2026-04"), ("missed", "released", "missed", "missed"), strict=True)
    )
    assert list(answer["released"]) == ["2026-01", "2026-03", "2026-04"]
    assert periods() == ["2026-02", "2026-01", "2026-03", "2026-04"]
    again = privsyn("backfill", spec, "--from", "2026-01", "--to", "2026-04")
    assert again.exit_code == 0 and json.loads(done.stdout)["dataset"] == "people"
    assert "0 releases of epsilon 1 at delta 1e-09: 0 % of the cap" in again.stderr
    assert len(periods()) == 4


def test_the_price_of_all_is_said_before_anything_is_paid(spec: Path) -> None:
    shown = privsyn("backfill", spec, "--from", "2026-01", "--to", "2026-03", "--dry-run")
    assert shown.exit_code == 0, shown.output
    assert "3 releases of epsilon 1 at delta 1e-09: " in shown.stderr and "more release like these fits" in shown.stderr
    assert "2026-02" in shown.stdout and "is released" in shown.stdout
    asked = privsyn("backfill", spec, "--from", "2026-01", "--to", "2026-03")
    assert asked.exit_code == 2 and "--yes" in asked.stderr  # nobody is there to answer
    assert not Path(str(Settings().ledger)).exists()


def test_more_than_fits_is_refused_whole_with_the_last_period_that_fits(spec: Path) -> None:
    refused = privsyn("backfill", spec, "--from", "2026-01", "--to", "2026-09", "--yes")
    assert refused.exit_code == 3, refused.output
    assert "has room for 4 of these 9 releases" in refused.stderr and "End with 2026-04" in refused.stderr
    assert not Path(str(Settings().ledger)).exists()


@pytest.mark.parametrize(
    ("first", "last", "words"),
    [
        ("2026-01", "2031-01", "--to: 2031-01 has not begun"),
        ("2026-03", "2026-01", "--to: 2026-01 is before 2026-03"),
        ("march", "2026-01", "--from: 'march' is not a period"),
    ],
)
def test_a_wrong_range_is_refused_in_one_sentence(spec: Path, first: str, last: str, words: str) -> None:
    refused = privsyn("backfill", spec, "--from", first, "--to", last, "--yes")
    assert refused.exit_code == 2 and words in refused.stderr


def test_the_calendar_says_of_each_period_where_it_stands_on_the_command_line_in_python_and_on_the_page(
    spec: Path,
) -> None:
    assert "No data set has begun a period" in privsyn("ledger", "calendar").stderr
    assert privsyn("backfill", spec, "--from", "2026-07", "--to", "2026-07", "--yes").exit_code == 0
    assert privsyn("release", spec, "--period", "2026-09").exit_code == 0
    shown = json.loads(privsyn("ledger", "calendar", "people", "--json").stdout)
    states = {day["period"]: day["state"] for day in shown}
    assert (states["2026-07"], states["2026-08"], states["2026-09"]) == ("released", "missed", "released")
    lines = [line for line in privsyn("ledger", "calendar").stdout.splitlines() if "2026-08" in line]
    assert len(lines) == 1 and "missed" in lines[0] and "people" in lines[0]
    view = LedgerView(Settings())
    assert "2026-08  missed" in str(view.calendar()) and "<td>missed</td>" in view.calendar()._repr_html_()
    page = read_budgets(Settings().ledger).calendar
    assert {row["period"]: row["state"] for row in page} == states
    assert "ledger.last" not in privsyn("ledger", "calendar", "--last", "0").stderr
    assert "--last: 0 is not a number of periods" in privsyn("ledger", "calendar", "--last", "0").stderr
