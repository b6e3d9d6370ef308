"""Releases of one request at the same time: one draws, the others wait and find it; also when the one is killed."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from privsyn.base.settings import Settings
from privsyn.data_contracts.release_spec import ReleaseSpec
from privsyn.engine.step import ReleaseStep
from privsyn.ledgers.ledger import Ledger
from privsyn.pipelines.one_shot import STEPS
from privsyn.publish.folder import is_whole
from privsyn.storage.store import Store
from tests.support.releases import release_in_process
from tests.support.specs import COLUMNS, make_spec, people

DRAWING = tuple(step.name for step in STEPS if isinstance(step, ReleaseStep))


@pytest.fixture
def spec(places: Path, save: Callable[..., str]) -> ReleaseSpec:
    """Room for one release only: a second draw would be refused."""
    guarantee = {"epsilon": 3.0, "delta": 1e-9}
    columns = {name: COLUMNS[name] for name in ("age", "region", "happy")}
    data = save(people(300).select(list(columns)))
    return make_spec(columns, data=data, privacy=guarantee, budget=guarantee, synthesis={"sweeps": 1})


def environment() -> dict[str, str]:
    return {name: os.environ[name] for name in ("PRIVSYN_OUT", "PRIVSYN_LEDGER")}


def worker(spec: str, environment: dict[str, str], start: Any, said: Any) -> None:
    os.environ.update(environment)
    start.wait()
    summary = release_in_process(ReleaseSpec.model_validate_json(spec), Settings())
    said.put((summary.run, summary.drawn))


def looks_for_ever(spec: str, environment: dict[str, str], looking: Any) -> None:
    """Draws the first noise, looks at the rows, and never comes back."""
    os.environ.update(environment)

    def look(*_: Any) -> None:
        looking.set()
        time.sleep(10_000)

    ReleaseStep.read_rows = look  # type: ignore[assignment, method-assign]
    release_in_process(ReleaseSpec.model_validate_json(spec), Settings())


def waits(spec: str, environment: dict[str, str], waiting: Any, said: Any) -> None:
    """Says when it begins to wait for the lock of the data set."""
    os.environ.update(environment)
    lock = Store.lock

    @contextlib.contextmanager
    def told(store: Store, name: str, timeout: float = -1) -> Iterator[None]:
        waiting.set()
        with lock(store, name, timeout):
            yield

    Store.lock = told  # type: ignore[method-assign]
    summary = release_in_process(ReleaseSpec.model_validate_json(spec), Settings())
    said.put((summary.run, summary.drawn))


def check_one_release(run: str) -> None:
    settings = Settings()
    ledger = Ledger(settings.ledger)
    assert [e.event for e in ledger.entries()].count("reserve") == len(DRAWING)
    assert {ledger.state("people", e.key) for e in ledger.entries()} == {"spent"}
    assert ledger.verify() == []
    assert [p.name for p in settings.released_root.iterdir()] == [run]
    assert is_whole(settings.released_root / run)


def test_of_four_at_once_one_draws_and_the_others_find_it(children: Any, spec: ReleaseSpec) -> None:
    start, said = children.Event(), children.SimpleQueue()
    arguments = (spec.model_dump_json(), environment(), start, said)
    four = [children.Process(target=worker, args=arguments) for _ in range(4)]
    for process in four:
        process.start()
    start.set()
    answers = [said.get() for _ in four]
    for process in four:
        process.join()
        assert process.exitcode == 0
    assert len({run for run, _ in answers}) == 1
    assert sorted(drawn for _, drawn in answers) == [(), (), (), DRAWING]
    check_one_release(answers[0][0])


def test_a_waiting_run_takes_up_the_draw_of_one_that_is_killed(children: Any, spec: ReleaseSpec) -> None:
    looking, waiting, said = children.Event(), children.Event(), children.SimpleQueue()
    first = children.Process(target=looks_for_ever, args=(spec.model_dump_json(), environment(), looking))
    first.start()
    assert looking.wait(120)
    second = children.Process(target=waits, args=(spec.model_dump_json(), environment(), waiting, said))
    second.start()
    assert waiting.wait(120)
    (noise,) = Settings().private_root.glob("noise/people/*.parquet")
    draws = pq.read_table(noise)
    second.join(0.3)
    assert second.exitcode is None
    assert not list(Settings().private_root.glob("store/people/*-noisy.parquet"))  # it waits
    first.kill()
    first.join()
    assert first.exitcode == -signal.SIGKILL
    run, drawn = said.get()
    second.join()
    assert drawn == DRAWING
    check_one_release(run)
    (kept,) = Settings().private_root.glob("store/people/one_way_marginals-*-noisy.parquet")
    counts, exact = pq.read_table(kept), draws  # the counts of a table of zero rows would be the draw itself
    assert counts.num_rows == exact.num_rows
    total = sum(counts["count"].to_pylist()) - sum(draws["count"].to_pylist())
    assert total == 300 * len(spec.released_columns)  # every row once in each one-way: that very draw was added


@pytest.mark.slow
def test_two_commands_at_once_draw_once(spec: ReleaseSpec, places: Path) -> None:
    """As people run it, each with a Prefect server of its own."""
    content = json.loads(spec.model_dump_json())
    (places / "spec.yaml").write_text(json.dumps(content), encoding="utf-8")
    command = [sys.executable, "-m", "privsyn.cli", "release", str(places / "spec.yaml"), "--prefect", "--json"]

    def begin(name: str) -> subprocess.Popen[str]:
        home = {"PREFECT_HOME": str(places / f"prefect-{name}")}
        return subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, **home}
        )

    both = [begin("a"), begin("b")]
    ended = [process.communicate(timeout=500) for process in both]
    assert [process.returncode for process in both] == [0, 0], ended
    answers = [json.loads(out) for out, _ in ended]
    assert answers[0]["run"] == answers[1]["run"]
    words = sorted("no noise was drawn" in " ".join(shown.replace("│", " ").split()) for _, shown in ended)
    assert words == [False, True]
    check_one_release(answers[0]["run"])
