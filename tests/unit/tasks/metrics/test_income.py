"""Gini index and pay gap: against their definitions over single people, and the score by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest

from privsyn.data_contracts.domain import Domain
from privsyn.tasks.kernels.counting import CodeTable
from privsyn.tasks.metrics.by_place import Income, compute_gini, score_income

DOMAIN = Domain.of({"city": 3, "sex": 3, "wage": 5})
WAGES = np.array([0.0, 10.0, 20.0, 40.0, math.nan])
"""The last code is null."""


def people(*rows: tuple[int, int, int]) -> CodeTable:
    """Rows of (city, sex, wage code)."""
    codes = np.array(rows, np.uint8).reshape(-1, 3)
    return CodeTable(DOMAIN, tuple(np.ascontiguousarray(codes[:, i]) for i in range(3)))


def evaluated(real: CodeTable, synthetic: CodeTable, **changes: object) -> Income:
    settings = {"place": "city", "sex": "sex", "wage": "wage", "wages": WAGES, "sexes": (0, 1)}
    return score_income(real, synthetic, **{**settings, **changes})  # type: ignore[arg-type]


REAL = people((0, 0, 2), (0, 1, 1), (0, 1, 4), (1, 0, 1), (1, 1, 3), (1, 2, 3), (2, 0, 3))
"""City 0: a man with 20, a woman with 10, a woman of unknown wage.  City 1: 10, 40, and 40 of a third sex.
City 2: a man with 40."""


def pairwise_gini(wages: np.ndarray) -> float:
    """The referee: mean absolute difference over twice the mean."""
    return float(np.abs(wages[:, None] - wages[None, :]).mean() / (2 * wages.mean()))


@pytest.mark.parametrize("seed", range(2))
def test_gini_is_the_mean_difference_over_twice_the_mean(seed: int) -> None:
    rng = np.random.default_rng(seed)
    wages = rng.permutation(rng.integers(0, 1_000, 12)).astype(float)
    counts = rng.integers(0, 6, (3, 12))
    expected = [pairwise_gini(np.repeat(wages, row)) for row in counts]
    assert compute_gini(counts, wages) == pytest.approx(expected)
    assert compute_gini(counts * 7, wages * 3.5) == pytest.approx(
        expected
    )  # neither the number of people nor the unit matters


def test_the_score_by_hand() -> None:
    """Synthetic city 0: equal wages, Gini 0, gap 0.  City 1: 10 and 40: 15 / 50 = 3/10, gap 30.  City 2 is missing.

    Synthetic ranks: city 1 first, city 0 second.  Closeness of Gini 5/6, 1 - (3/10 - 2/9) = 83/90, 0; of ranks
    1 (1 against 1), 1 - 2/2 = 0, 0.
    """
    found = evaluated(REAL, people((0, 0, 1), (0, 1, 1), (1, 1, 1), (1, 0, 3)))
    assert found.gini_score == pytest.approx(1e6 * math.sqrt(((5 / 6) ** 2 + (83 / 90) ** 2) / 3))
    assert found.rank_score == pytest.approx(1e6 * math.sqrt(1 / 3))


def test_awkward_tables() -> None:
    none = people()
    assert evaluated(none, none) == Income(1e6, 1e6)
    assert evaluated(none, REAL) == Income(0.0, 0.0)
    assert evaluated(REAL, none) == Income(0.0, 0.0)
    single = people((1, 0, 1), (1, 1, 2))
    assert evaluated(single, single) == pytest.approx((1e6, 1e6))
    unknown = people((0, 0, 4), (0, 1, 4))
    assert evaluated(unknown, unknown) == Income(1e6, 1e6)
    equal = people((0, 0, 1), (0, 1, 1))  # an index of 0, as of people without a known wage
    assert evaluated(unknown, equal).gini_score == pytest.approx(1e6)


def test_unfit_requests_are_refused() -> None:
    with pytest.raises(ValueError, match="one value"):
        evaluated(REAL, REAL, wages=WAGES[:3])
    with pytest.raises(ValueError, match="at least 0"):
        evaluated(REAL, REAL, wages=-WAGES)
    with pytest.raises(ValueError, match="two different"):
        evaluated(REAL, REAL, sexes=(1, 1))
    with pytest.raises(ValueError, match="three different"):
        evaluated(REAL, REAL, place="sex")


def test_gini_by_hand() -> None:
    """10 and 30: the mean difference is (0 + 20 + 20 + 0) / 4 = 10, twice the mean 40, so 1/4.  One of four: 3/4."""
    assert compute_gini(np.array([1, 1]), np.array([30.0, 10.0])) == pytest.approx(0.25)
    assert compute_gini(np.array([3, 1]), np.array([0.0, 5.0])) == pytest.approx(0.75)
    assert compute_gini(np.array([4, 0]), np.array([5.0, 9.0])) == pytest.approx(0, abs=1e-12)
    assert compute_gini(np.array([0, 0]), np.array([5.0, 9.0])) == 0
    assert compute_gini(np.array([4, 0]), np.array([0.0, 9.0])) == 0
