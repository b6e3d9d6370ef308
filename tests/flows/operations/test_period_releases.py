"""One release a period of a folder that grows: never two, never a second draw, refused without a look at the table."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from privsyn.base.errors import BudgetRefusedError, PeriodReleasedError, RequestError
from privsyn.base.settings import Settings
from privsyn.data_contracts.release_spec import ReleaseSpec
from privsyn.engine.open_run import open_run
from privsyn.engine.step import ReleaseStep
from privsyn.ledgers.ledger import ChargeLine, Ledger
from privsyn.pipelines.one_shot import STEPS
from privsyn.publish.folder import ReleaseSummary, is_whole
from privsyn.storage.records import Records
from privsyn.storage.released_root import ReleasedRoot
from privsyn.storage.store import Store
from privsyn.tasks.privacy.accountant import convert_epsilon_to_rho
from privsyn.tasks.privacy.noise import OpenDPNoise
from tests.support.kills import run_killed
from tests.support.opened import watched
from tests.support.releases import FEW, release_in_process, spent
from tests.support.specs import changed, make_spec, people

DRAWING = tuple(step.name for step in STEPS if isinstance(step, ReleaseStep))
ROWS = 300
"""Rows of each month's file."""


@pytest.fixture
def spec(places: Path) -> ReleaseSpec:
    """A folder with one month's file, and room for two releases and no third."""
    add_month(places, 10)
    return make_spec(
        FEW,
        data=str(places / "months"),
        privacy={"epsilon": 3.0, "delta": 1e-9},
        budget={"epsilon": 4.5, "delta": 1e-9},
        synthesis={"sweeps": 1},
    )


def add_month(places: Path, month: int) -> Path:
    path = places / "months" / f"2026-{month}.parquet"
    path.parent.mkdir(exist_ok=True)
    pq.write_table(people(ROWS, seed=month), path)
    return path


def run(spec: ReleaseSpec, period: str | None) -> ReleaseSummary:
    return release_in_process(spec, Settings(), period=period)


def ledger() -> Ledger:
    return Ledger(Settings().ledger)


def published() -> list[str]:
    return sorted(p.name for p in Settings().released_root.iterdir())


ONE = convert_epsilon_to_rho(3.0, 1e-9, "tight")


def test_one_release_a_period_until_the_cap_refuses(places: Path, spec: ReleaseSpec) -> None:
    october = run(spec, "2026-10")
    assert october.run.startswith("people-2026-10-")
    assert (october.drawn, spent()) == (DRAWING, ONE)
    files = [places / "months" / "2026-10.parquet", add_month(places, 11)]
    november = run(spec, "2026-11")
    assert november.run.startswith("people-2026-11-")
    assert (november.drawn, spent()) == (DRAWING, 2 * ONE)
    assert october.rows < 1.5 * ROWS < november.rows
    files.append(add_month(places, 12))
    with watched(*files) as opened:
        for _ in range(2):  # and every later trigger
            with pytest.raises(BudgetRefusedError, match="spent so far"):
                run(spec, "2026-09")
            with pytest.raises(PeriodReleasedError, match=november.run):  # a full budget does not hide it
                run(spec, "2026-11")
        assert opened() == 0
    assert spent() == 2 * ONE
    assert published() == [october.run, november.run]
    assert [(r.period, r.run, r.event) for r in ledger().periods()] == [
        ("2026-10", october.run, "begin"),
        ("2026-10", october.run, "release"),
        ("2026-11", november.run, "begin"),
        ("2026-11", november.run, "release"),
    ]
    assert {e.detail["period"] for e in ledger().entries() if e.event == "reserve"} == {"2026-10", "2026-11"}
    assert ledger().verify() == []


def test_a_period_is_not_released_again_whatever_changed(places: Path, spec: ReleaseSpec) -> None:
    first = run(spec, "2026-10")
    changes: list[dict[str, Any]] = [{}, {"synthesis": {"seed": 3}}, {"privacy": {"epsilon": 0.1, "delta": 1e-9}}]
    add_month(places, 11)
    for change in changes:
        with pytest.raises(PeriodReleasedError) as done:
            run(changed(spec, **change), "2026-10")
        assert (done.value.run, done.value.period) == (first.run, "2026-10")
    assert (spent(), published()) == (ONE, [first.run])


def test_each_period_draws_and_pays_though_the_table_did_not_change(spec: ReleaseSpec) -> None:
    """Else a release that does not appear would tell that nobody was added."""
    first, second = run(spec, "2026-10"), run(spec, "2026-11")
    assert (second.drawn, spent()) == (DRAWING, 2 * ONE)
    tables = [pq.read_table(Path(r.released) / "marginals" / "one_way.parquet") for r in (first, second)]
    assert not tables[0].equals(tables[1])
    assert [e.step for e in ledger().entries() if e.step == "encode"] == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("first", "second"), [("2026-11-24T13Z", "2026-11-24T14Z"), ("2026-11-24T1300Z", "2026-11-24T1315Z")]
)
def test_hours_and_quarters_of_an_hour_are_released_once_each(spec: ReleaseSpec, first: str, second: str) -> None:
    one, two = run(spec, first), run(spec, second)
    assert one.run.startswith(f"people-{first.lower()}-")
    assert (two.drawn, spent(), published()) == (DRAWING, 2 * ONE, sorted([one.run, two.run]))
    for period, released in ((first, one), (second, two)):
        with pytest.raises(PeriodReleasedError, match=released.run):
            run(spec, period)
    assert ledger().verify() == []


def test_a_release_without_a_period_is_another_request(spec: ReleaseSpec) -> None:
    run(spec, None)
    assert ledger().periods() == []
    run(spec, "2026-10")
    assert spent() == 2 * ONE
    with pytest.raises(RequestError, match="fresh: a period is drawn once"):
        release_in_process(spec, Settings(), fresh=True, period="2026-10")


KILLS: list[tuple[Any, str, str, bool]] = [
    (Ledger, "reserve", "before", False),
    (Ledger, "reserve", "after", False),
    (Store, "write_table", "before", False),  # of the encoded rows
    (OpenDPNoise, "draw", "before", True),
    (Records, "keep_noise", "after", True),
    (Ledger, "settle", "before", True),
    (ReleasedRoot, "publish", "before", True),
    (ReleasedRoot, "publish", "after", True),
    (Ledger, "release_period", "before", True),
]
"""Where a run dies: owner, method, before or after its first call, and whether its rows are encoded then."""


CASES = [(1, False), *((kill, True) for kill in range(len(KILLS))), (len(KILLS) - 1, False)]
NAMES = [f"{KILLS[k][2]}-{KILLS[k][1]}-{'changed' if c else 'same'}-data" for k, c in CASES]


@pytest.mark.parametrize(
    ("kill", "changed"),
    [*CASES[:5], *(pytest.param(*case, marks=pytest.mark.slow) for case in CASES[5:])],
    ids=NAMES,
)
def test_a_killed_period_is_finished_with_one_draw_and_one_charge(
    children: Any, places: Path, spec: ReleaseSpec, kill: int, changed: bool
) -> None:
    run_killed(children, run, spec, "2026-10", at=KILLS[kill][:3])
    before = {p.name: p.read_bytes() for p in Settings().private_root.glob("store/people/*-noisy.parquet")}
    if changed:
        add_month(places, 11)
    done = run(spec, "2026-10")
    of_encoded = changed and KILLS[kill][3]
    assert (done.rows < 1.5 * ROWS) == (not changed or of_encoded)
    assert spent() == ONE
    assert published() == [done.run]
    assert is_whole(Settings().released_root / done.run)
    assert all((Settings().private_root / "store" / "people" / n).read_bytes() == b for n, b in before.items())
    with pytest.raises(PeriodReleasedError, match=done.run):
        run(spec, "2026-10")
    assert ledger().verify() == []
    assert (ledger().period("people", "2026-10"), spent()) == (ledger().periods()[-1], ONE)


def test_lost_rows_of_a_begun_period_are_not_replaced_by_others(places: Path, spec: ReleaseSpec) -> None:
    """Its noise is drawn, its encoded rows are gone, and the table has changed: it cannot be finished any more."""
    with pytest.raises(KeyboardInterrupt):
        from privsyn.api.release import propose_release

        with open_run(propose_release(spec, Settings(), period="2026-10")) as opened:
            rows = opened.execute(STEPS[0], {})
            opened.execute(STEPS[1], {"encode": rows})
            raise KeyboardInterrupt
    for path in Settings().private_root.glob("store/people/encode-*.parquet"):
        path.unlink()
    add_month(places, 11)
    before = spent()
    with pytest.raises(RequestError, match=r"has begun the period 2026-10 .* and is not finished; nothing was spent"):
        run(spec, "2026-10")
    assert spent() <= before
    assert not published()


def at_once(spec: str, environment: dict[str, str], start: Any, said: Any) -> None:
    os.environ.update(environment)
    start.wait()
    try:
        said.put(("released", run(ReleaseSpec.model_validate_json(spec), "2026-10").run))
    except PeriodReleasedError as done:
        said.put(("before", done.run))


def test_of_two_triggers_at_once_one_releases(children: Any, spec: ReleaseSpec) -> None:
    environment = {name: os.environ[name] for name in ("PRIVSYN_OUT", "PRIVSYN_LEDGER")}
    start, said = children.Event(), children.SimpleQueue()
    both = [children.Process(target=at_once, args=(spec.model_dump_json(), environment, start, said)) for _ in range(2)]
    for process in both:
        process.start()
    start.set()
    answers = sorted(said.get() for _ in both)
    for process in both:
        process.join()
    assert [what for what, _ in answers] == ["before", "released"]
    assert len({name for _, name in answers}) == 1
    assert (spent(), published()) == (ONE, [answers[0][1]])


@pytest.mark.slow
def test_another_private_folder_cannot_release_the_period_too(
    places: Path, spec: ReleaseSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another machine on the same ledger: its keys are others, so the ledger alone keeps the two apart."""
    first = run(spec, "2026-10")
    with pytest.raises(PeriodReleasedError, match=first.run):
        release_in_process(spec, Settings(out=places / "elsewhere"), period="2026-10")
    line = ChargeLine("one_way_marginals", "a" * 64, ONE / 100)
    ledger().reserve("people", "people-2026-11-other", [line], period="2026-11")
    before = spent()
    with pytest.raises(RequestError, match="people-2026-11-other has begun the period 2026-11"):
        run(spec, "2026-11")
    assert (spent(), published()) == (before, [first.run])
