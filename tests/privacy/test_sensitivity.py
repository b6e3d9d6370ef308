"""Bug class 5, wrong neighbour relation or sensitivity: brute force over all neighbours of small tables."""

from __future__ import annotations

from fractions import Fraction
from itertools import combinations_with_replacement, product

import numpy as np
import pytest

from data_contracts.domain import Domain
from data_contracts.receipts import Query
from tasks import indif_scores, measure_marginals, one_way_marginals
from tasks.kernels.counting import CodeTable

DOMAIN = Domain(("a", "b"), (2, 3))
ROWS = list(product(range(2), range(3)))


def table(rows: list[tuple[int, int]], domain: Domain = DOMAIN) -> CodeTable:
    columns = np.array(rows, dtype=np.uint8).reshape(-1, len(domain.attributes)).T
    return CodeTable(domain, tuple(np.ascontiguousarray(c) for c in columns), padded=True)


def answers(step: object, queries: list[Query], rows: list[tuple[int, int]]) -> list[np.ndarray]:
    return list(step.exact(table(rows), queries, 1))  # type: ignore[attr-defined]


def worst(step: object, queries: list[Query], records: int, largest: int) -> list[float]:
    """Largest L2 change of each query over all tables up to ``largest`` rows and all ``records`` added rows."""
    change = [0.0] * len(queries)
    tables = [list(t) for n in range(largest + 1) for t in combinations_with_replacement(ROWS, n)]
    cached = {tuple(t): answers(step, queries, t) for t in tables}
    for rows in tables:
        if len(rows) + records > largest:
            continue
        for added in combinations_with_replacement(ROWS, records):
            more = cached[tuple(sorted([*rows, *added]))]
            for i, (x, y) in enumerate(zip(cached[tuple(rows)], more, strict=True)):
                change[i] = max(change[i], float(np.linalg.norm(x - y)))
    return change


@pytest.mark.parametrize("records", [1, 2])
def test_marginals(records: int) -> None:
    queries = one_way_marginals.plan(DOMAIN, Fraction(1), records)
    assert worst(one_way_marginals, queries, records, 4) == [records, records]
    queries = measure_marginals.plan([("a", "b")], DOMAIN, Fraction(1), records)
    assert worst(measure_marginals, queries, records, 4) == [records]
    assert {q.sensitivity for q in queries} == {records}


@pytest.mark.parametrize("records", [1, 2])
def test_indif(records: int) -> None:
    """The declared 4 k is never exceeded, on every table of up to 6 rows and every added person."""
    queries = indif_scores.plan(DOMAIN, Fraction(1), records)
    (found,) = worst(indif_scores, queries, records, 6)
    assert 0 < found <= queries[0].sensitivity == 4 * records


def test_indif_under_adversarial_counts() -> None:
    """Large random tables: the exact floor never moves by more than 4, and comes near it."""
    rng = np.random.default_rng(0)
    largest = 0
    for _ in range(3_000):
        shape = rng.integers(2, 5, 2)
        counts = rng.integers(0, rng.integers(2, 3_000), shape) * (rng.random(shape) < 0.5)
        more = counts.copy()
        more[tuple(rng.integers(0, s) for s in shape)] += 1
        largest = max(largest, abs(indif_scores.indif(counts) - indif_scores.indif(more)))
    assert 2 <= largest <= 4


def test_the_mutant_of_sensitivity_one_is_caught() -> None:
    """Planted mutant: InDif declared with the marginals' sensitivity."""
    queries = [Query(("a", "b"), 1, 1, 1.0)]
    (found,) = worst(indif_scores, queries, 1, 6)
    assert found > queries[0].sensitivity


def test_noise_levels_price_what_is_declared() -> None:
    """Sigma recomputed from the receipts is the noise the stage's rho allows (bug class 6)."""
    for epsilon in (0.1, 1.0, 10.0):
        rho = Fraction(epsilon) / 7
        for plan in (
            one_way_marginals.plan(DOMAIN, rho, 2),
            indif_scores.plan(DOMAIN, rho, 2),
            measure_marginals.plan([("a",), ("a", "b")], DOMAIN, rho, 2),
        ):
            spent = sum(Fraction(q.sensitivity) ** 2 / (2 * Fraction(q.sigma) ** 2) for q in plan)
            assert rho * Fraction(999_999, 10**6) <= spent <= rho
