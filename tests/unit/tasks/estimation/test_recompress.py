"""Codes decided anew by all one-ways: the same as one look with the whole budget would decide."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from privsyn.data_contracts.mechanism_options import Compression
from privsyn.data_contracts.receipts import Query
from privsyn.tasks.codecs.cells import AttributeBins
from privsyn.tasks.estimation.recode import Recode, estimate_total, pool_one_ways, recompress
from privsyn.tasks.steps.compress_domain import compress_domain

TRUE = {"a": np.array([300, 200, 120, 60, 30, 15, 8, 4]), "b": np.array([500, 200, 30, 7])}
BINNING = {
    "a": AttributeBins(np.arange(8, dtype=np.int32), in_order=((0, 8),), is_open=True),
    "b": AttributeBins(np.arange(4, dtype=np.int32), added=3),
}


def asked(sigma: float, *more: tuple[str, ...]) -> list[Query]:
    cliques = [*((a,) for a in TRUE), *more]
    return [Query(c, 4, 1, sigma) for c in cliques]


def first_look(sigma: float, seed: int = 0, added: int | None = None) -> Recode:
    rng = np.random.default_rng(seed)
    noisy = [np.rint(c + rng.normal(0, sigma, c.size)).astype(np.int64) for c in TRUE.values()]
    binning = {**BINNING, "b": replace(BINNING["b"], added=added)}
    return compress_domain(noisy, asked(sigma), binning, Compression())


def again(first: Recode, sigma: float, *more: tuple[str, ...], settings: Compression | None = None) -> Recode:
    answers: list[NDArray[np.int64]] = [*TRUE.values(), *(np.zeros(4, np.int64) for _ in more)]
    pooled = pool_one_ways(first, asked(sigma, *more), answers, BINNING)
    return recompress(pooled, asked(sigma, *more), BINNING, settings or Compression())


def counts(recode: Recode, a: str) -> NDArray[np.float64]:
    r = recode[a]
    sums = np.bincount(r.coarse, weights=r.estimate, minlength=r.size + 1)
    return np.asarray(r.weight * sums[r.coarse])


def test_what_was_low_in_the_first_look_is_told_apart_after_a_sharp_second_one() -> None:
    first = first_look(150.0)
    assert first["a"].size < 8
    found = again(first, 0.1)
    for a, true in TRUE.items():
        np.testing.assert_allclose(counts(found, a), true, atol=3)
        np.testing.assert_array_equal(found[a].coarse, first[a].coarse)


def test_counts_are_not_negative_and_have_one_total() -> None:
    for seed in range(5):
        found = again(first_look(150.0, seed), 100.0)
        total = estimate_total(found)
        for r in found.values():
            assert r.estimate.min() >= 0 and r.estimate.sum() == pytest.approx(total)
            assert np.bincount(r.coarse, weights=r.weight) == pytest.approx(1)


def test_where_a_larger_marginal_was_measured_only_the_inside_of_codes_changes() -> None:
    first = first_look(150.0)
    pooled = pool_one_ways(first, asked(0.1), list(TRUE.values()), BINNING)
    found = again(first, 0.1, ("a", "b"))
    for a in TRUE:
        np.testing.assert_array_equal(found[a].estimate, pooled[a].estimate)
        for code in range(found[a].size):
            inside = found[a].coarse == code
            np.testing.assert_allclose(found[a].weight[inside], TRUE[a][inside] / TRUE[a][inside].sum(), atol=0.02)


def test_what_was_filtered_stays_so() -> None:
    first = first_look(30.0, added=3)
    assert not first["b"].kept[3]
    found = again(first, 0.1)["b"]
    assert not found.kept[3]
    assert np.bincount(found.coarse, weights=found.weight) == pytest.approx(1)


@pytest.mark.parametrize("settings", [Compression(enabled=False), Compression(neighbours=False)])
def test_the_papers_rule_is_left_alone(settings: Compression) -> None:
    first = first_look(150.0)
    pooled = pool_one_ways(first, asked(10.0), list(TRUE.values()), BINNING)
    for a, r in again(first, 10.0, settings=settings).items():
        np.testing.assert_array_equal(r.estimate, pooled[a].estimate)
