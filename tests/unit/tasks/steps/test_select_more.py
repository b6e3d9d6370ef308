"""What a further release still has to measure."""

from __future__ import annotations

import numpy as np
import pytest

from privsyn.data_contracts.domain import Clique
from privsyn.data_contracts.mechanism_options import Compression, Selection
from privsyn.data_contracts.receipts import Query
from privsyn.tasks.codecs.cells import AttributeBins
from privsyn.tasks.steps.compress_domain import compress_domain
from privsyn.tasks.steps.select_marginals import LEAST_LACKING, list_lacking, map_spent, select_from_all_scores

A, AB, AC = ("a",), ("a", "b"), ("a", "c")


def test_each_clique_gets_what_it_lacks_of_its_share() -> None:
    weights: dict[Clique, float] = {AB: 3.0, AC: 1.0, A: 4.0}
    left = list_lacking(weights, {AB: 0.2, A: 0.6}, 1.0)
    assert left == pytest.approx({AB: 0.375 - 0.2, AC: 0.125})
    assert list(left) == [AB, AC]


def test_what_lacks_next_to_nothing_is_not_asked_again() -> None:
    weights: dict[Clique, float] = {AB: 1.0, AC: 1.0}
    almost = 0.5 * (1 - LEAST_LACKING / 2)
    assert list(list_lacking(weights, {AB: almost}, 1.0)) == [AC]
    assert list_lacking(weights, {AB: 0.5, AC: 0.6}, 1.0) == weights


def test_all_looks_at_a_clique_are_counted() -> None:
    queries = [Query(AB, 4, 1, 10.0), Query(A, 2, 1, 5.0), Query(AB, 4, 1, 20.0)]
    assert map_spent(queries) == pytest.approx({AB: 1 / 200 + 1 / 800, A: 1 / 50})


def test_scores_of_all_releases_decide() -> None:
    """A pair that one noisy score hides is chosen by the mean of many."""
    sizes = {"a": 3, "b": 3, "c": 3}
    binning = {name: AttributeBins(np.arange(size, dtype=np.int32)) for name, size in sizes.items()}
    one_ways = [Query((name,), size, 1, 2.0) for name, size in sizes.items()]
    counts = [np.array([400, 350, 250]) for _ in sizes]
    recode = compress_domain(counts, one_ways, binning, Compression())
    pairs = [AB, AC, ("b", "c")]

    def chosen(scores: list[list[int]]) -> list[tuple[str, str]]:
        queries = [Query(pair, 1, 1, 60.0) for _ in scores for pair in pairs]
        answers = [np.array([value]) for release in scores for value in release]
        table = select_from_all_scores(queries, answers, recode, recode, 0.05, 1, Selection(), remeasure_one_ways=False)
        return [(row["a"], row["b"]) for row in table.to_pylist()]

    assert chosen([[-50, 600, -20]]) == [AC]
    assert chosen([[-50, 600, -20], [800, 600, -20], [900, 600, -20]]) == [AC, AB]
