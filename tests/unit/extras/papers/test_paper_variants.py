"""The papers' variants, PGM in the place of GUM, and covering designs: each replaces or covers what its name says."""

from __future__ import annotations

import importlib.util
from collections import Counter
from itertools import combinations, pairwise

import numpy as np
import pytest

from privsyn.data_contracts.domain import Domain
from privsyn.data_contracts.focus import NamedMarginal
from privsyn.evaluation.comparison.compare_methods import METHODS
from privsyn.evaluation.comparison.method import DomainTooLargeError, MethodInput, MethodResult, MethodSettings
from privsyn.extras.papers import paper_variants, public_views
from privsyn.extras.papers.public_views import LARGEST, build_affine_plane
from privsyn.tasks.codecs.cells import AttributeBins
from privsyn.tasks.kernels.counting import CodeTable
from privsyn.tasks.privacy.noise import SeededNoise
from tests.support.examples import keep_first
from tests.unit.evaluation.comparison.test_methods import l1, trial

NAMES, SIZE = ("a", "b", "c", "d"), 20
"""Three of them together have more cells than PrivSyn's gamma, 5,000: pairs stay pairs."""


def made(name: str) -> MethodResult:
    """Of rows in which each column follows the one before."""
    rng = np.random.default_rng(1)
    columns = [rng.integers(0, SIZE, 20_000)]
    for _ in NAMES[1:]:
        columns.append(np.where(rng.random(20_000) < 0.7, columns[-1], rng.integers(0, SIZE, 20_000)))
    rows = CodeTable(Domain(NAMES, (SIZE,) * 4), tuple(c.astype(np.uint8) for c in columns))
    binning = {name: AttributeBins(np.arange(SIZE, dtype=np.int32)) for name in NAMES}
    return METHODS[name].run(MethodInput(rows, binning, 5.0, 1e-9, 1, SeededNoise(1), seed=1, threads=1))


def test_privbayes_measures_a_family_of_each_later_column() -> None:
    families = [set(f) for f in made("privbayes-selection").marginals]
    assert len(families) == len(NAMES) - 1
    assert all(any({x, y} <= f for f in families) for x, y in pairwise(NAMES))
    assert len(made("privsyn-paper").marginals) > len(families)


@pytest.mark.parametrize("rows", ["mcf", "sweeps"])
def test_another_synthesis_measures_the_same_and_makes_other_rows(rows: str) -> None:
    usual, other = (made(n) for n in ("non-private-selection", f"non-private-selection-{rows}"))
    assert (other.marginals, other.zcdp, other.unpriced) == (usual.marginals, usual.zcdp, usual.unpriced)
    assert not all(np.array_equal(x, y) for x, y in zip(usual.table.columns, other.table.columns, strict=True))


NAME = "non-private-selection-pgm"
needs_mbi = pytest.mark.skipif(importlib.util.find_spec("mbi") is None, reason="needs the extra pgm")


def test_without_the_package_it_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    found = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *more: None if name == "mbi" else found(name, *more))
    with pytest.raises(ModuleNotFoundError, match=r"privsyn-flows\[pgm\]"):
        METHODS[NAME].run(trial())


@needs_mbi
def test_its_rows_follow_the_measured_pairs_as_gums_do() -> None:
    asked = trial(epsilon=10.0)
    made, gum = METHODS[NAME].run(asked), METHODS["non-private-selection"].run(asked)
    assert made.zcdp == gum.zcdp and made.marginals == gum.marginals
    for pair in (("a", "b"), ("b", "c")):
        assert l1(asked, made, pair) < 0.05 > l1(asked, gum, pair)


@needs_mbi
def test_a_junction_tree_that_is_too_large_is_said_not_to_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paper_variants, "MOST_MB", 1e-6)
    with pytest.raises(DomainTooLargeError, match="junction tree"):
        METHODS[NAME].run(trial())


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
