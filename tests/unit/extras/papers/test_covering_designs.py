"""Covering designs: every pair of points on exactly one line, and the known number of lines."""

from __future__ import annotations

from collections import Counter
from itertools import combinations

import numpy as np
import pytest

from privsyn.data_contracts.domain import Domain
from privsyn.data_contracts.focus import NamedMarginal
from privsyn.evaluation.comparison.compare_methods import METHODS
from privsyn.evaluation.comparison.method import MethodSettings
from privsyn.extras.papers import public_views
from privsyn.extras.papers.public_views import LARGEST, build_affine_plane
from tests.support.examples import keep_first
from tests.unit.evaluation.comparison.test_methods import trial


@pytest.mark.parametrize("points", [2, 3, 4, 5, 9, 11, 16, 25, 30, 49, 50, 63, 64])
def test_every_pair_is_on_exactly_one_line(points: int) -> None:
    held = Counter(pair for line in build_affine_plane(points) for pair in combinations(line, 2))
    assert held == Counter(combinations(range(points), 2))


@pytest.mark.parametrize("order", [2, 3, 4, 5, 7, 8])
def test_a_whole_plane_has_the_known_number_of_lines(order: int) -> None:
    lines = build_affine_plane(order**2)
    assert len(lines) == len(set(lines)) == order**2 + order and {len(line) for line in lines} == {order}
    assert LARGEST == 64 and build_affine_plane(65) == []


def test_integers_modulo_8_are_no_field(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted mutant: 2 times 4 is 0 there, so that two points are on several lines."""
    monkeypatch.setitem(public_views._FIELDS, 8, 0)
    assert max(Counter(pair for line in build_affine_plane(64) for pair in combinations(line, 2)).values()) > 1


@pytest.mark.parametrize("columns", keep_first([5, 20, 64], 2))
def test_what_does_not_fit_is_covered_all_the_same(columns: int) -> None:
    """Columns of many codes: lines that are too large give way to smaller views, and no view is too large."""
    domain = Domain.of({f"a{i}": 2 + 7 * (i % 5) for i in range(columns)})
    views = public_views.list_covering_views(domain, 5_000)
    assert {p for view in views for p in combinations(view, 2)} >= set(combinations(domain.attributes, 2))
    assert max(domain.cells(view) for view in views) <= 5_000 and max(map(len, views)) <= 8
    assert len(views) <= len(public_views.list_greedy_views(domain, 5_000))


def test_the_manual_list_measures_what_the_workload_names_and_nothing_else() -> None:
    named = (NamedMarginal(columns=("c", "a", "d")), NamedMarginal(columns=("b", "d")))
    made = METHODS["manual-list"].run(trial(settings=MethodSettings(workload=named)))
    assert set(made.marginals) == {("a", "c", "d"), ("b", "d")}
    without = METHODS["manual-list"].run(trial())
    assert without.marginals == () and np.isfinite(without.epsilon(1e-9))
