"""Flow runs on the server: names, states in which they end, messages, logs and gauges, and nothing of the rows."""

from __future__ import annotations

import sqlite3
import time
from fractions import Fraction
from pathlib import Path
from threading import Event, Thread
from typing import Any
from uuid import UUID

import pyarrow.parquet as pq
import pytest
from prefect import flow
from prefect.client.orchestration import get_client
from prefect.client.schemas.objects import FlowRun
from prefect.flow_engine import run_flow
from prefect.logging import get_logger
from prefect.states import State
from prometheus_client.parser import text_string_to_metric_families

from privsyn.base.errors import BudgetRefusedError, PrivsynError, RequestError
from privsyn.base.settings import Settings
from privsyn.data_contracts.evaluation import EvaluationSpec
from privsyn.data_contracts.release_spec import ReleaseSpec
from privsyn.flows.budget import budget_report
from privsyn.flows.evaluate import evaluate
from privsyn.flows.private_errors import FORM
from privsyn.flows.release import log_lock_holder, release
from privsyn.flows.schedule import scheduled_release
from privsyn.ledgers.ledger import ChargeLine, Ledger
from privsyn.pipelines.one_shot import STEPS
from privsyn.storage.store import Store
from tests.support.prefect_runs import log
from tests.support.releases import few
from tests.support.specs import people_with

pytestmark = pytest.mark.usefixtures("prefect_server", "places")


@pytest.fixture
def spec(places: Path) -> ReleaseSpec:
    pq.write_table(people_with("zanzibar", 200), places / "people.parquet")
    return few(str(places / "people.parquet"))


def ended(spec: ReleaseSpec) -> tuple[State[Any], FlowRun]:
    """The state that the caller gets, and the run as the server knows it."""
    state = release(spec, return_state=True)
    flow_run = state.state_details.flow_run_id
    assert isinstance(flow_run, UUID)
    with get_client(sync_client=True) as client:
        return state, client.read_flow_run(flow_run)


def test_a_release_that_the_cap_refuses_is_refused_with_the_ledgers_figures(spec: ReleaseSpec) -> None:
    ledger = Ledger(Settings().ledger)
    ledger.register(spec.dataset, spec.budget)
    (before,) = ledger.summary()
    charge = ChargeLine("one_way_marginals", "a" * 64, before.cap_rho - Fraction(1, 10**6))
    ledger.reserve(spec.dataset, "another", [charge])
    Path(spec.data).unlink()  # nothing is read before the ledger agrees
    state, run = ended(spec)
    assert run.state is not None
    assert (run.state.name, run.state.type) == ("Refused", "FAILED")
    message = str(run.state.message)
    (after,) = ledger.summary()
    for figure in (after.epsilon, after.cap.epsilon, float(after.rho), float(after.cap_rho)):
        assert f"{figure:.4g}" in message
    for word in ("spent so far", "asked", "cap", "left"):
        assert word in message
    assert message.count("\n") == 0
    with pytest.raises(BudgetRefusedError) as refused:
        state.result()
    assert refused.value.paragraph(FORM) == message
    assert refused.value.exit_code == 3


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"period": "2026-13"}, "the field Period of the run form: '2026-13' is not a period"),
        (
            {"period": "2031-01"},
            "the field Period of the run form: 2031-01 has not begun: it begins at 2031-01-01 00:00",
        ),
        (
            {"period": "2031-01", "time_zone": "Europe/Berlin"},
            "the field Period of the run form: 2031-01 has not begun: it begins at 2031-01-01 00:00+01:00",
        ),
        ({"period": "2026-10", "early": " "}, "the field Early of the run form: is not a reason"),
        ({"time_zone": "Mars"}, "the field Time Zone of the run form: "),
    ],
)
def test_a_period_that_cannot_be_told_ends_in_one_line(
    spec: ReleaseSpec, caplog: pytest.LogCaptureFixture, asked: dict[str, str], words: str
) -> None:
    state = scheduled_release(spec, **asked, return_state=True)
    assert state.is_failed() and str(state.message).startswith(words)
    assert not any(record.exc_info for record in caplog.records)
    with pytest.raises(RequestError):
        scheduled_release.fn(spec, **asked)


def test_a_flow_releases_a_period_early_for_a_reason(spec: ReleaseSpec) -> None:
    made = scheduled_release(spec, period="2031-01", early="its file is complete")
    assert made.run.startswith("people-2031-01-")
    details = [e.detail for e in Ledger(Settings().ledger).entries() if e.event == "reserve"]
    assert {detail["early"] for detail in details} == {"its file is complete"}


def test_who_calls_the_flow_gets_the_error_itself(spec: ReleaseSpec, monkeypatch: pytest.MonkeyPatch) -> None:
    costly = few(spec.data, privacy={"epsilon": 20.0, "delta": 1e-9})
    for call in (release, release.fn):
        with pytest.raises(BudgetRefusedError, match="more than the whole lifetime cap"):
            call(costly)


def test_other_failures_keep_prefects_own_name(spec: ReleaseSpec) -> None:
    (Path(spec.data)).write_bytes(b"no table")
    _, run = ended(spec)
    assert run.state is not None
    assert (run.state.name, run.state.type) == ("Failed", "FAILED")


def on_server(state: object) -> FlowRun:
    with get_client(sync_client=True) as client:
        return client.read_flow_run(state.state_details.flow_run_id)  # type: ignore[attr-defined]


def test_a_run_has_the_release_s_name_and_its_message_says_what_came_of_it(spec: ReleaseSpec) -> None:
    with log() as lines:
        drawn = release(spec, return_state=True)
    summary = drawn.result()
    run = on_server(drawn)
    assert run.name == summary.run
    assert run.name.startswith("people-")
    message = str(run.state.message)  # type: ignore[union-attr]
    for part in (f"{summary.rows:,} rows", "epsilon 1,", "delta 1e-09", f"rho {summary.rho:.4g}", "drew one way"):
        assert part in message
    assert summary.released in message
    ended = [line for line in lines if line.startswith("Finished in state Completed")]
    assert len(ended) == len(STEPS) + 2  # a line a step, one of publishing, and the message
    again = release(spec, return_state=True)
    assert "drew nothing and cost nothing: all noise was cached" in str(again.message)
    assert again.result().run == summary.run


def test_a_refusal_is_logged_as_an_error(spec: ReleaseSpec) -> None:
    """Also where the operator keeps warnings and errors only; the run after it ends in a line of its own."""
    Path(spec.data).rename(Path(spec.data).with_name("away.parquet"))
    for level in ("INFO", "WARNING"):
        with log(levels=True, level=level) as lines:
            state = release(spec, return_state=True)
        told = [line for line in lines if "Beginning" not in line and "View at" not in line]
        assert told == [f"ERROR Finished in state {state}"]
    Path(spec.data).with_name("away.parquet").rename(spec.data)
    with log(levels=True) as lines:
        release(spec, return_state=True)
    assert any(line.startswith("INFO Finished in state Completed") for line in lines)


def test_a_refusal_is_one_line_in_a_worker_s_process_too(spec: ReleaseSpec) -> None:
    """There Prefect raises the run's error once more, and logs it with all its places in the code."""
    asked = few(spec.data, privacy={"epsilon": 20.0, "delta": 1e-9})
    with log() as lines, pytest.raises(PrivsynError):
        run_flow(release, parameters={"spec": asked}, error_logger=get_logger("prefect.flow_runs"))
    told = [line for line in lines if not line.startswith(("Beginning", "View at"))]
    assert len(told) == 1 and "Refused" in told[0], told
    with log() as lines, pytest.raises(ZeroDivisionError):
        run_flow(flow(lambda: 1 / 0, name="wrong"), error_logger=get_logger("prefect.flow_runs"))
    assert "Traceback" in "".join(lines)  # what no state has told


def test_a_run_that_waits_says_for_which_one(spec: ReleaseSpec) -> None:
    settings, held, free = Settings(), Event(), Event()
    spec = spec.model_copy(update={"dataset": "apart"})  # which no other test's run releases

    @flow(name="holds", flow_run_name="people-0a1b2c3d")
    def holds(spec: ReleaseSpec) -> None:
        store = Store(settings.private_root, settings.released_root, spec.dataset)
        with store.lock(f"release-{spec.dataset}"):
            held.set()
            assert free.wait(60)

    @flow(name="waits")
    def waits(dataset: str) -> None:
        log_lock_holder(dataset, settings)

    holder = Thread(target=holds, args=(spec,))
    holder.start()
    try:
        assert held.wait(60)
        with log() as lines:
            waits("apart")
            waits("others")
    finally:
        free.set()
        holder.join()
    said = [line for line in lines if "Waiting" in line]
    assert said == ["Waiting for the run people-0a1b2c3d, which holds apart."]
    with log() as lines:
        waits("apart")
    assert [line for line in lines if "Waiting" in line] == []


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
