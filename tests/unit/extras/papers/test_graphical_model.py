"""PGM in the place of GUM in the comparison, where the package mbi is installed; a clear refusal where it is not."""

from __future__ import annotations

import importlib.util

import pytest

from privsyn.evaluation.comparison.compare_methods import METHODS
from privsyn.evaluation.comparison.method import DomainTooLargeError
from privsyn.extras.papers import paper_variants
from tests.unit.evaluation.comparison.test_methods import l1, trial

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
