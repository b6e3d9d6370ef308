"""The order of rows by which some are chosen: content decides, and neither storage, nor types, nor a hash does."""

from __future__ import annotations

import itertools
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from privsyn.tasks.panels import row_order
from privsyn.tasks.panels.choose_rows import RowsOfPersons, find_kept_rows
from privsyn.tasks.panels.row_order import RowOrder, SortedRows

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
