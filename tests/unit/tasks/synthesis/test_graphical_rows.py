"""Rows of the graphical model that the package mbi fits, where it is installed, and a clear refusal where it is not."""

from __future__ import annotations

import importlib.util
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from privsyn.api.after_release import rerun
from privsyn.api.open_release import open_release
from privsyn.base.errors import RequestError
from privsyn.base.settings import Settings
from privsyn.data_contracts.domain import Domain
from privsyn.tasks.estimation.marginals import Marginal
from privsyn.tasks.kernels.counting import count
from privsyn.tasks.steps.draw_rows import draw_graphical_rows
from tests.support.releases import release_in_process
from tests.support.specs import make_spec, people

needs_mbi = pytest.mark.skipif(importlib.util.find_spec("mbi") is None, reason="needs the extra pgm")
TREE = (("a", "b"), ("b", "c"))


def chain() -> np.ndarray:
    """Shares of three attributes where a and c are independent given b."""
    rng = np.random.default_rng(7)
    first, second = rng.dirichlet(np.ones(12)).reshape(3, 4), rng.dirichlet(np.ones(2), size=4)
    joint: np.ndarray = first[:, :, None] * second[None, :, :]
    return joint


@needs_mbi
def test_exact_counts_of_a_tree_give_the_distribution_that_factorizes() -> None:
    domain, joint, n = Domain(("a", "b", "c"), (3, 4, 2)), chain() * 20_000, 20_000
    measured = [
        Marginal(c, joint.sum(axis=tuple(i for i, a in enumerate("abc") if a not in c)), sigma=1.0) for c in TREE
    ]
    ones = {}
    for i, a in enumerate("abc"):
        counts = joint.sum(axis=tuple(j for j in range(3) if j != i))
        ones[a] = (counts, np.ones(counts.size))
    rows = draw_graphical_rows(measured, ones, domain, n, seed=3)
    again = draw_graphical_rows(measured, ones, domain, n, seed=3)
    assert all(np.array_equal(x, y) for x, y in zip(rows.columns, again.columns, strict=True))
    for pair in combinations("abc", 2):
        expected = joint.sum(axis=tuple(i for i, a in enumerate("abc") if a not in pair))
        assert np.abs(count(rows, pair) - expected).sum() < 0.01 * n, pair  # a-c was not measured: it follows
    assert draw_graphical_rows(measured, ones, domain, 0, seed=3).rows == 0


@pytest.mark.usefixtures("places")
def test_a_release_without_the_package_is_refused_and_costs_nothing(save: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    found = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *more: None if name == "mbi" else found(name, *more))
    spec = make_spec(data=save(people(50)), mechanism={"name": "mst", "rows_by": "mbi"})
    with pytest.raises(RequestError, match=r"(?s)mbi, which is not installed.*privsyn-flows\[pgm\]") as refused:
        release_in_process(spec, Settings())
    assert refused.value.field == "mechanism.rows_by"
    assert not Path(Settings().ledger).exists()


@needs_mbi
@pytest.mark.usefixtures("places")
def test_a_release_by_mbi_can_be_made_again(save: Any) -> None:
    made = release_in_process(
        make_spec(data=save(people(300)), mechanism={"name": "mst", "rows_by": "mbi"}), Settings()
    )
    assert rerun(made.released).agrees
    assert open_release(made.released).count("region").low.notna().all()
