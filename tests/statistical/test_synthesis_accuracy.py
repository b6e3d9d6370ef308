"""Sweeps against GUM and against their own start, on one seeded table under seeded noise."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from privsyn.data_contracts.domain import Domain
from privsyn.data_contracts.mechanism_options import Synthesis
from privsyn.tasks.estimation.marginals import Marginal
from privsyn.tasks.kernels.counting import CodeTable, count
from privsyn.tasks.steps.make_consistent import make_consistent
from privsyn.tasks.steps.synthesize import synthesize
from tests.support.repeated_noise import renew

DOMAIN = Domain.of({"a": 4, "b": 5, "c": 6, "d": 8, "e": 3, "f": 12})
ROWS = 30_000


@pytest.fixture(scope="module")
def true() -> CodeTable:
    """Six attributes that hang on two hidden ones, so that pairs do not form a tree."""
    rng = np.random.default_rng(8)
    hidden = rng.integers(0, 4, ROWS), rng.integers(0, 3, ROWS)
    columns = []
    for i, size in enumerate(DOMAIN.sizes):
        centre = (hidden[0] * (i % 3 + 1) + hidden[1] * (i + 1)) % size
        columns.append(((centre + (rng.random(ROWS) ** 3 * size).astype(int)) % size).astype(np.uint8))
    return CodeTable(DOMAIN, tuple(columns))


def noisy_marginals(true: CodeTable, sigma: float, seed: int, *, shrink: bool = False) -> list[Marginal]:
    """Every pair under noise of one sigma, made consistent with one-ways of thrice the noise."""
    rng = np.random.default_rng(renew(seed))
    ones = [Marginal((a,), count(true, (a,)) + rng.normal(0, 3 * sigma, DOMAIN.size(a))) for a in DOMAIN.attributes]
    pairs = [
        Marginal(c, count(true, c) + rng.normal(0, sigma, DOMAIN.shape(c)))
        for c in combinations(DOMAIN.attributes, 2)
    ]  # fmt: skip
    variance = [np.full(m.counts.size, 9 * sigma**2) for m in ones]
    return make_consistent(ones, variance, pairs, [sigma] * len(pairs), 10, one_way_weight=10.0, shrink=shrink)


def l1(made: CodeTable, true: CodeTable, ways: int) -> float:
    """Mean L1 distance over all marginals of that many attributes, 0 .. 2."""
    found = [np.abs(count(made, c) - count(true, c)).sum() / ROWS for c in combinations(DOMAIN.attributes, ways)]
    return float(np.mean(found))


@pytest.mark.parametrize(
    ("sigma", "two", "three"),
    [
        pytest.param(2.0, 0.5, 0.98, marks=pytest.mark.slow),
        pytest.param(30.0, 0.995, 0.99, marks=pytest.mark.slow),
        pytest.param(60.0, 1.01, 0.995, marks=pytest.mark.slow),
        pytest.param(100.0, 1.01, 1.01, marks=pytest.mark.slow),
    ],
)
def test_sweeps_beat_gum(true: CodeTable, sigma: float, two: float, three: float) -> None:
    """Far below GUM's error on the measured pairs where noise is small, below it at a sigma of 30, level (within 1 %)
    from 60 on, where noise is all that is left; triples gain a little longer.

    Over 48 seeds at 60: pairs .2 % worse (standard error .1 %), triples 1.5 % better (.4 %).
    """
    errors = {"gum": np.zeros(2), "sweep": np.zeros(2)}
    for seed in range(24):
        marginals = noisy_marginals(true, sigma, seed, shrink=True)
        for method, error in errors.items():
            made = synthesize(marginals, DOMAIN, Synthesis.model_validate({"method": method, "seed": seed}), ROWS)
            error += [l1(made, true, 2), l1(made, true, 3)]
    assert errors["sweep"][0] < two * errors["gum"][0]
    assert errors["sweep"][1] < three * errors["gum"][1]


@pytest.mark.statistical(0.1)  # none of 29 fresh seeds failed
@pytest.mark.parametrize(("sigma", "share"), [(60.0, 0.95), (400.0, 0.9)])
def test_empirical_bayes_brings_the_measured_pairs_closer_to_the_truth(
    true: CodeTable, sigma: float, share: float
) -> None:
    errors = {False: 0.0, True: 0.0}
    for seed in range(3):
        for shrink in errors:
            found = noisy_marginals(true, sigma, seed, shrink=shrink)[len(DOMAIN.sizes) :]
            errors[shrink] += sum(float(np.abs(m.counts - count(true, m.attributes)).sum()) for m in found)
    assert errors[True] < share * errors[False]
