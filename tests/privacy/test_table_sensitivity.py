"""Two tables: a person with all rows, or with none, is one record of every look, in one place or the other.

It does not see counts of cells and of single values, which look at more than codes, two persons with one key, rows
again under one key, named sets and other mechanisms: it counts encoded records when a whole unit leaves.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from privsyn.engine.request import Request
from privsyn.engine.step import release_steps
from privsyn.pipelines.registry import build_steps
from privsyn.sources.open_source import open_source
from privsyn.tasks.panels import choose_rows
from privsyn.tasks.panels.transitions import build_transition_codes
from privsyn.tasks.steps import encode
from tests.support.examples import keep_first
from tests.support.linked_records import count_encoded, count_paired, count_without, identity_recode
from tests.support.linked_tables import (
    Tables,
    make_members,
    make_members_content,
    make_tables_spec,
    make_visits,
    make_visits_content,
)

UNITS = 15
Counts = Counter[tuple[int, ...]]


class Case:
    """One kind of two tables, and what is counted of it."""

    def __init__(self, content: dict[str, Any], make: Callable[..., Tables]) -> None:
        self.spec = make_tables_spec(content)
        order = tuple(self.spec.released_columns)
        self.request, self.make = Request(self.spec, order), make
        self.above = next(iter(content))
        self.recode = identity_recode(self.request)
        self.codes = build_transition_codes(self.request.encoding, self.recode, self.request.total_rho)

    def join(self, tables: Tables) -> pa.Table:
        """Both tables as they are read."""
        return pa.Table.from_batches(list(open_source(tables, self.spec).batches()))

    def records(self, tables: Tables) -> Counts:
        """The records that one-ways, scores and marginals are counted over."""
        return count_encoded(self.join(tables), self.request)

    def pairs(self, tables: Tables) -> Counts:
        """The records that transitions, or pairs of members, are counted over."""
        return count_paired(self.join(tables), self.request, self.codes)

    def without(self, tables: Tables) -> Counts:
        """The records that those without rows are counted over."""
        return count_without(self.join(tables), self.request)

    def leave_out(self, tables: Tables, unit: str) -> Tables:
        """The tables without one person, or household, with all rows."""
        key = str(self.spec.unit.identifier)
        return {name: table.filter(pc.not_equal(table[key], unit)) for name, table in tables.items()}

    def largest_change(self, tables: Tables, count: Callable[[Tables], Counts]) -> int:
        """The most records by which a unit's leaving changes what is counted."""
        whole, changes = count(tables), []
        for unit in tables[self.above][str(self.spec.unit.identifier)].to_pylist():
            less = count(self.leave_out(tables, unit))
            changes.append(sum(((whole - less) + (less - whole)).values()))
        return max(changes)


CASES = {
    "visits": Case(make_visits_content(), make_visits),
    "households": Case(make_members_content(), make_members),
}


@pytest.mark.parametrize("name", keep_first(CASES))
def test_05_a_unit_is_one_record_of_those_with_rows_or_of_those_without(name: str) -> None:
    case = CASES[name]
    tables = case.make(UNITS, 3)
    records, without = case.records(tables), case.without(tables)
    assert without.total() > 0
    assert records.total() + without.total() == UNITS
    assert case.largest_change(tables, lambda t: case.records(t) + case.without(t)) == 1
    for count in (case.records, case.pairs, case.without):
        assert case.largest_change(tables, count) == 1


@pytest.mark.parametrize("name", CASES)
def test_05_every_look_at_two_tables_declares_one_record(name: str) -> None:
    request = CASES[name].request
    assert request.records == 1
    steps = build_steps(request)
    assert "measure_without_rows" in {step.name for step in release_steps(steps)}
    assert sum(step.share for step in release_steps(steps)) == 1


@pytest.mark.slow
def test_05_mutant_every_row_without_a_place_is_a_person(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted mutant: all rows that have no place in the order are counted among those without rows."""
    case = CASES["visits"]
    tables = case.make(UNITS)
    visits = tables["visits"]
    years = pa.array([None if i % 2 else year for i, year in enumerate(visits["year"].to_pylist())], pa.int64())
    tables["visits"] = visits.set_column(visits.column_names.index("year"), "year", years)
    assert case.largest_change(tables, case.without) == 1
    monkeypatch.setattr(
        choose_rows, "_find_persons_without", lambda located, placed, rows: located.place[np.flatnonzero(~placed)]
    )
    assert case.largest_change(tables, case.without) > 1


def test_14_the_order_of_stored_rows_changes_nothing() -> None:
    case = CASES["visits"]
    tables = case.make(UNITS)
    rng = np.random.default_rng(0)
    shuffled = {name: table.take(rng.permutation(table.num_rows)) for name, table in tables.items()}
    for count in (case.records, case.pairs, case.without):
        assert count(shuffled) == count(tables)


def test_15_the_groups_of_persons_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    case = CASES["visits"]
    tables = case.make(UNITS)
    whole = [count(tables) for count in (case.records, case.pairs, case.without)]
    monkeypatch.setattr(encode, "PERSON_ROWS", 20)
    assert [count(tables) for count in (case.records, case.pairs, case.without)] == whole
