"""What steps declare against what ran, in every case of the referee: the price, the kind and the readers of each look.

It does not see what `exact` counts (the referee does), fields and knowledge that a step reads (keys of
tests/flows/operations/test_invalidation.py and tests/unit/engine/test_public_knowledge.py), nor files.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction

import pytest

from privsyn.data_contracts.artifacts import LookKind
from privsyn.engine.step import ReleaseStep, Step, release_steps
from privsyn.pipelines.table_pairs import split_step_name
from tests.support.case_runs import Ran, run_cases

ATTRIBUTES = {
    LookKind.RUNGS: {1},
    LookKind.ONE_WAYS: {1},
    LookKind.SCORES: {2},
    LookKind.TRENDS: {1, 2},
    LookKind.VALUES: {1},
    LookKind.TRIPLES: {3},
    LookKind.LINKED_ROWS: {1},
    LookKind.WITHOUT_ROWS: {1},
    LookKind.FIGURES: {1},
}
"""Kind of look -> of how many attributes its answers are; others are of sets of any size."""


@pytest.fixture(scope="module")
def runs() -> dict[str, Ran]:
    return run_cases()


def find_wrong_prices(ran: Ran) -> list[str]:
    """Looks that did not pay their share of the budget; one without a query pays nothing."""
    wrong = []
    for step in release_steps(ran.steps):
        paid = sum((query.rho for query in ran.receipts[step.name]), Fraction(0))
        if not (paid <= step.rho(ran.request) < paid * Fraction(1_000_001, 1_000_000) or not ran.receipts[step.name]):
            wrong.append(step.name)
    return wrong


def find_wrong_kinds(ran: Ran) -> list[str]:
    """Looks whose answers are not of what their kind says."""
    wrong = []
    for step in release_steps(ran.steps):
        sizes = {len(query.attributes) for query in ran.receipts[step.name]}
        wrong += [] if sizes <= ATTRIBUTES.get(step.measures, sizes) else [step.name]
    return wrong


def list_wants(steps: tuple[Step, ...], reads: frozenset[tuple[str, str]]) -> Iterator[tuple[str, LookKind, bool]]:
    """Yield step, without its table and round, each kind that it wants and that was taken, and whether it was read."""
    for step in steps:
        name = re.sub(r"_\d+$", "", split_step_name(step.name)[1])
        for kind, looks in step.looks.items():
            if looks:
                yield name, kind, any((step.name, f"{look}.noisy") in reads for look in looks)


def test_08_every_look_pays_its_share_of_the_budget_and_no_more(runs: dict[str, Ran]) -> None:
    assert {name: wrong for name, ran in runs.items() if (wrong := find_wrong_prices(ran))} == {}
    assert all(sum(step.share for step in release_steps(ran.steps)) == 1 for ran in runs.values())


def test_08_every_look_measures_what_its_kind_says(runs: dict[str, Ran]) -> None:
    assert {name: wrong for name, ran in runs.items() if (wrong := find_wrong_kinds(ran))} == {}


def test_08_what_a_step_wants_is_read(runs: dict[str, Ran]) -> None:
    wanted = {want for ran in runs.values() for want in list_wants(ran.steps, ran.reads)}
    read = {(step, kind) for step, kind, was_read in wanted if was_read}
    assert {(step, kind) for step, kind, _ in wanted} - read == set()
    assert len(read) > 10


def test_08_mutant_declarations_are_found(runs: dict[str, Ran]) -> None:
    """Planted mutants of a share, a kind, and a step that does not read what it wants."""
    ran = runs["privsyn, persons of 2"]
    steps = {step.name: step for step in ran.steps}
    look = steps["indif_scores"]
    assert isinstance(look, ReleaseStep)
    for share in (look.share * 2, look.share / 2):
        mutant = replace(look, shares={**look.shares, look.name: share})
        assert find_wrong_prices(replace(ran, steps=(mutant,))) == [look.name]
    assert find_wrong_kinds(replace(ran, steps=(replace(look, measures=LookKind.ONE_WAYS),))) == [look.name]
    reader = steps["decode"]
    assert (reader.name, LookKind.VALUES, True) in list_wants(ran.steps, ran.reads)
    assert (reader.name, LookKind.VALUES, False) in list_wants(ran.steps, frozenset())
