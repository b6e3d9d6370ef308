"""A private look at a table for a draft: kinds of columns guessed from values, and a Categorical's values.

PRIVATE: everything here is a function of the rows.  It must be asked for (``--look``), the draft says so at the top,
and it never includes bounds.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from privsyn.data_contracts.csv_options import USUAL_NULLS, CsvOptions
from privsyn.sources.file_source import LineReader, drop_null_texts, parse_numbers
from privsyn.sources.private_table import ignore_repairs
from privsyn.storage.table_files import File, detect_delimiter, open_parquet, open_stream, read_csv_header, skip_bytes
from privsyn.tasks.codecs import parsing

LOOKED_ROWS = 100_000
"""Number of records of a CSV file that a look reads."""

_WORDS = ["true", "false", "t", "f", "yes", "no", "y", "n"]
_DAY = r"^\s*[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}\s*$"
CODE = r"^\s*[+-]?0[0-9]"
_MOMENT = r"^\s*[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}[Tt ]"


def guess_csv_kinds(file: File, options: CsvOptions) -> dict[str, str]:
    """PRIVATE: return column -> the kind that its values in a CSV file suggest.

    Columns without a value in the first LOOKED_ROWS records are left out.
    """
    header = read_csv_header(file, options)
    mark = options.delimiter or detect_delimiter(file) or ","
    possible = {name: dict.fromkeys(_KINDS) for name in header.names}
    looked, seen = 0, set[str]()
    with open_stream(file, options.encoding) as stream:
        skip_bytes(stream, header.size)
        for batch in LineReader(header.names, header.names, mark, (), options.quote).batches(stream, ignore_repairs):
            for name, texts in zip(header.names, batch.columns, strict=True):
                values = drop_null_texts(texts, USUAL_NULLS).drop_null()
                if len(values):
                    seen.add(name)
                    possible[name] = {kind: None for kind in possible[name] if _KINDS[kind](values, options)}
            looked += batch.num_rows
            if looked >= LOOKED_ROWS:
                break
    return {name: next(iter(possible[name]), "categorical") for name in header.names if name in seen}


def _are_truths(texts: pa.Array, options: CsvOptions) -> bool:
    """Return whether all texts are words for true and false; 0 and 1 do not count."""
    words = pc.utf8_lower(pc.utf8_trim_whitespace(texts))
    return bool(pc.all(pc.is_in(words, value_set=pa.array(_WORDS))).as_py())


def _are_numbers(texts: pa.Array, options: CsvOptions) -> bool:
    """Return whether all texts are numbers; digits after a leading zero are a code, such as 02134."""
    if pc.any(pc.match_substring_regex(texts, CODE)).as_py():
        return False
    return not np.isnan(parsing.to_numbers(parse_numbers(texts, options))[0]).any()


def _are_integers(texts: pa.Array, options: CsvOptions) -> bool:
    """Return whether all texts are numbers without a decimal mark; beside 3.0, later records may have 2.5."""
    if not _are_numbers(texts, options):
        return False
    numbers = parsing.to_numbers(parse_numbers(texts, options))[0]
    return bool((np.floor(numbers) == numbers).all()) and not pc.any(pc.match_substring(texts, options.decimal)).as_py()


def _are_moments(texts: pa.Array, options: CsvOptions, pattern: str = f"{_DAY}|{_MOMENT}") -> bool:
    matched = pc.all(pc.match_substring_regex(texts, pattern)).as_py()
    return bool(matched) and not np.isnan(parsing.to_seconds(texts)[0]).any()


_KINDS: Mapping[str, Any] = {
    "boolean": _are_truths,
    "integer": _are_integers,
    "number": _are_numbers,
    "date": lambda texts, options: _are_moments(texts, options, _DAY),
    "datetime": _are_moments,
    "time": lambda texts, options: not np.isnan(parsing.to_times(texts, "HH:MM:SS")[0]).any(),
}
"""Kind -> test whether all texts of a column can be of that kind, narrowest kind first."""


def list_categories(data: Any, types: Mapping[str, pa.DataType | None]) -> dict[str, list[Any]]:
    """PRIVATE: return column -> its categories, in order, for a table's dictionary columns.

    ``data``: a table in memory, or the paths of Parquet files; ``types``: the stored type of each column.
    """
    categories: dict[str, list[Any]] = {}
    for name, type_ in types.items():
        if type_ is not None and pa.types.is_dictionary(type_):
            chunks = _read_column(data, name).chunks
            listed = (value for chunk in chunks for value in chunk.dictionary.to_pylist())
            categories[name] = [value for value in dict.fromkeys(listed) if value is not None]
    return categories


def _read_column(data: Any, name: str) -> pa.ChunkedArray:
    if isinstance(data, tuple):
        return pa.chunked_array([c for file in data for c in open_parquet(file).read(columns=[name]).column(0).chunks])
    if isinstance(data, pa.Table | pa.RecordBatch):
        return pa.table({name: data.column(name)}).column(0)
    return pa.table(data[[name]] if hasattr(data, "columns") else data).column(name)  # pandas, polars
