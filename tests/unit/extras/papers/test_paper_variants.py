"""The variants of Figures 5 and 7, and PGM in the place of GUM: each replaces what its name says, and nothing else."""

from __future__ import annotations

import importlib.util
from itertools import pairwise

import numpy as np
import pytest

from privsyn.data_contracts.domain import Domain
from privsyn.evaluation.comparison.method import DomainTooLargeError, MethodInput, MethodResult
from privsyn.evaluation.comparison.methods import METHODS
from privsyn.extras.papers import paper_variants
from privsyn.tasks.codecs.binning import AttributeBins
from privsyn.tasks.kernels.counting import CodeTable
from privsyn.tasks.privacy.noise import SeededNoise
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
