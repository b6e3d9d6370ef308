"""Pairs that nobody measured and the strongest measured ones: which, on how many rows, and what rows gain."""

from __future__ import annotations

import numpy as np
import pytest

from privsyn.data_contracts.domain import Domain
from privsyn.data_contracts.mechanism_options import Synthesis
from privsyn.tasks.estimation.marginals import Marginal
from privsyn.tasks.kernels.counting import CodeTable, count
from privsyn.tasks.steps.synthesize import synthesize
from privsyn.tasks.synthesis.implied_pairs import (
    MOST_CELLS,
    MOST_ROWS,
    choose_strongest,
    compute_row_factor,
    imply_pairs,
    list_missing_pairs,
)

DOMAIN = Domain.of(dict.fromkeys("abcde", 6))


def chain(rows: int, seed: int = 0) -> tuple[list[Marginal], np.ndarray]:
    """One-ways and the pairs of a chain of noisy copies, exact, and the chain's true joint of its two ends."""
    rng = np.random.default_rng(seed)
    copy = 0.5 * np.eye(6) + 0.5 * rng.dirichlet(np.ones(6), 6)
    first = rng.dirichlet(np.ones(6) * 4)
    ones, pairs, ends = [first], [], np.diag(first)
    for _ in "bcde":
        pairs.append(ones[-1][:, None] * copy)
        ones.append(ones[-1] @ copy)
        ends = ends @ copy
    found = [Marginal((a,), p * rows) for a, p in zip("abcde", ones, strict=True)]
    found += [
        Marginal((a, b), p * rows, 1.0) for (a, b), p in zip(zip("abcd", "bcde", strict=True), pairs, strict=True)
    ]
    return found, ends


def test_missing_are_the_pairs_inside_no_marginal() -> None:
    domain = Domain.of({"a": 2, "b": 9, "c": 3, "d": 4})
    found = list_missing_pairs([("a",), ("b", "a"), ("b", "c", "d")], domain)
    assert found == [("a", "c"), ("a", "d")]
    wide = Domain.of({"a": 2_500, "b": 2_000, "c": 3, "d": 4})
    assert ("a", "b") not in list_missing_pairs([], wide) and wide.cells(("a", "b")) > MOST_CELLS
    assert len(list_missing_pairs([], wide)) == 5


def test_more_rows_are_made_for_small_tables_only() -> None:
    assert compute_row_factor(10_000, 10, 4) == 4
    assert compute_row_factor(10_000, 10, 1) == 1
    assert compute_row_factor(MOST_ROWS // 2, 10, 4) == 2
    assert compute_row_factor(MOST_ROWS, 10, 4) == 1
    assert compute_row_factor(100_000, 300, 4) == 1
    assert compute_row_factor(0, 10, 4) == 1


@pytest.mark.parametrize("seed", range(3))
def test_a_pair_that_was_not_measured_is_closer_to_what_the_measured_ones_imply(seed: int) -> None:
    rows = 4_000
    marginals, ends = chain(rows, seed)
    errors = []
    for oversample in (1, 16):
        made = synthesize(marginals, DOMAIN, Synthesis(seed=seed, oversample=oversample), rows, 1)
        errors.append(np.abs(count(made, ("a", "e")) / rows - ends).sum())
        for pair in zip("abcd", "bcde", strict=True):
            wanted = next(m.counts for m in marginals if m.attributes == pair)
            assert np.abs(count(made, pair) - wanted).sum() < 0.01 * rows  # what was measured is not given up for it
    assert errors[1] < 0.8 * errors[0]


def pair(a: str, b: str, strength: float, shape: tuple[int, int] = (2, 2)) -> Marginal:
    counts = np.full(shape, 10.0)
    counts[0, 0] += strength
    return Marginal((a, b), counts)


def test_each_attribute_keeps_its_strongest_pairs_in_their_order() -> None:
    pairs = [pair("a", "b", 1), pair("a", "c", 9, (2, 3)), pair("a", "d", 5), pair("b", "c", 0), pair("c", "d", 30)]
    assert [m.attributes for m in choose_strongest(pairs, 1)] == [("a", "b"), ("a", "c"), ("c", "d")]
    assert choose_strongest(pairs, 3) == pairs and choose_strongest([]) == []


def test_counts_are_scaled_to_the_marginals_total() -> None:
    made = CodeTable(Domain.of({"a": 2, "b": 2}), (np.array([0, 0, 1, 1], np.uint8), np.array([0, 1, 1, 1], np.uint8)))
    (pair,) = imply_pairs(made, [("a", "b")], 10.0, 3.0, 1)
    assert pair.counts.tolist() == [[2.5, 2.5], [0.0, 5.0]]
    assert pair.sigma == pytest.approx((36 + 2.5**2) ** 0.5)  # a mean cell holds 1 row, 2.5 records, give or take 1
