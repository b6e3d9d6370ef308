"""Periods on the command line: `release --period` and `backfill`, and what the ledger's commands show of them."""

from __future__ import annotations

import csv
import datetime as dt
import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from privsyn.api.ledger import LedgerView
from privsyn.api.release import propose_release
from privsyn.base.calendar_periods import name_period
from privsyn.base.errors import LedgerError, RequestError
from privsyn.base.settings import Settings
from privsyn.engine.admission import check_request
from privsyn.flows.budget import read_budgets
from privsyn.ledgers.ledger import Ledger
from privsyn.specs.spec_file import load_spec
from tests.support.commands import privsyn
from tests.support.opened import watched
from tests.support.specs import people

SPEC = """\
dataset: people
data: people.parquet
unit: {records_per_person: 1}
privacy: {epsilon: 1, delta: 1.0e-9}
budget: {epsilon: 1.2, delta: 1.0e-9}
synthesis: {sweeps: 1}
columns:
  age: {kind: integer, min: 18, max: 89, bins: 24, nullable: true}
  happy: {kind: boolean}
"""


def write_spec(places: Path, text: str) -> Path:
    """A spec and its table."""
    pq.write_table(people(80).select(["age", "happy"]), places / "people.parquet")
    (places / "people.yaml").write_text(text, encoding="utf-8")
    return places / "people.yaml"


@pytest.fixture
def spec(places: Path) -> Path:
    return write_spec(places, SPEC)


def test_a_period_is_released_once_and_then_said_to_be(spec: Path) -> None:
    first = privsyn("release", spec, "--period", "2026-11", "--json")
    assert first.exit_code == 0, first.output
    made = json.loads(first.stdout)
    assert made["run"].startswith("people-2026-11-")
    pq.write_table(people(90).select(["age", "happy"]), spec.parent / "people.parquet")
    second = privsyn("release", spec, "--period", "2026-11", "--json")
    assert second.exit_code == 0, second.output
    told = {**json.loads(second.stdout), "seconds": made["seconds"]}
    assert told == {**made, "drawn": []}
    assert f"the period 2026-11 of 'people' is released already, by the run {made['run']}" in second.stderr
    spent = Ledger(Settings().ledger).summary("people")[0].rho
    Path(made["released"]).rename(spec.parent / "given-away")
    third = privsyn("release", spec, "--period", "2026-11", "--json")
    assert (third.exit_code, json.loads(third.stdout)["run"]) == (0, made["run"])
    assert f"Its released folder is not in {Settings().released_root}" in third.stderr
    assert Ledger(Settings().ledger).summary("people")[0].rho == spent

    refused = privsyn("release", spec, "--period", "2026-09")
    assert refused.exit_code == 3
    assert "spent so far" in refused.stderr
    assert [refusal.period for refusal in Ledger(Settings().ledger).refusals("people")] == ["2026-09"]

    shown = privsyn("ledger", "show", "people").stdout
    row = next(line for line in shown.splitlines() if "2026-11" in line and "released" in line)
    assert made["run"] in row
    assert "2026-09" not in shown
    assert "Periods of" not in privsyn("ledger", "show").stdout
    rows = json.loads(privsyn("ledger", "export", "people").stdout)["periods"]
    assert [(r["period"], r["event"]) for r in rows] == [("2026-11", "begin"), ("2026-11", "release")]
    entries = list(csv.DictReader(io.StringIO(privsyn("ledger", "export", "--format", "csv").stdout)))
    periods = [json.loads(e["detail"]).get("period") for e in entries if e["event"] == "reserve"]
    assert set(periods) == {"2026-11"}
    (spec.parent / "given-away").rename(made["released"])
    assert privsyn("ledger", "verify").exit_code == 0


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--period", "November"], "--period: 'November' is not a period"),
        (["--period", ""], "--period: '' is not a period"),
        (["--period", "2026-11", "--fresh"], "fresh: a period is drawn once"),
        (["--period", "2031-01"], "--period: 2031-01 has not begun: it begins at 2031-01-01 00:00"),
        (["--period", "2031-01", "--dry-run"], "--period: 2031-01 has not begun: it begins at 2031-01-01 00:00"),
        (["--period", "2031-01", "--early", ""], "--early: is not a reason of 1 to 500 printable characters"),
        (["--early", "why"], "--early: is for a period"),
    ],
)
def test_wrong_requests_are_refused_before_anything(spec: Path, options: list[str], words: str) -> None:
    result = privsyn("release", spec, *options)
    assert result.exit_code == 2, result.output
    assert words in result.stderr
    assert Ledger(Settings().ledger).summary() == []


def test_a_quarter_of_an_hour_is_refused_nine_minutes_before_it_begins(
    spec: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Clock(dt.datetime):
        """It is 14:51."""

        @classmethod
        def now(cls, tz: dt.tzinfo | None = None) -> Clock:
            return cls(2026, 11, 28, 14, 51, tzinfo=tz)

    with monkeypatch.context() as then:
        then.setattr("privsyn.engine.checks.datetime", Clock)
        with watched(spec.parent / "people.parquet") as opened:
            refused = privsyn("release", spec, "--period", "2026-11-28T1500Z")
            assert opened() == 0
        assert refused.exit_code == 2
        for words in ("2026-11-28T1500Z has not begun: it begins at 2026-11-28 15:00 UTC", "say in --early why"):
            assert words in refused.stderr
        assert not Path(Settings().ledger).exists() and not Settings().private_root.exists()
        assert privsyn("release", spec, "--period", "2026-11-28T1445Z").exit_code == 0


@pytest.mark.parametrize("how", [[], pytest.param(["--prefect"], marks=pytest.mark.slow)])
def test_a_reason_releases_a_period_early_and_stays_in_the_ledger(spec: Path, how: list[str]) -> None:
    asked = ["release", str(spec), "--period", "2031-01", "--early", "its file is complete", "--json", *how]
    if how:  # the server that it starts ends with its process
        done = subprocess.run([sys.executable, "-m", "privsyn.cli", *asked], capture_output=True, text=True)
        code, told = done.returncode, done.stdout
    else:
        result = privsyn(*asked)
        code, told = result.exit_code, result.stdout
    assert code == 0, told
    details = [e.detail for e in Ledger(Settings().ledger).entries() if e.event == "reserve"]
    assert {detail["early"] for detail in details} == {"its file is complete"}
    shown = privsyn("ledger", "show", "people").stdout
    assert "2031-01" in shown and "before it began: its file is complete" in shown
    certificate = Path(json.loads(told)["released"]) / "certificate.json"
    assert "complete" not in certificate.read_text(encoding="utf-8")
    assert privsyn("ledger", "verify").exit_code == 0


@pytest.mark.parametrize(("written", "warned"), [("2026-09-30T23:00", True), ("2026-10-01T01:00", False)])
def test_a_file_that_is_older_than_its_period_is_said_before_it_is_paid_for(
    spec: Path, written: str, warned: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    moment = dt.datetime.fromisoformat(written).replace(tzinfo=dt.UTC).timestamp()
    os.utime(spec.parent / "people.parquet", (moment, moment))
    words = "Warning: The newest file of 'people' was written at 2026-09-30 23:00 UTC, before the period 2026-10 began"
    with monkeypatch.context() as then:
        then.setattr(Ledger, "reserve", _refuse)
        stopped = privsyn("release", spec, "--period", "2026-10")
    assert stopped.exit_code == 1 and (words in stopped.stderr) is warned
    made = privsyn("release", spec, "--period", "2026-10")
    assert made.exit_code == 0 and (words in made.stderr) is warned
    assert "newest file" not in privsyn("release", spec).stderr


def test_a_file_that_is_unchanged_since_the_last_release_is_said_before_it_is_paid_for(
    spec: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec.write_text(SPEC.replace("budget: {epsilon: 1.2", "budget: {epsilon: 5"), encoding="utf-8")
    assert "no file has changed since" not in privsyn("release", spec, "--period", "2026-09").stderr
    words = "before the release of 2026-09 began at "
    with monkeypatch.context() as then:
        then.setattr(Ledger, "reserve", _refuse)
        stopped = privsyn("release", spec, "--period", "2026-10")
    assert stopped.exit_code == 1 and words in stopped.stderr
    assert "no file has changed since. The rows of 2026-10 may not have arrived" in stopped.stderr
    os.utime(spec.parent / "people.parquet")
    made = privsyn("release", spec, "--period", "2026-10")
    assert made.exit_code == 0 and words not in made.stderr


def _refuse(*arguments: object, **options: object) -> None:
    raise LedgerError("the test stops here")


def test_a_day_begins_on_the_calendar_that_is_asked(spec: Path) -> None:
    day = name_period(dt.datetime.now(dt.UTC), "day", "Pacific/Kiritimati")
    asked = load_spec(spec)
    with pytest.raises(RequestError, match="has not begun"):
        check_request(propose_release(asked, Settings(), period=day, calendar="Etc/GMT+12"))
    check_request(propose_release(asked, Settings(), period=day, calendar="Pacific/Kiritimati"))


def test_a_refusal_that_cannot_be_noted_is_a_refusal_all_the_same(spec: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Ledger, "refuse_period", _refuse)
    assert privsyn("release", spec, "--period", "2026-06").exit_code == 0
    refused = privsyn("release", spec, "--period", "2026-08")
    assert refused.exit_code == 3 and "the test stops here" not in refused.output
    assert Ledger(Settings().ledger).refusals() == []


@pytest.fixture
def room_for_four(places: Path) -> Path:
    return write_spec(places, SPEC.replace("epsilon: 1.2", "epsilon: 2.2"))  # the cap fits four releases


def list_released() -> list[str]:
    return [row.period for row in Ledger(Settings().ledger).periods() if row.released]


def test_what_was_missed_is_released_in_order_and_what_is_released_is_left_out(room_for_four: Path) -> None:
    assert privsyn("release", room_for_four, "--period", "2026-02").exit_code == 0
    done = privsyn("backfill", room_for_four, "--from", "2026-01", "--to", "2026-04", "--yes", "--json")
    assert done.exit_code == 0, done.output
    answer = json.loads(done.stdout)
    assert answer["periods"] == dict(
        zip(("2026-01", "2026-02", "2026-03", "2026-04"), ("missed", "released", "missed", "missed"), strict=True)
    )
    assert list(answer["released"]) == ["2026-01", "2026-03", "2026-04"]
    assert list_released() == ["2026-02", "2026-01", "2026-03", "2026-04"]
    again = privsyn("backfill", room_for_four, "--from", "2026-01", "--to", "2026-04")
    assert again.exit_code == 0 and json.loads(done.stdout)["dataset"] == "people"
    assert "0 releases of epsilon 1 at delta 1e-09: 0 % of the cap" in again.stderr
    assert len(list_released()) == 4


def test_the_price_of_all_is_said_before_anything_is_paid(room_for_four: Path) -> None:
    shown = privsyn("backfill", room_for_four, "--from", "2026-01", "--to", "2026-03", "--dry-run")
    assert shown.exit_code == 0, shown.output
    assert "3 releases of epsilon 1 at delta 1e-09: " in shown.stderr and "more release like these fits" in shown.stderr
    assert "2026-02" in shown.stdout and "is released" in shown.stdout
    asked = privsyn("backfill", room_for_four, "--from", "2026-01", "--to", "2026-03")
    assert asked.exit_code == 2 and "--yes" in asked.stderr  # nobody is there to answer
    assert not Path(str(Settings().ledger)).exists()


def test_more_than_fits_is_refused_whole_with_the_last_period_that_fits(room_for_four: Path) -> None:
    refused = privsyn("backfill", room_for_four, "--from", "2026-01", "--to", "2026-09", "--yes")
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
def test_a_wrong_range_is_refused_in_one_sentence(room_for_four: Path, first: str, last: str, words: str) -> None:
    refused = privsyn("backfill", room_for_four, "--from", first, "--to", last, "--yes")
    assert refused.exit_code == 2 and words in refused.stderr


def test_the_calendar_says_of_each_period_where_it_stands_on_the_command_line_in_python_and_on_the_page(
    room_for_four: Path,
) -> None:
    assert "No data set has begun a period" in privsyn("ledger", "calendar").stderr
    assert privsyn("backfill", room_for_four, "--from", "2026-07", "--to", "2026-07", "--yes").exit_code == 0
    assert privsyn("release", room_for_four, "--period", "2026-09").exit_code == 0
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
