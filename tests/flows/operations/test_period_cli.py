"""``privsyn release SPEC --period P``, as a cron job calls it, and the periods in what the ledger's commands show."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from privsyn.base.settings import Settings
from privsyn.ledgers.ledger import Ledger
from tests.support.commands import privsyn
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


@pytest.fixture
def spec(places: Path) -> Path:
    pq.write_table(people(80).select(["age", "happy"]), places / "people.parquet")
    (places / "people.yaml").write_text(SPEC, encoding="utf-8")
    return places / "people.yaml"


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
    assert Ledger(Settings().ledger).summary("people")[0].rho == spent

    refused = privsyn("release", spec, "--period", "2026-12")
    assert refused.exit_code == 3
    assert "spent so far" in refused.stderr

    shown = privsyn("ledger", "show", "people").stdout
    row = next(line for line in shown.splitlines() if "2026-11" in line and "released" in line)
    assert made["run"] in row
    assert "2026-12" not in shown
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
    ],
)
def test_wrong_requests_are_refused_before_anything(spec: Path, options: list[str], words: str) -> None:
    result = privsyn("release", spec, *options)
    assert result.exit_code == 2, result.output
    assert words in result.stderr
    assert Ledger(Settings().ledger).summary() == []
