"""A release's tables: their columns and files as metadata describes them, tables joined by new keys, and CSV.

Metadata follow from the public plan, the certificate, the columns and the files.  A release may have persons, their
rows, and further tables.

CSV has a standard form or the form of the source's files.
The standard form is UTF-8 with RFC 4180 quoting and CR LF line ends.  Text and moments are quoted, with quotation marks
doubled; numbers, dates and booleans are not.  Numbers are the shortest decimals that give the same binary number; dates
are 2010-01-31, moments 2010-01-31T08:30:00, booleans true and false.  A category that begins with =, +, - or @ is not
changed, since the file must have the Parquet file's values; the release note warns about spreadsheets.

With ``like: source``, marks, encoding, the text for null and the formats of dates are the source's, as the spec states
them; a field is quoted only if necessary.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

from privsyn.data_contracts.certificate import Certificate, ManifestFile, StageCost
from privsyn.data_contracts.columns import BooleanColumn, IntegerColumn, Zoned
from privsyn.data_contracts.linked_tables import name_one_place
from privsyn.data_contracts.panels import MOST_PERSONS
from privsyn.data_contracts.publication import About
from privsyn.data_contracts.release_spec import ReleaseSpec
from privsyn.data_contracts.spec_checks import NOT_MEASURED
from privsyn.data_contracts.tables import ValueRange
from privsyn.engine.plan import Plan
from privsyn.engine.request import Request
from privsyn.engine.step import LookDescription, get_step, release_steps
from privsyn.storage.disk import translate_os_errors
from privsyn.storage.table_files import open_parquet
from privsyn.tasks.panels.rows_above import number_persons, number_rows
from privsyn.tasks.steps.decode import build_released_schema

_TABLES = {
    "parquet": re.compile(r"synthetic(/part-[0-9]+)?\.parquet"),
    "csv": re.compile(r"synthetic(_csv/part-[0-9]+)?\.csv"),
}

FOLDER = "tables"
"""The folder of the linked tables in a released folder."""

BATCH_ROWS = 1 << 14
"""Rows written at a time, so that memory does not depend on the number of rows."""

FORMULA = ("=", "+", "-", "@", "\t", "\r")
"""First characters of text that a spreadsheet may take for a formula."""


@dataclass(frozen=True)
class DescribedRelease:
    """The public facts of a release for its metadata.

    ``ranges``: released column -> its public domain, in the table's order; ``rows``: number of rows of the synthetic
    table; ``files``: relative name -> file in the folder so far; ``versions``: package -> version.
    """

    plan: Plan
    certificate: Certificate
    ranges: Mapping[str, ValueRange]
    rows: int
    files: Mapping[str, ManifestFile]
    versions: Mapping[str, str]

    @property
    def spec(self) -> ReleaseSpec:
        """The public request."""
        return self.plan.request.spec

    def find_look(self, stage: StageCost) -> LookDescription:
        """Return the facts of a look at the private table, from its line in the certificate."""
        return get_step(release_steps(self.plan.steps), stage.step).look

    @property
    def about(self) -> About:
        """The publisher's description of the release, the field `about` of its spec."""
        return self.spec.about

    @property
    def title(self) -> str:
        """The publisher's title, or the data set's name."""
        return self.about.title or f"Synthetic table {self.certificate.dataset}"

    @property
    def promise(self) -> str:
        """The promise in one sentence."""
        c = self.certificate
        return (
            "The rows are synthetic and belong to nobody. They were drawn from noisy counts of a private table, with "
            f"({c.epsilon:g}, {c.delta:g})-differential privacy: neighbouring tables differ by adding or removing "
            f"{c.unit_of_protection}."
        )

    @property
    def description(self) -> str:
        """The publisher's description, then the promise and a reference to the certificate."""
        parts = (self.about.description.strip(), self.promise, "certificate.json holds the argument in figures.")
        return "\n\n".join(p for p in parts if p)

    @property
    def licence_url(self) -> str:
        """Web address of the licence; for an SPDX identifier, its SPDX page."""
        licence = self.about.licence
        return licence if "://" in licence or not licence else f"https://spdx.org/licenses/{licence}.html"

    def tables(self, suffix: str) -> list[str]:
        """Return the files of the synthetic rows in this format, in order: one file, or parts."""
        return sorted(name for name in self.files if _TABLES[suffix].fullmatch(name))


def list_ranges(request: Request) -> dict[str, ValueRange]:
    """Return released column -> its public domain, in the table's order."""
    return request.encoding.list_table_ranges(request.column_order)


def list_categories(domain: ValueRange) -> list[str]:
    """Return the categories of a text column; empty for any other column."""
    return domain.values.to_pylist() if domain.values is not None and pa.types.is_string(domain.type) else []


def get_null_text(ranges: Mapping[str, ValueRange]) -> str:
    """Return the text for null in a CSV file of these columns: empty, unless that is ambiguous.

    It is ambiguous beside an empty category, or in a single column, whose empty lines many programs skip.  Then the
    text is the first of NA, NA_, NA__ ... that is not a category.  A function of the public spec alone.
    """
    texts = {text for domain in ranges.values() for text in list_categories(domain)}
    if "" not in texts and len(ranges) > 1:
        return ""
    null_text = "NA"
    while null_text in texts:
        null_text += "_"
    return null_text


def list_files(folder: Path) -> dict[str, ManifestFile]:
    """Return relative name -> SHA-256 and size of every file in the folder, except the manifest."""
    files = {}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if path.is_file() and name != "manifest.json":
            with path.open("rb") as file:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
            files[name] = ManifestFile(sha256=digest, bytes=path.stat().st_size)
    return files


def get_kind(type_: pa.DataType) -> str:
    """Return the kind of a column of this type, named as in the Table Schema."""
    if pa.types.is_boolean(type_):
        return "boolean"
    if pa.types.is_integer(type_):
        return "integer"
    if pa.types.is_floating(type_):
        return "number"
    if pa.types.is_date(type_):
        return "date"
    if pa.types.is_time(type_):
        return "time"
    return "datetime" if pa.types.is_timestamp(type_) else "string"


TELLS_NOTHING = f"This column {NOT_MEASURED}."
"""The remark on an unmeasured column in machine-readable descriptions."""


def format_meaning(column: Any) -> str:
    """Return the spec's description with its unit."""
    unit = "" if isinstance(column, BooleanColumn | Zoned) else getattr(column, "unit", "")
    return f"{column.description} ({unit})" if column.description and unit else column.description or unit


def add_unmeasured(words: str, column: Any) -> str:
    """Return the description of a released column, with a remark if it was not measured."""
    return words if column.measured else f"{words} {TELLS_NOTHING}".strip()


def name_linked_file(table: str, ending: str = "parquet") -> str:
    """Return the released file of a linked table."""
    return f"{FOLDER}/{table}.{ending}"


def list_linked_ranges(request: Request) -> dict[str, dict[str, ValueRange]]:
    """Return table -> the public domains of its columns, keys first."""
    ranges, spec = list_ranges(request), request.spec
    above, below, *further = spec.table_names
    persons, key = spec.tables[above], str(spec.tables[above].key)
    by_table = {
        above: {name: ranges[name] for name in ranges if name == key or name in persons.columns},
        below: {name: ranges[name] for name in ranges if name == key or name not in persons.columns},
    }
    for name in further:
        pair_request = list_ranges(request.table_pairs[name])
        listed = (spec.get_parent_table(name)[1], *spec.tables[name].columns)
        by_table[name] = {c: pair_request[c] for c in listed if c in pair_request and c != name_one_place(name)}
    for name in (below, *further):
        row_key = spec.tables[name].key
        numbered = {} if row_key is None else {row_key: ValueRange(pa.int64(), False, 1, MOST_PERSONS)}
        by_table[name] = {**numbered, **by_table[name]}
    return by_table


def get_published_spec(spec: ReleaseSpec, table: str) -> ReleaseSpec:
    """Return the spec that describes a table's columns: its table pair's spec, if there are pairs."""
    return spec.table_pairs.get(table, spec)


def describe_linked_column(spec: ReleaseSpec, table: str, name: str) -> Any:
    """Return the description of a linked table's column; keys are new numbers."""
    if table in spec.further_tables and name == spec.get_parent_table(table)[1]:
        words = f"Number of the synthetic row of {spec.tables[table].of} above this row."
        return IntegerColumn(kind="integer", min=1, max=MOST_PERSONS, description=words)
    return get_published_spec(spec, table).get_published_column(name)


def write_linked_files(
    folder: Path,
    request: Request,
    synthetic: Iterable[Path],
    without: Iterable[pa.RecordBatch],
    further_tables: Mapping[str, Iterable[pa.RecordBatch]],
) -> None:
    """Write every table as a Parquet file; every row has its row above.

    ``synthetic``: the files of all rows with their persons' columns, person by person.
    ``without``: the persons without rows.
    ``further_tables``: the rows of further tables, each with the number of the row above.
    """
    ranges, files = list_linked_ranges(request), tuple(synthetic)
    above, below, *_ = ranges
    key = str(request.spec.tables[above].key)
    (folder / FOLDER).mkdir(exist_ok=True)
    persons = number_persons(_iterate(files), without, key)
    _write(folder, above, ranges[above], ({**_to_columns(b), key: pa.array(number)} for number, b in persons))
    for name, batches in {below: _iterate(files), **further_tables}.items():
        row_key = request.spec.tables[name].key
        numbered = number_rows(batches)
        rows = ({**_to_columns(b), **({} if row_key is None else {row_key: pa.array(n)})} for n, b in numbered)
        _write(folder, name, ranges[name], rows)


def _to_columns(batch: pa.RecordBatch) -> dict[str, pa.Array]:
    return {name: batch.column(name) for name in batch.schema.names}


def _write(folder: Path, table: str, ranges: Mapping[str, ValueRange], parts: Iterable[Mapping[str, pa.Array]]) -> None:
    path, schema = folder / name_linked_file(table), build_released_schema(ranges)
    with translate_os_errors(path), pq.ParquetWriter(path, schema, compression="zstd") as file:
        for columns in parts:
            file.write_batch(pa.RecordBatch.from_pydict({name: columns[name] for name in ranges}).cast(schema))


def _iterate(paths: Iterable[Path]) -> Iterator[pa.RecordBatch]:
    for path in paths:
        with open_parquet(path) as file:
            yield from (batch for batch in file.iter_batches() if batch.num_rows)


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
                named = zip(schema.names, batch, strict=True)
                columns = [_format_column(column, ranges[name]) for name, column in named]
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
    return [n for n, domain in ranges.items() if any(t.startswith(FORMULA) for t in (n, *list_categories(domain)))]


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
