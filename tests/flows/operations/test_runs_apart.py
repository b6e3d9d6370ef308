"""Runs can be told apart on the server: by name, by the message of their end, by what their log says."""

from __future__ import annotations

from pathlib import Path
from threading import Event, Thread

import pyarrow.parquet as pq
import pytest
from prefect import flow
from prefect.client.orchestration import get_client
from prefect.client.schemas.objects import FlowRun
from prefect.flow_engine import run_flow
from prefect.logging import get_logger

from privsyn.base.errors import PrivsynError
from privsyn.base.settings import Settings
from privsyn.data_contracts.release_spec import ReleaseSpec
from privsyn.flows.release import log_lock_holder, release
from privsyn.pipelines.one_shot import STEPS
from privsyn.storage.store import Store
from tests.support.prefect_runs import log
from tests.support.releases import few
from tests.support.specs import people

pytestmark = pytest.mark.usefixtures("prefect_server", "places")


@pytest.fixture
def spec(places: Path) -> ReleaseSpec:
    pq.write_table(people(200), places / "people.parquet")
    return few(str(places / "people.parquet"))


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


@pytest.mark.parametrize("level", ["INFO", "WARNING"])
def test_a_refusal_is_logged_as_an_error(spec: ReleaseSpec, level: str) -> None:
    """Also where the operator keeps warnings and errors only; the run after it ends in a line of its own."""
    Path(spec.data).rename(Path(spec.data).with_name("away.parquet"))
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
