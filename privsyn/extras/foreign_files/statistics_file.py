"""Tables of SPSS, Stata and SAS files, by pyreadstat.

A categorical column has the labels of its values where the spec lists them, or lists neither; and the codes where the
spec lists those.  A value that its file declares missing is a category where the spec lists its label or code, and
else null.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from privsyn.base.registry import need_package
from privsyn.extras.foreign_files.known_formats import DAYS, MOMENTS, READERS, find_catalogue, is_a_list
from privsyn.sources.private_table import NOT_UTF8, Note
from privsyn.sources.reader import Reader, refuse_damaged

_SPSS = (".sav", ".zsav")
_BYTES = "LATIN1"
"""The encoding in which a text has one character for each of its bytes."""
_FIRST_UTF8_RELEASE = 118
"""The format of Stata 14."""
_SPSS_EPOCH = -12_219_379_200
"""Seconds from 1970 to 14 October 1582, where SPSS begins to count."""
_EPOCH_1960 = -315_619_200
"""The same to 1 January 1960, where Stata and SAS begin."""
_LAST_SECOND = 253_402_300_800
"""Seconds from 1970 to the year 10000."""


class StatisticsReader(Reader):
    """The table of one file; ``columns`` are the spec's, None for a draft."""

    def __init__(self, path: Path, columns: Mapping[str, Any] | None) -> None:
        with need_package("pyreadstat", "reading Stata, SPSS and SAS files", "codebooks"):
            import pyreadstat
        self._path, self._failure = path, pyreadstat.ReadstatError
        self._read = getattr(pyreadstat, READERS[path.suffix.lower()])
        ending = path.suffix.lower()
        self._options: dict[str, Any] = {"disable_datetime_conversion": True, "user_missing": True}
        with refuse_damaged(path, ""):
            _, metadata = self._read(str(path), metadataonly=True, **self._options, **find_catalogue(path))
            self._encoding = _find_encoding(path, metadata.file_encoding)
        self._converters: dict[str, Callable[[Any], Any]] = {}
        types = {}
        for name in metadata.column_names:
            column = None if columns is None else columns.get(name)
            types[name], self._converters[name] = _plan_column(name, metadata, column, ending)
        self.schema = pa.schema(list(types.items()))

    def read(self, columns: Sequence[str], batch_rows: int, note: Note) -> Iterator[pa.RecordBatch]:
        """Yield the rows in chunks."""
        with refuse_damaged(self._path):
            start, rows = 0, batch_rows
            while rows == batch_rows:
                values = self._read_rows(columns, start, batch_rows, note)
                rows = len(values[0])
                start += rows
                arrays = [
                    pa.array(map(self._converters[name], cells), self.schema.field(name).type)
                    for name, cells in zip(columns, values, strict=True)
                ]
                yield pa.RecordBatch.from_arrays(arrays, names=list(columns))

    def _read_rows(self, columns: Sequence[str], start: int, rows: int, note: Note) -> list[Sequence[Any]]:
        """Return the values of some rows, column by column.

        Where a text is not in the encoding of its file, which ends the reading, the rows are read as bytes, and only
        this text is lost.
        """
        options = {**self._options, "output_format": "dict", "row_offset": start, "row_limit": rows}
        with suppress(self._failure, UnicodeError):
            values, _ = self._read(str(self._path), usecols=list(columns), **options)
            return [values[name] for name in columns]
        _, as_bytes = self._read(str(self._path), metadataonly=True, encoding=_BYTES, **self._options)
        names = dict(zip(self.schema.names, as_bytes.column_names, strict=True))
        values, _ = self._read(str(self._path), usecols=[names[n] for n in columns], encoding=_BYTES, **options)
        return [[_decode(cell, self._encoding, name, note) for cell in values[names[name]]] for name in columns]


def _find_encoding(path: Path, stated: str | None) -> str:
    """Return the encoding of a file's texts: the stated one; Stata's files before version 14 state none."""
    if stated is not None:
        return stated
    with path.open("rb") as file:
        release = re.match(rb"<stata_dta><header><release>(\d+)<", file.read(40))
    return "UTF-8" if release is not None and int(release[1]) >= _FIRST_UTF8_RELEASE else "WINDOWS-1252"


def _decode(cell: Any, encoding: str, name: str, note: Note) -> Any:
    """Return a text that was read as bytes in its encoding, None where it is not in it; other cells as they are."""
    if not isinstance(cell, str):
        return cell
    try:
        return cell.encode(_BYTES).decode(encoding)
    except UnicodeError:
        note(name, Counter({NOT_UTF8: 1}))
        return None


def _plan_column(name: str, metadata: Any, column: Any, suffix: str) -> tuple[pa.DataType, Callable[[Any], Any]]:
    """Return the type of a column and what converts one value of it; ``column``: the spec's."""
    stored = str(metadata.readstat_variable_types.get(name, ""))
    form = str(metadata.original_variable_types.get(name) or "").lower()
    labels = dict(metadata.variable_value_labels.get(name) or {})
    is_missing = _build_missing_test(metadata.missing_ranges.get(name), stored == "string")
    measure = str(metadata.variable_measure.get(name, ""))
    is_listed = is_a_list(labels, measure) if column is None else bool(labels) and column.kind == "categorical"
    if is_listed or stored == "string":
        return pa.string(), _build_text_converter(labels, is_missing, getattr(column, "values", ()))
    if form.startswith((*MOMENTS, *DAYS)):
        is_day = not form.startswith(MOMENTS)
        epoch = _SPSS_EPOCH if suffix in _SPSS else _EPOCH_1960
        scale = 1e-3 if form.startswith("%tc") else 86_400 if is_day and suffix not in _SPSS else 1

        def convert_moment(value: Any) -> int | None:
            if not isinstance(value, int | float) or is_missing(value) or not np.isfinite(value):
                return None
            seconds = value * scale + epoch
            if not -_LAST_SECOND < seconds < _LAST_SECOND:
                return None
            return int(seconds // 86_400) if is_day else round(seconds * 10**6)

        return (pa.date32() if is_day else pa.timestamp("us")), convert_moment
    is_whole = stored.startswith("int")

    def convert_number(value: Any) -> float | int | None:
        if not isinstance(value, int | float) or is_missing(value):
            return None
        return int(value) if is_whole and value == value else float(value)

    return (pa.int64() if is_whole else pa.float64()), convert_number


def _build_missing_test(ranges: Any, is_text: bool) -> Callable[[Any], bool]:
    """Return what tells whether a value is one that the file declares missing: a letter in a column of numbers is."""
    bounds = [(r["lo"], r["hi"]) for r in ranges or ()]

    def is_missing(value: Any) -> bool:
        if isinstance(value, str) and not is_text:
            return True
        return any(isinstance(value, str) == isinstance(low, str) and low <= value <= high for low, high in bounds)

    return is_missing


def _build_text_converter(
    labels: Mapping[Any, str], is_missing: Callable[[Any], bool], values: Sequence[Any]
) -> Callable[[Any], str | None]:
    """Return what converts one value to the text that the spec means."""
    listed = {str(value) for value in values or ()}

    def convert(value: Any) -> str | None:
        if value is None or value == "" or value != value:
            return None
        code = str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)
        label = labels.get(value, labels.get(code))
        listed_text = next((text for text in (label, code) if text is not None and text in listed), None)
        return listed_text if listed_text is not None or is_missing(value) else (code if label is None else label)

    return convert
