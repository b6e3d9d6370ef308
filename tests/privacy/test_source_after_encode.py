"""37: the private table is read by *encode*, before the first look, and never again.

Whatever happens to it afterwards, the run ends as it would have.  It does not see how a source reads its table; that
each pass of *encode* reads the same rows is for the tests of the sources.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from privsyn.base.errors import PeriodReleasedError, RequestError
from privsyn.base.settings import Settings
from privsyn.data_contracts.release_spec import ReleaseSpec
from privsyn.engine import execute
from privsyn.engine.execute import Run
from privsyn.engine.inputs import Inputs, PrivateAccess
from privsyn.engine.request import Request
from privsyn.engine.step import Step
from privsyn.ledgers.ledger import Ledger
from privsyn.pipelines.registry import build_steps
from privsyn.publish.folder import ReleaseSummary
from privsyn.tasks.privacy.noise import NoNoise
from tests.support.linked_tables import make_tables_spec, make_tree, make_tree_content, make_visits, make_visits_content
from tests.support.panels import make_panel, make_panel_spec
from tests.support.releases import QUICK, release_in_process, released, run
from tests.support.specs import make_spec

ROWS = 2_000
COLUMNS: dict[str, Any] = {
    "wage": {"kind": "integer", "min": 1, "max": 9_999},
    "sex": {"kind": "categorical", "values": ["f", "m"]},
}
PRIVACY = {"privacy": {"epsilon": 5.0, "delta": 1e-9}, "budget": {"epsilon": 40.0, "delta": 1e-8}}
LATER_READERS = {"encode_finer", "locate_values", "pair_rows", "keep_rows", "list_without_rows"}
"""The steps that read the private table again at 0.4.0.dev0."""


def make_wages(rows: int = ROWS) -> pa.Table:
    """Wages of which nearly all lie in one cell, and many are equal: a cell is cut, and values are counted."""
    rng = np.random.default_rng(0)
    wages = np.where(rng.random(rows) < 0.95, rng.integers(53, 123, rows), rng.integers(1, 9_999, rows))
    wages[: rows // 4] = 90
    return pa.table({"wage": wages, "sex": rng.choice(["f", "m"], rows)})


def write_database(place: Path, table: pa.Table) -> str:
    """A database of SQLite with the table, and its URL."""
    with sqlite3.connect(place) as database:
        database.execute("create table people (wage integer, sex text)")
        database.executemany("insert into people values (?, ?)", [tuple(row.values()) for row in table.to_pylist()])
    return f"sqlite:///{place}?table=people"


def insert_row(place: Path) -> None:
    with sqlite3.connect(place) as database:
        database.execute("insert into people values (90, 'f')")


def drop_table(place: Path) -> None:
    with sqlite3.connect(place) as database:
        database.execute("drop table people")


CHANGES: dict[str, Callable[[Path], None]] = {
    "a row is inserted": insert_row,
    "the table is dropped": drop_table,
    "the file is gone": Path.unlink,
}


def act_before(monkeypatch: pytest.MonkeyPatch, after: str, act: Callable[[], None]) -> list[str]:
    """Let something happen once, right after a step; the names of the steps that run after it."""
    original, followers = Run.execute, list[str]()
    happened: list[bool] = []

    def execute_step(run: Run, step: Step, inputs: Any) -> Any:
        if happened:
            followers.append(step.name)
        refs = original(run, step, inputs)
        if step.name == after and not happened:
            act()
            happened.append(True)
        return refs

    monkeypatch.setattr(Run, "execute", execute_step)
    return followers


@pytest.fixture(scope="module")
def unchanged(tmp_path_factory: pytest.TempPathFactory) -> ReleaseSummary:
    """The release, without noise, of a table that stays as it is."""
    folder = tmp_path_factory.mktemp("unchanged")
    spec = make_spec(COLUMNS, data=write_database(folder / "people.sqlite", make_wages()), **PRIVACY, **QUICK)
    return release_in_process(spec, Settings(out=folder, ledger=str(folder / "ledger.sqlite")), noise=NoNoise())


@pytest.mark.parametrize("after", ["encode", "rung_counts", "measure_marginals"])
@pytest.mark.parametrize("change", CHANGES.values(), ids=list(CHANGES))
def test_37_a_table_that_changes_after_encode_changes_nothing(
    places: Path,
    monkeypatch: pytest.MonkeyPatch,
    unchanged: ReleaseSummary,
    change: Callable[[Path], None],
    after: str,
) -> None:
    database = places / "people.sqlite"
    spec = make_spec(COLUMNS, data=write_database(database, make_wages()), **PRIVACY, **QUICK)
    followers = act_before(monkeypatch, after, lambda: change(database))
    changed = run(spec, noise=NoNoise())
    assert {"locate_values", "value_counts", "decode"} <= {*followers}
    assert len(released(changed, "marginals/cut_cells.parquet")) > 1
    for name in ("rung_counts", "one_way", "measured", "value_counts"):
        of_kept, of_changed = (released(summary, f"marginals/{name}.parquet") for summary in (unchanged, changed))
        assert of_kept.equals(of_changed)


def close_source(access: PrivateAccess) -> None:
    """Let every further pass fail."""

    def fail(*_: object) -> Any:
        raise AssertionError("the private table was read after it was encoded")

    object.__setattr__(access, "rows", fail)
    object.__setattr__(access, "further_tables", dict.fromkeys(access.further_tables, fail))
    object.__setattr__(access, "encode_parts", fail)


LINKED: dict[str, Callable[[], tuple[ReleaseSpec, Any]]] = {
    "panel": lambda: (make_panel_spec(**PRIVACY, **QUICK), make_panel(400)),
    "tables": lambda: (make_tables_spec(make_visits_content(), **PRIVACY, **QUICK), make_visits(400)),
    "tree": lambda: (make_tables_spec(make_tree_content(), **PRIVACY, **QUICK), make_tree(300)),
}


@pytest.mark.parametrize("case", LINKED.values(), ids=list(LINKED))
def test_37_linked_tables_are_read_before_the_first_look(
    places: Path, monkeypatch: pytest.MonkeyPatch, case: Callable[[], tuple[ReleaseSpec, Any]]
) -> None:
    spec, data = case()
    look, opened = Run._take_look, list[str]()

    def draw(run: Run, step: Any, inputs: Any) -> Any:
        close_source(run.private)
        opened.append(step.name)
        return look(run, step, inputs)

    monkeypatch.setattr(Run, "_take_look", draw)
    summary = run(spec, data=data)
    assert len(opened) > 3 and summary.rows > 0


def test_37_steps_that_do_not_encode_have_no_access_to_the_table() -> None:
    """Every mechanism's steps that encode come before its first look; the others are refused a pass."""
    access = PrivateAccess(lambda *_: iter(())).without_source()
    with pytest.raises(TypeError, match="no access to the private table"):
        access.rows()
    for spec in (make_spec(COLUMNS), make_panel_spec(), make_tables_spec(make_tree_content())):
        steps = build_steps(Request(spec, tuple(spec.released_columns)))
        encodes = [step.encodes for step in steps]
        assert any(encodes) and encodes == sorted(encodes, reverse=True)
        assert not LATER_READERS & {step.name.rpartition("__")[2] for step in steps if step.encodes}


def test_37_mutant_a_step_that_reads_the_table_again(places: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted mutant: value counts read the private table, as they did."""
    database = places / "people.sqlite"
    spec = make_spec(COLUMNS, data=write_database(database, make_wages()), **PRIVACY, **QUICK)
    original = Inputs.batches

    def read_again(inputs: Inputs, name: str) -> Any:
        return inputs.private.rows() if name == "encode.numbers" else original(inputs, name)

    monkeypatch.setattr(Inputs, "batches", read_again)
    with pytest.raises(execute.StepFailedError, match="TypeError"):
        run(spec)


def list_stored(name: str) -> list[Path]:
    """The stored tables of this name, of all data sets."""
    return [
        path
        for path in (Settings().private_root / "store").rglob("*")
        if path.name.startswith("encode-") and name in path.name
    ]


def test_37_numbers_are_deleted_when_the_run_is_published_and_made_again_when_needed(places: Path) -> None:
    """The codes stay for other requests; one that looks inside cells encodes the same rows once more."""
    path = places / "people.parquet"
    pq.write_table(make_wages(), path)
    spec = make_spec(COLUMNS, data=str(path), **PRIVACY, **QUICK)
    first = run(spec)
    assert not list_stored("numbers") and list_stored("encoded_rows")
    again = run(spec)  # nothing is drawn, and nothing is read
    assert (again.run, again.drawn) == (first.run, ()) and not list_stored("numbers")
    other = run(spec, fresh=True)
    assert other.run != first.run and "value_counts" in other.drawn and not list_stored("numbers")


@pytest.mark.parametrize("after", ["encode", "one_way_marginals", "measure_marginals"])
def test_37_a_killed_period_is_finished_from_what_was_encoded(
    places: Path, monkeypatch: pytest.MonkeyPatch, after: str
) -> None:
    """The table grew meanwhile: the next trigger ends the period's run for the price that was reserved."""

    class KilledError(BaseException):
        """The process ends here."""

    path = places / "people.parquet"
    pq.write_table(make_wages(), path)
    spec = make_spec(COLUMNS, data=str(path), **PRIVACY, **QUICK)

    def kill() -> None:
        raise KilledError

    with monkeypatch.context() as patch:
        act_before(patch, after, kill)
        patch.setattr(Run, "give_back", lambda run: None)  # a killed process gives nothing back
        with pytest.raises(KilledError):
            run(spec, period="2026-10")
    assert list_stored("numbers")
    reserved = Ledger(Settings().ledger).entries()
    pq.write_table(make_wages(ROWS + 100), path)
    finished = run(spec, period="2026-10")
    entries = Ledger(Settings().ledger).entries()
    assert [e for e in entries if e.event == "reserve"] == [e for e in reserved if e.event == "reserve"]
    assert {e.run for e in entries} == {finished.run} and not list_stored("numbers")
    with pytest.raises(PeriodReleasedError):
        run(spec, period="2026-10")


def test_37_numbers_of_a_killed_run_stay_while_another_of_the_same_rows_is_published(
    places: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = places / "people.parquet"
    pq.write_table(make_wages(), path)
    spec = make_spec(COLUMNS, data=str(path), **PRIVACY, **QUICK)
    with monkeypatch.context() as patch:
        act_before(patch, "one_way_marginals", lambda: 1 / 0)
        patch.setattr(Run, "give_back", lambda run: None)
        with pytest.raises(ZeroDivisionError):
            run(spec, period="2026-10")
    run(spec, period="2026-11")
    assert list_stored("numbers")
    run(spec, period="2026-10")
    assert not list_stored("numbers")


def test_37_a_disk_that_may_not_hold_the_codes_is_refused_before_the_charge(
    places: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = places / "people.parquet"
    pq.write_table(make_wages(), path)
    usage = type("Usage", (), {"free": 1_000})
    monkeypatch.setattr("privsyn.engine.checks.shutil.disk_usage", lambda place: usage)
    with pytest.raises(RequestError, match=r"GB free, and the encoded rows may need .*PRIVATE"):
        run(make_spec(COLUMNS, data=str(path), **PRIVACY, **QUICK))
    assert not Ledger(Settings().ledger).entries()
