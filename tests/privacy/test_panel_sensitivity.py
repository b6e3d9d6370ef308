"""Linked rows: a person with all rows is one record of every look, whatever number of rows it has.

It does not see counts of cells and of single values, which look at more than codes, nor two rows of a person at one
time, a changed row, named sets and other mechanisms: it counts encoded records, pairs and kept rows when a whole person
leaves.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from privsyn.engine.inputs import Inputs
from privsyn.engine.request import Request
from privsyn.engine.step import release_steps
from privsyn.pipelines.panel import MEASURE_ROWS
from privsyn.pipelines.registry import build_steps
from privsyn.tasks.codecs.cells import CutCell
from privsyn.tasks.codecs.person_figures import SummaryCodec
from privsyn.tasks.estimation.recode import recode_to_table
from privsyn.tasks.panels import choose_rows
from privsyn.tasks.panels.choose_rows import KeptRuns
from privsyn.tasks.panels.transitions import build_transition_codes
from privsyn.tasks.steps import encode
from tests.support.examples import keep_first
from tests.support.linked_records import count_encoded, count_kept, count_paired, identity_recode
from tests.support.panels import make_panel, make_panel_spec

REQUEST = Request(make_panel_spec(), ("year", "sex", "age", "income", "job"))
PERSONS = 12


CODES = build_transition_codes(REQUEST.encoding, identity_recode(REQUEST), REQUEST.total_rho)


def count_records(table: pa.Table) -> Counter[tuple[int, ...]]:
    """The records that one-ways, scores and marginals are counted over."""
    return count_encoded(table, REQUEST)


def count_pairs(table: pa.Table) -> Counter[tuple[int, ...]]:
    """The records that transitions are counted over."""
    return count_paired(table, REQUEST, CODES)


def count_rows(table: pa.Table) -> Counter[tuple[int, ...]]:
    """The rows that columns are counted over beside the records."""
    return count_kept(table, REQUEST)


def largest_change(table: pa.Table, count: object) -> int:
    """The most records by which a person's leaving changes what is counted."""
    whole = count(table)  # type: ignore[operator]
    changes = []
    for person in pc.unique(table["pid"]).to_pylist():
        less = count(table.filter(pc.not_equal(table["pid"], person)))  # type: ignore[operator]
        changes.append(sum(((whole - less) + (less - whole)).values()))
    return max(changes)


@pytest.mark.parametrize("seed", [0, *(pytest.param(s, marks=pytest.mark.slow) for s in (1, 2))])
def test_05_a_person_with_all_rows_is_one_record(seed: int) -> None:
    """The cap is 5, persons have up to 10 rows; one person adds one record to each look at most."""
    table = make_panel(PERSONS, seed, most=10)
    assert count_records(table).total() == PERSONS
    assert largest_change(table, count_records) == 1
    assert largest_change(table, count_pairs) == 1


@pytest.mark.parametrize("seed", keep_first(range(3)))
def test_05_a_person_has_no_more_kept_rows_than_the_cap(seed: int) -> None:
    """Counts of all rows have the sensitivity 5: a person adds that many at most, and moves nobody else's."""
    assert largest_change(make_panel(PERSONS, seed, most=10), count_rows) == REQUEST.spec.unit.records == 5


def test_05_a_person_is_one_record_in_chosen_cells_too() -> None:
    """Cells that a first look chose say nothing of which rows are kept, drawn and paired."""
    cuts = tuple(CutCell("income", low, doubtful=low > 50) for low in (0.0, 12.0, 31.0, 64.0))
    chosen = REQUEST.cut_cells(cuts)
    assert chosen.encoding.domain.size("income") != REQUEST.encoding.domain.size("income")
    codes = build_transition_codes(chosen.encoding, identity_recode(chosen), chosen.total_rho)
    table = make_panel(PERSONS, most=10)
    assert largest_change(table, lambda rows: count_encoded(rows, chosen)) == 1
    assert largest_change(table, lambda rows: count_paired(rows, chosen, codes)) == 1
    assert largest_change(table, lambda rows: count_kept(rows, chosen)) == chosen.spec.unit.records


ASKED = Request(
    make_panel_spec(
        workload=[
            {"question": f"share({statement}) by sex"}
            for statement in (
                "ever(job == 'none')",
                "always(income > 20)",
                "count(job == 'none') > 2",
                "spells(job == 'full') > 1",
                "sum(income) >= 100",
                "change(income) < 0",
            )
        ]
    ),
    REQUEST.column_order,
)


@pytest.mark.parametrize("seed", keep_first(range(2)))
def test_05_figures_of_all_rows_of_a_person_are_a_part_of_its_one_record(seed: int) -> None:
    """Summaries follow from the kept rows of the person alone: who leaves takes one record along."""
    table = make_panel(PERSONS, seed, most=10)
    assert len(ASKED.encoding.summaries) == 6
    assert largest_change(table, lambda rows: count_encoded(rows, ASKED)) == 1
    shuffled = table.take(np.random.default_rng(seed).permutation(table.num_rows))
    assert count_encoded(shuffled, ASKED) == count_encoded(table, ASKED)


@pytest.mark.slow
def test_05_mutant_a_figure_beside_those_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted mutant: whether a person's sum is above the mean of all; who leaves moves the records of others."""

    def above_mean(codec: SummaryCodec, figures: np.ndarray) -> np.ndarray:
        return (figures > figures.mean()).astype(np.int64)

    monkeypatch.setattr(SummaryCodec, "_classify", above_mean)
    table = make_panel(PERSONS, most=10)
    assert max(largest_change(make_panel(PERSONS, s, most=10), lambda r: count_encoded(r, ASKED)) for s in range(3)) > 1
    assert count_encoded(table, ASKED).total() == PERSONS


def test_05_mutant_rows_beyond_the_cap(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted mutant: all rows of a person are counted, at the price of five."""
    monkeypatch.setattr(encode.PersonEncoding, "find_kept_rows", lambda persons: np.ones(persons.rows, bool))
    assert largest_change(make_panel(PERSONS, most=10), count_rows) > REQUEST.spec.unit.records


def test_05_every_look_declares_the_records_of_a_person() -> None:
    spec = make_panel_spec()
    request = Request(spec, REQUEST.column_order)
    assert request.records == 1
    recode = identity_recode(request)
    table = recode_to_table(recode, request.encoding.labels())
    rows = encode.build_kept_domain(request.encoding, recode)
    queries = MEASURE_ROWS.plan(request, Inputs({"compress_domain.recode": lambda: table}), Fraction(1, 10))
    assert [q.attributes[0] for q in queries] == [*rows.attributes]
    assert {q.sensitivity for q in queries} == {spec.unit.records}
    assert sum(q.rho for q in queries) <= Fraction(1, 10)
    assert sum(step.share for step in release_steps(build_steps(request))) == 1


@pytest.mark.slow
def test_05_mutant_all_pairs_of_a_person(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted mutant: every two neighbouring rows are a pair, at the price of one pair a person."""
    monkeypatch.setattr(KeptRuns, "find_pairs", lambda runs: np.flatnonzero(runs.before[1:] > 0))
    assert largest_change(make_panel(PERSONS, most=10), count_pairs) > 1


def test_05_mutant_a_record_for_every_row(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted mutant: all kept rows stand for the person, at the price of one."""
    choose = choose_rows._choose
    monkeypatch.setattr(
        choose_rows, "_choose", lambda *a: replace(runs := choose(*a), drawn=np.ones(len(runs.place), bool))
    )
    monkeypatch.setattr(KeptRuns, "measure_gaps", lambda runs: np.ones(len(runs.place), np.int64))
    assert largest_change(make_panel(PERSONS, most=10), count_records) > 1


@pytest.mark.slow
def test_05_mutant_a_choice_by_the_number_of_a_person(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted mutant: runs and pairs are drawn by where persons stand in the table, so others' records move, too."""
    monkeypatch.setattr(choose_rows, "mix_bits", lambda key: np.arange(len(key), dtype=np.uint64) * np.uint64(7919))
    assert largest_change(make_panel(PERSONS, most=10), count_records) > 1


@pytest.mark.parametrize("seed", range(2))
def test_14_the_order_of_stored_rows_changes_nothing(seed: int) -> None:
    table = make_panel(PERSONS, seed)
    shuffled = table.take(np.random.default_rng(seed).permutation(table.num_rows))
    assert count_records(shuffled) == count_records(table)
    assert count_pairs(shuffled) == count_pairs(table)
    assert count_rows(shuffled) == count_rows(table)


def test_15_the_groups_of_persons_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Groups bound memory; which rows of a person are kept does not depend on them."""
    table = make_panel(PERSONS)
    whole = count_records(table), count_pairs(table)
    monkeypatch.setattr(encode, "PERSON_ROWS", 20)
    assert (count_records(table), count_pairs(table)) == whole


def test_15_rows_of_nobody_and_of_no_time_are_left_out_by_themselves() -> None:
    """A row without an identifier or a place in the order changes no record of anybody."""
    table = make_panel(PERSONS)
    nobody = pa.table(
        {**{n: table[n].slice(0, 2) for n in table.column_names}, "pid": pa.array([None, None], "string")}
    )
    never = table.slice(0, 3).set_column(1, "year", pa.array([None] * 3, pa.int64()))
    more = pa.concat_tables([table, nobody.cast(table.schema), never.cast(table.schema)])
    assert count_records(more) == count_records(table)
    assert count_pairs(more) == count_pairs(table)
