"""Which pairs rows of a wide table follow: the strongest of each attribute."""

from __future__ import annotations

import numpy as np
import pytest

from privsyn.tasks.estimation.marginals import Marginal
from privsyn.tasks.synthesis.implied_pairs import _compute_information, choose_strongest
from privsyn.tasks.synthesis.sweep import compute_mutual_information


def pair(a: str, b: str, strength: float, shape: tuple[int, int] = (2, 2)) -> Marginal:
    counts = np.full(shape, 10.0)
    counts[0, 0] += strength
    return Marginal((a, b), counts)


def test_each_attribute_keeps_its_strongest_pairs_in_their_order() -> None:
    pairs = [pair("a", "b", 1), pair("a", "c", 9, (2, 3)), pair("a", "d", 5), pair("b", "c", 0), pair("c", "d", 30)]
    assert [m.attributes for m in choose_strongest(pairs, 1)] == [("a", "b"), ("a", "c"), ("c", "d")]
    assert choose_strongest(pairs, 3) == pairs and choose_strongest([]) == []


@pytest.mark.parametrize("shape", [(2, 2), (3, 5)])
def test_information_of_many_pairs_is_that_of_each(shape: tuple[int, int]) -> None:
    rng = np.random.default_rng(1)
    pairs = [Marginal(("a", "b"), rng.integers(0, 4, shape).astype(float)) for _ in range(5)]
    pairs.append(Marginal(("a", "b"), np.zeros(shape)))
    found = _compute_information(pairs) * 1e-9
    assert found == pytest.approx([compute_mutual_information(m, "a") for m in pairs], abs=2e-9)
