"""The meaning of fields in CSV records: null texts, and decimal marks.  Each field is read by itself."""

from __future__ import annotations

import re
from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from privsyn.data_contracts.columns import CategoricalColumn, Column, IntegerColumn, NumberColumn
from privsyn.data_contracts.csv_options import CsvOptions
from privsyn.data_contracts.release_spec import ReleaseSpec

NOT_A_NUMBER = "not a number: "
"""Prefix of a text with other marks than the spec's, so that 1.5 is not read as fifteen."""


def as_written(batch: pa.RecordBatch, spec: ReleaseSpec) -> pa.RecordBatch:
    """Return a batch of texts with nulls and numbers parsed as the spec says."""
    columns = []
    for name, texts in zip(batch.schema.names, batch.columns, strict=True):
        texts = drop_null_texts(texts, spec.nulls_of(name))
        numeric = _holds_numbers(spec.columns[name])
        columns.append(parse_numbers(texts, spec.csv) if numeric and not spec.csv.plain_numbers else texts)
    return pa.RecordBatch.from_arrays(columns, names=batch.schema.names)


def _holds_numbers(column: Column) -> bool:
    """Return whether a column holds numbers, or categories with decimals."""
    if isinstance(column, CategoricalColumn):
        return any(isinstance(value, float) for value in column.values)
    return isinstance(column, IntegerColumn | NumberColumn)


def drop_null_texts(texts: pa.Array, null_values: Sequence[str]) -> pa.Array:
    """Return the texts, with those in ``null_values`` as null."""
    if not null_values:
        return texts
    is_null = pc.is_in(texts, value_set=pa.array(null_values, texts.type))
    return pc.if_else(is_null, pa.scalar(None, texts.type), texts)


def parse_numbers(texts: pa.Array, options: CsvOptions) -> pa.Array:
    """Return numbers with the options' marks as numbers with a point; other texts get the prefix NOT_A_NUMBER."""
    decimal, thousands = re.escape(options.decimal), re.escape(options.thousands)
    groups = f"|[0-9]{{1,3}}(?:{thousands}[0-9]{{3}})+" if thousands else ""
    whole = f"(?:[0-9]+{groups})"
    pattern = rf"^\s*[+-]?(?:{whole}(?:{decimal}[0-9]*)?|{decimal}[0-9]+)(?:[eE][+-]?[0-9]+)?\s*$"
    is_number = pc.match_substring_regex(texts, pattern)
    plain = texts
    if options.thousands:
        plain = pc.replace_substring(plain, options.thousands, "")
    plain = pc.replace_substring(plain, options.decimal, ".")
    marked = pc.binary_join_element_wise(pa.scalar(NOT_A_NUMBER), texts, "")
    return pc.if_else(is_number, plain, marked)
