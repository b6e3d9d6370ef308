"""``spec draft``: a commented YAML spec with everything that is publicly known, and a TODO for the rest.

Names and storage types come from the data's header or schema.  Bounds, values, null-ability, units and descriptions
come only from a dictionary (dictionaries.py).  Read off the data, these facts would be functions of private rows.
Only a private look (privsyn/specs/private_guesses.py) guesses facts from rows: the kinds that neither source knows, and
the values of a Categorical.  The draft is then marked.  ``load_spec`` refuses the draft, field by field, until no TODO
is left.
"""

from __future__ import annotations

import csv
import datetime as dt
import math
import os
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
from pydantic import ValidationError

from privsyn.base.errors import RequestError
from privsyn.base.places import WORKBOOK, DataUrl, is_files_url, is_url, resolve_place
from privsyn.base.wording import mention
from privsyn.data_contracts.columns import INTEGER_TYPES
from privsyn.data_contracts.csv_options import CsvOptions
from privsyn.data_contracts.release_spec import DATASET
from privsyn.data_contracts.unicode import compose_names
from privsyn.sources.private_table import SupportsArrowStream, is_readable
from privsyn.sources.stream_source import is_streamed, name_place, read_schema
from privsyn.specs.dictionaries import Dictionary, Facts, Scalar, list_values, propose_rules, read_dictionary
from privsyn.specs.messages import DATASET_RULE, from_validation
from privsyn.specs.private_guesses import guess_csv_kinds, list_categories
from privsyn.specs.spec_file import find_todos
from privsyn.specs.yaml_file import parse_yaml
from privsyn.storage.named_files import refuse_private_file
from privsyn.storage.table_files import (
    File,
    detect_delimiter,
    open_stream,
    read_csv_header,
    read_layout,
    refuse_repeats,
    refuse_url,
)

DICTIONARY = "draft_spec.dictionary"

MOST_DECIMALS = 15
"""Largest ``decimals`` of a column of numbers (privsyn/data_contracts/columns)."""
_LONGEST_KEY = 1_000

LOOKED = "PRIVATE: kinds or values were read from rows, as asked for. Check each in a public source before a release."
"""The remark at the top of a draft made with a look at the rows."""

_CATEGORIES_HIDDEN = "the table has its own categories, maybe from its rows: a private look at the rows lists them"
_CATEGORIES_SHOWN = "PRIVATE: the table's own categories, which may come from its rows"


@dataclass(frozen=True)
class DraftedTable:
    """The facts about a table for a draft.

    ``title``: the table's name for people.  ``stem``: the base of names made from the table's name (empty: none).
    ``line``: the spec's line of ``data``.  ``types``: stored type of each column (None: not known), in the table's
    order.  PRIVATE, after a look: ``kinds`` guessed from values, and ``categories`` of Categorical columns.
    """

    title: str
    stem: str
    line: str
    types: Mapping[str, pa.DataType | None]
    kinds: Mapping[str, str] = field(default_factory=dict, repr=False)
    categories: Mapping[str, list[Any]] = field(default_factory=dict, repr=False)


def draft(
    data: str | Path | SupportsArrowStream,
    dictionary: Path | None = None,
    dataset: str | None = None,
    folder: Path | None = None,
    csv: Mapping[str, Any] | None = None,
    *,
    header: bool = False,
    look: bool = False,
) -> str:
    """Return the YAML text of a draft for the table ``data``: a file, a folder, or a table in memory.

    ``dictionary``: a file of public facts (the registry has its forms).
    ``dataset``: the ledger's name, by default made from the file name; for a table in memory the default is a TODO.
    ``folder``: where the spec will be saved, so that ``data`` can be written relative to this folder.
    ``csv``: how a CSV file is written, in the form of the spec's ``csv``; the draft then has the same ``csv``.
    ``header``: the first line of a CSV file or workbook is the header, even if the line looks like a record.
    ``look``: PRIVATE, guess kinds from values and list the values of a Categorical.

    Raises RequestError if the table's structure or the dictionary cannot be read, or ``dataset`` or ``csv`` is not
    valid.
    """
    options = read_csv_options(csv or {})
    table = describe_table(data, folder, options, header=header, look=look)
    codebook = None if dictionary is None else read_public_dictionary(Path(dictionary), [data], table)
    lines = [*write_head([table], dataset, codebook, options, [table.line, *_UNIT], look=look), "columns:"]
    for column in table.types:
        lines.extend(write_column(column, table, codebook))
    if codebook is not None:
        for name in sorted(set(codebook.columns) - set(table.types)):
            lines.append(f"  # the dictionary also describes {format_comment(name)}, which the table does not have")
        lines.extend(write_rules(codebook, table.types))
    return "\n".join(lines) + "\n"


def describe_table(
    data: str | Path | SupportsArrowStream, folder: Path | None, csv: CsvOptions, *, header: bool, look: bool
) -> DraftedTable:
    """Return the facts about a table; arguments: see :func:`draft`.  Raises RequestError."""
    try:
        if is_streamed(data):
            table = _describe_streamed(data, folder, header=header)
        elif isinstance(data, str | os.PathLike):
            table = _describe_files(os.fspath(data), folder, csv, header=header, look=look)
        else:
            from privsyn.sources.memory_source import list_column_names, map_stored_types  # it loads pandas

            list_column_names(data, None)  # a draft may show every name
            line = "# data: left out, since the table is handed over in memory"
            types = map_stored_types(data)
            table = DraftedTable(
                "a table in memory", "", line, types, categories=list_categories(data, types) if look else {}
            )
    except RequestError as error:
        raise error.about("draft_spec.data", {"release.data": "draft_spec.data"}) from None
    spelled = compose_names(table.types)
    return replace(
        table,
        types={spelled[name]: stored for name, stored in table.types.items()},
        kinds={spelled[name]: kind for name, kind in table.kinds.items()},
        categories={spelled[name]: values for name, values in table.categories.items()},
    )


def read_public_dictionary(
    dictionary: Path, private: Iterable[str | Path | SupportsArrowStream], table: DraftedTable
) -> Dictionary:
    """Return the dictionary's facts about a table.

    ``private``: every private table of the draft.  Raises RequestError if the dictionary is one of these tables
    (without reading it), or has the columns of ``table`` as headings.
    """
    refuse_url(dictionary, DICTIONARY)
    places = tuple(str(data) for data in private if isinstance(data, str | os.PathLike) and not is_url(data))
    refuse_private_file(dictionary, places, DICTIONARY)
    codebook = read_dictionary(dictionary, table.stem)
    spelled = compose_names(codebook.columns)
    codebook = replace(codebook, columns={spelled[name]: facts for name, facts in codebook.columns.items()})
    if len(table.types) > 1 and table.types.keys() <= set(codebook.headings):
        problem = f"{dictionary.name} has the columns of the private table, so it is not a dictionary"
        raise RequestError(problem, "Name a public table with a row for each column", DICTIONARY)
    return codebook


def write_rules(codebook: Dictionary, names: Collection[str]) -> Iterator[str]:
    """Yield the spec's lines for rules that a dictionary states, and for rules proposed from its words."""
    proposals = propose_rules({name: facts for name, facts in codebook.columns.items() if name in names})
    if codebook.rules or proposals:
        yield "rules:"
        yield from (f"  - {format_flow(rule)}" for rule in codebook.rules)
    for proposal in proposals:
        yield f"  # the dictionary says of {format_comment(proposal.column)}: {format_comment(proposal.words)}"
        yield f"  - {format_flow({'never': proposal.never})}"


def read_csv_options(options: Mapping[str, Any]) -> CsvOptions:
    """Return the checked options of a CSV file.  Raises RequestError."""
    try:
        return CsvOptions.model_validate(dict(options))
    except ValidationError as error:
        problem = from_validation(error)[0]
        named = problem.field and not problem.text.startswith(f"`{problem.field}`")
        text = f"`{problem.field}` {problem.text}" if named else problem.text
        raise RequestError(text, problem.cure, "draft_spec.csv") from None


def _describe_files(data: str, folder: Path | None, csv: CsvOptions, *, header: bool, look: bool) -> DraftedTable:
    layout = read_layout(data, (), csv)  # errors show no name, which may be a field of the first record
    if layout.format == "csv" and not header:
        for file in layout.files:  # errors show nothing of its first line, which may be a person's record
            names = read_csv_header(file, csv).names
            _refuse_values(names, file)
            if len(names) < _count_most_fields(file, csv):
                problem = f"the first line of {file} has fewer fields than most lines after it"
                raise RequestError(
                    f"{problem}: are there lines before the header?",
                    "Take them out; if it is the header, say so with " + mention("draft_spec.header"),
                    "draft_spec.data",
                )
    in_store = is_files_url(data)
    place = str(DataUrl.parse(data)) if in_store else _write_relative(Path(data).absolute(), folder)
    types = {column: layout.type_of(column) for column in layout.columns}
    name = place.rstrip("/").rpartition("/")[2] if in_store else Path(data).name
    table = DraftedTable(name, name.split(".")[0], f"data: {format_scalar(place)}", types)
    if not look:
        return table
    if layout.format == "csv":
        return replace(table, kinds=guess_csv_kinds(layout.files[0], csv))
    return replace(table, categories=list_categories(layout.files, types))


def _describe_streamed(data: str | Path, folder: Path | None, *, header: bool) -> DraftedTable:
    place = resolve_place(data, "draft_spec.data")
    schema = read_schema(place)
    url = DataUrl.parse(place) if is_url(place) else None
    file = Path(place) if url is None else url.file
    is_workbook = file.suffix.lower() == ".xlsx" if url is None else url.scheme == WORKBOOK  # its cells are text
    if is_workbook and not header:
        _refuse_values(schema.names, file)
    refuse_repeats(schema.names, name_place(place), None)
    types = {name: None if is_workbook else schema.field(name).type for name in schema.names}
    if url is None:
        return DraftedTable(file.name, file.stem, f"data: {format_scalar(_write_relative(file, folder))}", types)
    if url.is_file:
        url = replace(url, path=_write_relative(file, folder))
    stem = file.stem if url.scheme == WORKBOOK else url.table or ""
    return DraftedTable(url.where, stem, f"data: {format_scalar(str(url))}", types)


def _write_relative(path: Path, folder: Path | None) -> str:
    """Return an absolute path for the spec: relative to ``folder`` if inside it."""
    is_inside = folder is not None and path.is_relative_to(folder.absolute())
    return str(path.relative_to(folder.absolute()) if folder is not None and is_inside else path)


def list_open_fields(text: str) -> list[tuple[str | int, ...]]:
    """Return the fields of a draft's ``text`` that still say TODO, in order."""
    return list(find_todos(parse_yaml(text, "the draft").content))


_UNIT = (
    "# The unit of protection: {records_per_person: 1} if nobody has more than one row, or",
    "# {person_id: COLUMN, max_records: 3} to keep at most 3 rows of each value of COLUMN, or",
    "# {household_id: COLUMN, max_records: 8} for households with their members. A line below it,",
    "# `order: COLUMN` (a year, a date; of members their role), links the rows of a person or household.",
    "unit: TODO",
)


def write_head(
    tables: Sequence[DraftedTable],
    dataset: str | None,
    codebook: Dictionary | None,
    csv: CsvOptions,
    place_and_unit: Sequence[str],
    *,
    look: bool,
) -> list[str]:
    """Return a draft's lines before ``columns`` or ``tables``; ``place_and_unit``: lines between name and privacy."""
    stem = tables[0].stem
    if dataset is not None and re.fullmatch(DATASET, dataset) is None:
        problem = f"is {dataset[:60]!r}, but must be {DATASET_RULE}"
        raise RequestError(problem, "Choose another name", "draft_spec.dataset")
    name = re.sub(r"[^a-z0-9_-]+", "_", stem.lower()).strip("_-")[:48] if dataset is None else dataset
    facts = f"the dictionary {codebook.name}" if codebook else "nowhere: no dictionary was given"
    source = [f"# from {format_comment(facts)}. Nothing was read from rows."]
    if look:
        source = [f"# from {format_comment(facts)}.", f"# {LOOKED}"]
    lines = [
        f"# Release spec for {format_comment(' and '.join(t.title for t in tables))}, drafted by `privsyn spec draft`.",
        "# Names and storage types come from the table's header; bounds, values and nulls come",
        *source,
        "# A TODO is a choice, or a fact from a public source, that only you can supply. Never read it off",
        "# the private table: that would be a leak. `privsyn spec check` refuses the file until none is left.",
        f"dataset: {format_scalar(name) if name else TODO}  # the ledger's name for the private data set",
        *place_and_unit,
        "# What this release may cost; delta far below one over the number of people.",
        "privacy: {epsilon: 1.0, delta: 1.0e-9}",
        "# The data set's lifetime cap, such as {epsilon: 10.0, delta: 1.0e-8}; set once, kept by the ledger.",
        f"budget: {TODO}",
    ]
    if csv.model_fields_set:
        lines.append("# How the CSV file is written.")
        lines.append(f"csv: {format_flow(csv.model_dump(exclude_unset=True))}")
    if any(stored is None for table in tables for stored in table.types.values()):
        lines.append(
            "# A column of numbers, days or moments needs `min` and `max` too, and `categorical` its `values`;"
        )
        lines.append("# every kind but `drop` says whether null can occur: `nullable: true` or `false`.")
    if codebook is not None and codebook.null_values is not None:
        lines.append("# Texts that mean null in a CSV file, as the dictionary says.")
        lines.append(f"null_values: {format_flow_list(codebook.null_values, '  ')}")
    return lines


def merge_facts(column: str, table: DraftedTable, codebook: Dictionary | None) -> Facts:
    """Return the dictionary's facts, completed by the stored type and the guesses of a look."""
    stored = table.types[column]
    listed = codebook is not None and column in codebook.columns
    facts = deepcopy(codebook.columns[column]) if codebook is not None and listed else Facts()
    if facts.kind == "datetime" and facts.type == "date":
        facts.kind, facts.type = "date", None
    if codebook is not None and not listed:
        facts.remarks.append("the dictionary does not describe it")
    if facts.kind is None and column in table.kinds:
        facts.kind = table.kinds[column]
        facts.remarks.append("PRIVATE: the kind is guessed from rows")
    if stored is None:
        return facts
    refused = _explain_unreadable(stored)
    if refused:
        facts.kind, facts.type = None, None
        facts.remarks.insert(0, refused)
        return facts
    kind, type_ = infer_stored_kind(stored)
    facts.remarks.insert(0, f"stored as {stored}"[:80])
    if facts.kind is None or not is_readable(stored):
        facts.kind = kind
    if facts.kind == "integer" and kind == "number":
        facts.kind = kind
        facts.remarks.append("the dictionary calls it integer: write `kind: integer` only if no value has a fraction")
    if facts.type is None and facts.kind == kind:
        facts.type = type_
    if facts.decimals is None:
        facts.decimals = decimals_of_type(stored)
    if kind == "categorical" and facts.values and facts.labels and not any(isinstance(v, str) for v in facts.values):
        facts.values = list(dict.fromkeys(facts.labels))  # the table stores labels, the codebook lists codes
        facts.labels = None
    if pa.types.is_dictionary(stored) and facts.kind == "categorical" and not facts.values:
        facts.values = list_values(table.categories.get(column), facts)
        facts.remarks.append(_CATEGORIES_SHOWN if facts.values else _CATEGORIES_HIDDEN)
    return facts


def _explain_unreadable(stored: Any) -> str:
    """Return why a pandas or Arrow type is not read, and what to store instead; empty for a readable type."""
    name = str(stored)
    if "pandas.period" in name:
        return "periods are not read: store their first days (`dt.to_timestamp()`), or write `kind: drop`"
    if "pandas.interval" in name:
        return "intervals are not read: store both ends, or their text, or write `kind: drop`"
    if pa.types.is_duration(stored):
        return "durations are not read: store a number (`dt.total_seconds()`), or write `kind: drop`"
    return ""


def infer_stored_kind(stored: Any) -> tuple[str | None, str | None]:
    """Return the kind and the released type that a stored Arrow type suggests; None where it suggests none."""
    if pa.types.is_dictionary(stored):
        return infer_stored_kind(stored.value_type)
    if not is_readable(stored):
        return "drop", None
    if pa.types.is_integer(stored):
        return "integer", str(stored) if str(stored) in INTEGER_TYPES and str(stored) != "int64" else None
    if pa.types.is_floating(stored) or pa.types.is_decimal(stored):
        return "number", "float32" if pa.types.is_float32(stored) else None
    if pa.types.is_boolean(stored):
        return "boolean", None
    if pa.types.is_date(stored):
        return "date", None
    if pa.types.is_time(stored):
        return "time", None
    if pa.types.is_timestamp(stored):
        return "datetime", None
    return (None if pa.types.is_null(stored) else "categorical"), None


def decimals_of_type(stored: Any) -> int | None:
    """Return the number of decimals of a stored Arrow type; None if the type does not say."""
    if pa.types.is_integer(stored):
        return 0
    return stored.scale if pa.types.is_decimal(stored) and 0 <= stored.scale <= MOST_DECIMALS else None


def write_column(name: str, table: DraftedTable, codebook: Dictionary | None) -> Iterator[str]:
    """Yield a column's lines, indented by two.

    If a dictionary describes the column but not null, null may occur: the safe choice.
    """
    facts, stored = merge_facts(name, table, codebook), table.types[name] or pa.null()
    described = codebook is not None and name in codebook.columns
    key = format_scalar(name)
    yield from (f"  # {format_comment(remark)}" for remark in facts.remarks if remark)
    yield f"  {key}:" if len(key) <= _LONGEST_KEY else f"  ? {key}\n  :"
    yield f"    kind: {facts.kind or TODO + '  # integer, number, datetime, date, time, categorical, boolean or drop'}"
    if facts.kind in ("integer", "number", "datetime", "date"):
        for field, bound in (("min", facts.min), ("max", facts.max)):
            yield f"    {field}: " + (format_scalar(bound) if bound is not None else f"{TODO}  # from a public source")
    if facts.kind in ("integer", "number", "datetime") and facts.type is not None:
        yield f"    type: {facts.type}"
    if facts.kind == "number" and facts.decimals is not None:
        yield f"    decimals: {facts.decimals}"
    elif facts.kind == "number":
        yield "    # decimals: how many the source has; without it values come out with up to 17 digits"
    if facts.kind in ("datetime", "date", "time") and pa.types.is_timestamp(stored) and stored.tz is not None:
        yield f"    zone: {format_scalar(stored.tz)}"
    if facts.kind == "time":
        yield "    format: HH:MM:SS"
    if facts.kind == "categorical" and facts.values and any(facts.labels or ()):
        named = ", ".join(f"{v} = {label}" for v, label in zip(facts.values, facts.labels or (), strict=False) if label)
        yield f"    # {format_comment(named)}"
    if facts.kind == "categorical":
        todo = f"{TODO}  # every possible value, from a public source; free text: `kind: drop`"
        yield "    values: " + (format_flow_list(facts.values, "      ") if facts.values else todo)
    if facts.kind not in (None, "drop"):
        unsaid = "true  # not said: false if null cannot occur" if described else f"{TODO}  # true if null can occur"
        null = unsaid if facts.nullable is None else format_scalar(facts.nullable)
        yield f"    nullable: {null}"
    if facts.unit and facts.kind in ("integer", "number", "datetime", "date"):
        yield f"    unit: {format_scalar(facts.unit)}"
    if facts.description:
        yield f"    description: {format_scalar(facts.description)}"


_HEAD_BYTES = 1 << 16
_LINES = 20
"""Number of lines after the first whose fields are counted."""

_VALUES = (
    re.compile(r"[-+]?[0-9]*[.,]?[0-9]+(?:[eE][-+]?[0-9]+)?"),
    re.compile(r"[0-9]{1,4}([-/.])[0-9]{1,2}\1[0-9]{1,4}([ T].*)?"),
    re.compile(r"[0-9]{1,2}:[0-9]{2}(:[0-9]{2}([.,][0-9]+)?)?"),
)
"""How numbers, days, moments and times of day are written."""


def _refuse_values(names: Sequence[str], file: File) -> None:
    """Raise RequestError, without showing any name, if one of a file's ``names`` reads as a value."""
    texts = [name.strip() for name in names]
    if any(not text or any(pattern.fullmatch(text) for pattern in _VALUES) for text in texts):
        raise RequestError(
            f"the first line of {file} has numbers, dates or empty fields where names should be: is it a record?",
            "Put a line of names above it; if these are the names, say so with " + mention("draft_spec.header"),
            "draft_spec.data",
        )


def _count_most_fields(file: File, options: CsvOptions) -> int:
    """Return the number of fields of most lines after the first; 0 if there is no majority."""
    with open_stream(file, options.encoding) as stream:
        head = stream.read(_HEAD_BYTES).decode(errors="replace")
    lines = [line for line in head.splitlines() if line.strip()][1 : _LINES + 1]
    mark = options.delimiter or detect_delimiter(file) or ","
    quoting: Any = csv.QUOTE_MINIMAL if options.quote else csv.QUOTE_NONE
    try:
        rows = csv.reader(lines, delimiter=mark, quotechar=options.quote or None, quoting=quoting)
        counted = Counter(len(row) for row in rows)
    except csv.Error:
        return 0
    number, times = counted.most_common(1)[0] if counted else (0, 0)
    return number if 2 * times > sum(counted.values()) else 0


TODO = "TODO"

_PLAIN = re.compile(r"[^\W\d_][\w-]*( [\w-]+)*")
_RESERVED = {"true", "false", "null", "yes", "no", "on", "off", "y", "n", "todo"}
_WIDTH = 100


def format_flow(value: Any) -> str:
    """Return a value on one line of YAML."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{format_scalar(str(k))}: {format_flow(v)}" for k, v in value.items()) + "}"
    return f"[{', '.join(map(format_flow, value))}]" if isinstance(value, list | tuple) else format_scalar(value)


def format_scalar(value: Scalar) -> str:
    """Return the value as a YAML 1.2 scalar on one line that loads back as the same value and type."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        return repr(value) if math.isfinite(value) else TODO
    if isinstance(value, dt.datetime):
        return value.date().isoformat() if value.time() == dt.time() else value.isoformat(sep=" ")
    if _PLAIN.fullmatch(value) and value.lower() not in _RESERVED and value.isprintable():
        return value
    return '"' + "".join(_escape(c) for c in value) + '"'


def _escape(char: str) -> str:
    if char in '"\\':
        return "\\" + char
    code = ord(char)
    if char.isprintable() and code < 0x10000:
        return char
    if 0xD800 <= code <= 0xDFFF:
        return "\ufffd"
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def format_flow_list(values: list[Any], indent: str) -> str:
    """Return a YAML flow list, wrapped at about 100 characters."""
    lines, line = [], ""
    if not values:
        return "[]"
    for item in (format_scalar(v) for v in values):
        if line and len(indent) + len(line) + len(item) > _WIDTH:
            lines.append(line.rstrip())
            line = ""
        line += f"{item}, "
    lines.append(line.removesuffix(", "))
    return f"[{lines[0]}]" if len(lines) == 1 else "[\n" + "\n".join(indent + entry for entry in lines) + f"\n{indent}]"


def format_comment(text: str) -> str:
    """Return one line without characters that YAML refuses."""
    return "".join(c if c.isprintable() else " " for c in " ".join(text.split()))[:200]
