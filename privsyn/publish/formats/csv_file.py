"""The synthetic table as CSV: RFC 4180 quoting, UTF-8, the Parquet's own values.

Texts and moments stand in quotation marks, a quotation mark inside twice; numbers, dates and booleans bare.  Numbers
are the shortest decimals that give the same binary number; dates are 2010-01-31, moments 2010-01-31T08:30:00, booleans
true and false.  Lines end in CR LF.  A category that begins with =, +, - or @ is written as it is: the values are the
public spec's own, and the file must hold what the Parquet file holds; the release note warns of spreadsheets.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv

from privsyn.data_contracts.tables import ValueRange
from privsyn.publish.formats.described import get_null_text, list_categories
from privsyn.storage.disk import translate_os_errors
from privsyn.storage.table_files import open_parquet

BATCH_ROWS = 1 << 14
"""Rows written at a time: memory depends on the width of the table and its longest categories, not on its length."""

FORMULA = ("=", "+", "-", "@", "\t", "\r")
"""What a text begins with that a spreadsheet may take for a formula."""


def name_csv(parquet: str) -> str:
    """Return the name of the CSV file of a released Parquet file.

    Parts lie apart, so that ``synthetic/`` holds one format.
    """
    return parquet.removesuffix(".parquet").replace("synthetic/", "synthetic_csv/") + ".csv"


def write_csv(parquet: Path, csv: Path, ranges: Mapping[str, ValueRange]) -> None:
    """Write the rows of the file ``parquet`` to ``csv``, a batch at a time.  Raises PrivsynError if the disk refuses.

    ``ranges``: the public domain of every column, in order.
    """
    options = pa_csv.WriteOptions(
        quoting_style="needed", quoting_header="needed", eol="\r\n", null_string=get_null_text(ranges)
    )
    with translate_os_errors(csv), open_parquet(parquet) as source:
        schema = pa.schema([_as_written(field) for field in source.schema_arrow])
        with pa_csv.CSVWriter(csv, schema, write_options=options) as target:
            for batch in source.iter_batches(batch_size=BATCH_ROWS):
                columns = [
                    _format_column(column, ranges[name]) for name, column in zip(schema.names, batch, strict=True)
                ]
                target.write_batch(pa.RecordBatch.from_arrays(columns, schema=schema))


def find_formulas(ranges: Mapping[str, ValueRange]) -> list[str]:
    """Return columns whose name or categories a spreadsheet may take for formulas.

    A function of the public spec alone.
    """
    found = []
    for name, domain in ranges.items():
        if any(text.startswith(FORMULA) for text in (name, *list_categories(domain))):
            found.append(name)
    return found


def _as_written(field: pa.Field) -> pa.Field:
    if pa.types.is_time(field.type):
        return pa.field(field.name, pa.time32("s"))
    is_text = pa.types.is_timestamp(field.type) or pa.types.is_dictionary(field.type)
    return pa.field(field.name, pa.string()) if is_text else field.remove_metadata()


def _format_column(column: pa.Array, domain: ValueRange) -> pa.Array:
    """Moments as text; to the microsecond only where a bound of the spec, to which values are clamped, has any."""
    if pa.types.is_time(column.type):
        return column.cast(pa.time32("s"))
    if pa.types.is_dictionary(column.type):
        return column.dictionary_decode()
    if not pa.types.is_timestamp(column.type):
        return column
    whole = not (domain.low.microsecond or domain.high.microsecond)
    return pc.strftime(column.cast(pa.timestamp("s")) if whole else column, format="%Y-%m-%dT%H:%M:%S")
