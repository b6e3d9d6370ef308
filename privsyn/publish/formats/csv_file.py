"""The synthetic table as CSV, in a standard form or in the form of the source's files.

The standard form is UTF-8 with RFC 4180 quoting and CR LF line ends.  Text and moments are quoted, with quotation marks
doubled; numbers, dates and booleans are not.  Numbers are the shortest decimals that give the same binary number; dates
are 2010-01-31, moments 2010-01-31T08:30:00, booleans true and false.  A category that begins with =, +, - or @ is not
changed, since the file must have the Parquet file's values; the release note warns about spreadsheets.

With ``like: source``, marks, encoding, the text for null and the formats of dates are the source's, as the spec states
them; a field is quoted only if necessary.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv

from privsyn.data_contracts.release_spec import ReleaseSpec
from privsyn.data_contracts.tables import ValueRange
from privsyn.publish.formats.described import get_null_text, list_categories
from privsyn.storage.disk import translate_os_errors
from privsyn.storage.table_files import open_parquet

BATCH_ROWS = 1 << 14
"""Rows written at a time, so that memory does not depend on the number of rows."""

FORMULA = ("=", "+", "-", "@", "\t", "\r")
"""First characters of text that a spreadsheet may take for a formula."""


def name_csv(parquet: str) -> str:
    """Return the name of the CSV file of a released Parquet file.

    CSV parts have their own folder, so that ``synthetic/`` has one format.
    """
    return parquet.removesuffix(".parquet").replace("synthetic/", "synthetic_csv/") + ".csv"


@dataclass(frozen=True)
class CsvStyle:
    """The form of a CSV file, by the public spec alone.

    ``null``: the text for null; ``quote``: empty if fields are not quoted; ``formats``: column -> strftime format of
    its days, moments or times of day, if not ISO 8601.
    """

    null: str
    delimiter: str = ","
    quote: str = '"'
    decimal: str = "."
    encoding: str = "utf-8"
    formats: Mapping[str, str] = field(default_factory=dict)
    like_source: bool = False


def choose_style(spec: ReleaseSpec, ranges: Mapping[str, ValueRange]) -> CsvStyle:
    """Return the form of a release's CSV files; ``ranges``: the public domain of every column."""
    if spec.like == "standard":
        return CsvStyle(get_null_text(ranges))
    listed = {text for domain in ranges.values() for text in list_categories(domain)}
    texts = (text for text in spec.null_values if text not in listed and not re.search("[0-9]", text))
    usable = (text for text in texts if text or len(ranges) > 1)  # an empty line is not a record
    csv, columns = spec.csv, spec.released_columns
    formats = {name: columns[name].format for name in ranges if getattr(columns[name], "format", "")}
    return CsvStyle(
        null=next(usable, get_null_text(ranges)),
        delimiter=csv.delimiter or ",",
        quote=csv.quote,
        decimal=csv.decimal,
        encoding=csv.encoding,
        formats={name: _TIMES.get(format_, format_) for name, format_ in formats.items()},
        like_source=True,
    )


_TIMES = {"HH:MM": "%H:%M", "HH:MM:SS": "%H:%M:%S"}
"""Format of a time column -> strftime format; numbers such as 1435 have none."""


def write_csv(parquet: Path, csv: Path, ranges: Mapping[str, ValueRange], style: CsvStyle) -> None:
    """Write the rows of the file ``parquet`` to ``csv``, a batch at a time.  Raises PrivsynError if the disk refuses.

    ``ranges``: the public domain of every column, in order.
    """
    if style.like_source:
        _write_like_source(parquet, csv, ranges, style)
        return
    options = pa_csv.WriteOptions(quoting_style="needed", quoting_header="needed", eol="\r\n", null_string=style.null)
    with translate_os_errors(csv), open_parquet(parquet) as source:
        schema = pa.schema([_as_written(field) for field in source.schema_arrow])
        with pa_csv.CSVWriter(csv, schema, write_options=options) as target:
            for batch in source.iter_batches(batch_size=BATCH_ROWS):
                columns = [
                    _format_column(column, ranges[name]) for name, column in zip(schema.names, batch, strict=True)
                ]
                target.write_batch(pa.RecordBatch.from_arrays(columns, schema=schema))


def _write_like_source(parquet: Path, csv: Path, ranges: Mapping[str, ValueRange], style: CsvStyle) -> None:
    with translate_os_errors(csv), open_parquet(parquet) as source, csv.open("wb") as target:
        names = pa.array(source.schema_arrow.names, pa.string())
        head = style.delimiter.join(_quote(names, style).to_pylist())
        target.write(f"{head}\r\n".encode(style.encoding))
        for batch in source.iter_batches(batch_size=BATCH_ROWS):
            columns = [_write_texts(c, ranges[n], n, style) for n, c in zip(batch.schema.names, batch, strict=True)]
            lines = pc.binary_join_element_wise(*columns, style.delimiter) if len(columns) > 1 else columns[0]
            target.write("".join(f"{line}\r\n" for line in lines.to_pylist()).encode(style.encoding))


def _write_texts(column: pa.Array, domain: ValueRange, name: str, style: CsvStyle) -> pa.Array:
    """Return the fields of a column, shape (rows,), quoted if necessary, with the style's text for null."""
    format_ = style.formats.get(name, "")
    if pa.types.is_time(column.type):
        clock = column.cast(pa.time32("s")).cast(pa.string())
        texts = pc.utf8_slice_codeunits(clock, 0, 5) if format_ == "%H:%M" else clock
    elif "%" in format_ and "%f" not in format_ and not pa.types.is_integer(column.type):
        texts = pc.strftime(column.cast(pa.timestamp("s"), safe=False), format=format_)
    elif "%" in format_ and not pa.types.is_integer(column.type):
        moments = (v if v is None else v.strftime(format_) for v in column.to_pylist())  # Arrow writes no fractions
        texts = pa.array(moments, pa.string())
    else:
        texts = _format_column(column, domain).cast(pa.string())
    if pa.types.is_floating(column.type) and style.decimal != ".":
        texts = pc.replace_substring(texts, ".", style.decimal)
    return pc.fill_null(_quote(texts, style), style.null)


def _quote(texts: pa.Array, style: CsvStyle) -> pa.Array:
    """Return the texts, quoted if they contain a mark, begin or end with a space, or equal the text for null."""
    if not style.quote:
        return texts
    marks = re.escape(style.delimiter) + re.escape(style.quote) + "\\r\\n"
    must = pc.or_(pc.match_substring_regex(texts, rf"[{marks}]|^\s|\s$"), pc.equal(texts, style.null))
    doubled = pc.replace_substring(texts, style.quote, 2 * style.quote)
    return pc.if_else(must, pc.binary_join_element_wise("", doubled, "", style.quote), texts)


def find_formulas(ranges: Mapping[str, ValueRange]) -> list[str]:
    """Return columns whose name or categories a spreadsheet may take for formulas, by the public spec alone."""
    columns = []
    for name, domain in ranges.items():
        if any(text.startswith(FORMULA) for text in (name, *list_categories(domain))):
            columns.append(name)
    return columns


def _as_written(field: pa.Field) -> pa.Field:
    if pa.types.is_time(field.type):
        return pa.field(field.name, pa.time32("s"))
    is_text = pa.types.is_timestamp(field.type) or pa.types.is_dictionary(field.type)
    return pa.field(field.name, pa.string()) if is_text else field.remove_metadata()


def _format_column(column: pa.Array, domain: ValueRange) -> pa.Array:
    """Return the values for CSV; moments as text, with microseconds only if a bound of the spec has any."""
    if pa.types.is_time(column.type):
        return column.cast(pa.time32("s"))
    if pa.types.is_dictionary(column.type):
        return column.dictionary_decode()
    if not pa.types.is_timestamp(column.type):
        return column
    whole_seconds = not (domain.low.microsecond or domain.high.microsecond)
    return pc.strftime(column.cast(pa.timestamp("s")) if whole_seconds else column, format="%Y-%m-%dT%H:%M:%S")
