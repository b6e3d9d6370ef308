"""Killed at any moment, a release run again completes: one charge and one draw a release step, no half-written file.

A child process is told where to kill itself (SIGKILL: no handler runs, nothing is cleaned up); the same request then
runs again here. Children are forked from a server that has made one release already. The boundaries and the release
steps are those of ``STEPS``, and the writes those that a run makes (tests/support/faults.py): what is added to a
release is killed there too.
"""

from __future__ import annotations

import contextlib
import functools
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from privsyn.base.errors import BudgetRefusedError, LedgerError
from privsyn.base.settings import Settings
from privsyn.data_contracts.promise import Guarantee
from privsyn.data_contracts.release_spec import ReleaseSpec
from privsyn.engine.execute import Run
from privsyn.engine.inputs import Inputs
from privsyn.engine.request import Request
from privsyn.engine.step import ReleaseStep, Step
from privsyn.ledgers.ledger import Ledger
from privsyn.pipelines.one_shot import STEPS
from privsyn.pipelines.registry import build_steps
from privsyn.publish.folder import ReleaseSummary, is_whole
from privsyn.storage.records import Records
from privsyn.storage.released_root import ReleasedRoot
from privsyn.storage.store import Store
from privsyn.tasks.estimation.noisy import read_answers, read_receipts
from privsyn.tasks.privacy.accountant import convert_epsilon_to_rho
from privsyn.tasks.privacy.noise import OpenDPNoise
from tests.support.faults import Site, at_every_write
from tests.support.releases import release_in_process
from tests.support.specs import COLUMNS, make_spec, people

PLACES: dict[str, tuple[Any, str]] = {
    "reserve": (Ledger, "reserve"),
    "settle": (Ledger, "settle"),
    "draw": (OpenDPNoise, "draw"),
    "keep_noise": (Records, "keep_noise"),
    "read_rows": (ReleaseStep, "read_rows"),
    "write_table": (Store, "write_table"),
    "save": (Records, "save"),
    "discard_noise": (Records, "discard_noise"),
    "publish": (ReleasedRoot, "publish"),
    "add_released": (Store, "add_released"),
    "swap": (ReleasedRoot, "_swap"),
    "execute": (Run, "execute"),
    "rename": (Path, "replace"),
    "move": (Path, "rename"),
}
"""Where a child can be told to die: before or after the n-th call.  ``rename`` ends the writing of every file."""


def list_release_steps(spec: ReleaseSpec) -> list[ReleaseStep]:
    """The release steps of this spec's mechanism, in order."""
    steps = build_steps(Request(spec, tuple(spec.released_columns)))
    return [step for step in steps if isinstance(step, ReleaseStep)]


@dataclass(frozen=True)
class Kill:
    """Die ``when`` the ``nth`` call of a place is made (from 1); with a ``step``, counted while that step runs."""

    place: str
    nth: int
    when: str
    step: str = ""

    def __str__(self) -> str:
        return f"{self.when}-{self.place}-{self.step or self.nth}"


def plant(kill: Kill) -> None:
    """Make this very process kill itself there."""
    owner, name = PLACES[kill.place]
    function, execute = getattr(owner, name), Run.execute
    calls = iter(range(1, 10**9))
    running = [""]

    @functools.wraps(execute)
    def named(shell: Run, step: Step, inputs: Any) -> Any:
        running[0] = step.name
        return execute(shell, step, inputs)

    Run.execute = named  # type: ignore[method-assign]
    if kill.place == "execute":
        function = named

    @functools.wraps(function)
    def deadly(*args: Any, **kwargs: Any) -> Any:
        step = args[1].name if kill.place == "execute" else running[0]
        is_the_one = kill.step in ("", step) and next(calls) == kill.nth
        if is_the_one and kill.when == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        result = function(*args, **kwargs)
        if is_the_one:
            os.kill(os.getpid(), signal.SIGKILL)
        return result

    setattr(owner, name, deadly)


def child(spec: str, environment: dict[str, str], kill: Kill | None, fresh: bool) -> None:
    """The process that is killed."""
    os.environ.update(environment)
    if kill is not None:
        plant(kill)
    release_in_process(ReleaseSpec.model_validate_json(spec), Settings(), fresh=fresh)


def child_of_writes(
    spec: str, environment: dict[str, str], survived: set[tuple[str, ...]], length: int, tell: Any
) -> None:
    """The process that kills itself at its first write that no other has died at, after telling which it is."""
    os.environ.update(environment)

    def die(site: Site, path: str) -> None:
        if site[:length] not in survived:
            tell.send(site)
            os.kill(os.getpid(), signal.SIGKILL)

    settings = Settings()
    with at_every_write([settings.out, Path(settings.ledger)], die):
        release_in_process(ReleaseSpec.model_validate_json(spec), settings)


@pytest.fixture
def spec(places: Path, save: Callable[..., str]) -> ReleaseSpec:
    return make_spec(
        {name: COLUMNS[name] for name in ("age", "region", "happy", "caseid")},
        data=save(people(400).select(["age", "region", "happy", "caseid"])),
        privacy={"epsilon": 3.0, "delta": 1e-9},
        budget={"epsilon": 3.0, "delta": 1e-9},  # room for one release only
        synthesis={"iterations": 2},
    )


def environment() -> dict[str, str]:
    return {name: os.environ[name] for name in ("PRIVSYN_OUT", "PRIVSYN_LEDGER")}


def start(children: Any, spec: ReleaseSpec, kill: Kill | None = None, *, fresh: bool = False) -> Any:
    process = children.Process(target=child, args=(spec.model_dump_json(), environment(), kill, fresh))
    process.start()
    return process


def killed(children: Any, spec: ReleaseSpec, kill: Kill, *, fresh: bool = False) -> None:
    """A child was really killed there: a place that is never reached is a mistake of the test."""
    process = start(children, spec, kill, fresh=fresh)
    process.join()
    assert process.exitcode == -signal.SIGKILL, f"{kill} was not reached"
    check_released_now()


def check_released_now() -> None:
    """Right after a kill: visible runs are whole, and nothing in the released root is private, hidden or not."""
    settings = Settings()
    if settings.released_root.is_dir():
        assert all(is_whole(p) for p in settings.released_root.iterdir() if not p.name.startswith("."))
        private = {p.read_bytes() for p in settings.private_root.rglob("*_rows.parquet")}
        private |= {p.read_bytes() for p in settings.private_root.rglob("noise/**/*.parquet")}
        assert not private & {p.read_bytes() for p in settings.released_root.rglob("*") if p.is_file()}


def noisy_tables() -> dict[str, bytes]:
    """The noisy tables that are on disk, by name (it holds the step and its key)."""
    return {p.name: p.read_bytes() for p in Settings().private_root.glob("store/people/*-noisy.parquet")}


def kept() -> dict[str, Any]:
    """The kept noise that is on disk, by key."""
    return {p.stem: pq.read_table(p) for p in Settings().private_root.glob("noise/people/[0-9a-f]*.parquet")}


def of_step(step: str, key: str, table: str) -> Any:
    return pq.read_table(Settings().private_root / f"store/people/{step}-{key[:16]}-{table}.parquet")


def the_one(step: str, table: str) -> Any:
    (path,) = Settings().private_root.glob(f"store/people/{step}-*-{table}.parquet")
    return pq.read_table(path)


def exact_counts(spec: ReleaseSpec, step: ReleaseStep, key: str) -> list[Any]:
    """The exact answers to the queries of a finished step, counted anew."""
    queries = read_receipts(of_step(step.name, key, "receipts"))
    request = Request(spec, tuple(spec.released_columns))
    inputs = Inputs({name: functools.partial(the_one, *name.split(".")) for name in step.inputs})
    return list(step.exact(request, inputs, step.read_rows(request, inputs), queries))


def check_money(spec: ReleaseSpec, releases: int = 1) -> None:
    """One reservation a release step that was not given back, all spent."""
    steps = list_release_steps(spec)
    ledger = Ledger(Settings().ledger)
    entries = ledger.entries("people")
    times = Counter(entry.key for entry in entries if entry.event == "reserve")
    reserved = list(times)
    times -= Counter(entry.key for entry in entries if entry.event == "cancel")  # given back, and reserved again
    held = [key for key in times.elements() if ledger.state("people", key) == "spent"]
    assert len(held) == len(set(held)) == len(steps) * releases
    assert {ledger.state("people", key) for key in reserved} <= {"spent", "cancelled"}
    assert ledger.summary("people")[0].rho == releases * convert_epsilon_to_rho(3.0, 1e-9, "tight")
    assert ledger.verify() == []


def check_files(summary: ReleaseSummary) -> None:
    """Nothing but whole runs is released, and nothing private; no noise and no half-written file is kept."""
    settings = Settings()
    folders = list(settings.released_root.iterdir())
    assert Path(summary.released) in folders
    assert all(is_whole(folder) for folder in folders), folders
    private = {p.read_bytes() for p in settings.private_root.rglob("*_rows.parquet")}
    assert private
    assert not private & {p.read_bytes() for p in settings.released_root.rglob("*.parquet")}
    assert [p for p in settings.private_root.rglob("noise/**/*") if p.is_file()] == []
    assert list(settings.private_root.rglob("*.part")) == []


def check_draw(spec: ReleaseSpec, key: str, draws: Any) -> None:
    """The noisy table of this key is the exact counts and these draws."""
    step = next(
        s for s in list_release_steps(spec) if any(n.startswith(f"{s.name}-{key[:16]}-") for n in noisy_tables())
    )
    queries = read_receipts(of_step(step.name, key, "receipts"))
    noisy = read_answers(of_step(step.name, key, "noisy"), queries)
    drawn = read_answers(draws, queries)
    for answer, exact, draw in zip(noisy, exact_counts(spec, step, key), drawn, strict=True):
        assert np.array_equal(answer, exact + draw)
    assert draws.num_rows < 10 or any(draw.any() for draw in drawn)  # of a cell or two, no noise is drawn by chance


def check_recovery(spec: ReleaseSpec) -> ReleaseSummary:
    """Run again after a kill: what was drawn stays, and everything else is made."""
    tables, noise = noisy_tables(), kept()
    summary = release_in_process(spec, Settings())
    assert summary.rows > 0
    after = noisy_tables()
    assert tables.items() <= after.items()
    assert len(after) == len(list_release_steps(spec))
    for key, draws in noise.items():
        check_draw(spec, key, draws)
    check_money(spec)
    check_files(summary)
    return summary


IN_A_RELEASE_STEP = [
    ("keep_noise", "before"),
    ("keep_noise", "after"),
    ("read_rows", "after"),
    ("write_table", "after"),
    ("settle", "before"),
    ("settle", "after"),
    ("discard_noise", "after"),
    ("execute", "after"),
]
"""Where a release step is killed, in the order in which it gets there."""

EVERY_BOUNDARY = [
    Kill(place, 1, when, step.name)
    for step in STEPS
    for place, when in (IN_A_RELEASE_STEP if isinstance(step, ReleaseStep) else [("execute", "after")])
]
ONCE = [
    Kill("reserve", 1, "before"),
    Kill("reserve", 1, "after"),
    Kill("draw", 2, "before"),
    Kill("draw", 3, "after"),
    Kill("save", 1, "before"),
    Kill("save", 3, "after"),
    Kill("publish", 1, "after"),
    Kill("add_released", 4, "after"),
    Kill("move", 1, "before"),
]
WRITES = [Kill("rename", nth, "before") for nth in range(1, 32)]
QUICK = {"before-reserve-1", "after-draw-3", "after-add_released-4"}

ALL = [*ONCE, *EVERY_BOUNDARY, *WRITES]


@pytest.mark.parametrize(
    "kill", [k if str(k) in QUICK else pytest.param(k, marks=pytest.mark.slow) for k in ALL], ids=str
)
def test_a_release_survives_a_kill(children: Any, spec: ReleaseSpec, kill: Kill) -> None:
    killed(children, spec, kill)
    check_recovery(spec)


def test_killed_at_every_boundary_and_inside_every_release_step(children: Any, spec: ReleaseSpec) -> None:
    """One run after the other, each killed a little later than the one before; the last one completes."""
    noise: dict[str, Any] = {}
    for kill in EVERY_BOUNDARY:
        before = noisy_tables()
        killed(children, spec, kill)
        assert before.items() <= noisy_tables().items(), kill
        for key, draws in kept().items():
            assert noise.setdefault(key, draws).equals(draws), kill  # the same draw until its charge is settled
    assert len(noise) == len(list_release_steps(spec))
    check_recovery(spec)
    for key, draws in noise.items():
        check_draw(spec, key, draws)


def killed_at_writes(children: Any, spec: ReleaseSpec, length: int) -> set[tuple[str, ...]]:
    """Kill run after run, each at the first write that no run was killed at, until one completes; where that was."""
    survived: set[tuple[str, ...]] = set()
    draws: dict[str, bytes] = {}
    while True:
        listen, tell = children.Pipe(duplex=False)
        arguments = (spec.model_dump_json(), environment(), survived, length, tell)
        process = children.Process(target=child_of_writes, args=arguments)
        process.start()
        tell.close()
        process.join()
        if process.exitcode == 0:
            return survived
        assert process.exitcode == -signal.SIGKILL
        survived.add(listen.recv()[:length])
        check_released_now()
        found = noisy_tables()
        assert draws.items() <= found.items()
        draws = found


@pytest.mark.slow
def test_killed_at_every_line_that_writes(children: Any, spec: ReleaseSpec) -> None:
    killed_at = killed_at_writes(children, spec, length=2)
    assert {"open", "fsync", "os.rename", "half written", "arrow write", "arrow close", "ledger"} <= {
        k for k, _ in killed_at
    }
    check_recovery(spec)


@pytest.mark.slow
def test_killed_at_every_file_that_is_written(children: Any, spec: ReleaseSpec) -> None:
    written = {name for kind, _, name in killed_at_writes(children, spec, length=3) if kind == "os.rename"}
    assert all(any(name.startswith(f".{step.name}-") for name in written) for step in STEPS)
    check_recovery(spec)


def test_the_kept_noise_is_the_noise_of_the_table(children: Any, spec: ReleaseSpec) -> None:
    """Killed after the look of each stage: the re-run publishes the exact counts and the noise that lay there."""
    for stage in range(3):
        killed(children, spec, Kill("read_rows", 1 if stage == 0 else 2, "after"))
        assert len(kept()) == 1  # check_recovery compares it with the table
        assert len(noisy_tables()) == stage
    check_recovery(spec)


def test_noise_that_was_drawn_but_not_kept_is_not_used(children: Any, spec: ReleaseSpec) -> None:
    """Killed while the noise is being written: nobody has looked at the data, so nothing is charged for it."""
    killed(children, spec, Kill("keep_noise", 1, "before"))
    assert kept() == {}
    assert Ledger(Settings().ledger).summary("people")[0].rho == convert_epsilon_to_rho(3.0, 1e-9, "tight")
    check_recovery(spec)


def test_noise_that_was_kept_for_other_queries_is_not_used(children: Any, spec: ReleaseSpec) -> None:
    """An upgrade between the crash and the re-run may plan otherwise: as many cells, another sigma."""
    killed(children, spec, Kill("read_rows", 1, "after"))
    (path,) = (Settings().private_root / "noise" / "people").glob("*.parquet")
    pq.write_table(pq.read_table(path).replace_schema_metadata({"plan": "another"}), path)
    with pytest.raises(LedgerError, match="drawn for other queries"):
        release_in_process(spec, Settings())
    assert len(kept()) == 1  # neither used nor lost
    assert noisy_tables() == {}


def test_the_checks_find_a_draw_that_is_not_kept(
    children: Any, spec: ReleaseSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The planted mutant: a re-run that ignores the kept noise and draws again."""
    killed(children, spec, Kill("read_rows", 1, "after"))
    monkeypatch.setattr(Records, "kept_noise", lambda records, key: None)
    monkeypatch.setattr(Ledger, "claim", lambda *arguments: None)  # the ledger would refuse the second draw
    with pytest.raises(AssertionError):
        check_recovery(spec)


def test_a_replacement_that_was_killed_leaves_the_run_whole(children: Any, spec: ReleaseSpec) -> None:
    summary = release_in_process(spec, Settings())
    for moves in (1, 2):
        (Path(summary.released) / "synthetic.parquet").write_bytes(b"broken")
        killed(children, spec, Kill("move", moves, "after"))
        assert check_recovery(spec).run == summary.run


def test_fresh_noise_that_was_killed_is_taken_up_again(children: Any, spec: ReleaseSpec) -> None:
    """The same command again, with --fresh: the second release is finished, not a third one begun (or refused)."""
    spec = spec.model_copy(update={"budget": Guarantee(epsilon=4.5, delta=1e-9)})
    first = release_in_process(spec, Settings())
    for kill in (
        Kill("reserve", 1, "after"),
        Kill("keep_noise", 1, "after"),
        Kill("settle", 2, "after"),
        Kill("publish", 1, "before"),
    ):
        killed(children, spec, kill, fresh=True)
    second = release_in_process(spec, Settings(), fresh=True)
    assert second.run != first.run
    check_money(spec, releases=2)
    check_files(second)
    with pytest.raises(BudgetRefusedError):
        release_in_process(spec, Settings(), fresh=True)


def time_of_a_run(children: Any, spec: ReleaseSpec, places: Path, monkeypatch: pytest.MonkeyPatch) -> float:
    """Seconds; the first child of the server is slower than all others."""
    seconds = []
    for number in range(3):
        monkeypatch.setenv("PRIVSYN_OUT", str(places / f"measure-{number}"))
        monkeypatch.setenv("PRIVSYN_LEDGER", str(places / f"measure-{number}.sqlite"))
        started = time.monotonic()
        process = start(children, spec)
        process.join()
        assert process.exitcode == 0
        seconds.append(time.monotonic() - started)
    return min(seconds)


@pytest.mark.slow
@pytest.mark.parametrize("quarter", range(4))
def test_a_release_survives_100_kills_at_random_moments(
    children: Any, spec: ReleaseSpec, places: Path, monkeypatch: pytest.MonkeyPatch, quarter: int
) -> None:
    """In each quarter 25 releases, each killed at a random moment of the time that a run takes, then run again."""
    whole = time_of_a_run(children, spec, places, monkeypatch)
    moments, deaths = random.Random(quarter), 0  # noqa: S311 - moments of a test
    for number in range(100):
        monkeypatch.setenv("PRIVSYN_OUT", str(places / f"out-{number}"))
        monkeypatch.setenv("PRIVSYN_LEDGER", str(places / f"ledger-{number}.sqlite"))
        process = start(children, spec)
        process.join(moments.random() * whole)
        process.kill()
        process.join()
        check_released_now()
        check_recovery(spec)
        shutil.rmtree(places / f"out-{number}")
        deaths += process.exitcode == -signal.SIGKILL
        if deaths == 25:
            return
    raise AssertionError(f"only {deaths} of 100 were killed before they were done")


def interrupted(spec: Path, seconds: float, numbers: Sequence[signal.Signals]) -> int:
    """A release in a process of its own, which gets these signals after so many seconds; its exit code.

    It has imported nothing yet.  Raises subprocess.TimeoutExpired for one that hangs.
    """
    command = [sys.executable, "-m", "privsyn.cli", "release", str(spec)]
    path = os.pathsep.join(sys.path)
    process = subprocess.Popen(
        command, env={**os.environ, "PYTHONPATH": path}, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(seconds)
        for number in numbers:
            process.send_signal(number)
            time.sleep(0.01)
        return process.wait(60)
    finally:
        process.kill()
        process.wait()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("part", "times"), [(0, 2), *(pytest.param(n, 125, marks=pytest.mark.slow) for n in range(1, 5))]
)
def test_a_release_survives_interrupts_at_random_moments(
    spec: ReleaseSpec, places: Path, monkeypatch: pytest.MonkeyPatch, part: int, times: int
) -> None:
    """Ctrl-C, once or twice, or SIGTERM: the release ends, holds no lock, and run again it charges nothing twice."""
    file = places / "spec.json"
    file.write_text(spec.model_dump_json(exclude_defaults=True), encoding="utf-8")
    monkeypatch.setenv("PRIVSYN_OUT", str(places / "measured"))
    monkeypatch.setenv("PRIVSYN_LEDGER", str(places / "measured.sqlite"))
    started = time.monotonic()
    assert interrupted(file, 60, ()) == 0
    whole = time.monotonic() - started
    moments, stopped = random.Random(part), 0  # noqa: S311 - moments of a test
    for number in range(times):
        monkeypatch.setenv("PRIVSYN_OUT", str(places / f"out-{number}"))
        monkeypatch.setenv("PRIVSYN_LEDGER", str(places / f"ledger-{number}.sqlite"))
        ways = [(signal.SIGINT,), (signal.SIGTERM,), (signal.SIGINT, signal.SIGINT)]
        started = time.monotonic()
        code = interrupted(file, moments.uniform(0.2, 1.0) * whole, moments.choice(ways))
        whole = min(whole, time.monotonic() - started) if code == 0 else whole  # the machine was busier before
        check_released_now()
        check_recovery(spec)
        shutil.rmtree(places / f"out-{number}")
        stopped += code != 0
    assert stopped >= max(1, times // 4)
