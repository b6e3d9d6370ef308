"""Weights of targets: by hand, and what they change of the choice and of the shares."""

from __future__ import annotations

import numpy as np
import pytest

from privsyn.tasks.estimation.expected_error import NO_TARGETS, Departures, TargetWeights
from privsyn.tasks.steps.select_marginals import select_by_expected_error

PAIRS = [("a", "b"), ("a", "c"), ("b", "c"), ("c", "d")]


def test_a_clique_has_the_largest_of_its_weights() -> None:
    targets = TargetWeights(frozenset({"a"}), 3.0, ((frozenset("acd"), 2.0), (frozenset("bc"), 7.0)))
    assert targets.weights([*PAIRS, ("b", "d"), ("a", "c", "d")]).tolist() == [3.0, 3.0, 7.0, 2.0, 1.0, 3.0]
    assert NO_TARGETS.weights(PAIRS).tolist() == [1.0] * 4


def test_a_target_gets_more_of_the_budget_and_is_chosen_where_it_was_not() -> None:
    departures = Departures(np.full((4, 1), 20.0), np.full((4, 1), 50.0))

    def shares(targets: TargetWeights, rho: float) -> dict[tuple[str, str], float]:
        weighted = targets.weighted(departures, PAIRS)
        table = select_by_expected_error(PAIRS, [1000.0] * 4, [50] * 4, weighted, rho, 1, 10**6)
        return {(r["a"], r["b"]): r["weight"] for r in table.to_pylist()}

    assert list(shares(NO_TARGETS, 0.01).values()) == pytest.approx([0.25] * 4, rel=1e-2)
    aimed = shares(TargetWeights(frozenset({"d"}), 3.0), 0.01)
    assert aimed["c", "d"] > 1.5 * max(w for pair, w in aimed.items() if pair != ("c", "d"))
    assert sum(aimed.values()) <= 1 + 1e-9
    assert shares(NO_TARGETS, 2.5e-3) == {}
    assert set(shares(TargetWeights(frozenset({"d"}), 30.0), 2.5e-3)) == {("c", "d")}
