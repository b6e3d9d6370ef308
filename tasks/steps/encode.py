"""Step *encode* (transform): private rows to fine integer codes, by the public spec alone.

Paper: the binning of DPSyn, sections 5.3 and 5.4; Algorithm 3 starts from codes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from privsyn.data_contracts.promise import Unit
from privsyn.data_contracts.tables import REPAIRS, build_code_schema
from privsyn.tasks.codecs import EncodingPlan
from privsyn.tasks.codecs.codec import Codes
from privsyn.tasks.codecs.parsing import to_keys
from privsyn.tasks.kernels.streams import GAMMA
from privsyn.tasks.panels.choose_rows import KeptRuns, Passes, RowsOfPersons, iterate_runs
from privsyn.tasks.panels.summaries import summarize_runs
from privsyn.tasks.rules.compiled_rules import CompiledRules

PERSON_ROWS = 1 << 22
"""Rows whose persons are held at once, about, while the records of persons are bounded; more rows take more passes."""


OF_RULE = "rules"
"""How the place of a repair begins that is no repair of a value: a row that breaks a rule, and is counted as it is."""


NOT_KEPT, NO_RECORD = "left out", "without a record of their own"
"""Repairs of an identifier that say what the unit of protection leaves out: rows, and rows of a person but one."""


@dataclass
class Repairs:
    """How many values each repair touched, by column; filled while the rows stream through."""

    counts: Counter[tuple[str, str]] = field(default_factory=Counter)

    def add(self, column: str, repairs: Counter[str]) -> None:
        """Add one batch's repair counts of one column."""
        for repair, rows in repairs.items():
            self.counts[column, repair] += rows

    def to_table(self) -> pa.Table:
        """Return the contract REPAIRS, sorted (private)."""
        rows = [{"column": c, "repair": r, "rows": n} for (c, r), n in sorted(self.counts.items())]
        return pa.Table.from_pylist(rows, schema=REPAIRS.schema)


class Batches(Protocol):
    """Starts a fresh pass over the private rows."""

    def __call__(self, repairs: Repairs | None = None, /) -> Iterable[pa.RecordBatch]:
        """Yield the rows in batches; what reading them repairs is added to ``repairs``."""


def encode(batches: Batches, plan: EncodingPlan, unit: Unit, repairs: Repairs) -> Iterator[pa.RecordBatch]:
    """Yield code batches of the kept rows (contract ENCODED_ROWS); adds to ``repairs`` while batches are read.

    With an identifier of the unit, at most ``unit.max_records`` rows of each person are kept, chosen by a hash of
    the person's own rows, so that neither row order nor another person's rows matter; rows without an
    identifier are left out.  Each kept row is encoded by itself: adding or removing one person changes
    at most ``unit.records`` rows of the output.

    Where the plan links rows, one row of each person stands for all (tasks/panels/choose_rows.py), beside figures of
    the person's kept rows: adding or removing one person adds or removes one row of the output.
    """
    iterate_kept = iterate_kept_batches if plan.panel is None else iterate_drawn_batches
    for batch in iterate_kept(batches, plan, unit, repairs):
        yield encode_batch(batch, plan, repairs)


def iterate_kept_batches(
    batches: Batches, plan: EncodingPlan, unit: Unit, repairs: Repairs
) -> Iterator[pa.RecordBatch]:
    """Yield the rows that :func:`encode` keeps of each person, as stored; ``repairs`` gets how many it leaves out."""
    keep = None
    if unit.identifier is not None:
        choose = _choose_kept_rows if plan.panel is None else _choose_kept_runs
        keep = choose(batches, plan, unit)
    start = 0
    for batch in batches(repairs):
        if keep is None:
            yield batch
            continue
        mask = keep[start : start + batch.num_rows]
        start += batch.num_rows
        repairs.add(str(unit.identifier), +Counter({NOT_KEPT: int((~mask).sum())}))
        yield batch.filter(pa.array(mask))


def iterate_drawn_batches(
    batches: Batches, plan: EncodingPlan, unit: Unit, repairs: Repairs
) -> Iterator[pa.RecordBatch]:
    """Yield one row of each person, as stored, and the person's figures beside it; ``repairs`` gets the other rows."""
    panel = plan.get_order()[0]
    figures = (*panel.figures, *(codec.attribute for codec in plan.summaries))
    parts_of_columns: list[list[NDArray[np.int64]]] = [[np.empty(0, np.int64)] for _ in range(1 + len(figures))]
    for runs in iterate_persons(batches, plan):
        drawn = runs.drawn
        columns: tuple[NDArray[np.int64], ...] = (runs.place[drawn],)
        if panel.household:
            members = plan.get_compositions()
            columns += (members.encode_members(runs.count_members(members.roles.size)),)
        else:
            columns += (runs.rows[drawn], runs.before[drawn], runs.measure_gaps())
        columns += tuple(summarize_runs(batches, plan, runs)) if plan.summaries else ()
        for parts, values in zip(parts_of_columns, columns, strict=True):
            parts.append(values)
    place, *figure_values = map(np.concatenate, parts_of_columns)
    order = np.argsort(place)
    place, figure_values = place[order], [values[order] for values in figure_values]
    start = 0
    for batch in batches(repairs):
        first, end = np.searchsorted(place, [start, start + batch.num_rows])
        rows = batch.take(pa.array(place[first:end] - start))
        repairs.add(panel.person, +Counter({NO_RECORD: batch.num_rows - rows.num_rows}))
        start += batch.num_rows
        for name, values in zip(figures, figure_values, strict=True):
            part = values[first:end]
            rows = rows.append_column(name, pa.array(part, mask=part < 0))
        yield rows


def encode_batch(batch: pa.RecordBatch, plan: EncodingPlan, repairs: Repairs) -> pa.RecordBatch:
    """Return codes of one batch; source columns are found by name, extra ones are ignored."""
    arrays, encoded = [], {}
    schema = build_code_schema(plan.domain)
    for codec in plan.codecs:
        codes, counts = codec.encode({name: batch.column(name) for name in codec.sources})
        repairs.add(", ".join(codec.ranges() or codec.sources), counts)
        arrays.append(pa.array(codes, type=schema.field(codec.attribute).type))
        encoded[codec.attribute] = codes
    if plan.rules is not None:
        _count_broken(batch, encoded, plan, plan.rules, repairs)
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _count_broken(
    batch: pa.RecordBatch, codes: Mapping[str, Codes], plan: EncodingPlan, rules: CompiledRules, repairs: Repairs
) -> None:
    """Add to ``repairs`` how many rows break each rule; they are counted as they are.  ``codes``: of each attribute."""
    columns: dict[str, pa.Array] = {}
    for codec in (*plan.codecs, *plan.computed):
        if not rules.ruled_columns.isdisjoint(codec.ranges()):
            known = codes.get(codec.attribute)
            columns.update(codec.read({name: batch.column(name) for name in codec.sources}, known))
    if not columns:
        return  # no condition, and nothing computed
    for condition, rows in zip(rules.conditions, rules.find_broken_rows(columns), strict=True):
        repairs.add(f"{OF_RULE}[{condition.rule}]", +Counter({condition.words: int(rows.sum())}))
    for name, others in rules.find_differing_rows(columns).items():
        repairs.add(f"{OF_RULE}.{name}", +Counter({f"{name!r} is another than computed": int(others.sum())}))


def _choose_kept_rows(batches: Batches, plan: EncodingPlan, unit: Unit) -> NDArray[np.bool_]:
    """Return the mask of shape (rows,): the passes before encoding, since bounding needs every row of a person at once.

    Persons are split into groups of about PERSON_ROWS rows by a hash of their identifiers.  Each group has a pass, so
    that no more than one group is held.  The mask does not depend on the groups, nor on cells that were cut: every step
    of a release has the same rows of a person.
    """
    plan = plan.uncut or plan
    keep = np.zeros(sum(batch.num_rows for batch in batches()), dtype=bool)
    groups = -(-len(keep) // PERSON_ROWS)
    for group in range(groups):
        places, person, hashes = _locate_rows_of_persons(batches(), plan, unit, group, groups)
        keep[places] = bound_records(person, hashes, unit.records)
    return keep


def iterate_persons(batches: Passes, plan: EncodingPlan) -> Iterator[KeptRuns]:
    """Yield the kept rows of every person of a plan that links rows; see :func:`iterate_runs`."""
    of_rows = plan.of_rows

    def hash_rows(rows: pa.RecordBatch) -> NDArray[np.uint64]:
        return _hash_rows(encode_batch(rows, of_rows, Repairs()))

    if isinstance(batches, RowsOfPersons):
        return batches.iterate_runs(plan, PERSON_ROWS, hash_rows)
    return iterate_runs(batches, plan, PERSON_ROWS, hash_rows)


def _choose_kept_runs(batches: Batches, plan: EncodingPlan, unit: Unit) -> NDArray[np.bool_]:
    """Return the mask (rows,): a contiguous run of each person's rows in their order, ``unit.records`` at most."""
    keep = np.zeros(sum(batch.num_rows for batch in batches()), dtype=bool)
    for runs in iterate_persons(batches, plan):
        keep[runs.place] = True
    return keep


def _locate_rows_of_persons(
    batches: Iterable[pa.RecordBatch], plan: EncodingPlan, unit: Unit, group: int, groups: int
) -> tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.uint64]]:
    """Return place, person's number and row hash of every row whose person is of one group, without rows of nobody."""
    from privsyn.tasks.kernels.text_hash import hash_texts  # here: compiled code loads slowly

    places, persons, hashes, start = [np.empty(0, np.int64)], [pa.array([], pa.string())], [np.empty(0, np.uint64)], 0
    for batch in batches:
        identifiers = to_keys(batch.column(str(unit.identifier)), pa.string())
        mine = np.asarray(identifiers.is_valid())
        if groups > 1:
            mine = mine & (hash_texts(identifiers) % np.uint64(groups) == group)
        if mine.any():
            group_rows = batch.filter(pa.array(mine))
            persons.append(identifiers.filter(pa.array(mine)))
            hashes.append(_hash_rows(encode_batch(group_rows, plan, Repairs())))
            places.append(start + np.flatnonzero(mine))
        start += batch.num_rows
    person = pa.chunked_array(persons).dictionary_encode().combine_chunks().indices
    return np.concatenate(places), np.asarray(person), np.concatenate(hashes)


def bound_records(person: NDArray[np.int32], row_hash: NDArray[np.uint64], most: int) -> NDArray[np.bool_]:
    """Return the mask that keeps at most ``most`` rows of each person, those with the smallest hashes.

    ``person`` is one number per person, -1 where the identifier is missing (never kept); both of shape (rows,).
    """
    order = np.lexsort((row_hash, person))
    sorted_person = person[order]
    first = np.searchsorted(sorted_person, sorted_person, side="left")
    rank = np.arange(len(person)) - first
    keep = np.zeros(len(person), dtype=bool)
    keep[order] = (rank < most) & (sorted_person >= 0)
    return keep


def _hash_rows(codes: pa.RecordBatch) -> NDArray[np.uint64]:
    """Return a 64-bit mix of each row's codes, shape (rows,); a function of the row alone."""
    mixed = np.full(codes.num_rows, GAMMA)
    for column in codes.columns:
        mixed = (mixed ^ np.asarray(column).astype(np.uint64)) * np.uint64(0xFF51AFD7ED558CCD)
        mixed ^= mixed >> np.uint64(29)
    return mixed
