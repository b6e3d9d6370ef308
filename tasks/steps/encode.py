"""Steps that code private rows (transform): *encode*, *pair rows*, *keep rows* and *list without rows*.

**Encode** turns private rows into fine integer codes, using the public spec alone.
Paper: the binning of DPSyn, sections 5.3 and 5.4; Algorithm 3 starts from codes.
No later step reads the private table, so this step also stores what later looks need.  It stores each value's number in
its column's lattice.  For linked rows, it stores all kept rows and the row that represents each person.

The other steps are not in the paper.

**Pair rows**: a public rule draws the pair from the person's own rows (tasks/panels/choose_rows.py).  So one person
is one record of the result, however many rows it has.  A household gives one pair of neighbouring members and, with
three or more members, its first member paired with a later one; both pairs are in one record.

**Keep rows** recodes all kept rows of every person.  Which rows are kept depends only on the person's own rows.

**List without rows** lists the parent-table persons that have no row, in coarse codes.  Adding or removing one person
with all rows adds or removes at most one record of the list.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from privsyn.data_contracts.domain import Domain
from privsyn.data_contracts.panels import name_all_rows, name_first, name_later, name_next
from privsyn.data_contracts.promise import Unit
from privsyn.data_contracts.receipts import Query, compute_sigma
from privsyn.data_contracts.tables import build_code_schema
from privsyn.tasks.codecs import EncodingPlan
from privsyn.tasks.codecs.encode_rows import (
    NO_RECORD,
    NOT_KEPT,
    Batches,
    CodesAndNumbers,
    Repairs,
    encode_batch,
    encode_batch_with_numbers,
    list_compared,
)
from privsyn.tasks.codecs.person_figures import find_kinds
from privsyn.tasks.estimation.recode import Recode
from privsyn.tasks.kernels.counting import build_code_batch
from privsyn.tasks.panels.choose_rows import (
    KeptRuns,
    Passes,
    RowsOfPersons,
    find_kept_rows,
    iterate_runs,
    iterate_stored_runs,
    summarize_runs,
    take_at,
)
from privsyn.tasks.panels.transitions import TransitionCodes
from privsyn.tasks.steps.compress_domain import recode_rows

PERSON_ROWS = 1 << 22
"""Approximate number of rows whose persons are held in memory at once; larger tables take more passes."""

Columns: TypeAlias = tuple[dict[str, NDArray[np.int64]], dict[str, NDArray[np.int64]]]


def encode(batches: Batches, plan: EncodingPlan, unit: Unit, repairs: Repairs) -> Iterator[pa.RecordBatch]:
    """Yield code batches of the kept rows (contract ENCODED_ROWS); adds to ``repairs`` while batches are read.

    With an identifier of the unit, at most ``unit.max_records`` rows of each person are kept, and rows without an
    identifier are left out.  The content of the person's own rows decides which rows are kept
    (tasks/panels/choose_rows.py).  So neither row order nor another person's rows matter.  Each kept row is encoded by
    itself: adding or removing one person changes at most ``unit.records`` rows of the output.

    If the plan links rows, one row represents each person, with figures of the person's kept rows: adding or removing
    one person adds or removes one row of the output.
    """
    if plan.panel is not None:
        yield from (made.records for made in PersonEncoding.of(batches, plan).encode(batches, plan, repairs))
        return
    for batch in iterate_kept_batches(batches, plan, unit, repairs):
        yield encode_batch(batch, plan, repairs)


def encode_with_numbers(
    batches: Batches, plan: EncodingPlan, unit: Unit, repairs: Repairs
) -> Iterator[CodesAndNumbers]:
    """Yield the batches of :func:`encode`, and beside each the rows' numbers (contract NUMBERS).

    The plan must not link rows.
    """
    for batch in iterate_kept_batches(batches, plan, unit, repairs):
        yield encode_batch_with_numbers(batch, plan, repairs)


def iterate_kept_batches(
    batches: Batches, plan: EncodingPlan, unit: Unit, repairs: Repairs
) -> Iterator[pa.RecordBatch]:
    """Yield the stored rows that :func:`encode` keeps of each person; counts dropped rows in ``repairs``."""
    keep, start = None, 0
    if unit.identifier is not None and plan.panel is None:
        keep = find_kept_rows(RowsOfPersons.of(batches), unit.identifier, unit.records, PERSON_ROWS)
    elif unit.identifier is not None:
        keep = PersonEncoding.of(batches, plan).find_kept_rows()
    for batch in batches(repairs):
        if keep is None:
            yield batch
            continue
        mask = keep[start : start + batch.num_rows]
        start += batch.num_rows
        repairs.add(str(unit.identifier), +Counter({NOT_KEPT: int((~mask).sum())}))
        yield batch.filter(pa.array(mask))


class EncodedPersons(NamedTuple):
    """One batch of the private table encoded by a plan that links rows: codes and lattice numbers.

    ``records``: one row per person, with figures of the person's kept rows; ``kept``: all kept rows, in row codes;
    ``without``: one row, in row codes, for each person who has no row in the order.
    """

    records: pa.RecordBatch
    kept: pa.RecordBatch
    without: pa.RecordBatch
    numbers: pa.RecordBatch
    numbers_of_rows: pa.RecordBatch
    numbers_without_rows: pa.RecordBatch


@dataclass(frozen=True)
class PersonEncoding:
    """The kept rows of persons whose rows are linked, and the row that represents each person, chosen once.

    ``runs``: the kept rows, in groups of whole persons; ``figures``: attribute -> one value per person, -1 for null;
    ``rows``: the number of rows of the private table.
    """

    runs: Sequence[KeptRuns]
    figures: Mapping[str, NDArray[np.int64]]
    rows: int

    @classmethod
    def of(cls, batches: Passes, plan: EncodingPlan) -> PersonEncoding:
        """Choose the rows of every person."""
        rows, panel = RowsOfPersons.of(batches), plan.get_order()[0]
        names = (*panel.figures, *(codec.attribute for codec in plan.summaries))
        parts: dict[str, list[NDArray[np.int64]]] = {name: [np.empty(0, np.int64)] for name in names}
        groups, count = list[KeptRuns](), rows.count()
        for runs in iterate_runs(rows, plan, max(1, -(-count // PERSON_ROWS))):
            figures: tuple[NDArray[np.int64], ...]
            if panel.household:
                members = plan.get_compositions()
                figures = (members.encode_members(runs.count_members(members.roles.size)),)
            else:
                figures = runs.rows[runs.drawn], runs.before[runs.drawn], runs.measure_gaps()
            figures += tuple(summarize_runs(batches, plan, runs)) if plan.summaries else ()
            for name, values in zip(names, figures, strict=True):
                parts[name].append(values)
            groups.append(runs.narrow())
        return cls(groups, {name: np.concatenate(values) for name, values in parts.items()}, count)

    def find_kept_rows(self) -> NDArray[np.bool_]:
        """Return which rows of the table are kept, shape (rows,)."""
        keep = np.zeros(self.rows, bool)
        for runs in self.runs:
            keep[runs.place] = True
        return keep

    def list_runs(self) -> KeptRuns:
        """Return the kept rows of all persons; ``place`` is their position among the kept rows, in table order."""
        whole = KeptRuns.concatenate(self.runs)
        return replace(whole, place=np.cumsum(self.find_kept_rows())[whole.place] - 1)

    def encode(self, batches: Batches, plan: EncodingPlan, repairs: Repairs) -> Iterator[EncodedPersons]:
        """Yield the encoded persons of each batch; ``repairs`` counts repairs of the records and the other rows."""
        panel, row_plan = plan.get_order()[0], plan.row_plan
        drawn = np.concatenate([np.empty(0, np.int64), *(runs.place[runs.drawn] for runs in self.runs)])
        order = np.argsort(drawn)
        drawn, figures = drawn[order], {name: values[order] for name, values in self.figures.items()}
        without = np.sort(np.concatenate([np.empty(0, np.int64), *(runs.without for runs in self.runs)]))
        keep, start = self.find_kept_rows(), 0
        for batch in batches(repairs):
            end = start + batch.num_rows
            first, last = np.searchsorted(drawn, [start, end])
            records = batch.take(pa.array(drawn[first:last] - start))
            repairs.add(panel.person, +Counter({NO_RECORD: batch.num_rows - records.num_rows}))
            for name, values in figures.items():
                part = values[first:last]
                records = records.append_column(name, pa.array(part, mask=part < 0))
            low, high = np.searchsorted(without, [start, end])
            alone = batch.take(pa.array(without[low:high] - start))
            made = (
                encode_batch_with_numbers(records, plan, repairs),
                encode_batch_with_numbers(batch.filter(pa.array(keep[start:end])), row_plan, Repairs(), plan),
                encode_batch_with_numbers(alone, row_plan, Repairs(), plan),
            )
            yield EncodedPersons(*(codes for codes, _ in made), *(numbers for _, numbers in made))
            start = end


def build_pair_domain(codes: Mapping[str, TransitionCodes], plan: EncodingPlan) -> Domain:
    """Return the domain of the pairs: a row's codes, and the next row's codes, whose last code means "as before".

    Pairs of household members have no such code, but a code for the kind of pair.  If households may have three
    members, the codes of the first member, of a later one, and the kind of that pair follow.
    """
    panel = plan.get_order()[0]
    if not panel.household:
        return Domain.of({n: s for a, c in codes.items() for n, s in ((a, c.size), (name_next(a), c.size + 1))})
    kinds = plan.get_compositions().kinds
    sizes = {panel.kind_of_pair: kinds}
    sizes |= {n: c.size for a, c in codes.items() for n in (a, name_next(a))}
    if panel.counts_later:
        sizes |= {panel.kind_beside_first: kinds}
        sizes |= {n: c.size for a, c in codes.items() for n in (name_first(a), name_later(a))}
    return Domain.of(sizes)


def pair_rows(rows: StoredRows, plan: EncodingPlan, codes: Mapping[str, TransitionCodes]) -> Iterator[pa.RecordBatch]:
    """Yield the pairs as codes of :func:`build_pair_domain`, padded: a filtered value has the code ``size``.

    A next row is "as before" if its value equals the row's, both clamped to the public bounds and cut to the column's
    resolution.  A household of two members has filtered codes for the later member.  Adding or removing one person, or
    household, adds or removes at most one record.
    """
    domain, household = build_pair_domain(codes, plan), plan.get_order()[0].household
    schema = build_code_schema(domain, padded=True)
    pair = _pair_members if household else _pair_rows
    for runs in iterate_stored_runs(rows.runs(), PERSON_ROWS):  # groups of whole persons that fit into memory
        yield build_code_batch(schema, pair(rows, plan, runs, codes))


@dataclass(frozen=True)
class StoredRows:
    """The kept rows of persons as *encode* stored them; each function starts a fresh pass.

    ``codes``: all kept rows in row codes; ``numbers``: their lattice numbers, in the followed columns that are ordered;
    ``runs``: the kept rows person by person (contract RUNS).
    """

    codes: Callable[[], Iterable[pa.RecordBatch]]
    numbers: Callable[[], Iterable[pa.RecordBatch]]
    runs: Callable[[], Iterable[pa.RecordBatch]]

    def read(self, names: Sequence[str], numbered: Sequence[str], places: NDArray[np.int64]) -> Columns:
        """Return codes and numbers of the rows at ``places`` by attribute, -1 for null; shapes (places,)."""
        order = np.argsort(places, kind="stable")
        back = np.argsort(order)

        def take(
            listed: Sequence[str], batches: Callable[[], Iterable[pa.RecordBatch]]
        ) -> dict[str, NDArray[np.int64]]:
            taken = list(take_at(batches(), places[order])) if listed else []
            return {name: _read_column(taken, name)[back] for name in listed}

        return take(names, self.codes), take(numbered, self.numbers)


def _read_column(batches: Sequence[pa.RecordBatch], name: str) -> NDArray[np.int64]:
    """Return a column as integers, -1 for null."""
    parts = [np.empty(0, np.int64)]
    for batch in batches:
        column = batch.column(name)
        parts.append(np.where(column.is_valid(), np.asarray(column.fill_null(0)).astype(np.int64), -1))
    return np.concatenate(parts)


def _pair_rows(
    rows: StoredRows, plan: EncodingPlan, runs: KeptRuns, codes: Mapping[str, TransitionCodes]
) -> list[NDArray[Any]]:
    """Return the pair columns of consecutive rows of a person."""
    drawn = runs.find_pairs()
    fine, numbers = rows.read(tuple(codes), list_compared(plan), runs.place[np.concatenate([drawn, drawn + 1])])
    arrays: list[NDArray[Any]] = []
    for a, c in codes.items():
        first, after = np.split(fine[a], 2)
        alike = first == after
        if a in numbers:
            alike &= np.equal(*np.split(numbers[a], 2))
        row, moved = c.recode.coarse[first], c.recode.coarse[after]
        moved = np.where(moved == c.size, c.size + 1, moved)
        arrays += [row, np.where(alike & (row < c.size), c.size, moved)]
    return arrays


def _pair_members(
    rows: StoredRows, plan: EncodingPlan, runs: KeptRuns, codes: Mapping[str, TransitionCodes]
) -> list[NDArray[Any]]:
    """Return the pair columns of household members: neighbours, then the first member and a later one."""
    pairs, later = runs.find_pairs(), runs.find_later()
    first, begins = later - runs.before[later], pairs - runs.before[pairs]
    has_later = np.isin(begins, first)
    of_later = np.searchsorted(first, begins[has_later])
    fine, _ = rows.read(tuple(codes), (), runs.place[np.concatenate([pairs, pairs + 1, first, later])])
    cuts = np.cumsum([len(pairs), len(pairs), len(first)])
    parts_by_attribute = {a: [c.recode.coarse[part] for part in np.split(fine[a], cuts)] for a, c in codes.items()}

    def spread(values: NDArray[Any], filtered: int) -> NDArray[Any]:
        spread_values = np.full(len(pairs), filtered)
        spread_values[has_later] = values[of_later]
        return spread_values

    kinds = plan.get_compositions().kinds
    arrays: list[NDArray[Any]] = [find_kinds(runs.number[pairs], runs.number[pairs + 1])]
    for a in codes:
        arrays += parts_by_attribute[a][:2]
    if not plan.get_order()[0].counts_later:
        return arrays
    arrays.append(spread(find_kinds(runs.number[first], runs.number[later]), kinds))
    for a, c in codes.items():
        arrays += [spread(values, c.size) for values in parts_by_attribute[a][2:]]
    return arrays


def plan_transition_queries(plan: EncodingPlan, domain: Domain, rho: Fraction, records: int) -> list[Query]:
    """Return one query per followed attribute: its codes by the next row's codes, each at rho_i = ``rho`` / d.

    ``domain``: of the pairs (tasks/steps/encode.py).  Household pairs are also counted by the kind of pair; if
    households may have three members, a second query per attribute pairs the first member with a later one.  d is the
    number of queries, and "person" below means household.

    Privacy: all answers together are rho-zCDP for adding or removing one person with all rows.  A person is at most
    ``records`` = 1 record of the pairs, because a rule that depends on that person alone draws one pair (of members,
    one of each sort).  So each table has L2 sensitivity 1 and costs 1 / (2 sigma_i^2) <= rho_i (Theorem 3); the rho_i
    sum to ``rho`` and depend on the public columns only.  One mechanism instance per query (Theorem 1).
    """
    panel, following = plan.get_order()[0], plan.following
    cliques: list[tuple[str, ...]] = [(a, name_next(a)) for a in following]
    if panel.household:
        cliques = [(panel.kind_of_pair, *clique) for clique in cliques]
    if panel.counts_later:
        cliques += [(panel.kind_beside_first, name_first(a), name_later(a)) for a in following]
    cells = [domain.cells(c) for c in cliques]
    sigma = compute_sigma(rho / max(len(cliques), 1), records)
    return [Query(c, n, records, sigma) for c, n in zip(cliques, cells, strict=True)]


def build_kept_domain(plan: EncodingPlan, recode: Recode) -> Domain:
    """Return the domain of the kept rows: coarse codes of the columns that every row has, under separate names."""
    counted = plan.attributes_of([name for codec in plan.row_plan.codecs for name in codec.ranges()])
    return Domain.of({name_all_rows(a): recode[a].size for a in counted})


def keep_rows(rows: Iterable[pa.RecordBatch], plan: EncodingPlan, recode: Recode) -> Iterator[pa.RecordBatch]:
    """Yield each person's kept rows as coarse codes, padded: a filtered value has the code ``size``.

    ``rows``: as *encode* stored them.  Adding or removing one person adds or removes at most ``unit.records`` rows, and
    changes no other row.
    """
    names = build_kept_domain(plan, recode).attributes
    counted = {a: r for a, r in recode.items() if name_all_rows(a) in names}
    for batch in recode_rows((batch.select(list(counted)) for batch in rows), counted):
        yield batch.rename_columns(list(names))


def list_attributes(plan: EncodingPlan) -> tuple[str, ...]:
    """Return the parent-table attributes, with columns, by which persons without rows are counted."""
    constant = {*plan.get_order()[0].constant}
    held = (c for c in plan.row_plan.codecs if {*c.sources} <= constant and c.ranges() and c.chances is None)
    return tuple(c.attribute for c in held)


def build_without_domain(recode: Recode, plan: EncodingPlan) -> Domain:
    """Return the domain of the persons without rows."""
    return Domain.of({a: recode[a].size for a in list_attributes(plan)})


def list_without_rows(rows: Iterable[pa.RecordBatch], plan: EncodingPlan, recode: Recode) -> Iterator[pa.RecordBatch]:
    """Yield the persons without rows as codes of :func:`build_without_domain`; ``rows``: as *encode* stored them."""
    domain = build_without_domain(recode, plan)
    schema = build_code_schema(domain)
    for batch in rows:
        coarse = {a: recode[a].coarse[np.asarray(batch.column(a))] for a in domain.attributes}
        yield build_code_batch(schema, (np.minimum(code, recode[a].size - 1) for a, code in coarse.items()))
