"""Step *encode* (transform): encode private rows as fine integer codes, using the public spec alone.

Paper: the binning of DPSyn, sections 5.3 and 5.4; Algorithm 3 starts from codes.

No later step reads the private table, so this step also stores what later looks need.  It stores each value's number in
its column's lattice.  For linked rows, it stores all kept rows and the row that represents each person.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from privsyn.data_contracts.promise import Unit
from privsyn.tasks.codecs import EncodingPlan
from privsyn.tasks.codecs.encode_rows import (
    NO_RECORD,
    NOT_KEPT,
    Batches,
    CodesAndNumbers,
    Repairs,
    encode_batch,
    encode_batch_with_numbers,
)
from privsyn.tasks.panels.choose_rows import KeptRuns, Passes, RowsOfPersons, find_kept_rows, iterate_runs
from privsyn.tasks.panels.summaries import summarize_runs

PERSON_ROWS = 1 << 22
"""Approximate number of rows whose persons are held in memory at once; larger tables take more passes."""


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
