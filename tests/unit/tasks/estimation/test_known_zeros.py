"""Cells that no row can be in: by rules, by way of other attributes, and by null that goes with null."""

from __future__ import annotations

import itertools
from itertools import product

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from benchmarks.relations import PublicTable, describe_column, release_in_memory
from privsyn.tasks.estimation.known_zeros import (
    KnownZeros,
    find_empty_blocks,
    find_null_codes,
    find_null_zeros,
    imply_zeros,
    label_blocks,
)
from privsyn.tasks.estimation.marginals import Marginal
from privsyn.tasks.estimation.recode import AttributeRecode
from privsyn.tasks.steps.make_consistent import make_consistent


@pytest.mark.parametrize("seed", range(3))
def test_only_what_no_row_has_is_found(seed: int) -> None:
    rng = np.random.default_rng(seed)
    sizes = dict(zip("abcd", rng.integers(2, 5, 4).tolist(), strict=True))
    cliques = [("a", "b"), ("b", "c"), ("c", "d"), ("a", "b", "d")][: 2 + seed % 3]
    tables = [(c, rng.random([sizes[x] for x in c]) < 0.5) for c in cliques]
    rows = [dict(zip(sizes, row, strict=True)) for row in product(*(range(n) for n in sizes.values()))]
    rows = [r for r in rows if not any(mask[tuple(r[x] for x in c)] for c, mask in tables)]
    found = imply_zeros(tables)
    assert found
    for (x, y), forbidden in found:
        assert not any(forbidden[r[x], r[y]] for r in rows)
    direct = dict(found)
    assert all((forbidden <= direct[c]).all() for c, forbidden in tables if len(c) == 2)


def test_blocks_are_the_connected_parts() -> None:
    allowed = np.array([[1, 0, 0], [0, 1, 1], [0, 1, 0], [0, 0, 0]], bool)
    found = label_blocks(~allowed)
    assert found is not None
    assert [side.tolist() for side in found] == [[0, 1, 1, 2], [0, 1, 1]]
    assert label_blocks(np.array([[False, True], [False, False]])) is None


def test_one_ways_that_no_pair_joins_agree_on_their_blocks() -> None:
    """Below 15 (the first two ages) the status is null (code 0): 50 rows by one column, 40 by the other, as sure."""
    nulls = np.array([[0, 1, 1], [0, 1, 1], [1, 0, 0]], bool)
    zeros = KnownZeros((), ((("age", "status"), nulls),))
    ages, statuses = np.array([20.0, 30.0, 50.0]), np.array([40.0, 30.0, 30.0])
    ones = [Marginal(("age",), ages), Marginal(("status",), statuses)]
    variance = [np.array([1.0, 1.0, 2.0]), np.array([2.0, 1.0, 1.0])]
    age, status = (m.counts for m in make_consistent(ones, variance, [], [], 50, zeros=zeros))
    np.testing.assert_allclose(age, [17.5, 27.5, 55.0])
    np.testing.assert_allclose(status, [45.0, 27.5, 27.5])
    age, status = (m.counts for m in make_consistent(ones, variance, [], [], 50))
    np.testing.assert_allclose(age, ages)


ROWS, SIGMA = 10_000, 40.0


def _make_recode(coarse: list[int], *, kept: bool = True) -> AttributeRecode:
    size = len(coarse)
    keeps = np.ones(size, bool)
    keeps[-1] = kept
    return AttributeRecode(np.array(coarse, np.int32), keeps, np.ones(size), np.ones(size), np.ones(size))


def test_null_has_a_code_where_it_is_its_own() -> None:
    recode = {
        "own": _make_recode([0, 0, 1, 2]),
        "shared": _make_recode([0, 1, 2, 2]),
        "filtered": _make_recode([0, 1, 2, 3], kept=False),
        "only": _make_recode([0]),
        "never null": _make_recode([0, 1, 2, 3]),
    }
    assert find_null_codes(recode, ["own", "shared", "filtered", "only", "not there"]) == {"own": 2}


def _count_pair(
    first: np.ndarray, second: np.ndarray, names: tuple[str, str], sigma: float, rng: np.random.Generator
) -> Marginal:
    counts = np.zeros((4, 4))
    np.add.at(counts, (first, second), 1)
    return Marginal(names, counts + rng.normal(0, sigma, counts.shape), sigma)


def _draw_columns(rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Codes of columns, 3 null: a, b and c in the same rows, d wherever they are and elsewhere, e by itself."""
    columns = {name: rng.integers(0, 3, ROWS) for name in "abcde"}
    skipped, alone = rng.random(ROWS) < 0.2, rng.random(ROWS) < 0.2
    for name in "abc":
        columns[name][skipped] = 3
    columns["d"][skipped | (rng.random(ROWS) < 0.3)] = 3
    columns["e"][alone] = 3
    return columns


def _measure(
    columns: dict[str, np.ndarray], names: list[str], sigma: float, rng: np.random.Generator
) -> list[Marginal]:
    return [_count_pair(columns[x], columns[y], (x, y), sigma, rng) for x, y in names]


def _count_one_ways(columns: dict[str, np.ndarray]) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    return {a: (np.bincount(c, minlength=4).astype(float), np.full(4, 9.0)) for a, c in columns.items()}


def test_columns_null_together_and_one_null_wherever_another_is() -> None:
    for seed in range(5):
        rng = np.random.default_rng(seed)
        columns = _draw_columns(rng)
        pairs = _measure(columns, ["ab", "bc", "cd", "ae", "de"], 3.0, rng)
        others = [("a", "c"), ("a", "d"), ("b", "e")]
        zeros = find_null_zeros(pairs, _count_one_ways(columns), dict.fromkeys("abcde", 3), others)
        found = {"".join(pair): mask for pair, mask in zeros.implied}
        assert set(found) == {"ab", "bc", "cd", "ac", "ad"}, seed  # the last two by way of others; nothing of e
        tied = np.zeros((4, 4), bool)
        tied[3, :3] = tied[:3, 3] = True
        implied = np.zeros((4, 4), bool)
        implied[3, :3] = True
        for pair in ("ab", "bc", "ac"):
            assert (found[pair] == tied).all()
        for pair in ("cd", "ad"):
            assert (found[pair] == implied).all()  # c is never null beside a value of d, but d is beside one of c


def test_a_chain_of_columns_each_null_a_little_more_often_is_not_one() -> None:
    """Noise ties neighbours that few rows tell apart; numbers of nulls of the whole chain say that they differ."""
    rows, step = 20_000, 100
    names = [f"c{i:02}" for i in range(12)]
    columns = {}
    for i, name in enumerate(names):
        columns[name] = np.arange(rows) % 3
        columns[name][: 2_000 + step * i] = 3
    one_ways = {a: (np.bincount(c, minlength=4).astype(float), np.full(4, 70.0**2)) for a, c in columns.items()}
    neighbours = list(itertools.pairwise(names))
    for seed in range(3):
        rng = np.random.default_rng(seed)
        pairs = [_count_pair(columns[a], columns[b], (a, b), 100.0, rng) for a, b in neighbours]
        far = [(names[i], names[j]) for i in range(12) for j in range(i + 8, 12)]
        zeros = dict(find_null_zeros(pairs, one_ways, dict.fromkeys(names, 3), far).implied)
        assert zeros and set(zeros) & set(neighbours)
        reversed_ways = [pair for pair in far if pair in zeros and zeros[pair][:3, 3].any()]
        assert not reversed_ways, seed  # the later one is null where the earlier is not


def test_a_pair_that_shows_rows_in_a_block_is_left_out_of_what_others_imply() -> None:
    rng = np.random.default_rng(0)
    columns = _draw_columns(rng)
    pairs = _measure(columns, ["ab", "bc"], 3.0, rng)
    beside = _measure(columns, ["ae"], 3.0, rng)[0]
    contrary = Marginal(("a", "c"), beside.counts, beside.sigma)
    zeros = find_null_zeros([*pairs, contrary], _count_one_ways(columns), dict.fromkeys("abc", 3))
    assert {"".join(pair) for pair, _ in zeros.implied} == {"ab", "bc"}


def test_other_attributes_and_pairs_without_noise_say_nothing() -> None:
    rng = np.random.default_rng(0)
    columns = _draw_columns(rng)
    (pair,) = _measure(columns, ["ab"], SIGMA, rng)
    assert not find_null_zeros([pair], _count_one_ways(columns), {"a": 3}).implied
    exact = Marginal(pair.attributes, pair.counts, 0.0)
    assert not find_null_zeros([exact], _count_one_ways(columns), {"a": 3, "b": 3}).implied


def test_such_a_pair_is_shrunk_without_null() -> None:
    """What two columns say of each other is in their values: rare ones keep no rows beside null, and few together."""
    rng = np.random.default_rng(3)
    columns = _draw_columns(rng)
    one_ways = _count_one_ways(columns)
    singles = [Marginal((a,), one_ways[a][0], 3.0) for a in "ab"]
    variance = [one_ways[a][1] for a in "ab"]
    (pair,) = _measure(columns, ["ab"], SIGMA, rng)
    nulls = {"a": 3, "b": 3}
    zeros = find_null_zeros([pair], one_ways, nulls)
    pooled = {a: np.array([True, True, True, False]) for a in "ab"}
    found = make_consistent(
        singles, variance, [pair], [SIGMA], 10, shrink=True, zeros=zeros, pooled=pooled, nulls=nulls
    )[-1].counts
    plain = make_consistent(singles, variance, [pair], [SIGMA], 10, shrink=True, pooled=pooled)[-1].counts
    true = np.zeros((4, 4))
    np.add.at(true, (columns["a"], columns["b"]), 1)
    assert not found[3, :3].any() and not found[:3, 3].any()
    assert np.abs(found - true).sum() < np.abs(plain - true).sum()


@pytest.mark.slow
def test_no_row_is_half_asked() -> None:
    """Six of ten columns, most of them zero, are null in the same rows; a seventh is null by itself."""
    rng = np.random.default_rng(5)
    rows = 8_000
    skipped, alone = rng.random(rows) < 0.18, rng.random(rows) < 0.1
    block = [f"income {i}" for i in range(6)]
    frame = pd.DataFrame({name: np.where(rng.random(rows) < 0.03, rng.integers(1, 90, rows), 0) for name in block})
    frame = frame.astype(float).mask(pd.Series(skipped), axis=0)
    frame["age"] = np.where(skipped, rng.integers(0, 16, rows), rng.integers(16, 90, rows))
    frame["hours"] = pd.Series(rng.integers(0, 60, rows).astype(float)).mask(pd.Series(alone))
    given = PublicTable("asked", pa.Table.from_pandas(frame), {c: describe_column(frame[c]) for c in frame})
    for seed in range(2):
        made = release_in_memory(given, given.spec(1.0), seed).to_pandas()
        nulls = made[block].isna().sum(axis=1)
        assert set(nulls) == {0, 6}
        assert 0.05 < made.loc[nulls == 6, "hours"].isna().mean() < 0.15
        assert made[block].corr(method="spearman").abs().where(~np.eye(6, dtype=bool)).max().max() < 0.25


def test_two_nulls_of_one_age_go_together() -> None:
    """Code 0 of age is below 15; only there are status and income null (code 1)."""
    nulls = np.array([[True, False], [False, True], [False, True]])
    found = dict(imply_zeros([(("age", "status"), nulls), (("age", "income"), nulls)]))
    np.testing.assert_array_equal(found["status", "income"], [[False, True], [True, False]])
    np.testing.assert_array_equal(found["age", "status"], nulls)
    zeros = KnownZeros((), tuple(found.items()))
    np.testing.assert_array_equal(zeros.on(("income", "status"), (2, 2)), [[False, True], [True, False]])


def test_blocks_are_empty_where_their_rows_are_noise_and_could_be_many() -> None:
    rows = np.array([20.0, -50.0, 900.0, 40.0])
    empty = find_empty_blocks(rows, np.full(4, 60.0), np.array([2_000.0, 2_000.0, 2_000.0, 30.0]))
    assert empty.tolist() == [True, True, False, False]  # of the last, 30 rows at most, noise hides all
