"""What a further round measures: the marginal that departs, triples beside pairs, and the rest for the one-ways."""

from __future__ import annotations

import numpy as np
import pytest

from privsyn.data_contracts.domain import Domain
from privsyn.data_contracts.receipts import Query
from privsyn.tasks.estimation.expected_error import LEAST_GAIN, TargetWeights
from privsyn.tasks.estimation.pair_departures import estimate_clique_departures, estimate_pair_departures
from privsyn.tasks.estimation.recode import Recode
from privsyn.tasks.steps.score_columns import reselect_cliques
from tests.unit.tasks.estimation.test_pair_departures import recoded

COUNTS = {"a": [600, 400], "b": [500, 300, 200], "c": [700, 300], "d": [250, 250, 250, 250]}
FINE = Domain.of({a: len(c) for a, c in COUNTS.items()})
CLIQUES = [("a", "b"), ("a", "c"), ("b", "c"), ("b", "c", "d")]


def known(sigma: float = 1e-3) -> Recode:
    return recoded(COUNTS, sigma)


def asked(sigma: float = 5.0) -> list[Query]:
    return [Query(c, 1, 1, sigma) for c in CLIQUES]


def test_the_marginal_that_departs_is_measured_and_the_others_are_not() -> None:
    weights = reselect_cliques(asked(), [2.0, 300.0, 1.0, 2.0], known(), FINE, 0.5, 1, remeasure_one_ways=True)
    assert next(iter(weights)) == ("a", "c")
    assert {c for c in weights if len(c) > 1} == {("a", "c")}
    triple = reselect_cliques(asked(), [2.0, 3.0, 1.0, 400.0], known(), FINE, 0.5, 1, remeasure_one_ways=True)
    assert {c for c in triple if len(c) > 1} == {("b", "c", "d")}


def test_weights_sum_to_one_and_larger_cliques_come_first() -> None:
    weights = reselect_cliques(
        asked(), [200.0, 300.0, 250.0, 400.0], known(15.0), FINE, 0.05, 1, remeasure_one_ways=True
    )
    sizes = [len(c) for c in weights]
    assert sum(weights.values()) == pytest.approx(1.0)
    assert sizes[0] > 1 and sizes[-4:] == [1] * 4 and sizes == [s for s in sizes if s > 1] + [1] * 4
    alone = reselect_cliques(
        asked(), [200.0, 300.0, 250.0, 400.0], known(15.0), FINE, 0.05, 1, remeasure_one_ways=False
    )
    assert sum(alone.values()) == pytest.approx(1.0)
    assert min(map(len, alone)) > 1


def test_a_target_has_more_of_the_budget() -> None:
    plain, aimed = (
        reselect_cliques(asked(), [300.0] * 4, known(), FINE, 0.01, 1, remeasure_one_ways=False, targets=targets)
        for targets in (TargetWeights(), TargetWeights(frozenset("d"), 5.0))
    )
    assert aimed["b", "c", "d"] > 1.2 * plain["b", "c", "d"]


@pytest.mark.parametrize("remeasure", [True, False])
def test_where_nothing_departs_the_one_ways_have_all(remeasure: bool) -> None:
    for queries, scores in ((asked(), [0.0, -8.0, 1.0, 2.0]), ([], [])):
        weights = reselect_cliques(queries, scores, known(), FINE, 0.5, 1, remeasure_one_ways=remeasure)
        assert list(weights) == [(a,) for a in FINE.attributes]


def test_a_faint_measurement_is_not_made() -> None:
    departures = estimate_clique_departures(CLIQUES[:3], [30.0, 40.0, 20.0], 0.0, known())
    weights = reselect_cliques(asked(0.1), [30.0, 40.0, 20.0, 0.0], known(), FINE, 1e-4, 1, remeasure_one_ways=False)
    assert list(weights) == [(a,) for a in FINE.attributes]
    assert (departures.error(np.full(3, 1e-4)) > (1 - LEAST_GAIN) * departures.error(np.zeros(3))).all()


def test_cliques_are_spread_as_pairs_are() -> None:
    pairs, scores = [("a", "b"), ("c", "d"), ("b", "d")], [200.0, 30.0, 1.0]
    one = estimate_pair_departures(pairs, scores, 4.0, known(), noisy_reference=False)
    two = estimate_clique_departures(pairs, scores, 4.0, known())
    for rho in (0.0, 1e-3, 0.1):
        assert two.error(np.full(3, rho)) == pytest.approx(one.error(np.full(3, rho)))
    triple = estimate_clique_departures([("a", "b", "c")], [100.0], 0.0, known())
    assert triple.error(np.zeros(1)) == pytest.approx([100.0])
    assert triple.cells.sum() == 12
