"""One-ways drawn towards a public table: nearer where it is right, as they were where it is wrong."""

from __future__ import annotations

import numpy as np
import pytest

from privsyn.tasks.estimation.towards_prior import count_noisy_rows, expect_shares, shrink_towards_prior

SIZES, ROWS, SIGMA = (40, 25, 12, 60), 3_000, 25.0


def columns(seed: int, rows: int = ROWS, skew: float = 1.5) -> dict[str, np.ndarray]:
    """Codes of made-up columns: the i-th code has a share as 1 / i^skew, in an order of its own."""
    rng, order = np.random.default_rng([seed, 1]), np.random.default_rng(0)
    found = {}
    for number, size in enumerate(SIZES):
        shares = order.permutation(1.0 / np.arange(1, size + 1) ** skew)
        found[f"c{number}"] = rng.choice(size, rows, p=shares / shares.sum())
    return found


def case(public: dict[str, np.ndarray], seed: int = 5) -> tuple[float, float, int]:
    """Squared errors of the noisy and of the drawn counts, and how many attributes were drawn."""
    rng = np.random.default_rng(seed)
    true = {a: np.bincount(c, minlength=n) for (a, c), n in zip(columns(seed).items(), SIZES, strict=True)}
    noisy = {a: t + rng.normal(0, SIGMA, len(t)) for a, t in true.items()}
    drawn = shrink_towards_prior(noisy, dict.fromkeys(noisy, SIGMA), public)
    raw = sum(float(((noisy[a] - true[a]) ** 2).sum()) for a in true)
    means = {a: drawn[a].mean if a in drawn else noisy[a] for a in noisy}
    return raw, sum(float(((means[a] - true[a]) ** 2).sum()) for a in true), len(drawn)


def test_the_right_table_takes_most_of_the_noise_off() -> None:
    raw, drawn, attributes = case(columns(9))
    assert attributes == len(SIZES) and drawn < 0.3 * raw


def test_a_wrong_table_is_left_alone_or_does_no_harm() -> None:
    rng = np.random.default_rng(3)
    wrong = {
        a: rng.permutation(size).astype(np.int64)[codes]
        for (a, codes), size in zip(columns(9).items(), SIZES, strict=True)
    }
    raw, drawn, attributes = case(wrong)
    assert attributes < len(SIZES) and drawn <= 1.03 * raw


def test_shares_and_rows_by_hand() -> None:
    assert expect_shares(np.array([0, 0, 1]), 4) == pytest.approx([2.25 / 4, 1.25 / 4, 0.25 / 4, 0.25 / 4])
    assert count_noisy_rows([np.array([4.0, 6.0]), np.array([20.0])], [1.0, 2.0]) == pytest.approx(
        (10 / 2 + 20 / 4) / (1 / 2 + 1 / 4)
    )
