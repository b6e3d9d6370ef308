"""Which rows of a person are kept: neighbours in the order, any of them, by the person's identifier."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pyarrow as pa

from privsyn.engine.request import Request
from privsyn.tasks.panels.choose_rows import (
    KeptRuns,
    RowsOfPersons,
    build_runs_domain,
    draw_one_row_each,
    iterate_runs,
    iterate_stored_runs,
    runs_to_batches,
)
from privsyn.tasks.steps.encode import PersonEncoding
from tests.support.panels import make_panel, make_panel_spec

PLAN = Request(make_panel_spec(), ("year", "sex", "age", "income", "job")).encoding


def test_a_run_of_neighbours_is_kept_and_one_of_two_neighbours_is_drawn() -> None:
    """Of 10 rows of a person 5 in a row are kept; where the run and the pair begin differs from person to person."""
    years = np.tile(np.arange(2000, 2010), 400)
    persons = np.repeat([f"p{i}" for i in range(400)], 10)
    table = pa.table(
        {
            "pid": persons,
            "year": years,
            "sex": ["f"] * 4_000,
            "age": years - 1960,
            "income": np.zeros(4_000),
            "job": ["none"] * 4_000,
        }
    )
    (runs,) = iterate_runs(RowsOfPersons(lambda: table.to_batches()), PLAN, 1)
    assert len(runs.place) == 2_000
    steps = runs.number.reshape(400, 5)
    assert (np.diff(steps, axis=1) == 1).all()
    starts = Counter(steps[:, 0].tolist())
    assert set(starts) == set(range(6))
    assert max(starts.values()) < 3 * min(starts.values())
    drawn = Counter(runs.before[runs.drawn].tolist())
    assert set(drawn) == {0, 1, 2, 3}  # never the last, which has no next row
    first, after = (runs.place[runs.find_pairs() + step] for step in (0, 1))
    np.testing.assert_array_equal(years[after] - years[first], 1)
    np.testing.assert_array_equal(runs.measure_gaps(), 1)


def test_persons_of_one_row_have_a_record_and_no_pair() -> None:
    table = make_panel(50, most=1)
    (runs,) = iterate_runs(RowsOfPersons(lambda: table.to_batches()), PLAN, 1)
    assert runs.drawn.all()
    assert len(runs.find_pairs()) == 0
    assert (runs.measure_gaps() == -1).all()


def test_one_row_of_each_synthetic_person_is_drawn_and_not_the_last_of_several() -> None:
    person = np.repeat(np.arange(100), np.tile([1, 2, 5, 2], 25))
    chosen = draw_one_row_each(person, household=False)
    np.testing.assert_array_equal(person[chosen], np.arange(100))
    last = np.append(person[1:] != person[:-1], True)
    alone = np.bincount(person)[person] == 1
    assert not (last & ~alone)[chosen].any()


def test_stored_runs_are_read_in_groups_of_whole_persons() -> None:
    """Whatever the groups, every person's kept rows come back as they were chosen, in one group."""
    rows = make_panel(300)
    persons = PersonEncoding.of(lambda *_: rows.to_batches(max_chunksize=100), PLAN)
    whole, domain = persons.list_runs(), build_runs_domain(PLAN)
    batches = [b.slice(i, 70) for b in runs_to_batches(whole, domain) for i in range(0, b.num_rows, 70)]
    groups = list(iterate_stored_runs(batches, 200))
    assert len(groups) > 3
    assert all(group.first[0] and (group.before + 1 == group.rows)[-1] for group in groups)
    read = KeptRuns.concatenate(groups)
    for name in ("place", "number", "rows", "before", "drawn"):
        np.testing.assert_array_equal(getattr(read, name), getattr(whole, name))
    np.testing.assert_array_equal(read.find_pairs(), whole.find_pairs())
