"""What trends say of pairs: correlations, and counts that have them."""

from __future__ import annotations

from fractions import Fraction
from itertools import combinations

import numpy as np
import pytest

from privsyn.data_contracts.domain import Domain
from privsyn.data_contracts.receipts import Query
from privsyn.tasks.codecs.cells import AttributeBins
from privsyn.tasks.estimation.known_zeros import KnownZeros
from privsyn.tasks.estimation.marginals import Marginal
from privsyn.tasks.estimation.merged_codes import merge_counts
from privsyn.tasks.estimation.recode import AttributeRecode, Recode
from privsyn.tasks.estimation.trends import (
    TOP,
    Trends,
    list_missing_pairs,
    rank_codes,
)
from privsyn.tasks.kernels.counting import CodeTable, count
from privsyn.tasks.steps.score_columns import count_trends, plan_trends, rank_asked_codes

ROWS, CODES = 20_000, 7
NAMES = ("a", "b", "c")
TRUE = np.array([[1.0, 0.6, 0.0], [0.6, 1.0, -0.4], [0.0, -0.4, 1.0]])
BINNING = dict.fromkeys(NAMES, AttributeBins(np.arange(CODES + 1, dtype=np.int32), ((0, CODES),)))  # last is null
NOISE = 10.0


def draw_rows(seed: int, null: float = 0.0) -> CodeTable:
    rng = np.random.default_rng(seed)
    normal = rng.multivariate_normal(np.zeros(3), TRUE, ROWS)
    codes = np.stack([np.searchsorted(np.linspace(-1.5, 1.5, CODES - 1), z) for z in normal.T])
    codes[rng.random(codes.shape) < null] = CODES
    return CodeTable(Domain(NAMES, (CODES + 1,) * 3), tuple(c.astype(np.uint8) for c in codes))


def read_recode(rows: CodeTable, seed: int) -> Recode:
    rng, same = np.random.default_rng(seed), np.arange(CODES + 1, dtype=np.int32)
    found = {}
    for a in NAMES:
        counts = count(rows, (a,)) + rng.normal(0, NOISE, CODES + 1)
        found[a] = AttributeRecode(same, same >= 0, np.ones(CODES + 1), counts, np.full(CODES + 1, NOISE**2))
    return found


def read_trends(top: int, sigma: float, null: float = 0.0, seed: int = 1) -> tuple[CodeTable, Trends]:
    rows, rng = draw_rows(seed, null), np.random.default_rng(seed + 100)
    recode = read_recode(rows, seed)
    ranks = rank_codes(recode, BINNING, top)
    rho = Fraction(6) / Fraction(2 * sigma**2)
    queries = plan_trends(list(ranks), top, rho, 1)
    padded = CodeTable(rows.domain, rows.columns, padded=True)
    exact = count_trends(padded, queries, 1, {a: r.score for a, r in ranks.items()})
    answers = [y + rng.normal(0, q.sigma, 1) for y, q in zip(exact, queries, strict=True)]
    return rows, Trends.of(recode, ranks, queries, answers)


@pytest.mark.parametrize("top", [1, TOP])
@pytest.mark.parametrize("null", [0.0, 0.2])
def test_correlations_are_found(top: int, null: float) -> None:
    _, trends = read_trends(top, 100.0, null)
    for i, j in combinations(range(3), 2):
        assert trends.correlation[NAMES[i], NAMES[j]] == pytest.approx(TRUE[i, j], abs=0.05)


def test_pairs_that_were_not_measured_have_the_counts_of_their_trend() -> None:
    rows, trends = read_trends(TOP, 100.0, 0.1)
    ones = [Marginal((a,), count(rows, (a,)).astype(np.float64), NOISE) for a in NAMES]
    measured = Marginal(("b", "c"), count(rows, ("b", "c")).astype(np.float64), NOISE)
    found = list_missing_pairs(trends, [*ones, measured])
    assert [m.attributes for m in found] in ([("a", "b")], [("a", "b"), ("a", "c")])
    (pair,) = (m for m in found if m.attributes == ("a", "b"))
    true, independent = count(rows, ("a", "b")), np.outer(ones[0].counts, ones[1].counts) / ROWS
    assert np.abs(pair.counts - true).sum() < 0.15 * np.abs(independent - true).sum()
    np.testing.assert_allclose(pair.counts.sum(axis=1), ones[0].counts, atol=1)
    np.testing.assert_allclose(pair.counts.sum(axis=0), ones[1].counts, atol=1)
    assert 0 < pair.sigma < NOISE


def test_cells_that_no_row_can_be_in_stay_empty() -> None:
    rows, trends = read_trends(TOP, 100.0)
    ones = [Marginal((a,), count(rows, (a,)).astype(np.float64), NOISE) for a in NAMES]
    forbidden = np.zeros((CODES + 1, CODES + 1), dtype=bool)
    forbidden[0, 3:] = True
    (pair,) = (
        m
        for m in list_missing_pairs(trends, ones, KnownZeros(((("a", "b"), forbidden),)))
        if m.attributes == ("a", "b")
    )
    assert not pair.counts[forbidden].any()
    np.testing.assert_allclose(pair.counts.sum(axis=1), ones[0].counts, rtol=0.05, atol=5)


def test_a_trend_pooled_in_makes_faint_counts_surer() -> None:
    """The trend of counts with their own noise is off by more than that of counts with the released one pooled in."""
    rows, trends = read_trends(TOP, 20.0)
    true, rng = count(rows, ("a", "b")).astype(np.float64), np.random.default_rng(5)
    product = np.outer(*(trends.ranks[a].score[:-1] for a in ("a", "b"))) / TOP**2
    before, after = [], []
    for _ in range(20):
        noisy = Marginal(("a", "b"), true + rng.normal(0, 50, true.shape), 50.0)
        before.append(((noisy.counts - true) * product).sum())
        after.append(((trends.pool_in(noisy).counts - true) * product).sum())
    assert np.std(after) < 0.3 * np.std(before)


def test_a_trend_is_pooled_into_merged_codes_of_one_score_each_and_no_others() -> None:
    rows, trends = read_trends(1, 20.0)
    true = count(rows, ("a", "b")).astype(np.float64)
    signs = [np.unique(trends.ranks[a].score[:-1], return_inverse=True)[1] for a in ("a", "b")]
    halves = np.arange(len(true)) // (len(true) - 1)  # all but the last code are one, so it has both signs
    merged = Marginal(("a", "b"), merge_counts(true, signs), 50.0, tuple(signs))
    mixed = Marginal(("a", "b"), merge_counts(true, (halves, halves)), 50.0, (halves, halves))
    assert not np.array_equal(trends.pool_in(merged).counts, merged.counts)
    assert trends.pool_in(mixed) is mixed
    ones = [Marginal((a,), count(rows, (a,)).astype(np.float64), NOISE) for a in NAMES]
    assert ("a", "b") in {m.attributes for m in list_missing_pairs(trends, ones)}
    assert ("a", "b") not in {m.attributes for m in list_missing_pairs(trends, [*ones, merged])}


def test_two_listed_values_are_in_order_where_they_are_asked_and_null_is_not() -> None:
    recode = read_recode(draw_rows(1), 1)
    listed = {**BINNING, "a": AttributeBins(np.arange(CODES + 1, dtype=np.int32))}
    assert list(rank_codes(recode, listed, 1)) == ["b", "c"]
    queries = [Query(("a", "b"), 1, 1, 10.0)]
    ranks = rank_asked_codes(recode, listed, queries)
    assert ranks["a"].score.tolist() == [-1, 1, *[0] * CODES]
    assert ranks["a"].ordered.tolist() == [True, True, *[False] * (CODES - 1)]


def test_sums_are_read_where_other_one_ways_have_rows_in_other_codes() -> None:
    """A simulated release has other noise: what had one code with rows may have several, and the other way round."""
    recode = read_recode(draw_rows(1), 1)
    recode["a"].estimate[1:] = 0.0
    asked = [("a", "b"), ("a",), ("b",)]
    queries, answers = [Query(pair, 1, 1, 10.0) for pair in asked], [np.array([0])] * 3
    trends = Trends.of(recode, rank_asked_codes(recode, BINNING, queries), queries, answers)
    assert list(trends.ranks) == ["a", "b"] and not trends.correlation


def test_a_column_of_one_code_tells_nothing() -> None:
    rows = draw_rows(1)
    constant = CodeTable(rows.domain, (np.zeros(ROWS, np.uint8), *rows.columns[1:]))
    recode = read_recode(constant, 1)
    recode["a"].estimate[1:] = 0.0
    assert list(rank_codes(recode, BINNING, 1)) == ["b", "c"]
