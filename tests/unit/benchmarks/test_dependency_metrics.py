"""Tables 3 and 4 of PrivSyn: the printed ratios, and the sensitivities by brute force over all neighbours."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from fractions import Fraction
from itertools import combinations, pairwise

import numpy as np
import pytest

from benchmarks.dependency_metrics import (
    CODES,
    INDIF_SENSITIVITY,
    REPORTED,
    ROWS,
    compute_entropies,
    compute_entropy,
    compute_entropy_sensitivity,
    compute_in_dif,
    compute_information_sensitivity,
    compute_mutual_information,
    compute_symmetrical_uncertainty,
    list_noise_range_ratios,
    list_ratios,
    list_relative_errors,
)
from privsyn.tasks.privacy.noise import SeededNoise
from privsyn.tasks.steps.score_columns import EXACT_SENSITIVITY, compute_indif

Metric = Callable[[np.ndarray], float]


def every_table(n: int, shape: tuple[int, int]) -> Iterator[np.ndarray]:
    """All tables of counts with ``n`` rows, by stars and bars."""
    cells = math.prod(shape)
    for bars in combinations(range(n + cells - 1), cells - 1):
        edges = (-1, *bars, n + cells - 1)
        yield np.array([b - a - 1 for a, b in pairwise(edges)]).reshape(shape)


def moved(metric: Metric, n: int, shape: tuple[int, int]) -> tuple[float, float]:
    """The most that ``metric`` moves on a table of ``n`` rows: by one row more, and by one row replaced."""
    known = {t.tobytes(): metric(t) for size in (n, n + 1) for t in every_table(size, shape)}
    added = replaced = 0.0
    for table in every_table(n, shape):
        before, flat = known[table.tobytes()], table.ravel()
        for i in range(flat.size):
            flat[i] += 1
            more = known[flat.tobytes()]
            added = max(added, abs(more - before))
            for j in np.flatnonzero(flat):
                flat[j] -= 1
                replaced = max(replaced, abs(known[flat.tobytes()] - before))
                flat[j] += 1
            flat[i] -= 1
    return added, replaced


def test_table_3_as_printed() -> None:
    for i, codes in enumerate(CODES):
        ratios = list_noise_range_ratios(ROWS, codes)
        assert {name: round(value, 1) for name, value in ratios.items()} == {
            name: reported[i] for name, reported in REPORTED.items()
        }
    assert "41.83 (41.8)" in list_ratios()[-1]


@pytest.mark.parametrize(("n", "shape"), [(1, (2, 2)), (4, (2, 3)), (12, (2, 2)), (5, (3, 3))])
def test_indif_moves_by_at_most_4_with_one_row_more(n: int, shape: tuple[int, int]) -> None:
    added, _ = moved(compute_in_dif, n, shape)
    assert INDIF_SENSITIVITY == EXACT_SENSITIVITY == 4
    assert added == pytest.approx(4 * n / (n + 1))  # the appendix: 4 (n - a_x)(n - b_y) / (n (n + 1)), attained


def test_indif_moves_by_more_than_4_with_one_row_replaced() -> None:
    """Lemma 4 is for unbounded neighbours only: bounded ones are two steps, each of up to 4."""
    before = np.array([[1, 0, 0], [0, 0, 8], [0, 7, 56]])
    after = before.copy()
    after[0, 0] -= 1
    after[1, 1] += 1
    assert 4 < abs(compute_in_dif(after) - compute_in_dif(before)) <= 8


@pytest.mark.parametrize(("n", "shape"), [(2, (2, 2)), (3, (3, 3)), (5, (3, 3)), (6, (2, 3)), (3, (4, 4))])
def test_information_moves_by_at_most_the_formula(n: int, shape: tuple[int, int]) -> None:
    added, replaced = moved(compute_mutual_information, n, shape)
    limit = compute_information_sensitivity(n) + 1e-12
    assert added <= limit
    assert replaced <= limit
    if (n, shape) in ((3, (3, 3)), (5, (3, 3))):
        assert replaced == pytest.approx(compute_information_sensitivity(n))  # the bound is attained


@pytest.mark.parametrize(("n", "shape"), [(1, (2, 2)), (8, (2, 2)), (5, (3, 3))])
def test_entropy_moves_by_at_most_the_formula(n: int, shape: tuple[int, int]) -> None:
    for metric in (compute_entropy, lambda t: compute_entropies(t)[0]):
        added, replaced = moved(metric, n, shape)
        assert 0 < max(added, replaced) <= compute_entropy_sensitivity(n)


def test_the_metrics_by_hand() -> None:
    """Figure 1 of PrivSyn: InDif = 0.08 n.  Two equal coins: 1 bit, independent ones: 0."""
    figure = np.array([[10, 10, 20], [10, 20, 30]])
    assert compute_in_dif(figure) == pytest.approx(0.08 * 100)
    assert compute_indif(figure) == 8
    same, apart = np.array([[5, 0], [0, 5]]), np.array([[5, 5], [5, 5]])
    assert compute_mutual_information(same) == pytest.approx(1.0)
    assert compute_mutual_information(apart) == 0.0
    assert compute_symmetrical_uncertainty(*compute_entropies(same)) == pytest.approx(1.0)
    assert compute_symmetrical_uncertainty(*compute_entropies(apart)) == pytest.approx(0.0)
    assert (compute_in_dif(np.zeros((2, 2), np.int64)), compute_entropy(np.zeros(3, np.int64))) == (0.0, 0.0)


def test_relative_errors_follow_the_noise() -> None:
    """E|N(0, sigma)| = sigma sqrt(2 / pi), over the metric's value; independent pairs are left out."""
    table, independent = np.array([[400, 100], [100, 400]]), np.array([[250, 250], [250, 250]])
    found = list_relative_errors([table, independent], Fraction(1, 2), 20_000, SeededNoise(1))
    per_unit = math.sqrt(2 / math.pi) / math.sqrt(2 * 0.25)  # rho / 2 for each of two tables
    assert found["InDif"] == pytest.approx(per_unit * 4 / compute_in_dif(table), rel=0.03)
    information = per_unit * compute_information_sensitivity(1_000) / compute_mutual_information(table)
    assert found["mutual information"] == pytest.approx(information, rel=0.03)
    assert found["InDif"] < found["mutual information"] < found["symmetrical uncertainty"]
