"""Encode rows as fine integer codes with the codecs of a plan, one batch at a time, and count repairs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

import numpy as np
import pyarrow as pa

from privsyn.data_contracts.domain import Domain
from privsyn.data_contracts.tables import REPAIRS, build_code_schema
from privsyn.tasks.codecs import EncodingPlan
from privsyn.tasks.codecs.codec import Codes
from privsyn.tasks.codecs.ordered import OrderedCodec
from privsyn.tasks.kernels.counting import CodeTable
from privsyn.tasks.rules.compiled_rules import CompiledRules

OF_RULE = "rules"
"""Prefix of the place of a broken rule; such rows are counted unrepaired."""


NOT_KEPT, NO_RECORD = "left out", "without a record of their own"
"""Repairs of an identifier, for what the unit of protection leaves out: rows, and all rows of a person but one."""


@dataclass
class Repairs:
    """How many values each repair changed, by column; filled while rows stream through."""

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
        """Yield the rows in batches; repairs made while reading are added to ``repairs``."""


CodesAndNumbers: TypeAlias = tuple[pa.RecordBatch, pa.RecordBatch]
"""Codes of rows, and lattice numbers of the same rows."""


def encode_batch_with_numbers(
    batch: pa.RecordBatch, plan: EncodingPlan, repairs: Repairs, numbering_plan: EncodingPlan | None = None
) -> CodesAndNumbers:
    """Return codes and numbers of one batch; ``numbering_plan``: the plan that chooses the numbers, if another."""
    domain = build_number_domain(numbering_plan or plan)
    numbers: dict[str, pa.Array] = dict.fromkeys(domain.attributes)
    codes = encode_batch(batch, plan, repairs, numbers)
    return codes, pa.RecordBatch.from_arrays(list(numbers.values()), schema=build_code_schema(domain, nullable=True))


def build_number_domain(plan: EncodingPlan) -> Domain:
    """Return the lattice sizes of the attributes that :func:`list_numbered` returns."""
    sizes = {c.attribute: c.lattice.size for c in plan.codecs if isinstance(c, OrderedCodec)}
    return Domain.of({name: sizes[name] for name in list_numbered(plan)})


def list_numbered(plan: EncodingPlan) -> tuple[str, ...]:
    """Return the attributes whose values later looks may see inside codes."""
    seen = (*(codec.attribute for codec in (*plan.on_ladder, *plan.wide_celled)), *list_comparable(plan))
    return tuple(dict.fromkeys(seen))


def list_comparable(plan: EncodingPlan) -> tuple[str, ...]:
    """Return the ordered attributes of linked rows of persons, whether or not they change between rows."""
    if plan.panel is None or plan.panel.household:
        return ()
    rows = (codec for codec in plan.row_plan.codecs if codec.chances is None)
    return tuple(codec.attribute for codec in rows if isinstance(codec, OrderedCodec))


def list_compared(plan: EncodingPlan) -> tuple[str, ...]:
    """Return the comparable attributes that change between rows; pairs of rows are compared in these."""
    return tuple(a for a in plan.following if a in list_comparable(plan))


def encode_batch(
    batch: pa.RecordBatch, plan: EncodingPlan, repairs: Repairs, numbers: dict[str, pa.Array] | None = None
) -> pa.RecordBatch:
    """Return the codes of one batch; source columns are found by name, extra columns are ignored.

    ``numbers``: filled with the lattice numbers of each attribute that it has as a key.
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
    """Add to ``repairs`` how many rows break each rule, counted unrepaired; ``codes``: by attribute."""
    columns: dict[str, pa.Array] = {}
    for codec in (*plan.codecs, *plan.computed):
        if not rules.ruled_columns.isdisjoint(codec.ranges()):
            known = codes.get(codec.attribute)
            columns.update(codec.read({name: batch.column(name) for name in codec.sources}, known))
    if not columns:
        return  # no conditions and no computed columns
    for condition, rows in zip(rules.conditions, rules.find_broken_rows(columns), strict=True):
        repairs.add(f"{OF_RULE}[{condition.rule}]", +Counter({condition.words: int(rows.sum())}))
    for name, others in rules.find_differing_rows(columns).items():
        repairs.add(f"{OF_RULE}.{name}", +Counter({f"{name!r} is another than computed": int(others.sum())}))


def encode_finer(
    codes: pa.RecordBatch, numbers: pa.RecordBatch | None, before: EncodingPlan, after: EncodingPlan
) -> pa.RecordBatch:
    """Return rows recoded from ``before`` to ``after``, using their lattice numbers for exact values.

    Columns with the same cells in both plans keep their codes.  Without numbers, values are drawn inside their codes.
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
    """Return rows recoded from ``before`` to ``after``, from the codes alone."""
    parts = [encode_finer(batch, None, before, after) for batch in rows.to_arrow().to_batches()]
    return CodeTable.from_arrow(pa.Table.from_batches(parts, build_code_schema(after.domain)), after.domain)


def _restore(column: str, codes: pa.RecordBatch, columns: Mapping[str, pa.Array], plan: EncodingPlan) -> pa.Array:
    """Return a column's values: from ``columns``, read from numbers, or else one value per code."""
    if column in columns:
        return columns[column]
    codec = next(c for c in plan.codecs if column in c.ranges())
    return codec.decode(np.asarray(codes.column(codec.attribute)), np.random.default_rng(0))[column]
