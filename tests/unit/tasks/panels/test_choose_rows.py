"""Which rows of a person are kept, and how often persons are taken, with rows or without any."""

from __future__ import annotations

import warnings
from collections import Counter

import numpy as np
import pyarrow as pa

from privsyn.engine.request import Request
from privsyn.tasks.panels.choose_persons import choose_persons
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
from privsyn.tasks.steps.make_without_rows import _limit_weight, rake
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


def make_rows(persons: int = 4_000) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Rows of persons with 1 to 5 rows, a constant and a column that changes."""
    rng = np.random.default_rng(1)
    rows = rng.integers(1, 6, persons)
    person = np.repeat(np.arange(persons), rows)
    sex = np.repeat((rng.random(persons) < 0.5).astype(np.uint8), rows)
    return person, {"sex": sex, "job": rng.integers(0, 4, len(person)).astype(np.uint8)}


def test_rows_of_the_persons_taken_have_the_measured_shares() -> None:
    person, codes = make_rows()
    wanted = {
        "sex": (np.array([4_000.0, 6_000.0]), 10.0),
        "job": (np.array([3_000.0, 3_000.0, 2_000.0, 2_000.0]), 10.0),
    }
    times = choose_persons(person, codes, wanted, 0)
    assert (times >= 0).all()
    assert abs(times.sum() - len(times)) < 0.01 * len(times)
    for a, (counts, _) in wanted.items():
        made = np.bincount(codes[a], weights=times[person])
        assert np.abs(made / made.sum() - counts / counts.sum()).max() < 0.003
    before, after = (np.bincount(np.bincount(person), weights=w) / w.sum() for w in (np.ones(len(times)), times))
    assert np.abs(before - after).max() < 0.003, "persons keep their numbers of rows"


def test_groups_of_persons_come_out_as_they_should() -> None:
    person, own = np.repeat(np.arange(1_000), 2), np.arange(1_000) % 2
    should = (np.arange(1_000) % 10 < 7).astype(np.int64)
    times = choose_persons(person, {}, {}, 0, [(own, should)])
    assert abs(times[own == 1].sum() / times.sum() - 0.7) < 0.02
    assert abs(times.sum() - 1_000) < 40
    none = np.empty(0, np.int64)
    assert choose_persons(none, {}, {}, 0, [(none, none)]).shape == (0,)


def test_of_nobody_there_are_no_weights_and_no_warning() -> None:
    """Where no person has rows, none can be like another."""
    nobody = np.empty(0, np.int64)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert rake([nobody], [np.array([2.0, 3.0])], _limit_weight).size == 0


def test_weights_sum_to_what_is_wanted_of_each_code() -> None:
    weights = rake([np.array([0, 0, 1])], [np.array([1.0, 4.0])], _limit_weight)
    assert np.allclose(np.bincount([0, 0, 1], weights=weights), [1.0, 4.0])
