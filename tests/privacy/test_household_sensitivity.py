"""Households: one with all members is one record of every look, whatever number of members it has.

It does not see counts of cells and of single values, which look at more than codes, nor the noise, named sets, scores
of trends and other mechanisms: it counts encoded records and pairs when a whole household leaves.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from privsyn.engine.request import Request
from privsyn.engine.step import release_steps
from privsyn.pipelines.registry import build_steps
from privsyn.tasks.panels import choose_rows
from privsyn.tasks.panels.choose_rows import KeptRuns
from privsyn.tasks.panels.transitions import build_transition_codes
from privsyn.tasks.steps.encode import build_pair_domain, plan_transition_queries
from tests.support.examples import keep_first
from tests.support.households import HOUSEHOLD_COLUMNS, make_household_spec, make_households
from tests.support.linked_records import count_encoded, count_paired, identity_recode

REQUEST = Request(make_household_spec(), tuple(HOUSEHOLD_COLUMNS)[1:])
HOUSEHOLDS = 15
Count = Callable[[pa.Table], Counter[tuple[int, ...]]]


CODES = build_transition_codes(REQUEST.encoding, identity_recode(REQUEST), REQUEST.total_rho)


def count_records(table: pa.Table) -> Counter[tuple[int, ...]]:
    """The records that one-ways, scores and marginals are counted over."""
    return count_encoded(table, REQUEST)


def count_pairs(table: pa.Table) -> Counter[tuple[int, ...]]:
    """The records that pairs of members are counted over."""
    return count_paired(table, REQUEST, CODES)


def largest_change(table: pa.Table, count: Count) -> int:
    """The most records by which a household's leaving changes what is counted."""
    whole, changes = count(table), []
    for household in pc.unique(table["hid"]).to_pylist():
        less = count(table.filter(pc.not_equal(table["hid"], household)))
        changes.append(sum(((whole - less) + (less - whole)).values()))
    return max(changes)


@pytest.mark.parametrize("seed", keep_first(range(3)))
def test_05_a_household_with_all_members_is_one_record(seed: int) -> None:
    """The cap is 5, households have up to 10 members; one household adds one record to each look at most."""
    table = make_households(HOUSEHOLDS, seed, children=8)
    assert count_records(table).total() == HOUSEHOLDS
    assert largest_change(table, count_records) == 1
    assert largest_change(table, count_pairs) == 1


def test_05_every_look_at_households_declares_one_record() -> None:
    assert REQUEST.spec.unit.records == 5
    assert REQUEST.records == 1
    assert sum(step.share for step in release_steps(build_steps(REQUEST))) == 1


def test_05_households_of_two_at_most_are_not_asked_for_a_later_member() -> None:
    """A table that is empty by public knowledge would cost half of the budget of pairs."""
    asked = {}
    for most in (2, 3):
        spec = make_household_spec(unit={"household_id": "hid", "max_records": most})
        request = Request(spec, tuple(HOUSEHOLD_COLUMNS)[1:])
        codes = build_transition_codes(request.encoding, identity_recode(request), request.total_rho)
        domain = build_pair_domain(codes, request.encoding)
        asked[most] = plan_transition_queries(request.encoding, domain, request.total_rho, 1)
    assert len(asked[3]) == 2 * len(asked[2]) > 0


def test_05_mutant_every_pair_of_members(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted mutant: every two neighbouring members are a pair, at the price of one pair a household."""
    monkeypatch.setattr(KeptRuns, "find_pairs", lambda runs: np.flatnonzero(runs.before[1:] > 0))
    assert largest_change(make_households(HOUSEHOLDS), count_pairs) > 1


@pytest.mark.slow
def test_05_mutant_members_drawn_by_the_number_of_a_household(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted mutant: members are drawn by where households stand in the table, so others' records move, too."""
    monkeypatch.setattr(choose_rows, "mix_bits", lambda key: np.arange(len(key), dtype=np.uint64) * np.uint64(7919))
    assert largest_change(make_households(HOUSEHOLDS), count_records) > 1
    assert largest_change(make_households(HOUSEHOLDS), count_pairs) > 1


def test_05_mutant_a_record_for_every_later_member(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted mutant: every member after the second one is beside the first one, at the price of one a household."""
    monkeypatch.setattr(KeptRuns, "find_pairs", lambda runs: np.flatnonzero(runs.before > 1) - 1)
    monkeypatch.setattr(KeptRuns, "find_later", lambda runs: np.flatnonzero(runs.before > 1))
    assert largest_change(make_households(HOUSEHOLDS), count_pairs) > 1


def test_05_one_person_changes_the_record_of_a_household() -> None:
    """Why a household is the unit: without one member its record is another, which is one record less and one more."""
    table = make_households(HOUSEHOLDS)
    whole, changes = count_records(table), []
    for row in range(table.num_rows):
        less = count_records(pa.concat_tables([table.slice(0, row), table.slice(row + 1)]))
        changes.append(sum(((whole - less) + (less - whole)).values()))
    assert max(changes) == 2


def test_14_the_order_of_stored_members_changes_nothing() -> None:
    table = make_households(HOUSEHOLDS)
    shuffled = table.take(np.random.default_rng(1).permutation(table.num_rows))
    assert count_records(shuffled) == count_records(table)
    assert count_pairs(shuffled) == count_pairs(table)


def test_15_members_beyond_what_is_public_change_their_own_household_only() -> None:
    """A second head, a role that is none, and a member of no household raise no error and move nobody else's record."""
    table = make_households(HOUSEHOLDS)
    own = pa.table({**{n: table[n].slice(0, 1) for n in table.column_names}, "role": pa.array(["head"])})
    odd = pa.table({**{n: table[n].slice(0, 1) for n in table.column_names}, "role": pa.array([None], "string")})
    nobody = pa.table({**{n: table[n].slice(0, 1) for n in table.column_names}, "hid": pa.array([None], "string")})
    whole = count_records(table)
    for more in (own, odd):
        found = count_records(pa.concat_tables([table, more]))
        assert sum(((whole - found) + (found - whole)).values()) <= 2
    assert count_records(pa.concat_tables([table, nobody])) == whole
