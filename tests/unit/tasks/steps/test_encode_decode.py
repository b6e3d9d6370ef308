"""Encode and decode as steps: bounded records, repairs, weights, order and types."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from privsyn.data_contracts.domain import Domain
from privsyn.data_contracts.mechanism_options import Compression
from privsyn.tasks.codecs import plan
from privsyn.tasks.codecs.cells import AttributeBins
from privsyn.tasks.codecs.encode_rows import Repairs
from privsyn.tasks.estimation.recode import compress_attribute
from privsyn.tasks.kernels.counting import CodeTable
from privsyn.tasks.kernels.small_kernels import hash_texts
from privsyn.tasks.panels.choose_rows import RowsOfPersons, find_kept_rows
from privsyn.tasks.steps import decode as decode_step
from privsyn.tasks.steps import encode as encode_step
from privsyn.tasks.steps.decode_linked import _Decoder
from privsyn.tasks.steps.encode import encode
from tests.support.specs import make_spec


def passes(table: pa.Table, batch_rows: int = 7) -> Callable[[], list[pa.RecordBatch]]:
    return lambda repairs=None: table.to_batches(max_chunksize=batch_rows)


def test_records_of_a_person_are_bounded_whatever_the_order() -> None:
    """Truncation by id comes first; permuting rows keeps the same multiset of codes."""
    spec = make_spec(
        {"x": {"kind": "integer", "min": 0, "max": 10}, "pid": {"kind": "drop"}},
        unit={"person_id": "pid", "max_records": 2},
    )
    pid = ["a"] * 5 + ["b"] * 2 + ["c"] + [None] * 3
    table = pa.table({"x": np.arange(11), "pid": pid})
    repairs = Repairs()
    kept = pa.Table.from_batches(encode(passes(table), plan(spec), spec.unit, repairs))["x"].to_pylist()
    assert len(kept) == 2 + 2 + 1
    assert {5, 6, 7} <= set(kept)
    assert not {8, 9, 10} & set(kept)
    assert repairs.counts["pid", "left out"] == 6
    order = np.random.default_rng(0).permutation(11)
    again = pa.Table.from_batches(encode(passes(table.take(order)), plan(spec), spec.unit, Repairs()))["x"].to_pylist()
    assert sorted(again) == sorted(kept)


@pytest.mark.parametrize("held", [1, 30, 299, 300, 301])
def test_how_many_rows_of_persons_are_held_at_once_changes_nothing(held: int, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = make_spec(
        {"x": {"kind": "integer", "min": 0, "max": 400}, "pid": {"kind": "drop"}},
        unit={"person_id": "pid", "max_records": 3},
    )
    rng = np.random.default_rng(1)
    pid = [None if p == 0 else f"person {'é' * (p % 3)}{p}" for p in rng.integers(0, 40, 300)]
    table, started = pa.table({"x": np.arange(300), "pid": pid}), list[int]()

    def batches(repairs: Repairs | None = None) -> list[pa.RecordBatch]:
        started.append(1)
        return table.to_batches(max_chunksize=17)

    whole = pa.Table.from_batches(encode(passes(table), plan(spec), spec.unit, Repairs()))
    monkeypatch.setattr(encode_step, "PERSON_ROWS", held)
    assert pa.Table.from_batches(encode(batches, plan(spec), spec.unit, Repairs())).equals(whole)
    assert len(started) == 2 + -(-300 // held)
    assert 3 * 30 < whole.num_rows <= 3 * 39


def test_texts_are_hashed_by_what_they_say_wherever_they_lie() -> None:
    texts = pa.array(["a", "bc", "", None, "a", "é", "cb"])
    found = hash_texts(texts)
    assert found[0] == found[4]
    assert len({int(h) for i, h in enumerate(found) if i not in (3, 4)}) == 5
    np.testing.assert_array_equal(hash_texts(texts.slice(4, 3)), found[4:])
    assert hash_texts(texts.slice(0, 0)).size == 0
    assert hash_texts(pa.array([None, ""], pa.string())).size == 2


def test_the_rows_of_a_person_do_not_depend_on_others() -> None:
    """Whoever else is in the table, the same three rows of each person are kept; none of nobody."""
    rng = np.random.default_rng(2)
    person = rng.integers(-1, 20, 300)
    ids = [None if p < 0 else f"p{p}" for p in person]
    table = pa.table({"pid": pa.array(ids, pa.string()), "x": rng.integers(0, 4, 300)})

    def keep(some: np.ndarray) -> np.ndarray:
        rows = table.filter(pa.array(some))
        return find_kept_rows(RowsOfPersons(lambda: rows.to_batches(max_chunksize=17)), "pid", 3, 1 << 20)

    everybody = keep(np.ones(300, bool))
    for p in range(20):
        others = person != p
        assert (keep(others) == everybody[others]).all()
    assert not everybody[person < 0].any()
    assert np.bincount(person[everybody]).max() == 3


def decode(*arguments: Any, **named: Any) -> pa.Table:
    encoding, order = arguments[2], arguments[3]
    schema = decode_step.build_released_schema(encoding.list_table_ranges(order))
    return pa.Table.from_batches(decode_step.decode(*arguments, **named), schema=schema)


def test_decode_shuffles_rows_keeps_order_names_and_types_and_is_seeded() -> None:
    spec = make_spec()
    encoding = plan(spec)
    recode = {
        c.attribute: compress_attribute(
            np.full(c.size, 1_000), 1.0, AttributeBins(c.groups), Compression(enabled=False)
        )
        for c in encoding.codecs
    }
    sizes = [r.size for r in recode.values()]
    rng = np.random.default_rng(0)
    codes = CodeTable(
        Domain(tuple(recode), tuple(sizes)), tuple(np.sort(rng.integers(0, s, 500)).astype(np.uint8) for s in sizes)
    )
    order = ["seen", "age", "happy", "region", "income"]
    table = decode(codes, recode, encoding, order, seed=5)
    assert table.column_names == order
    text = pa.dictionary(pa.int32(), pa.string())
    assert table.schema.types == [pa.timestamp("us"), pa.int64(), pa.bool_(), text, pa.float64()]
    assert table["region"].chunk(0).dictionary.to_pylist() == ["north", "south", "east", "other"]  # the spec's order
    assert table.to_pandas().dtypes.astype(str).to_dict() == {
        "seen": "datetime64[us]", "age": "Int64", "happy": "bool", "region": "category", "income": "float64",
    }  # fmt: skip
    assert not table.schema.field("region").nullable
    regions = table["region"].to_pylist()
    assert sum(a != b for a, b in pairwise(regions)) > 100  # the codes came in order, one change a region
    ages = [a for a in table["age"].to_pylist() if a is not None]
    assert ages != sorted(ages)
    assert table.equals(decode(codes, recode, encoding, order, seed=5))
    assert not table.equals(decode(codes, recode, encoding, order, seed=6))


@pytest.mark.filterwarnings("error")
def test_rows_with_the_same_missing_values_are_alike() -> None:
    """A column of categories comes as a dictionary, whose nulls are no numbers."""
    columns = {"a": pa.array(["x", None, "y", None]).dictionary_encode(), "b": pa.array([1, None, 1, 2])}
    alike = _Decoder._number_donor_groups(SimpleNamespace(_number=np.zeros(4)), columns, ["a"])  # type: ignore[arg-type]
    assert alike.tolist() == [0, 2, 1, 2]
    both = _Decoder._number_donor_groups(SimpleNamespace(_number=np.zeros(4)), columns, ["a", "b"])  # type: ignore[arg-type]
    assert len(set(both.tolist())) == 4
