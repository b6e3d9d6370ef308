"""Range queries: answers against plain masks, both figures by hand, and what the two workloads promise."""

from __future__ import annotations

import math

import numpy as np
import pytest

from privsyn.data_contracts.domain import Domain
from privsyn.tasks.kernels.counting import CodeTable
from privsyn.tasks.metrics.range_queries import (
    RangeQuery,
    answer_queries,
    compute_nist_range_score,
    compute_range_query_error,
    draw_nist_queries,
    draw_privsyn_queries,
)
from tests.support.code_tables import draw_table

DOMAIN = Domain.of({"a": 4, "one": 1, "b": 7, "wide": 300, "c": 2, "huge": 70_000})


def table(**columns: list[int]) -> CodeTable:
    """Over the codes a: 0..2 and b: 0..1."""
    return CodeTable(Domain.of({"a": 3, "b": 2}), tuple(np.array(c, np.uint8) for c in columns.values()))


def masked(data: CodeTable, query: RangeQuery) -> int:
    """The referee: one boolean mask a condition."""
    mask = np.ones(data.rows, dtype=bool)
    for attribute, allowed in query.allowed.items():
        mask &= np.isin(data.column(attribute), np.flatnonzero(allowed))
    return int(mask.sum())


def contiguous(allowed: np.ndarray) -> bool:
    codes = np.flatnonzero(allowed)
    return bool(codes.size) and bool(codes[-1] - codes[0] + 1 == codes.size)


@pytest.mark.slow
@pytest.mark.parametrize("rows", [0, 1, 3, 70_001])
@pytest.mark.parametrize("padded", [False, True])
def test_answers_equal_masks_on_any_number_of_threads(rows: int, padded: bool) -> None:
    data = draw_table(DOMAIN, rows, padded=padded)
    queries = [
        *draw_privsyn_queries(DOMAIN, 40, 3, seed=1),
        *draw_nist_queries(draw_table(DOMAIN, 50), {"b", "huge"}, 40, seed=2),
    ]
    expected = [masked(data, query) for query in queries]
    for threads in (0, 1, 3):
        counted = answer_queries(data, queries, threads)
        assert counted.dtype == np.int64
        assert counted.tolist() == expected
    assert rows < 3 or sum(expected) > 0


def test_mean_error_by_hand() -> None:
    """Real rows: 00 01 10 20, synthetic: 00 20.  a in 0..1: 3/4 and 1/2.  a = 0 and b = 1: 1/4 and 0.

    So the mean error is (1/4 + 1/4) / 2.
    """
    real, synthetic = table(a=[0, 0, 1, 2], b=[0, 1, 0, 0]), table(a=[0, 2], b=[0, 0])
    queries = [
        RangeQuery({"a": np.array([True, True, False])}),
        RangeQuery({"a": np.array([True, False, False]), "b": np.array([False, True])}),
    ]
    assert compute_range_query_error(real, synthetic, queries) == pytest.approx(0.25)
    assert compute_range_query_error(synthetic, real, queries) == pytest.approx(0.25)
    assert compute_range_query_error(real, real, queries) == 0


def test_nist_score_by_hand() -> None:
    """f_o = 3/4 and 1/4, f_p = 1/2 and 0: d = ln(2/3) and ln(4e-6)."""
    real, synthetic = table(a=[0, 0, 1, 2], b=[0, 1, 0, 0]), table(a=[0, 2], b=[0, 0])
    queries = [RangeQuery({"a": np.array([True, True, False])}), RangeQuery({"b": np.array([False, True])})]
    rms = math.sqrt((math.log(2 / 3) ** 2 + math.log(4e-6) ** 2) / 2)
    assert rms > math.log(1e3)
    assert compute_nist_range_score(real, synthetic, queries) == 0
    first = compute_nist_range_score(real, synthetic, queries[:1])
    assert first == pytest.approx(1e6 * (1 - math.log(3 / 2) / math.log(1_000)))
    assert compute_nist_range_score(real, real, queries) == 1e6


def test_privsyn_queries_are_ranges_over_three_different_attributes() -> None:
    queries = draw_privsyn_queries(DOMAIN, 200, seed=3)
    assert len(queries) == 200
    assert all(len(set(q.allowed)) == 3 for q in queries)
    assert all(contiguous(allowed) for q in queries for allowed in q.allowed.values())
    assert {a for q in queries for a in q.allowed} == set(DOMAIN.attributes)
    small = Domain.of({"x": 2, "y": 3})
    assert {tuple(q.allowed) for q in draw_privsyn_queries(small, 10)} == {("x", "y")}
    assert draw_privsyn_queries(Domain((), ()), 1)[0].allowed == {}


def test_nist_queries_hold_a_real_row_and_a_third_of_the_attributes() -> None:
    domain = Domain.of({f"o{i}": 20 for i in range(30)} | {f"n{i}": 20 for i in range(30)})
    real = draw_table(domain, 300)
    ordered = {f"o{i}" for i in range(30)}
    queries = draw_nist_queries(real, ordered, 200, seed=4)
    assert answer_queries(real, queries).min() >= 1
    assert np.mean([len(q.allowed) for q in queries]) == pytest.approx(0.33 * 60, abs=1)
    conditions = [(a, c) for q in queries for a, c in q.allowed.items()]
    assert all(contiguous(c) for a, c in conditions if a in ordered)
    nominal = [c for a, c in conditions if a not in ordered]
    assert not all(contiguous(c) for c in nominal)
    assert {int(c.sum()) for c in nominal} == set(range(1, 21))


def test_queries_follow_the_seed_and_more_queries_extend_fewer() -> None:
    def same(one: RangeQuery, other: RangeQuery) -> bool:
        return list(one.allowed) == list(other.allowed) and all(
            np.array_equal(one.allowed[a], other.allowed[a]) for a in one.allowed
        )

    real = draw_table(DOMAIN, 100)
    for make in (
        lambda number, seed: draw_privsyn_queries(DOMAIN, number, seed=seed),
        lambda number, seed: draw_nist_queries(real, {"a"}, number, seed=seed),
    ):
        few, many, other = make(5, 0), make(20, 0), make(5, 1)
        assert all(same(x, y) for x, y in zip(few, many, strict=False))
        assert not all(same(x, y) for x, y in zip(few, other, strict=True))


def test_unfit_queries_are_refused() -> None:
    data = table(a=[0], b=[0])
    with pytest.raises(ValueError, match="each of the 3 codes"):
        answer_queries(data, [RangeQuery({"a": np.ones(2, dtype=bool)})])
    with pytest.raises(ValueError, match="yes or no"):
        answer_queries(data, [RangeQuery({"a": np.array([0, 1, 2])})])
    with pytest.raises(KeyError):
        answer_queries(data, [RangeQuery({"z": np.ones(2, dtype=bool)})])
    with pytest.raises(ValueError, match="no queries"):
        compute_range_query_error(data, data, [])
    with pytest.raises(ValueError, match="-1"):
        draw_privsyn_queries(DOMAIN, -1)
