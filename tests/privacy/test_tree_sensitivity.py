"""A tree of tables: a person with all rows of all tables is one record of every look, at most, in each branch.

It does not see counts of cells and of single values, which look at more than codes, trees of more than three levels,
keys again above, households above and other mechanisms: it counts encoded records when a whole person leaves.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import islice
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from privsyn.engine.request import Request
from privsyn.engine.step import release_steps
from privsyn.pipelines.registry import build_steps
from privsyn.sources import joined_source
from privsyn.sources.open_source import open_source
from privsyn.tasks.panels.transitions import build_transition_codes
from tests.support.linked_records import count_encoded, count_paired, count_without, identity_recode
from tests.support.linked_tables import Tables, make_tables_spec, make_tree, make_tree_content

PERSONS = 10
Counts = Counter[tuple[int, ...]]
SPEC = make_tables_spec(make_tree_content(workload=[{"question": "share(ever(dose == 2)) by job"}]))
WHOLE = Request(SPEC, tuple(SPEC.released_columns))


def count_records(tables: Tables, branch: str) -> tuple[Counts, Counts, Counts]:
    """The records, pairs and rows above without rows that looks at a further table are counted over."""
    request = WHOLE.table_pairs[branch]
    joined = pa.Table.from_batches(list(open_source(tables, SPEC).further_tables[branch].batches()))
    recode = identity_recode(request)
    codes = build_transition_codes(request.encoding, recode, request.total_rho)
    return count_encoded(joined, request), count_paired(joined, request, codes), count_without(joined, request)


def leave_out(tables: Tables, person: str) -> Tables:
    """The tables without one person, with all rows down the tree."""
    left = {name: t.filter(pc.not_equal(t["pid"], person)) for name, t in tables.items() if "pid" in t.column_names}
    drugs = tables["drugs"]
    return {**left, "drugs": drugs.filter(pc.is_in(drugs["visit"], value_set=left["visits"]["visit"]))}


def list_changes(tables: Tables, branch: str) -> Iterator[tuple[int, ...]]:
    """By how many records each person's leaving changes records with rows and without, together, and the pairs."""

    def differ(one: Counts, other: Counts) -> int:
        return ((one - other) + (other - one)).total()

    whole = count_records(tables, branch)
    for person in tables["persons"]["pid"].to_pylist():
        records, pairs, without = map(differ, whole, count_records(leave_out(tables, person), branch))
        yield records + without, pairs


@pytest.mark.parametrize("branch", ["drugs", "buys"])
def test_05_a_person_is_one_record_of_every_branch(branch: str) -> None:
    tables = make_tree(PERSONS, 3)
    records, _, without = count_records(tables, branch)
    assert 0 < records.total() + without.total() <= PERSONS
    assert without.total() > 0
    assert tuple(map(max, zip(*list_changes(tables, branch), strict=True))) == (1, 1)


def number_visits(tables: Tables) -> pa.Table:
    """Number visits within each person, in both tables; the person of each drug."""
    visits, number = tables["visits"], dict.fromkeys(tables["visits"]["pid"].to_pylist(), 0)
    named, whose = {}, dict(zip(visits["visit"].to_pylist(), visits["pid"].to_pylist(), strict=True))
    for key, person in whose.items():
        number[person] += 1
        named[key] = f"v{number[person]}"
    persons = pa.array([whose.get(key) for key in tables["drugs"]["visit"].to_pylist()], pa.string())
    for name in ("visits", "drugs"):
        keys = [named.get(key, key) for key in tables[name]["visit"].to_pylist()]
        tables[name] = tables[name].set_column(tables[name].column_names.index("visit"), "visit", [keys])
    return persons


def test_05_rows_below_that_name_their_person_are_that_person_s_whatever_its_rows_are_called() -> None:
    tables = make_tree(PERSONS, 3)
    before = count_records(tables, "drugs")
    persons = number_visits(tables)
    tables["drugs"] = tables["drugs"].append_column("pid", persons)
    whole = count_records(tables, "drugs")
    assert whole[0].total() > 3 and sum(c.total() for c in whole) <= sum(c.total() for c in before) + PERSONS
    for person in tables["persons"]["pid"].to_pylist():
        less = count_records({name: t.filter(pc.not_equal(t["pid"], person)) for name, t in tables.items()}, "drugs")
        records, pairs, without = (((a - b) + (b - a)).total() for a, b in zip(whole, less, strict=True))
        assert records + without <= 1 and pairs <= 1


def test_05_rows_below_a_key_that_several_persons_have_are_one_person_s() -> None:
    """Visits are numbered within each person, and drugs name the number: they leave with whom they are of."""
    tables = make_tree(PERSONS, 3)
    number_visits(tables)
    joined = pa.Table.from_batches(list(open_source(tables, SPEC).further_tables["drugs"].batches()))
    owners = {
        row["visit"].split()[-1]: row["visit"].split()[-2] for row in joined.to_pylist() if row["day"] is not None
    }
    assert len(owners) > 1
    whole = count_records(tables, "drugs")
    for person in tables["persons"]["pid"].to_pylist():
        left = {name: t.filter(pc.not_equal(t["pid"], person)) for name, t in tables.items() if "pid" in t.column_names}
        own, drugs = [key for key, owner in owners.items() if owner == person], tables["drugs"]
        left["drugs"] = drugs.filter(pc.invert(pc.is_in(drugs["visit"], value_set=pa.array(own, pa.string()))))
        less = count_records(left, "drugs")
        records, pairs, without = (((one - two) + (two - one)).total() for one, two in zip(whole, less, strict=True))
        assert records + without <= 1 and pairs <= 1


@pytest.mark.parametrize("visits", ["no row", "no key"])
def test_12_without_a_row_of_a_key_nobody_has_rows_below(visits: str) -> None:
    """Nothing that is told depends on whether the table between has a row that can be used."""
    tables = make_tree(PERSONS)
    between = tables["visits"]
    if visits == "no row":
        tables["visits"] = between.slice(0, 0)
    else:
        nulls = pa.nulls(between.num_rows, between.schema.field("visit").type)
        tables["visits"] = between.set_column(between.column_names.index("visit"), "visit", nulls)
    assert sum(batch.num_rows for batch in open_source(tables, SPEC).further_tables["drugs"].batches()) == 0


def test_05_every_look_declares_one_record_and_the_shares_are_the_budget() -> None:
    steps = build_steps(WHOLE)
    looks = release_steps(steps)
    assert sum(step.share for step in looks) == 1
    assert sum(step.rho(WHOLE) for step in looks) == WHOLE.total_rho
    assert all(request.records == 1 for request in WHOLE.table_pairs.values())
    assert {step.name.split("__")[0] for step in looks if "__" in step.name} == {"drugs", "buys"}


def _draw_every_row(source: Any) -> Any:
    return np.arange(sum(batch.num_rows for batch in source.rows._join(1 << 17, joined_source.ignore_repairs)))


def _draw_by_the_number_of_all_rows(source: Any) -> Any:
    rows = pa.Table.from_batches(list(source.rows._join(1 << 17, joined_source.ignore_repairs)))
    places: dict[str, list[int]] = {}
    for place, person in enumerate(rows["pid"].to_pylist()):
        places.setdefault(person, []).append(place)
    return np.array([own[rows.num_rows % len(own)] for own in places.values()])


def _change_most(draw: Any, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(joined_source.DrawnSource, "_draw", draw)
    return max(changed for changed, _ in islice(list_changes(make_tree(PERSONS, 3), "drugs"), 4))


def test_05_mutant_every_row_above_is_a_record(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted mutant: all visits of a person are records, and not one."""
    assert _change_most(_draw_every_row, monkeypatch) > 1


def test_05_mutant_a_drawn_row_depends_on_other_persons(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted mutant: which visit is drawn follows from the number of everybody's."""
    assert _change_most(_draw_by_the_number_of_all_rows, monkeypatch) > 1


def test_14_the_order_of_stored_rows_changes_nothing() -> None:
    tables, rng = make_tree(PERSONS), np.random.default_rng(0)
    shuffled = {name: table.take(rng.permutation(table.num_rows)) for name, table in tables.items()}
    for branch in ("drugs", "buys"):
        assert count_records(shuffled, branch) == count_records(tables, branch)
