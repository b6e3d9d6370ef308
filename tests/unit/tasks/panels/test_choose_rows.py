"""Which rows of a person are kept: neighbours in the order, any of them, by the person's identifier."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pyarrow as pa

from privsyn.engine.request import Request
from privsyn.tasks.panels.choose_rows import KeptRuns, RowsOfPersons, draw_one_row_each
from privsyn.tasks.steps.encode import iterate_persons
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
    (runs,) = iterate_persons(lambda: table.to_batches(), PLAN)
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
    (runs,) = iterate_persons(lambda: table.to_batches(), PLAN)
    assert runs.drawn.all()
    assert len(runs.find_pairs()) == 0
    assert (runs.measure_gaps() == -1).all()


def test_a_table_without_rows_has_no_persons() -> None:
    table = make_panel(5).slice(0, 0)
    (runs,) = iterate_persons(lambda: table.to_batches(), PLAN)
    assert len(runs.place) == 0
    assert len(runs.measure_gaps()) == 0


def test_one_row_of_each_synthetic_person_is_drawn_and_not_the_last_of_several() -> None:
    person = np.repeat(np.arange(100), np.tile([1, 2, 5, 2], 25))
    chosen = draw_one_row_each(person, household=False)
    np.testing.assert_array_equal(person[chosen], np.arange(100))
    last = np.append(person[1:] != person[:-1], True)
    alone = np.bincount(person)[person] == 1
    assert not (last & ~alone)[chosen].any()


def test_remembered_runs_are_those_that_are_chosen_anew_and_need_no_pass() -> None:
    rows, request = make_panel(300), Request(make_panel_spec(), ("year", "sex", "age", "income", "job"))
    passes: list[int] = []

    def read(*_: object) -> list[pa.RecordBatch]:
        passes.append(1)
        return rows.to_batches(max_chunksize=100)

    def list_arrays(runs: KeptRuns) -> list[tuple[np.dtype, list[int]]]:
        return [(v.dtype, v.tolist()) for v in vars(runs).values() if v is not None]

    plan, remembered = request.encoding, RowsOfPersons(read)
    anew = [list_arrays(runs) for runs in iterate_persons(read, plan)]
    assert [list_arrays(runs) for runs in iterate_persons(remembered, plan)] == anew
    read_before = len(passes)
    assert [list_arrays(runs) for runs in iterate_persons(remembered, plan)] == anew
    assert len(passes) == read_before
    other = Request(make_panel_spec(unit={"person_id": "pid", "max_records": 2}), request.column_order).encoding
    kept = [runs.rows.max() for runs in iterate_persons(remembered, other)]
    assert max(kept) == 2
