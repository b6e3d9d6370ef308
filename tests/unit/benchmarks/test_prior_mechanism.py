"""Algorithm 2: its price and sensitivity on all neighbours of small tables, a planted fault, and its rows."""

from __future__ import annotations

from fractions import Fraction
from functools import partial
from itertools import combinations_with_replacement, product

import numpy as np
import pytest

from benchmarks.prior_mechanism import GroupWorkload, plan_queries, select_rows
from privsyn.data_contracts.domain import Domain
from privsyn.data_contracts.receipts import Query, sum_rho
from privsyn.tasks.steps.measure_marginals import count_exactly
from tests.support.code_tables import write_rows

DOMAIN = Domain(("x", "state", "year", "y"), (2, 2, 2, 3))
table = partial(write_rows, DOMAIN)
LEVELS = GroupWorkload(("state",), ("state", "year"), (("x", "y"),), (("x",), ("y",)))
ROWS = list(product(*map(range, DOMAIN.sizes)))


def changes(queries: list[Query], records: int) -> np.ndarray:
    """Largest L2 change of every query over all persons of ``records`` records; one more person to some rows."""
    some = [ROWS[i] for i in (0, 5, 5, 17)]
    before, worst = list(count_exactly(table(some), queries, 1)), np.zeros(len(queries))
    for added in combinations_with_replacement(ROWS, records):
        after = count_exactly(table([*some, *added]), queries, 1)
        worst = np.maximum(worst, [np.linalg.norm(a - b) for a, b in zip(after, before, strict=True)])
    return worst


@pytest.mark.parametrize("records", [1, 2])
def test_every_look_has_a_quarter_and_no_person_moves_a_query_further_than_declared(records: int) -> None:
    queries = plan_queries(LEVELS, DOMAIN, Fraction(1, 3), records)
    assert [q.attributes for q in queries] == [
        ("state",), ("x", "state", "y"), ("state", "year"), ("x", "state", "year"), ("state", "year", "y")
    ]  # fmt: skip
    assert {q.sensitivity for q in queries} == {records}
    assert changes(queries, records) == pytest.approx([records] * len(queries))
    for look in (queries[:1], queries[1:2], queries[2:3], queries[3:]):
        assert Fraction(1, 12) * Fraction(999_999, 10**6) <= sum_rho(look) <= Fraction(1, 12)


def test_mutant_a_person_has_records_in_one_group_only() -> None:
    """Planted mutant: parallel composition taken to divide a person's records among groups, at sensitivity 1."""
    queries = plan_queries(LEVELS, DOMAIN, Fraction(1), 1)
    assert all(found > q.sensitivity for found, q in zip(changes(queries, 2), queries, strict=True))


def test_rows_follow_the_counts_by_group_and_stay_in_the_public_support() -> None:
    rng = np.random.default_rng(0)
    groups = rng.integers(0, 2, (6_000, 2))
    groups = groups[groups.sum(axis=1) < 2]  # the public table lacks the group (1, 1)
    x, y = rng.integers(0, 2, len(groups)), rng.integers(0, 3, len(groups))
    allowed = (x != 1) | (y != 2)
    public = table(np.stack([x, groups[:, 0], groups[:, 1], y], axis=1)[allowed])
    chance = np.where(x == 1, 0.9, 0.2) * np.where(groups[:, 0] == 1, 0.3, 1.0)
    private = write_rows(
        DOMAIN, np.stack([x, groups[:, 0], groups[:, 1], y], axis=1)[allowed & (rng.random(len(x)) < chance)]
    )
    queries = plan_queries(LEVELS, DOMAIN, Fraction(1), 1)
    truth = list(count_exactly(private, queries, 1))
    made = select_rows(public, LEVELS, [c.astype(float) for c in truth], seed=0)
    assert not ((made.column("x") == 1) & (made.column("y") == 2)).any()
    found = list(count_exactly(made, queries, 1))
    for look in (0, 2):  # numbers of rows, exactly
        assert np.array_equal(found[look], truth[look])
    for look in (1, 3, 4):
        assert np.abs(found[look] - truth[look]).sum() < 0.08 * private.rows
        assert np.abs(list(count_exactly(public, queries, 1))[look] - truth[look]).sum() > 0.5 * private.rows
    again = select_rows(public, LEVELS, [c.astype(float) for c in truth], seed=0)
    assert all(np.array_equal(a, b) for a, b in zip(made.columns, again.columns, strict=True))


def test_groups_without_a_positive_number_of_rows_have_none() -> None:
    answers = [np.full(q.cells, -3.0) for q in plan_queries(LEVELS, DOMAIN, Fraction(1), 1)]
    answers[2][3] = 2.0  # state 1, year 1; its large group has no rows by its own count
    answers[4][:] = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2]
    made = select_rows(table(ROWS), LEVELS, answers, seed=1)
    assert made.rows == 2 and set(made.column("state")) == set(made.column("year")) == {1}
    assert set(made.column("y")) == {2}


@pytest.mark.parametrize(
    ("small", "of_large", "of_small"),
    [
        (("state",), (("x",),), (("y",),)),
        (("year", "y"), (("x",),), (("x",),)),
        (("state", "year"), (), (("x",),)),
        (("state", "year"), (("x",),), ()),
        (("state", "year"), (("x", "state"),), (("x",),)),
    ],
)
def test_levels_that_are_none(small: tuple[str, ...], of_large: object, of_small: object) -> None:
    with pytest.raises(ValueError, match=r"small groups|both workloads"):
        GroupWorkload(("state",), small, of_large, of_small)  # type: ignore[arg-type]
