"""Laplace noise, for comparisons only: the scale and shape that its receipts pay for, and no way into a release."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from privsyn.tasks.privacy import noise
from tests.support.repeated_noise import renew

DRAWS = 40_000


def p_value(sample: np.ndarray, scale: float) -> float:
    """Pearson's chi-square of integers against round(Lap(scale)), on about 40 bins of equal probability."""
    edges = np.unique(np.rint(stats.laplace.ppf(np.linspace(0, 1, 41)[1:-1], scale=scale))) + 0.5
    bounds = np.concatenate([[-np.inf], edges, [np.inf]])
    expected = np.diff(stats.laplace.cdf(bounds, scale=scale)) * len(sample)
    return float(stats.chisquare(np.bincount(np.searchsorted(edges, sample), minlength=len(expected)), expected).pvalue)


@pytest.mark.statistical(2e-4)
@pytest.mark.parametrize("scale", [0.7, 5.0, 120.0])
def test_seeded_laplace_has_its_scale_and_another_scale_or_shape_is_rejected(scale: float) -> None:
    source = noise.SeededNoise(renew(11))
    sample = source.draw_laplace(scale, DRAWS)
    assert sample.dtype == np.int64
    assert p_value(sample, scale) > 1e-4
    for factor in (0.88, 1.12):
        assert p_value(source.draw_laplace(scale * factor, DRAWS), scale) < 1e-9
    assert p_value(source.draw(scale * np.sqrt(2), DRAWS), scale) < 1e-9  # a Gaussian of equal variance


def test_seeded_laplace_repeats() -> None:
    one, two = noise.SeededNoise(3), noise.SeededNoise(3)
    first = one.draw_laplace(5.0, 100)
    assert np.array_equal(first, two.draw_laplace(5.0, 100))
    assert not np.array_equal(first, one.draw_laplace(5.0, 100))
    assert not noise.NoNoise().draw_laplace(5.0, 3).any()


@pytest.mark.parametrize("scale", [0.0, -1.0, float("nan"), float("inf")])
@pytest.mark.parametrize("source", [noise.SeededNoise(1), noise.NoNoise()])
def test_a_scale_that_protects_nothing_is_refused(source: noise.ComparisonNoise, scale: float) -> None:
    with pytest.raises(ValueError, match="sigma"):
        source.draw_laplace(scale, 3)


def test_the_release_source_draws_no_laplace() -> None:
    assert not hasattr(noise.OpenDPNoise(), "draw_laplace")
