"""Pooled coefficients: the basis loses nothing, many noisy pairs tell of each, and noise alone is taken off."""

from __future__ import annotations

import numpy as np
import pytest

from privsyn.tasks.estimation.pooled_coefficients import NoisyPair, fit_pooled_coefficients


def _make_pair(
    number: int,
    trend: float,
    noise: float,
    rng: np.random.Generator,
    sizes: tuple[int, int] = (3, 3),
    *,
    in_order: bool = True,
) -> tuple[NoisyPair, np.ndarray]:
    """Return a pair of even one-ways and 4,500 rows with a trend, and its true counts."""
    first, second = (np.linspace(-1.2, 1.2, size) for size in sizes)
    expected = np.full(sizes, 4_500 / (sizes[0] * sizes[1]))
    true = expected * (1 + trend * np.outer(first, second))
    noisy = true + rng.normal(0, noise, sizes)
    noisy += noisy.mean() - noisy.mean(axis=0) - noisy.mean(axis=1, keepdims=True) + expected.mean() - noisy.mean()
    ordered = (np.ones(sizes[0], bool), np.ones(sizes[1], bool)) if in_order else (None, None)
    return NoisyPair((f"c{2 * number}", f"c{2 * number + 1}"), noisy, expected, noise**2, ordered=ordered), true


@pytest.mark.slow
def test_many_pairs_tell_a_trend_from_noise_better_than_one() -> None:
    together, alone, raw = [], [], []
    for seed in range(20):
        rng = np.random.default_rng(seed)
        made = [_make_pair(i, trend, 84, rng) for i, trend in enumerate(rng.choice([0.0, 0.0, 0.05, 0.3], 20))]
        pairs = [pair for pair, _ in made]
        for (pair, true), estimate in zip(made, fit_pooled_coefficients(pairs), strict=True):
            (own,) = fit_pooled_coefficients([pair])
            together.append(np.abs(estimate(pair.counts) - true).sum())
            alone.append(np.abs(own(pair.counts) - true).sum())
            raw.append(np.abs(pair.counts - true).sum())
    assert np.mean(together) < 0.9 * np.mean(alone) < 0.9 * np.mean(raw)


def test_noise_alone_is_taken_off_without_and_with_an_order() -> None:
    for in_order in (True, False):
        rng = np.random.default_rng(3)
        pairs = [_make_pair(i, 0.0, 50, rng, (6, 6), in_order=in_order)[0] for i in range(20)]
        left = [
            np.abs(estimate(pair.counts) - pair.expected).sum() / np.abs(pair.counts - pair.expected).sum()
            for pair, estimate in zip(pairs, fit_pooled_coefficients(pairs), strict=True)
        ]
        assert np.mean(left) < 0.1


def test_codes_beside_those_in_order_are_told_apart_from_their_trend() -> None:
    rng = np.random.default_rng(5)
    scores = np.array([-1.2, 0.0, 1.2, 0.0])  # the last code is null
    expected = np.outer([1_000.0, 1_000, 1_000, 9_000], [4_000.0, 4_000, 4_000]) / 12_000
    true = expected * (1 + 0.4 * np.outer(scores, scores[:3]))
    noisy = true + rng.normal(0, 40, true.shape)
    pair = NoisyPair(("c0", "c1"), noisy, expected, 40.0**2, ordered=(np.arange(4) < 3, np.ones(3, bool)))
    (estimate,) = fit_pooled_coefficients([pair])
    measure = lambda counts: float(scores @ counts @ scores[:3] / (scores @ true @ scores[:3]))  # noqa: E731
    for found in (estimate(noisy), estimate.keep_trend(noisy, expected)):
        assert measure(found) == pytest.approx(measure(noisy), abs=0.05)
    assert estimate.keep_trend(noisy, expected)[3] == pytest.approx(expected[3])
