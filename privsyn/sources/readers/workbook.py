"""Excel workbooks (.xlsx) of one sheet, whose first row names the columns, by openpyxl, row by row.

A cell is read as text, as in a CSV file: what it is does not depend on the other cells of its column.
"""

from __future__ import annotations

import datetime as dt
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


class WorkbookReader(Reader):
    """The one sheet of a workbook."""

    def __init__(self, path: Path) -> None:
        with need_package("openpyxl", "reading Excel workbooks", "codebooks"):
            import openpyxl
        self._path, self._load = path, openpyxl.load_workbook
        with refuse_damaged(path):
            refuse_large_unpacked(path, MAX_UNPACKED, "data")
            header = next(iter(_take(self._iterate_rows(), 1)), ())
        self.schema = pa.schema([("" if name is None else str(name), pa.string()) for name in header])

    def _iterate_rows(self) -> Iterator[tuple[Any, ...]]:
        book = self._load(self._path, read_only=True, data_only=True, keep_links=False)
        try:
            if len(book.sheetnames) != 1:
                problem = f"{self._path.name} has {len(book.sheetnames)} sheets, and one is read"
                raise RequestError(problem, "Save the table's sheet as a workbook of its own", "data")
            yield from book.worksheets[0].iter_rows(values_only=True)
        finally:
            book.close()

    def read(self, columns: Sequence[str], batch_rows: int, note: Note) -> Iterator[pa.RecordBatch]:
        """Yield the rows below the header; wholly empty ones are left out."""
        places = [self.schema.get_field_index(name) for name in columns]
        with refuse_damaged(self._path):
            rows = self._iterate_rows()
            _take(rows, 1)
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
