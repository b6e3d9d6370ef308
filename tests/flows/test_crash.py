"""Killed at any moment, a release run again completes: one charge and one draw a release step, no half-written file.

A child process is told where to kill itself (SIGKILL: no handler runs, nothing is cleaned up); the same
request then runs again here.  Children are forked from a server that has only imported modules.
"""

from __future__ import annotations

import functools
import os
import random
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from data_contracts.domain import Domain
from data_contracts.spec import Guarantee, ReleaseSpec
from flows.direct import release_directly
from flows.errors import BudgetRefusedError
from flows.ledger import Ledger
from flows.publish import ReleaseSummary, is_whole
from flows.records import Records
from flows.settings import Settings
from flows.step import Inputs, ReleaseStep, Request
from flows.steps import STEPS
from flows.store import Store
from tasks.compress_domain import coarse_domain, recode_from_table
from tasks.kernels.counting import CodeTable
from tasks.noisy import answers_from_table, receipts_from_table
from tasks.privacy.accountant import rho_for
from tasks.privacy.noise import OpenDPNoise
from tests.specs import COLUMNS, make_spec, people

PLACES: dict[str, tuple[Any, str]] = {
    "reserve": (Ledger, "reserve"),
    "settle": (Ledger, "settle"),
    "draw": (OpenDPNoise, "draw"),
    "keep_noise": (Records, "keep_noise"),
    "read_rows": (ReleaseStep, "read_rows"),
    "write_table": (Store, "write_table"),
    "save": (Records, "save"),
    "discard_noise": (Records, "discard_noise"),
    "publish": (Store, "publish"),
    "add_released": (Store, "add_released"),
    "swap": (Store, "_swap"),
    "rename": (Path, "replace"),
    "move": (Path, "rename"),
}
"""Where a child can be told to die: before or after the n-th call.  ``rename`` ends the writing of every file."""

RELEASES = [step for step in STEPS if isinstance(step, ReleaseStep)]


@dataclass(frozen=True)
class Kill:
    """Die ``when`` the ``nth`` call of a place is made (from 1)."""

    place: str
    nth: int
    when: str

    def __str__(self) -> str:
        return f"{self.when}-{self.place}-{self.nth}"


def plant(kill: Kill) -> None:
    """Make this very process kill itself there."""
    owner, name = PLACES[kill.place]
    function = getattr(owner, name)
    calls = iter(range(1, 10**9))

    @functools.wraps(function)
    def deadly(*args: Any, **kwargs: Any) -> Any:
        is_the_one = next(calls) == kill.nth
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
    release_directly(ReleaseSpec.model_validate_json(spec), Settings(), fresh=fresh)


@pytest.fixture
def spec(places: Path, save: Callable[..., str]) -> ReleaseSpec:
    return make_spec(
        {name: COLUMNS[name] for name in ("age", "region", "happy", "caseid")},
        data=save(people(400).select(["age", "region", "happy", "caseid"])),
        privacy={"epsilon": 3.0, "delta": 1e-9},
        budget={"epsilon": 3.0, "delta": 1e-9},  # room for one release only
        synthesis={"iterations": 2},
    )


def start(children: Any, spec: ReleaseSpec, kill: Kill | None = None, *, fresh: bool = False) -> Any:
    environment = {name: os.environ[name] for name in ("PRIVSYN_OUT", "PRIVSYN_LEDGER")}
    process = children.Process(target=child, args=(spec.model_dump_json(), environment, kill, fresh))
    process.start()
    return process


def killed(children: Any, spec: ReleaseSpec, kill: Kill, *, fresh: bool = False) -> None:
    """A child was really killed there: a place that is never reached is a mistake of the test."""
    process = start(children, spec, kill, fresh=fresh)
    process.join()
    assert process.exitcode == -signal.SIGKILL, f"{kill} was not reached"


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


def exact_counts(step: ReleaseStep, key: str) -> list[Any]:
    """The exact answers to the queries of a finished step, counted anew."""
    queries = receipts_from_table(of_step(step.name, key, "receipts"))
    recode = recode_from_table(the_one("compress_domain", "recode"))
    domain = coarse_domain(recode) if step.padded else Domain.of({a: len(r.coarse) for a, r in recode.items()})
    rows = the_one(*step.rows.split("."))
    request = Request(make_spec(), (), lambda: ())
    inputs = Inputs({"compress_domain.recode": lambda: the_one("compress_domain", "recode")})
    table = CodeTable.from_arrow(rows.to_batches(), domain, padded=step.padded)
    return list(step.exact(request, inputs, table, queries))


def check_money(releases: int = 1) -> None:
    """One reservation a release step, all spent, none given back."""
    ledger = Ledger(Settings().ledger)
    entries = ledger.entries("people")
    reserved = [entry.key for entry in entries if entry.event == "reserve"]
    held = [key for key in reserved if ledger.state("people", key) == "spent"]
    assert len(held) == len(set(held)) == 3 * releases
    assert {ledger.state("people", key) for key in reserved} <= {"spent", "cancelled"}
    assert ledger.summary("people")[0].rho == releases * rho_for(3.0, 1e-9, "gaussian")
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


def check_recovery(spec: ReleaseSpec) -> ReleaseSummary:
    """Run again after a kill: what was drawn stays, and everything else is made."""
    tables, noise = noisy_tables(), kept()
    summary = release_directly(spec, Settings())
    assert summary.rows > 0
    after = noisy_tables()
    assert tables.items() <= after.items()
    assert len(after) == 3
    for key, draws in noise.items():
        step = next(s for s in RELEASES if any(n.startswith(f"{s.name}-{key[:16]}-") for n in after))
        queries = receipts_from_table(of_step(step.name, key, "receipts"))
        noisy = answers_from_table(of_step(step.name, key, "noisy"), queries)
        drawn = answers_from_table(draws, queries)
        for answer, exact, draw in zip(noisy, exact_counts(step, key), drawn, strict=True):
            assert np.array_equal(answer, exact + draw)
        assert any(draw.any() for draw in drawn)
    check_money()
    check_files(summary)
    return summary


EACH_STAGE = [
    Kill(place, nth, when)
    for nth in (1, 2, 3)
    for place, when in (
        ("keep_noise", "before"),
        ("keep_noise", "after"),
        ("read_rows", "after"),
        ("settle", "before"),
        ("settle", "after"),
        ("discard_noise", "after"),
    )
]
ONCE = [
    Kill("reserve", 1, "before"),
    Kill("reserve", 1, "after"),
    Kill("draw", 2, "before"),
    Kill("draw", 3, "after"),
    Kill("write_table", 3, "before"),
    Kill("write_table", 3, "after"),
    Kill("write_table", 14, "before"),
    Kill("save", 1, "before"),
    Kill("save", 3, "after"),
    Kill("save", 5, "before"),
    Kill("save", 5, "after"),
    Kill("save", 16, "before"),
    Kill("publish", 1, "after"),
    Kill("add_released", 4, "after"),
    Kill("move", 1, "before"),
]
WRITES = [Kill("rename", nth, "before") for nth in range(1, 32)]
LONG = {kill for kill in [*EACH_STAGE, *WRITES] if kill.nth not in (1, 3, 14, 24)}


ALL = [*ONCE, *(pytest.param(k, marks=pytest.mark.slow) if k in LONG else k for k in [*EACH_STAGE, *WRITES])]


@pytest.mark.parametrize("kill", ALL, ids=str)
def test_a_release_survives_a_kill(children: Any, spec: ReleaseSpec, kill: Kill) -> None:
    killed(children, spec, kill)
    check_recovery(spec)


def test_the_kept_noise_is_the_noise_of_the_table(children: Any, spec: ReleaseSpec) -> None:
    """Killed after the look of each stage: the re-run publishes the exact counts and the noise that lay there."""
    for stage in range(3):
        killed(children, spec, Kill("read_rows", 1 if stage == 0 else 2, "after"))
        assert len(kept()) == 1  # check_recovery compares it with the table
        assert len(noisy_tables()) == stage
    check_recovery(spec)


def test_killed_again_and_again_at_every_boundary(children: Any, spec: ReleaseSpec) -> None:
    for place in ("reserve", "keep_noise", "read_rows", "settle", "discard_noise", "publish"):
        killed(children, spec, Kill(place, 1, "before"))
    assert len(noisy_tables()) == 3
    check_recovery(spec)


def test_noise_that_was_drawn_but_not_kept_is_not_used(children: Any, spec: ReleaseSpec) -> None:
    """Killed while the noise is being written: nobody has looked at the data, so nothing is charged for it."""
    killed(children, spec, Kill("keep_noise", 1, "before"))
    assert kept() == {}
    assert Ledger(Settings().ledger).summary("people")[0].rho == rho_for(3.0, 1e-9, "gaussian")
    check_recovery(spec)


def test_the_checks_find_a_draw_that_is_not_kept(
    children: Any, spec: ReleaseSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The planted mutant: a re-run that ignores the kept noise and draws again."""
    killed(children, spec, Kill("read_rows", 1, "after"))
    monkeypatch.setattr(Records, "kept_noise", lambda records, key: None)
    with pytest.raises(AssertionError):
        check_recovery(spec)


def test_a_replacement_that_was_killed_leaves_the_run_whole(children: Any, spec: ReleaseSpec) -> None:
    summary = release_directly(spec, Settings())
    for moves in (1, 2):
        (Path(summary.released) / "synthetic.parquet").write_bytes(b"broken")
        killed(children, spec, Kill("move", moves, "after"))
        assert check_recovery(spec).run == summary.run


def test_fresh_noise_that_was_killed_is_taken_up_again(children: Any, spec: ReleaseSpec) -> None:
    """The same command again, with --fresh: the second release is finished, not a third one begun (or refused)."""
    spec = spec.model_copy(update={"budget": Guarantee(epsilon=4.5, delta=1e-9)})
    first = release_directly(spec, Settings())
    for kill in (
        Kill("reserve", 1, "after"),
        Kill("keep_noise", 1, "after"),
        Kill("settle", 2, "after"),
        Kill("publish", 1, "before"),
    ):
        killed(children, spec, kill, fresh=True)
    second = release_directly(spec, Settings(), fresh=True)
    assert second.run != first.run
    check_money(releases=2)
    check_files(second)
    with pytest.raises(BudgetRefusedError):
        release_directly(spec, Settings(), fresh=True)


@pytest.mark.slow
def test_a_release_survives_kills_at_random_moments(children: Any, spec: ReleaseSpec) -> None:
    """Thirty kills at random moments, spread over the time that a whole run takes."""
    started = time.monotonic()
    process = start(children, spec.model_copy(update={"dataset": "measure"}))
    process.join()
    assert process.exitcode == 0
    whole = time.monotonic() - started
    moments = random.Random(5)  # noqa: S311 - moments of a test
    draws: dict[str, bytes] = {}
    for _ in range(30):
        process = start(children, spec)
        process.join(moments.random() * whole)
        process.kill()
        process.join()
        found = noisy_tables()
        assert draws.items() <= found.items()
        draws = found
    check_recovery(spec)
