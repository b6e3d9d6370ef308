"""Consistency against brute force: weighted least squares and projection on the simplex."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from scipy.optimize import minimize

from privsyn.data_contracts.domain import Domain
from privsyn.tasks.estimation.marginals import Marginal, apply_norm_sub
from privsyn.tasks.steps.make_consistent import make_consistent, remove_interaction

DOMAIN = Domain(("a", "b", "c"), (2, 3, 4))


def truth_and_noise(seed: int, sigma: float) -> tuple[list[Marginal], list[np.ndarray], list[Marginal], np.ndarray]:
    rng = np.random.default_rng(seed)
    joint = rng.multinomial(20_000, rng.dirichlet(np.ones(24))).reshape(2, 3, 4).astype(float)
    one = [
        Marginal((x,), joint.sum(axis=tuple(j for j in range(3) if j != i)) + rng.normal(0, sigma, DOMAIN.sizes[i]))
        for i, x in enumerate("abc")
    ]
    variance = [np.full(s, sigma**2) for s in DOMAIN.sizes]
    two = []
    for i, j in combinations(range(3), 2):
        (k,) = {0, 1, 2} - {i, j}
        counts = joint.sum(axis=k)
        two.append(Marginal(("abc"[i], "abc"[j]), counts + rng.normal(0, sigma, counts.shape)))
    return one, variance, two, joint


@pytest.mark.parametrize("seed", range(3))
def test_shared_counts_agree_after_it(seed: int) -> None:
    one, variance, two, _ = truth_and_noise(seed, 40.0)
    found = make_consistent(one, variance, two, [40.0] * 3, rounds=50)
    total = found[0].counts.sum()
    for m in found:
        assert m.counts.min() >= 0
        assert m.counts.sum() == pytest.approx(total)
    for m in found[3:]:
        for axis, attribute in enumerate(m.attributes):
            one_way = found[DOMAIN.index(attribute)].counts
            assert m.counts.sum(axis=1 - axis) == pytest.approx(one_way, abs=1.0)


def test_one_average_is_weighted_least_squares() -> None:
    """One shared attribute, uneven noise: the adjusted tables minimize the weighted squared change.

    Referee: brute-force minimization subject to equal projections on the shared attribute and total.
    """
    rng = np.random.default_rng(3)
    x = Marginal(("a", "b"), rng.uniform(200, 300, (2, 3)))
    y = Marginal(("a",), rng.uniform(800, 900, 2))
    sx, sy = 5.0, 2.0
    found = make_consistent([y], [np.full(2, sy**2)], [x], [sx], rounds=1)

    def cost(v: np.ndarray) -> float:
        return float(((v[:2] - y.counts) ** 2).sum() / sy**2 + ((v[2:] - x.counts.ravel()) ** 2).sum() / sx**2)

    equal = {"type": "eq", "fun": lambda v: v[2:].reshape(2, 3).sum(axis=1) - v[:2]}
    best = minimize(cost, np.concatenate([y.counts, x.counts.ravel()]), constraints=[equal], tol=1e-12).x
    assert found[0].counts == pytest.approx(best[:2], rel=1e-4)
    assert found[1].counts.ravel() == pytest.approx(best[2:], rel=1e-4)


@pytest.mark.parametrize("seed", range(3))
def test_norm_sub_is_the_euclidean_projection(seed: int) -> None:
    rng = np.random.default_rng(seed)
    x = rng.normal(1, 5, 6)
    total = 10.0
    sum_is = {"type": "eq", "fun": lambda v: v.sum() - total}
    best = minimize(
        lambda v: ((v - x) ** 2).sum(), np.full(6, total / 6), bounds=[(0, None)] * 6, constraints=[sum_is], tol=1e-12
    ).x
    assert apply_norm_sub(x, total) == pytest.approx(best, abs=1e-3)


def test_a_clique_and_a_pair_agree_on_their_shared_pair() -> None:
    rng = np.random.default_rng(0)
    clique = Marginal(("a", "b", "c"), rng.uniform(50, 100, (2, 3, 4)))
    pair = Marginal(("a", "b"), rng.uniform(200, 400, (2, 3)))
    one = [Marginal((x,), np.full(s, 1800 / s)) for x, s in zip("abc", (2, 3, 4), strict=True)]
    found = make_consistent(one, [np.full(s, 100.0) for s in (2, 3, 4)], [clique, pair], [5.0, 5.0], 50)
    assert found[3].counts.sum(axis=2) == pytest.approx(found[4].counts, abs=1.0)


def test_one_ways_of_more_weight_keep_their_small_counts_where_noise_is_cut() -> None:
    """Cells of 5 and fewer rows under noise of 20: what is cut at 0 adds up in the one-way unless its weight is
    raised."""
    truth, error = np.array([9_000.0, 700, 200, 100]), {1.0: 0.0, 10.0: 0.0}
    for seed in range(10):
        rng = np.random.default_rng(seed)
        one, two = [Marginal(("a",), truth + rng.normal(0, 40, 4))], []
        for other in ("b", "c", "d"):
            cells = np.outer(truth, np.full(40, 1 / 40))
            two.append(Marginal(("a", other), cells + rng.normal(0, 20, cells.shape)))
            one.append(Marginal((other,), cells.sum(axis=0) + rng.normal(0, 40, 40)))
        variance = [np.full(m.counts.size, 1_600.0) for m in one]
        for weight in error:
            found = make_consistent(one, variance, two, [20.0] * 3, 10, one_way_weight=weight)
            error[weight] += np.abs(found[0].counts - truth).sum()
            assert all(m.counts.min() >= 0 for m in found)
    assert error[10.0] < 0.75 * error[1.0]


def test_a_noisy_triple_that_only_repeats_its_pairs_is_drawn_to_them() -> None:
    rng = np.random.default_rng(1)
    pairs = remove_interaction(rng.gamma(1.0, 60.0, (3, 4, 5)), 4_000.0)
    sigma = 12.0
    noisy = pairs + rng.normal(0, sigma, pairs.shape)
    one_way = [Marginal((a,), pairs.sum(axis=tuple(i for i in range(3) if i != axis))) for axis, a in enumerate("abc")]
    variance = [np.full(m.counts.shape, 1.0) for m in one_way]
    given = [Marginal(("a", "b", "c"), noisy, sigma)]
    plain, shrunk = (
        make_consistent(one_way, variance, given, [sigma], 10, one_way_weight=10.0, shrink=s)[-1].counts
        for s in (False, True)
    )
    assert np.abs(shrunk - pairs).sum() < 0.8 * np.abs(plain - pairs).sum()


def faint_pairs(seed: int) -> tuple[list[Marginal], list[Marginal]]:
    """One-ways of a column with a rare and an empty value and of twelve others, and its pairs with these, all of which
    noise hides: 620 in a cell, 212 in the one-ways, of 13,700 rows."""
    rng, first, other = np.random.default_rng(seed), np.array([0.97, 0.03, 0.0]) * 13_700, np.array([0.9, 0.1, 0.0])
    one = [Marginal(("a",), first), *(Marginal((f"b{i}",), other * 13_700) for i in range(12))]
    pairs = [Marginal(("a", f"b{i}"), np.outer(first, other)) for i in range(12)]
    noisy = [
        Marginal(m.attributes, m.counts + rng.normal(0, 212.0 if len(m.attributes) == 1 else 620.0, m.counts.shape))
        for m in (*one, *pairs)
    ]
    return noisy[:13], noisy[13:]


def test_shrinking_many_faint_pairs_does_not_draw_a_one_way_off() -> None:
    true, errors = np.array([0.97, 0.03, 0.0]) * 13_700, {False: 0.0, True: 0.0}
    for seed in range(8):
        one, pairs = faint_pairs(seed)
        for shrink in errors:
            found = make_consistent(
                one, [np.full(3, 212.0**2)] * 13, pairs, [620.0] * 12, 10, one_way_weight=10.0, shrink=shrink
            )
            errors[shrink] += float(np.abs(found[0].counts - true).sum())
    assert errors[True] < 1.05 * errors[False]


def test_a_pair_keeps_its_trend_although_its_cells_are_shrunk() -> None:
    scores, shares = np.linspace(-1.5, 1.5, 8), np.full(8, 1 / 8)
    kept, noisy = [], []
    for seed in range(20):
        rng = np.random.default_rng(seed)
        true = 4_000 * np.outer(shares, shares) * (1 + 0.25 * np.outer(scores, scores))
        pair = Marginal(("a", "b"), true + rng.normal(0, 25, true.shape))
        ones = [Marginal((a,), true.sum(axis=1 - axis)) for axis, a in enumerate("ab")]
        order = {a: np.ones(8, bool) for a in "ab"}
        found = make_consistent(ones, [np.ones(8)] * 2, [pair], [25.0], 50, 10.0, shrink=True, pooled=order)
        kept.append(scores @ found[2].counts @ scores)
        noisy.append(scores @ pair.counts @ scores)
    assert np.mean(kept) > 0.9 * np.mean(noisy)  # .8 where the trend is shrunk with the cells
