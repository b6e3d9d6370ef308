"""Step *encode* (transform): private rows to fine integer codes, by the public spec alone.

Paper: the binning of DPSyn, sections 5.3 and 5.4; Algorithm 3 starts from codes.

No later step reads the private table: what looks need beside the codes of records is stored here.  Of columns that are
looked into that is each value's number in the column's lattice; of linked rows all kept rows, and which of them stand
for each person.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple, Protocol, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from privsyn.data_contracts.domain import Domain
from privsyn.data_contracts.promise import Unit
from privsyn.data_contracts.tables import REPAIRS, build_code_schema
from privsyn.tasks.codecs import EncodingPlan
from privsyn.tasks.codecs.codec import Codes
from privsyn.tasks.codecs.ordered import OrderedCodec
from privsyn.tasks.kernels.counting import CodeTable
from privsyn.tasks.panels.choose_rows import KeptRuns, Passes, RowsOfPersons, find_kept_rows, iterate_runs
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

    With an identifier of the unit, at most ``unit.max_records`` rows of each person are kept, chosen by the content of
    the person's own rows (tasks/panels/choose_rows.py), so that neither row order nor another person's rows matter;
    rows without an identifier are left out.  Each kept row is encoded by itself: adding or removing one person changes
    at most ``unit.records`` rows of the output.

    Where the plan links rows, one row of each person stands for all, beside figures of the person's kept rows: adding
    or removing one person adds or removes one row of the output.
    """
    if plan.panel is not None:
        yield from (made.records for made in PersonEncoding.of(batches, plan).encode(batches, plan, repairs))
        return
    for batch in iterate_kept_batches(batches, plan, unit, repairs):
        yield encode_batch(batch, plan, repairs)


CodesAndNumbers: TypeAlias = tuple[pa.RecordBatch, pa.RecordBatch]
"""The codes of rows, and the numbers of the same rows."""


def encode_with_numbers(
    batches: Batches, plan: EncodingPlan, unit: Unit, repairs: Repairs
) -> Iterator[CodesAndNumbers]:
    """Yield the batches of :func:`encode`, and beside each the rows' numbers (contract NUMBERS).

    Of a plan that links no rows.
    """
    for batch in iterate_kept_batches(batches, plan, unit, repairs):
        yield encode_batch_with_numbers(batch, plan, repairs)


def encode_batch_with_numbers(
    batch: pa.RecordBatch, plan: EncodingPlan, repairs: Repairs, of: EncodingPlan | None = None
) -> CodesAndNumbers:
    """Return codes and numbers of one batch; ``of``: the plan that says which numbers are stored, if it is another."""
    domain = build_number_domain(of or plan)
    numbers: dict[str, pa.Array] = dict.fromkeys(domain.attributes)
    codes = encode_batch(batch, plan, repairs, numbers)
    return codes, pa.RecordBatch.from_arrays(list(numbers.values()), schema=build_code_schema(domain, nullable=True))


def build_number_domain(plan: EncodingPlan) -> Domain:
    """Return how many numbers each of the attributes has that :func:`list_numbered` names."""
    sizes = {c.attribute: c.lattice.size for c in plan.codecs if isinstance(c, OrderedCodec)}
    return Domain.of({name: sizes[name] for name in list_numbered(plan)})


def list_numbered(plan: EncodingPlan) -> tuple[str, ...]:
    """Return the attributes whose values later looks may see inside their codes."""
    seen = (*(codec.attribute for codec in (*plan.on_ladder, *plan.wide_celled)), *list_comparable(plan))
    return tuple(dict.fromkeys(seen))


def list_comparable(plan: EncodingPlan) -> tuple[str, ...]:
    """Return, of persons with rows, the attributes with an order, whichever of them change from row to row."""
    if plan.panel is None or plan.panel.household:
        return ()
    rows = (codec for codec in plan.of_rows.codecs if codec.chances is None)
    return tuple(codec.attribute for codec in rows if isinstance(codec, OrderedCodec))


def list_compared(plan: EncodingPlan) -> tuple[str, ...]:
    """Return those that change: whether a row and the next one have one value is asked of them."""
    return tuple(a for a in plan.following if a in list_comparable(plan))


def iterate_kept_batches(
    batches: Batches, plan: EncodingPlan, unit: Unit, repairs: Repairs
) -> Iterator[pa.RecordBatch]:
    """Yield the rows that :func:`encode` keeps of each person, as stored; ``repairs`` gets how many it leaves out."""
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
    """What one batch of the private table becomes where rows are linked: codes of rows, and the rows' numbers.

    ``records``: the rows that stand for persons, with figures of the person's kept rows; ``kept``: all kept rows, in
    the codes of rows; ``without``: a row of each person who has none in the order, in the codes of rows.
    """

    records: pa.RecordBatch
    kept: pa.RecordBatch
    without: pa.RecordBatch
    numbers: pa.RecordBatch
    numbers_of_rows: pa.RecordBatch
    numbers_without_rows: pa.RecordBatch


@dataclass(frozen=True)
class PersonEncoding:
    """The rows that are kept of persons whose rows are linked, and those that stand for them: chosen once.

    ``runs``: the kept rows, in groups of whole persons; ``figures``: of each person, by attribute, -1 for null.
    ``rows``: how many rows the private table has.
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
        """Return the kept rows of all persons; ``place``: among the kept rows, in the order of the table."""
        whole = KeptRuns.concatenate(self.runs)
        return replace(whole, place=np.cumsum(self.find_kept_rows())[whole.place] - 1)

    def encode(self, batches: Batches, plan: EncodingPlan, repairs: Repairs) -> Iterator[EncodedPersons]:
        """Yield what the rows of each batch become; ``repairs`` gets those of the records, and the other rows."""
        panel, of_rows = plan.get_order()[0], plan.of_rows
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
                encode_batch_with_numbers(batch.filter(pa.array(keep[start:end])), of_rows, Repairs(), plan),
                encode_batch_with_numbers(alone, of_rows, Repairs(), plan),
            )
            yield EncodedPersons(*(codes for codes, _ in made), *(numbers for _, numbers in made))
            start = end


def encode_batch(
    batch: pa.RecordBatch, plan: EncodingPlan, repairs: Repairs, numbers: dict[str, pa.Array] | None = None
) -> pa.RecordBatch:
    """Return codes of one batch; source columns are found by name, extra ones are ignored.

    ``numbers``: gets, for each attribute that it names, the values' numbers in the column's lattice.
    """
    arrays, encoded = [], {}
    schema = build_code_schema(plan.domain)
    for codec in plan.codecs:
        columns = {name: batch.column(name) for name in codec.sources}
        if numbers is not None and codec.attribute in numbers and isinstance(codec, OrderedCodec):
            codes, counts, numbers[codec.attribute] = codec.encode_with_numbers(columns)
        else:
            codes, counts = codec.encode(columns)
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


def encode_finer(
    codes: pa.RecordBatch, numbers: pa.RecordBatch | None, before: EncodingPlan, after: EncodingPlan
) -> pa.RecordBatch:
    """Return rows in the codes of ``after``, from codes of ``before`` and numbers, which say the values.

    Columns whose cells are the same in both keep their codes.  Without numbers values are drawn inside their codes.
    """
    cells = {c.attribute: c.cells.fine for c in before.codecs if isinstance(c, OrderedCodec)}
    cut = {c.sources[0] for c in after.codecs if isinstance(c, OrderedCodec) and c.cells.fine != cells[c.attribute]}
    columns: dict[str, pa.Array] = {}
    if numbers is not None:
        seen = (codec for codec in before.codecs if isinstance(codec, OrderedCodec) and codec.attribute in cut)
        columns = {codec.attribute: codec.read_numbers(numbers.column(codec.attribute)) for codec in seen}
    elif cut:
        by_attribute = {a: np.asarray(codes.column(a)) for a in before.domain.attributes}
        columns = before.decode(by_attribute, np.random.default_rng(0))
    schema, arrays = build_code_schema(after.domain), []
    for codec in after.codecs:
        encoded = codes.column(codec.attribute)
        if not cut.isdisjoint(codec.sources):
            values = {name: _restore(name, codes, columns, before) for name in codec.sources}
            encoded = codec.encode(values)[0]
        arrays.append(pa.array(encoded, type=schema.field(codec.attribute).type))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def encode_rows_finer(rows: CodeTable, before: EncodingPlan, after: EncodingPlan) -> CodeTable:
    """Return rows in the codes of ``after`` from codes of ``before`` alone."""
    parts = [encode_finer(batch, None, before, after) for batch in rows.to_arrow().to_batches()]
    return CodeTable.from_arrow(pa.Table.from_batches(parts, build_code_schema(after.domain)), after.domain)


def _restore(column: str, codes: pa.RecordBatch, columns: Mapping[str, pa.Array], plan: EncodingPlan) -> pa.Array:
    """Return values of a column: those read from numbers, ``columns``, or of another one a value of each code."""
    if column in columns:
        return columns[column]
    codec = next(c for c in plan.codecs if column in c.ranges())
    return codec.decode(np.asarray(codes.column(codec.attribute)), np.random.default_rng(0))[column]
