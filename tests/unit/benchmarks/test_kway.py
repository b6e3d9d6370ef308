"""The answers of unmeasured sets: each solver keeps what is known, and maximum entropy is right where it must be."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.kway import SOLVERS, constraints, maximum_entropy
from privsyn.data_contracts.domain import Domain

DOMAIN = Domain(("a", "b", "c"), (2, 3, 2))


def tables() -> dict[tuple[str, ...], np.ndarray]:
    """Counts of a, b, c in which a and c depend on each other by way of b only, summed over c, and over a."""
    rng = np.random.default_rng(3)
    of_b, a_given, c_given = rng.dirichlet(np.ones(3)), rng.dirichlet(np.ones(2), 3), rng.dirichlet(np.ones(2), 3)
    whole = np.einsum("b,ba,bc->abc", of_b, a_given, c_given) * 1_000
    return {("a", "b", "c"): whole, ("a", "b"): whole.sum(axis=2), ("b", "c"): whole.sum(axis=0)}


@pytest.mark.parametrize("name", SOLVERS)
def test_every_answer_fulfils_the_known_sums(name: str) -> None:
    known = {c: t for c, t in tables().items() if len(c) < 3}
    answer = SOLVERS[name](constraints(("a", "b", "c"), known, DOMAIN))
    assert answer.shape == (2, 3, 2) and answer.min() >= 0
    assert answer.sum(axis=2) * 1_000 == pytest.approx(known["a", "b"], abs=0.1)
    assert answer.sum(axis=0) * 1_000 == pytest.approx(known["b", "c"], abs=0.1)


def test_maximum_entropy_is_conditional_independence() -> None:
    found = tables()
    whole = found.pop(("a", "b", "c"))
    answer = maximum_entropy(constraints(("a", "b", "c"), found, DOMAIN))
    assert answer * 1_000 == pytest.approx(whole, abs=1e-3)


def test_only_the_largest_known_parts_are_asked() -> None:
    known = {("a",): np.array([1.0, 3.0]), ("a", "b"): np.ones((2, 3)), ("c",): np.array([2.0, 2.0])}
    given = constraints(("a", "b", "c"), known, DOMAIN)
    assert sorted(axes for axes, _ in given.parts) == [(0, 1), (2,)]
    matrix, right = given.system()
    assert matrix.shape == (8, 12) and matrix.sum() == 24
    assert right.sum() == pytest.approx(2.0)
