"""Gauges for Prometheus: what they say is the ledger's, and a run that cannot write them ends well all the same."""

from __future__ import annotations

import sqlite3
import time
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from prometheus_client.parser import text_string_to_metric_families

from privsyn.base.settings import Settings
from privsyn.data_contracts.evaluation import EvaluationSpec
from privsyn.data_contracts.release_spec import ReleaseSpec
from privsyn.flows.budget import budget_report
from privsyn.flows.evaluate import evaluate
from privsyn.flows.release import release
from privsyn.ledgers.ledger import Ledger
from tests.support.releases import few
from tests.support.specs import people

pytestmark = pytest.mark.usefixtures("prefect_server", "places")


@pytest.fixture
def spec(places: Path) -> ReleaseSpec:
    pq.write_table(people(200), places / "people.parquet")
    return few(str(places / "people.parquet"))


def gauges(folder: Path) -> dict[str, float]:
    """Every gauge as a collector reads it; one that stands in two files would fail there."""
    found: dict[str, float] = {}
    for file in folder.glob("*.prom"):
        assert file.stat().st_mode & 0o777 == 0o644
        for family in text_string_to_metric_families(file.read_text()):
            for sample in family.samples:
                name = sample.name + "".join(f" {v}" for v in sample.labels.values())
                assert name not in found
                found[name] = sample.value
    return found


@pytest.mark.slow
def test_budgets_successes_and_verifications_are_told(
    spec: ReleaseSpec, places: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, folder = time.time(), places / "collector"
    monkeypatch.setenv("PRIVSYN_METRICS", str(folder))
    made = release(spec)
    budget_report()
    found = gauges(folder)
    (budget,) = Ledger(Settings().ledger).summary("people")
    assert found["privsyn_budget_left_rho people"] == float(budget.remaining_rho)
    assert found["privsyn_budget_left_epsilon people"] == budget.remaining_epsilon
    assert found["privsyn_budget_cap_rho people"] == float(budget.cap_rho)
    assert before <= found["privsyn_last_success_timestamp_seconds people"] <= time.time()
    assert before <= found["privsyn_last_verification_timestamp_seconds"] <= time.time()
    assert found["privsyn_verification_problems"] == 0
    assert len(found) == 6
    evaluate(made.run, settings=EvaluationSpec(range_queries=5, nist_schemas=2, nist_queries=2, attack_rows=20))
    assert before <= gauges(folder)["privsyn_last_run_timestamp_seconds people evaluate"] <= time.time()
    with sqlite3.connect(Settings().ledger) as connection:
        connection.execute("UPDATE ledger SET entries = 7")
    state = budget_report(return_state=True)
    assert (state.name, state.type) == ("LedgerFailed", "FAILED")
    assert gauges(folder)["privsyn_verification_problems"] > 0
    success = "privsyn_last_success_timestamp_seconds people"
    assert release(spec, return_state=True).is_failed()  # such a ledger
    assert gauges(folder)[success] == found[success]


@pytest.mark.slow
def test_a_folder_that_cannot_be_written_fails_no_run(
    spec: ReleaseSpec, places: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (places / "file").write_text("")
    monkeypatch.setenv("PRIVSYN_METRICS", str(places / "file" / "collector"))
    assert release(spec, return_state=True).is_completed()
    assert budget_report(return_state=True).is_completed()
