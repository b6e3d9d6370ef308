"""Which rows of a person are kept, by content alone, and how often persons are taken."""

from __future__ import annotations

import itertools
import warnings
from collections import Counter
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from privsyn.engine.request import Request
from privsyn.tasks.panels import row_order
from privsyn.tasks.panels.choose_persons import choose_persons
from privsyn.tasks.panels.choose_rows import (
    KeptRuns,
    RowsOfPersons,
    build_runs_domain,
    draw_one_row_each,
    find_kept_rows,
    iterate_runs,
    iterate_stored_runs,
    runs_to_batches,
)
from privsyn.tasks.panels.row_order import RowOrder, SortedRows
from privsyn.tasks.steps.draw_records import _limit_weight, rake
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


ORDER = RowOrder(b"a secret")
NAN = float("nan")


def hash_of(array: Any, name: str = "x", order: RowOrder = ORDER) -> list[int]:
    return order.hash_rows(pa.RecordBatch.from_arrays([array], names=[name])).tolist()


@pytest.mark.parametrize(
    "arrays",
    [
        [pa.array([1, 2, None]), pa.array([1.0, 2.0, NAN]), pa.array([1, 2, None], pa.uint8())],
        [pa.array([1, 2, None]), pa.array([Decimal("1.00"), Decimal("2.00"), None])],
        [pa.array([0.0, 0.5, None]), pa.array([-0.0, 0.5, NAN]), pa.array([0.0, 0.5, None], pa.float32())],
        [pa.array(["a", "b", None]), pa.array(["a", "b", None]).dictionary_encode()],
        [pa.array(["a", "b", None]), pa.array(["a", "b", None], pa.large_string())],
        [pa.array([1, 86_400, None], pa.timestamp("s")), pa.array([10**6, 864 * 10**8, None], pa.timestamp("us"))],
        [pa.array([86_400, 0, None], pa.timestamp("ns")).cast(pa.timestamp("us"), safe=False)] * 2,
        [pa.array([1, 2, None], pa.date32()), pa.array([86_400_000, 2 * 86_400_000, None], pa.date64())],
        [pa.array([True, False, None]), pa.array([1, 0, None])],
        [pa.nulls(3), pa.array([None] * 3, pa.string())],
    ],
)
def test_equal_content_has_one_hash_whatever_its_type(arrays: list[pa.Array]) -> None:
    first, *others = map(hash_of, arrays)
    assert others == [first] * len(others)


def test_different_content_has_different_hashes() -> None:
    values = [None, 0, 1, -1, 2**62, 0.5, -0.5, 1e300, float("inf"), "", "0", "1", "a", Decimal("0.3")]
    hashes = [hash_of(pa.array([value]))[0] for value in values]
    assert len({*hashes}) == len(values)


def test_columns_in_another_order_have_the_same_hashes_and_swapped_ones_do_not() -> None:
    a, b = pa.array([1, 2, 3]), pa.array([4, 5, 6])
    hashes = [
        ORDER.hash_rows(pa.RecordBatch.from_arrays(columns, names=names)).tolist()
        for columns, names in (([a, b], ["a", "b"]), ([b, a], ["b", "a"]), ([b, a], ["a", "b"]))
    ]
    assert hashes[0] == hashes[1] != hashes[2]


def test_the_key_decides_and_is_not_shown() -> None:
    assert hash_of(pa.array([1, 2])) != hash_of(pa.array([1, 2]), order=RowOrder(b"another"))
    assert "secret" not in repr(ORDER)


TIED = pa.table({"pid": ["a"] * 6 + ["b"] * 3, "x": [3, 1, 2, 1, None, 3, 7, 7, 5], "y": list("qrsrtuvvw")})


def keep(table: pa.Table, most: int, batch_rows: int = 2) -> list[tuple[Any, ...]]:
    """The kept rows of each person, sorted."""
    rows = RowsOfPersons(lambda: table.to_batches(max_chunksize=batch_rows), ORDER)
    kept = table.filter(pa.array(find_kept_rows(rows, "pid", most, 1 << 20)))
    return sorted(zip(*(column.to_pylist() for column in kept.columns), strict=True), key=repr)


@pytest.mark.parametrize("most", [1, 2, 3, 4])
def test_the_choice_rests_on_no_hash(monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    """Where all hashes are equal, the content itself decides: every order of storage keeps the same rows."""
    monkeypatch.setattr(RowOrder, "hash_rows", lambda order, batch: np.zeros(batch.num_rows, np.uint64))
    orders = [*itertools.islice(itertools.permutations(range(9)), 0, 40_000, 1_500)]
    assert len({tuple(keep(TIED.take(list(order)), most)) for order in orders}) == 1


def test_mutant_hashes_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted mutant: equal hashes are left to storage order."""
    monkeypatch.setattr(RowOrder, "hash_rows", lambda order, batch: np.zeros(batch.num_rows, np.uint64))
    monkeypatch.setattr(row_order, "_sort_by_content", lambda order, same, read: None)
    assert keep(TIED, 2) != keep(TIED.take(list(range(9))[::-1]), 2)


def test_only_the_order_itself_makes_sorted_rows() -> None:
    with pytest.raises(TypeError, match=r"RowOrder\.sort"):
        SortedRows(np.arange(3), object())
