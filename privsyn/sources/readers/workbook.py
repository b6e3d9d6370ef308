"""Sheets of Excel workbooks (.xlsx) by openpyxl, row by row: one row names the columns, those above are left out.

A cell is read as text, as in a CSV file: what it is does not depend on the other cells of its column.
"""

from __future__ import annotations

import datetime as dt
import re
import warnings
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa

from privsyn.base.errors import RequestError
from privsyn.base.foreign_files import refuse_large_unpacked
from privsyn.sources.private_table import Note
from privsyn.sources.readers.reader import Reader, need_package, refuse_damaged

MAX_UNPACKED = 4_000_000_000
"""Bytes that the parts of a workbook may unpack to: a sheet of a million rows has less."""
MAX_ROWS = 1_048_576
"""Rows of a sheet at most."""


_FORM = "excel:///FILE?sheet=NAME&header=ROW"


class WorkbookReader(Reader):
    """A sheet of a workbook: the one called ``sheet``, or the only one; row ``header``, from 1 on, has the names."""

    def __init__(self, path: Path, sheet: str | None = None, header: str = "1") -> None:
        if re.fullmatch(r"[1-9][0-9]{0,6}", header) is None or int(header) > MAX_ROWS:
            raise RequestError(f"has the header {header[:40]!r}, which is not a row's number", f"Write {_FORM}", "data")
        with need_package("openpyxl", "reading Excel workbooks", "codebooks"):
            import openpyxl
        self._path, self._load, self._sheet, self._header = path, openpyxl.load_workbook, sheet, int(header)
        with refuse_damaged(path):
            refuse_large_unpacked(path, MAX_UNPACKED, "data")
            names = self._skip_to_names(self._iterate_rows())
        if None in names:
            where = f"cell {names.index(None) + 1} is empty"
            problem = f"row {header} of {path.name} should have the names of its columns, and {where}"
            raise RequestError(problem, f"Give every column a name, or say which row has them: {_FORM}", "data")
        self.schema = pa.schema([(str(name), pa.string()) for name in names])

    def _skip_to_names(self, rows: Iterator[tuple[Any, ...]]) -> tuple[Any, ...]:
        """Take the rows up to the one with the names, and return that; an empty one where there are fewer."""
        for _ in range(1, self._header):
            _take(rows, 1)
        return next(iter(_take(rows, 1)), ())

    def _iterate_rows(self) -> Iterator[tuple[Any, ...]]:
        book = self._load(self._path, read_only=True, data_only=True, keep_links=False)
        try:
            sheets = [s for s in book.worksheets if self._sheet in (None, s.title)]
            if not sheets:
                problem = f"{self._path.name} has no sheet of cells called {self._sheet!r}"
                raise RequestError(problem, "Correct the name", "data")
            if len(sheets) != 1:
                problem = f"{self._path.name} has {len(sheets)} sheets, and one is read"
                raise RequestError(problem, f"Name it: {_FORM}", "data")
            yield from sheets[0].iter_rows(values_only=True)
        finally:
            book.close()

    def read(self, columns: Sequence[str], batch_rows: int, note: Note) -> Iterator[pa.RecordBatch]:
        """Yield the rows below the header; wholly empty ones are left out."""
        places = [self.schema.get_field_index(name) for name in columns]
        with refuse_damaged(self._path):
            rows = self._iterate_rows()
            self._skip_to_names(rows)
            filled = (row for row in rows if any(cell is not None for cell in row))
            while chunk := _take(filled, batch_rows):
                texts = ([_format_cell(row[i] if i < len(row) else None) for row in chunk] for i in places)
                yield pa.RecordBatch.from_arrays([pa.array(t, pa.string()) for t in texts], names=list(columns))


def _take(rows: Iterator[tuple[Any, ...]], many: int) -> list[tuple[Any, ...]]:
    """Return the next rows, at most ``many``."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # openpyxl's show values of cells
        return list(islice(rows, many))


def _format_cell(cell: Any) -> str | None:
    """Return a cell as a CSV file has it."""
    if cell is None or cell == "":
        return None
    if isinstance(cell, bool):
        return "true" if cell else "false"
    if isinstance(cell, float) and cell.is_integer() and abs(cell) < 2**53:
        return str(int(cell))
    return cell.isoformat() if isinstance(cell, dt.date | dt.time) else str(cell)
