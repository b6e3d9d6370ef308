"""Synthesis on random domains, cliques and counts, by both methods."""

from __future__ import annotations

from itertools import combinations

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from privsyn.data_contracts.domain import Domain
from privsyn.data_contracts.mechanism_options import Synthesis
from privsyn.tasks.estimation.marginals import Marginal
from privsyn.tasks.steps.synthesize import append_attributes, select_core_marginals, synthesize
from tests.support.examples import choose_example_count

SLOW = settings(max_examples=choose_example_count(60), deadline=None, suppress_health_check=list(HealthCheck))


@st.composite
def problems(draw: st.DrawFn) -> tuple[list[Marginal], Domain]:
    """Marginals over a random domain: every one-way, some cliques, counts of any size, not even consistent."""
    sizes = draw(st.lists(st.integers(1, 5), min_size=1, max_size=5))
    domain = Domain.of({f"x{i}": s for i, s in enumerate(sizes)})
    larger = [c for n in (2, 3) for c in combinations(domain.attributes, n)]
    cliques = draw(st.lists(st.sampled_from(larger), max_size=5, unique=True)) if larger else []
    marginals = []
    for clique in [*((a,) for a in domain.attributes), *cliques]:
        counts = draw(st.lists(st.floats(0, 1e6), min_size=domain.cells(clique), max_size=domain.cells(clique)))
        marginals.append(Marginal(clique, np.array(counts).reshape(domain.shape(clique)), draw(st.floats(0, 1e4))))
    return marginals, domain


@SLOW
@given(problems(), st.sampled_from(["gum", "sweep"]), st.integers(0, 60), st.integers(0, 3))
def test_any_marginals_give_valid_rows_twice_the_same(
    problem: tuple[list[Marginal], Domain], method: str, rows: int, seed: int
) -> None:
    marginals, domain = problem
    chosen = Synthesis.model_validate({"method": method, "seed": seed, "iterations": 3, "sweeps": 3})
    core, core_domain = select_core_marginals(marginals, domain)
    made, again = (
        append_attributes(synthesize(core, core_domain, chosen, rows, t), marginals, domain, seed) for t in (1, 2)
    )
    assert made.domain == domain  # its constructor checks that every code is inside
    assert made.rows == rows
    assert made.to_arrow().equals(again.to_arrow())
