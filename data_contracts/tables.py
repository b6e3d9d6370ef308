"""One contract object per table: its Arrow schema and its expectations.

Two forms of contract.  A *long* table (noisy counts, receipts, scores, cliques ...) has a fixed Arrow
schema and is checked row by row.  A *wide* table (code rows, synthetic rows) has one column per
attribute.  It may be large, so it is checked through its *profile*.  A profile has one small row per column and row
group (smallest, largest, nulls, values outside the domain), made by :func:`make_code_profile` and
:func:`make_value_profile`.  The expectations then run on the profile, whatever the table's size.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from privsyn.data_contracts.artifacts import Zone
from privsyn.data_contracts.domain import Domain, choose_code_dtype


@dataclass(frozen=True)
class Expectation:
    """One Great Expectations expectation: its snake-case type and its arguments."""

    type: str
    kwargs: Mapping[str, Any]


def _expect(type_: str, **kwargs: Any) -> Expectation:
    return Expectation(type_, kwargs)


def _require_not_null(*columns: str) -> list[Expectation]:
    return [_expect("expect_column_values_to_not_be_null", column=c) for c in columns]


def require_at_least(column: str, least: float, *, strict: bool = False) -> Expectation:
    """Expect no value below ``least``: the smallest one is checked, which takes half the time of checking every one."""
    return _expect("expect_column_min_to_be_between", column=column, min_value=least, strict_min=strict)


@dataclass(frozen=True)
class TableContract:
    """A table's contract: name, zone, schema, expectations.

    ``schema`` is None for wide tables, whose schema depends on the domain (:func:`build_code_schema`).
    """

    name: str
    zone: Zone
    schema: pa.Schema | None
    expectations: tuple[Expectation, ...]

    @property
    def wide(self) -> bool:
        """Whether the table is checked through its profile."""
        return self.schema is None


BATCH_ROWS, LEAST_BATCH_ROWS = 131_072, 1_024
"""The most and fewest rows that are read or decoded at a time."""

BATCH_COLUMNS = 300
"""Up to this many columns a batch has the most rows; wider tables get as many values per batch."""

PROFILE_SCHEMA = pa.schema(
    [
        ("column", pa.string()),
        ("rows", pa.int64()),
        ("unwanted_nulls", pa.int64()),
        ("outside", pa.int64()),
        ("type_matches", pa.bool_()),
    ]
)

PROFILE_EXPECTATIONS = (
    *_require_not_null("column", "unwanted_nulls", "outside", "type_matches"),
    _expect("expect_column_max_to_be_between", column="outside", min_value=0, max_value=0),
    require_at_least("type_matches", True),
    _expect("expect_column_max_to_be_between", column="unwanted_nulls", min_value=0, max_value=0),
)


def _make_long_table(
    name: str, zone: Zone, fields: Sequence[tuple[str, pa.DataType]], *expectations: Expectation
) -> TableContract:
    schema = pa.schema(fields)
    return TableContract(name, zone, schema, (*_require_not_null(*schema.names), *expectations))


def _make_wide_table(name: str, zone: Zone) -> TableContract:
    return TableContract(name, zone, None, PROFILE_EXPECTATIONS)


ENCODED_ROWS = _make_wide_table("encoded_rows", Zone.PRIVATE)
"""Private rows as fine codes: one unsigned column per attribute, codes 0 .. size - 1."""

RECODED_ROWS = _make_wide_table("recoded_rows", Zone.PRIVATE)
"""Private rows as coarse codes; the code ``size`` (one past the end) marks a filtered value."""

KEPT_ROWS = _make_wide_table("kept_rows", Zone.PRIVATE)
"""All kept rows of persons as coarse codes; one past the end marks a filtered value."""

PAIRED_ROWS = _make_wide_table("paired_rows", Zone.PRIVATE)
"""One row of each person and the next one as coarse codes; one past the end marks a filtered value."""

WITHOUT_ROWS = _make_wide_table("without_rows", Zone.PRIVATE)
"""Persons of a parent table without rows, as coarse codes of its columns."""

NUMBERS = _make_wide_table("numbers", Zone.PRIVATE)
"""Values of private rows as integers in units of each column's resolution; kept until the run is published."""

ROWS_OF_PERSONS = _make_wide_table("rows_of_persons", Zone.PRIVATE)
"""All kept rows of persons as fine codes, in the order of the private table; kept until the run is published."""

RUNS = _make_wide_table("runs", Zone.PRIVATE)
"""The kept rows person by person, and which rows represent the person; kept until the run is published."""

REPAIRS = _make_long_table(
    "repairs",
    Zone.PRIVATE,
    [("column", pa.string()), ("repair", pa.string()), ("rows", pa.int64())],
    require_at_least("rows", 0),
)
"""How many values each repair changed while encoding; private zone only."""

NOISY = _make_long_table(
    "noisy",
    Zone.RELEASED,
    [("query", pa.int32()), ("cell", pa.int64()), ("count", pa.int64())],
    require_at_least("query", 0),
    require_at_least("cell", 0),
    _expect("expect_compound_columns_to_be_unique", column_list=["query", "cell"]),
)
"""Noisy integer answers of one release step, cell by cell in row-major order of the query's attributes."""

RECEIPTS = _make_long_table(
    "receipts",
    Zone.RELEASED,
    [
        ("query", pa.int32()),
        ("attributes", pa.list_(pa.string())),
        ("cells", pa.int64()),
        ("sensitivity", pa.int64()),
        ("sigma", pa.float64()),
        ("rho", pa.string()),
    ],
    _expect("expect_column_values_to_be_unique", column="query"),
    require_at_least("cells", 1),
    require_at_least("sensitivity", 1),
    require_at_least("sigma", 0, strict=True),
)
"""One line per query: what was asked, the noise drawn, and its exact price (a fraction, as text)."""

RECODE = _make_long_table(
    "recode",
    Zone.RELEASED,
    [
        ("attribute", pa.string()),
        ("code", pa.int32()),
        ("label", pa.string()),
        ("coarse", pa.int32()),
        ("kept", pa.bool_()),
        ("weight", pa.float64()),
        ("estimate", pa.float64()),
        ("variance", pa.float64()),
    ],
    _expect("expect_compound_columns_to_be_unique", column_list=["attribute", "code"]),
    require_at_least("coarse", 0),
    require_at_least("weight", 0),
    require_at_least("variance", 0),
)
"""Fine code -> coarse code of every attribute, with the fine code's public label.  ``weight`` is the nonnegative share
by which decode draws the fine code inside its coarse code; ``estimate`` and ``variance`` are the fine noisy count and
its noise variance.  If ``kept`` is false, ``coarse`` is the size of the coarse domain."""

EMPTY_CELLS = _make_long_table(
    "empty_cells",
    Zone.RELEASED,
    [
        ("attribute", pa.string()),
        ("other", pa.string()),
        ("code", pa.int32()),
        ("other_code", pa.int32()),
        ("measured", pa.bool_()),
    ],
    _expect("expect_compound_columns_to_be_unique", column_list=["attribute", "other", "code", "other_code"]),
    require_at_least("code", 0),
    require_at_least("other_code", 0),
)
"""Pairs of coarse codes that no row has, by the noisy counts: null of one attribute with values of another.
``measured``: whether their joint counts were measured."""

PAIRS = _make_long_table(
    "pairs",
    Zone.RELEASED,
    [
        ("order", pa.int32()),
        ("a", pa.string()),
        ("b", pa.string()),
        ("score", pa.float64()),
        ("cells", pa.int64()),
        ("error", pa.float64()),
        ("weight", pa.float64()),
    ],
    _expect("expect_column_values_to_be_unique", column="order"),
    require_at_least("weight", 0, strict=True),
    _expect("expect_compound_columns_to_be_unique", column_list=["a", "b"]),
    require_at_least("cells", 1),
)
"""Selected pairs, in the order of selection, with the total expected error after each, and their weight in the
measurement budget."""

CLIQUES = _make_long_table(
    "cliques",
    Zone.RELEASED,
    [("clique", pa.int32()), ("attributes", pa.list_(pa.string())), ("cells", pa.int64()), ("weight", pa.float64())],
    _expect("expect_column_values_to_be_unique", column="clique"),
    require_at_least("weight", 0, strict=True),
    require_at_least("cells", 1),
)
"""Attribute sets to measure, numbered from 0; they share the measurement budget in proportion to ``weight``."""

MERGES = _make_long_table(
    "merges",
    Zone.RELEASED,
    [
        ("set", pa.int32()),
        ("attribute", pa.string()),
        ("coarse", pa.int32()),
        ("merged", pa.int32()),
        ("weight", pa.float64()),
    ],
    _expect("expect_compound_columns_to_be_unique", column_list=["set", "attribute", "coarse"]),
    require_at_least("set", 0),
    require_at_least("coarse", 0),
    require_at_least("merged", 0),
    require_at_least("weight", 0, strict=True),
)
"""Sets of attributes to measure, numbered from 0: coarse code -> merged code of each attribute, in the order of axes.

Each set has the weight by which the sets share their budget.
"""

CUT_CELLS = _make_long_table(
    "cut_cells",
    Zone.RELEASED,
    [("attribute", pa.string()), ("low", pa.float64()), ("doubtful", pa.bool_())],
    _expect("expect_compound_columns_to_be_unique", column_list=["attribute", "low"]),
)
"""The cells of columns with a first look: each cell's lower end, in the numbers of the column's codec, and whether the
look showed no rows in it or nearby."""

COUNTED = _make_long_table(
    "counted",
    Zone.RELEASED,
    [("attribute", pa.string()), ("code", pa.int32()), ("number", pa.int64()), ("value", pa.float64())],
    _expect("expect_compound_columns_to_be_unique", column_list=["attribute", "number"]),
    require_at_least("code", 0),
)
"""Single values that are counted inside heavy cells: the cell's fine code, the multiple of the column's step, and the
value."""

LOCATED_ROWS = _make_wide_table("located_rows", Zone.PRIVATE)
"""The counted values of private rows; one past the end means any other value."""

MARGINALS = _make_long_table(
    "marginals",
    Zone.RELEASED,
    [
        ("clique", pa.int32()),
        ("attributes", pa.list_(pa.string())),
        ("counts", pa.list_(pa.float64())),
        ("sigma", pa.float64()),
    ],
    _expect("expect_column_values_to_be_unique", column="clique"),
    require_at_least("sigma", 0),
)
"""Consistent marginals, one per row, counts in row-major order: first the one-way of every attribute in domain order,
then the measured cliques.  ``sigma`` is the measurement noise of each cell."""

SYNTHETIC_CODES = _make_wide_table("synthetic_codes", Zone.RELEASED)
"""Synthetic rows as coarse codes."""

LINKED_ROWS = _make_wide_table("linked_rows", Zone.RELEASED)
"""Synthetic rows of persons as fine codes, person by person and in order."""

SYNTHETIC = _make_wide_table("synthetic", Zone.RELEASED)
"""Synthetic rows: the source's names and column order, the spec's types."""

SYNTHETIC_WITHOUT_ROWS = _make_wide_table("without_rows", Zone.RELEASED)
"""Synthetic persons of a parent table without rows: its released columns."""

ROWS_ABOVE = _make_wide_table("rows_above", Zone.RELEASED)
"""The parent row's number, for each record of child rows."""


def choose_batch_rows(columns: int) -> int:
    """Return how many rows with this many columns are read or decoded at a time, to bound memory for wide tables."""
    return min(BATCH_ROWS, max(LEAST_BATCH_ROWS, BATCH_ROWS * BATCH_COLUMNS // max(1, columns)))


def build_code_schema(domain: Domain, *, padded: bool = False, nullable: bool = False) -> pa.Schema:
    """Return the Arrow schema of a table of codes; ``padded`` allows the code ``size`` for filtered values."""
    return pa.schema(
        [
            pa.field(a, pa.from_numpy_dtype(choose_code_dtype(s + int(padded))), nullable=nullable)
            for a, s in zip(domain.attributes, domain.sizes, strict=True)
        ]
    )


def _make_profile_row(column: str, array: Any, outside: int, *, nullable: bool, type_matches: bool) -> dict[str, Any]:
    return {
        "column": column,
        "rows": len(array),
        "unwanted_nulls": 0 if nullable else array.null_count,
        "outside": outside,
        "type_matches": type_matches,
    }


def make_code_profile(
    batches: Iterable[pa.RecordBatch], domain: Domain, *, padded: bool = False, nullable: bool = False
) -> pa.Table:
    """Return the profile of a table of codes: one row per column and batch (PROFILE_SCHEMA).

    A batch whose columns are not the domain's, in order, gives rows with ``type_matches`` false.
    """
    schema = build_code_schema(domain, padded=padded, nullable=nullable)
    rows = []
    for batch in batches:
        names_match = batch.schema.names == schema.names
        for i, name in enumerate(batch.schema.names):
            array = batch.column(i)
            matches = names_match and array.type == schema.field(i).type
            outside = 0
            if matches and len(array):
                largest = domain.sizes[i] - 1 + int(padded)
                top = pc.max(array).as_py()
                outside = 0 if top is None or top <= largest else int(pc.sum(pc.greater(array, largest)).as_py())
            rows.append(_make_profile_row(name, array, outside, nullable=nullable, type_matches=matches))
    return pa.Table.from_pylist(rows, schema=PROFILE_SCHEMA)


@dataclass(frozen=True)
class ValueRange:
    """The public domain of one released column: its type, and either bounds or a value set."""

    type: pa.DataType
    nullable: bool
    low: Any = None
    high: Any = None
    values: pa.Array | None = None


def make_value_profile(batches: Iterable[pa.RecordBatch], ranges: Mapping[str, ValueRange]) -> pa.Table:
    """Return the profile of a table of released values against their public domain (PROFILE_SCHEMA)."""
    rows = []
    for batch in batches:
        names_match = batch.schema.names == list(ranges)
        for i, name in enumerate(batch.schema.names):
            array = batch.column(i)
            expected = ranges.get(name)
            array = array.dictionary_decode() if pa.types.is_dictionary(array.type) else array
            matches = names_match and expected is not None and array.type == expected.type
            outside = _find_outside(array, expected) if matches and expected is not None else 0
            rows.append(
                _make_profile_row(
                    name, array, outside, nullable=bool(expected and expected.nullable), type_matches=matches
                )
            )
    return pa.Table.from_pylist(rows, schema=PROFILE_SCHEMA)


def _find_outside(array: pa.Array, expected: ValueRange) -> int:
    values = array.drop_null()
    if len(values) == 0:
        return 0
    if expected.values is not None:
        return len(values) - int(pc.sum(pc.is_in(values, value_set=expected.values)).as_py())
    if expected.low is None:
        return 0
    high_enough = pc.greater_equal(values, pa.scalar(expected.low, array.type))
    low_enough = pc.less_equal(values, pa.scalar(expected.high, array.type))
    return len(values) - int(pc.sum(pc.and_(high_enough, low_enough)).as_py())  # NaN is neither
