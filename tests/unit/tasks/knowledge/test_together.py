"""Columns that move together: one place and shape of their codes for the row, each by itself as without."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from privsyn.data_contracts.domain import Domain
from privsyn.data_contracts.mechanism_options import Compression
from privsyn.tasks.codecs import plan
from privsyn.tasks.codecs.encode_rows import Repairs, encode_batch
from privsyn.tasks.estimation.recode import AttributeRecode, compress_attribute
from privsyn.tasks.kernels.counting import CodeTable
from privsyn.tasks.steps.decode import decode, gather, with_common_shapes
from tests.support.specs import make_spec

ROWS = 20_000
KINDS: dict[str, dict[str, Any]] = {
    "number": {"kind": "number", "min": 0, "max": 80, "bins": 8},
    "decimals": {"kind": "number", "min": 0, "max": 80, "bins": 8, "decimals": 2},
    "wide": {"kind": "number", "min": 0, "max": 100_000, "edges": [0, 10, 20, 30, 100_000]},
    "integer": {"kind": "integer", "min": 0, "max": 7_999, "bins": 8},
    "step": {"kind": "integer", "min": 0, "max": 8_000, "bins": 8, "step": 5},
    "datetime": {"kind": "datetime", "min": "2020-01-01", "max": "2021-01-01", "bins": 12},
    "date": {"kind": "date", "min": "1900-01-01", "max": "2020-01-01", "bins": 12},
    "time": {"kind": "time", "format": "HH:MM:SS", "bins": 24},
}


def decoded(column: dict[str, Any], together: bool) -> tuple[pa.Table, Any, CodeTable]:
    """Two columns of a kind whose rows lie in the same codes, and how they were made."""
    spec = make_spec({"a": column, "b": column}, **({"together": [["a", "b"]]} if together else {}))
    encoding, rng = plan(spec), np.random.default_rng(3)
    size = encoding.domain.size("a")
    counts = rng.integers(200, 3_000, size).astype(float)
    one = compress_attribute(counts, 1.0, encoding.binning["a"], Compression())
    codes = rng.integers(0, one.size, ROWS).astype(np.uint8)
    table = CodeTable(Domain(("a", "b"), (one.size, one.size)), (codes, codes))
    batches = decode(table, {"a": one, "b": one}, encoding, ["a", "b"], seed=5)
    return pa.Table.from_batches(batches), spec, table


def numbers(array: pa.ChunkedArray) -> np.ndarray:
    if pa.types.is_temporal(array.type):
        wide = array.cast(pa.int32() if array.type.bit_width == 32 else pa.int64())
        return np.asarray(wide, dtype=np.float64)
    return np.asarray(array, dtype=np.float64)


@pytest.mark.parametrize("kind", KINDS)
def test_values_in_the_same_codes_are_the_same_and_else_apart(kind: str) -> None:
    together, apart = (decoded(KINDS[kind], how)[0] for how in (True, False))
    assert np.array_equal(numbers(together["a"]), numbers(together["b"]))
    assert (numbers(apart["a"]) != numbers(apart["b"])).mean() > 0.9


@pytest.mark.parametrize("kind", KINDS)
def test_values_stay_in_their_codes(kind: str) -> None:
    made, spec, table = decoded(KINDS[kind], True)
    encoding, domain = plan(spec), table.domain
    assert len(set(numbers(made["a"]))) > domain.size("a")
    again = encode_batch(made.combine_chunks().to_batches()[0], encoding, Repairs())
    counted = np.bincount(encoding.groups["a"][np.asarray(again["a"])], minlength=domain.size("a"))
    assert counted.tolist() == np.bincount(table.column("a"), minlength=domain.size("a")).tolist()


def test_null_and_exact_values_stay_and_their_neighbours_follow() -> None:
    column = {"kind": "integer", "min": 0, "max": 799, "bins": 8, "nullable": True, "exact": [0]}
    spec = make_spec({"a": column, "b": {**column, "max": 807}}, together=[["a", "b"]])
    encoding, rng = plan(spec), np.random.default_rng(1)
    fine = {a: encoding.domain.size(a) for a in ("a", "b")}
    recodes = {
        a: compress_attribute(np.full(n, 1_000.0), 1.0, encoding.binning[a], Compression()) for a, n in fine.items()
    }
    size = recodes["a"].size
    codes = rng.integers(0, size, ROWS).astype(np.uint8)
    other = np.where(rng.random(ROWS) < 0.5, codes, size - 1).astype(np.uint8)  # the last code is null
    table = CodeTable(Domain(("a", "b"), (size, size)), (codes, other))
    made = pa.Table.from_batches(decode(table, recodes, encoding, ["a", "b"], seed=5))
    assert made["b"].null_count == int((other == size - 1).sum())
    zeros = pc.sum(pc.equal(made["a"], 0)).as_py()
    assert zeros == int((codes == 0).sum())
    both = made.filter(pc.and_(pc.is_valid(made["a"]), pc.is_valid(made["b"])))
    assert both.num_rows > ROWS / 4
    assert np.abs(numbers(both["a"]) - numbers(both["b"])).max() <= 10


BINS = np.repeat(np.arange(4), 2).astype(np.int32)
SIGMA = 30.0


def recode(counts: list[float], weights: list[float], null: bool = False) -> AttributeRecode:
    """Four bins of two cells, each bin one code, and null."""
    coarse = np.append(BINS, [4] * null).astype(np.int32)
    size = len(coarse)
    weight, y = np.append(weights, [1.0] * null), np.append(counts, [500.0] * null)
    return AttributeRecode(coarse, np.ones(size, dtype=bool), weight, y, np.full(size, SIGMA**2))


def shares(counts: list[float]) -> list[float]:
    pairs = np.array(counts).reshape(-1, 2)
    found: list[float] = (pairs / pairs.sum(axis=1, keepdims=True)).ravel().tolist()
    return found


ONE = [300.0, 330.0, 500.0, 480.0, 800.0, 820.0, 90.0, 100.0]
LIKE = [320.0, 310.0, 480.0, 500.0, 790.0, 840.0, 100.0, 90.0]
UNLIKE = [320.0, 310.0, 480.0, 500.0, 1500.0, 10.0, 100.0, 90.0]


def test_shapes_that_differ_by_noise_are_the_same_and_others_stay() -> None:
    found = {"a": recode(ONE, shares(ONE)), "b": recode(LIKE, shares(LIKE), null=True)}
    common = with_common_shapes(found, [["a", "b"]], {"a": BINS, "b": BINS})
    assert np.allclose(common["a"].weight, common["b"].weight[:8])
    assert np.allclose(common["a"].weight, shares([a + b for a, b in zip(ONE, LIKE, strict=True)]))
    assert common["b"].weight[8] == 1.0
    found["b"] = recode(UNLIKE, shares(UNLIKE))
    common = with_common_shapes(found, [["a", "b"]], {"a": BINS, "b": BINS})
    assert np.allclose(common["b"].weight[4:6], shares(UNLIKE)[4:6], atol=0.01)
    for one in common.values():
        assert np.allclose(np.bincount(one.coarse, weights=one.weight), 1.0)


CELLS = np.array([-1, 0, 0, 1, 1, 2, 2, 3, 3], dtype=np.int32)
"""An exact value, then bins of two cells; code 9 is null."""


def gathered(columns: list[list[int]]) -> tuple[list[list[int]], list[list[float]]]:
    names = "abcdefgh"[: len(columns)]
    codes = {a: np.array(c) for a, c in zip(names, columns, strict=True)}
    places = {a: np.full(len(c), i / 10) for i, (a, c) in enumerate(codes.items())}
    gather(codes, places, [list(names)], dict.fromkeys(names, CELLS), np.random.default_rng(1))
    return [c.tolist() for c in codes.values()], [p.tolist() for p in places.values()]


def test_values_that_are_far_move_to_one_of_their_row_and_each_is_taken_as_often() -> None:
    rows = 6_000
    (a, b, c), places = gathered([[1] * rows, [8] * rows, [2] * rows])
    found = np.array([a, b, c])
    assert set(map(tuple, found.T.tolist())) == {(1, 1, 2), (8, 8, 8), (1, 2, 2)}
    taken = [float((row == found.T).all(axis=1).mean()) for row in ([1, 1, 2], [8, 8, 8], [1, 2, 2])]
    assert np.allclose(taken, 1 / 3, atol=0.03)
    assert np.array_equal(np.array(places[1])[found[1] == 1], np.zeros((found[1] == 1).sum()))
