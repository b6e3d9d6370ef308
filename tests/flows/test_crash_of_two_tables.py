"""A release of two tables, killed at any moment, completes when it runs again: one charge and one draw a release step.

Both released tables are whole or not there.  The kills and the checks after them are those of a release of one table
(test_crash.py); the writes are those that a release of two tables makes.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from privsyn.base.settings import Settings
from privsyn.data_contracts.release_spec import ReleaseSpec
from privsyn.engine.request import Request
from privsyn.engine.step import ReleaseStep
from privsyn.pipelines.registry import build_steps
from tests.flows.test_crash import IN_A_RELEASE_STEP, Kill, check_recovery, killed, killed_at_writes
from tests.support.linked_tables import (
    make_tables_spec,
    make_tree,
    make_tree_content,
    make_visits,
    make_visits_content,
    save_tables,
)

PRICE: dict[str, Any] = {"epsilon": 3.0, "delta": 1e-9}
"""Of the release and of the data set: there is room for one release."""

CHEAP: dict[str, Any] = {"synthesis": {"sweeps": 1}, "split": {"trends": 0}}
"""Sixty persons leave every column one code at most that a trend could be asked of: such a look is not taken."""

STEPS = build_steps(Request(make_tables_spec(make_visits_content(), **CHEAP), ("sex", "year", "age", "income", "job")))


@pytest.fixture
def spec(places: Path, tmp_path: Path) -> ReleaseSpec:
    content = save_tables(tmp_path, make_visits(60), make_visits_content())
    return make_tables_spec(content, privacy=PRICE, budget=PRICE, **CHEAP)


def list_rows_without_persons(folder: Path) -> int:
    """How many rows of the released table below belong to nobody in the released table above."""
    persons, visits = (pq.read_table(folder / "tables" / f"{name}.parquet") for name in ("persons", "visits"))
    return int(pc.sum(pc.invert(pc.is_in(visits["pid"], value_set=persons["pid"].combine_chunks()))).as_py() or 0)


def check_both_or_none() -> None:
    """Right after a kill: a run that can be seen has both tables, and every row has its person."""
    root = Settings().released_root
    for folder in root.iterdir() if root.is_dir() else ():
        if not folder.name.startswith("."):
            assert list_rows_without_persons(folder) == 0


def recover(spec: ReleaseSpec) -> None:
    """Run again, and hold the run to what one of two tables is."""
    check_both_or_none()
    folder = Path(check_recovery(spec).released)
    assert list_rows_without_persons(folder) == 0
    listed = json.loads((folder / "manifest.json").read_text())["files"]
    assert {"tables/persons.parquet", "tables/visits.parquet"} <= set(listed)


BOUNDARIES = [
    Kill(place, 1, when, step.name)
    for step in STEPS
    for place, when in (IN_A_RELEASE_STEP if isinstance(step, ReleaseStep) else [("execute", "after")])
]
PUBLISHING = [Kill("add_released", nth, "after") for nth in (1, 9)] + [
    Kill("publish", 1, w) for w in ("before", "after")
]
QUICK = {
    "after-read_rows-measure_without_rows",
    "before-settle-measure_rows",
    "before-publish-1",
}


@pytest.mark.parametrize(
    "kill",
    [k if str(k) in QUICK else pytest.param(k, marks=pytest.mark.slow) for k in (*BOUNDARIES, *PUBLISHING)],
    ids=str,
)
def test_two_tables_survive_a_kill(children: Any, spec: ReleaseSpec, kill: Kill) -> None:
    killed(children, spec, kill)
    recover(spec)


def test_the_quick_kills_are_kills_of_this_release() -> None:
    assert {str(kill) for kill in (*BOUNDARIES, *PUBLISHING)} >= QUICK


@pytest.mark.slow
def test_killed_at_every_line_that_writes_two_tables(children: Any, spec: ReleaseSpec) -> None:
    """Run after run, each killed at the first line that no run was killed at; the last one completes."""
    survived = killed_at_writes(children, spec, length=2)
    assert {"open", "fsync", "os.rename", "half written", "arrow write", "arrow close", "ledger"} <= {
        kind for kind, _ in survived
    }
    recover(spec)


# a tree of tables

TREE = make_tables_spec(make_tree_content(), **CHEAP)
OF_FURTHER_TABLES = [
    Kill(place, 1, when, step.name)
    for step in build_steps(Request(TREE, tuple(TREE.released_columns)))
    if step.name.startswith("drugs__")
    for place, when in (IN_A_RELEASE_STEP if isinstance(step, ReleaseStep) else [("execute", "after")])
]


@pytest.fixture
def tree(places: Path, tmp_path: Path) -> ReleaseSpec:
    content = save_tables(tmp_path, make_tree(60), make_tree_content())
    return make_tables_spec(content, privacy=PRICE, budget=PRICE, **CHEAP)


@pytest.mark.slow
@pytest.mark.parametrize("kill", OF_FURTHER_TABLES, ids=str)
def test_a_tree_survives_a_kill_in_a_further_table(children: Any, tree: ReleaseSpec, kill: Kill) -> None:
    killed(children, tree, kill)
    recover(tree)
