"""Sheets of Excel workbooks (.xlsx) by openpyxl, row by row: one row names the columns, those above are left out.

A cell is read as text, as in a CSV file: what it is does not depend on the other cells of its column.  A cell that is
not of the type that it states, as a number ``abc``, is that text; openpyxl itself would end the whole sheet there.
"""

from __future__ import annotations

import datetime as dt
import re
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import dropwhile, islice
from pathlib import Path
from typing import Any

import pyarrow as pa

from privsyn.base.errors import RequestError
from privsyn.base.registry import need_package
from privsyn.extras.foreign_files.known_formats import refuse_large_unpacked
from privsyn.sources.private_table import Note
from privsyn.sources.reader import Reader, refuse_damaged

MAX_UNPACKED = 4_000_000_000
"""Bytes that the parts of a workbook may unpack to: a sheet of a million rows has less."""
MAX_ROWS = 1_048_576
"""Rows of a sheet at most."""
UNREADABLE = "#VALUE!"
"""What a cell is that names a text which the workbook does not have: Excel's own word for such a cell."""

_FORM = "excel:///FILE?sheet=NAME&header=ROW"


class WorkbookReader(Reader):
    """A sheet of a workbook: the one called ``sheet``, or the only one; row ``header``, from 1 on, has the names.

    ``all_named``: refuse a sheet with cells beyond the names.  A draft does, since a title may stand there.  A release
    does not: a remark beside one row is no column, and fails nothing.
    """

    def __init__(self, path: Path, sheet: str | None = None, header: str = "1", *, all_named: bool = False) -> None:
        if re.fullmatch(r"[1-9][0-9]{0,6}", header) is None or int(header) > MAX_ROWS:
            raise RequestError(f"has the header {header[:40]!r}, which is not a row's number", f"Write {_FORM}", "data")
        with need_package("openpyxl", "reading Excel workbooks", "codebooks"):
            import openpyxl  # noqa: F401 - looked for here, used below
        self._path, self._sheet, self._header = path, sheet, int(header)
        self._width = 1
        with refuse_damaged(path, ""):
            refuse_large_unpacked(path, MAX_UNPACKED, "data")
            names = self._read_names(all_named)
        if None in names:
            where = f"cell {names.index(None) + 1} is empty"
            problem = f"row {header} of {path.name} should have the names of its columns, and {where}"
            raise RequestError(problem, f"Give every column a name, or say which row has them: {_FORM}", "data")
        self.schema = pa.schema([(str(name), pa.string()) for name in names])

    def _read_names(self, all_named: bool) -> list[Any]:
        """Return the names of the columns, None where one is empty; no name where the sheet ends above them."""
        for number, row in self._iterate_rows():
            if number >= self._header:
                names = row if number == self._header else {}
                width = max([1, *names, *([self._width] if all_named else [])])
                return [names.get(place) for place in range(1, width + 1)]
        return []

    def _iterate_rows(self) -> Iterator[tuple[int, dict[int, Any]]]:
        """Yield the number of each row that the sheet has, and its cells by the number of their columns."""
        with _ignore_warnings():
            book = _open_book(self._path)
        try:
            sheets = [s for s in book.worksheets if self._sheet in (None, s.title)]
            if not sheets:
                problem = f"{self._path.name} has no sheet of cells called {self._sheet!r}"
                raise RequestError(problem, "Correct the name", "data")
            if len(sheets) != 1:
                problem = f"{self._path.name} has {len(sheets)} sheets, and one is read"
                raise RequestError(problem, f"Name it: {_FORM}", "data")
            self._width = sheets[0].max_column or 1
            yield from _parse_sheet(sheets[0])
        finally:
            book.close()

    def read(self, columns: Sequence[str], batch_rows: int, note: Note) -> Iterator[pa.RecordBatch]:
        """Yield the rows below the header; wholly empty ones are left out."""
        places = [1 + self.schema.get_field_index(name) for name in columns]
        with refuse_damaged(self._path):
            rows = (row for _, row in dropwhile(lambda numbered: numbered[0] != self._header, self._iterate_rows()))
            next(rows, None)
            filled = (row for row in rows if any(cell is not None for cell in row.values()))
            while chunk := list(islice(filled, batch_rows)):
                texts = ([_format_cell(row.get(place)) for row in chunk] for place in places)
                yield pa.RecordBatch.from_arrays([pa.array(t, pa.string()) for t in texts], names=list(columns))


@contextmanager
def _ignore_warnings() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # openpyxl's show values of cells
        yield


def _open_book(path: Path) -> Any:
    """Return a workbook as `openpyxl.load_workbook` does, its texts without their formats, which may be wrong."""
    from openpyxl.reader.excel import SHARED_STRINGS, ExcelReader
    from openpyxl.xml.constants import SHEET_MAIN_NS
    from openpyxl.xml.functions import iterparse

    class PlainTextReader(ExcelReader):
        def read_strings(self) -> None:
            part = self.package.find(SHARED_STRINGS)
            if part is None:
                return
            with self.archive.open(part.PartName[1:]) as source:
                for _, element in iterparse(source):
                    if element.tag == f"{{{SHEET_MAIN_NS}}}si":
                        self.shared_strings.append(_join_texts(element).replace("x005F_", ""))
                        element.clear()

    reader = PlainTextReader(path, read_only=True, data_only=True, keep_links=False)
    reader.read()
    return reader.wb


def _join_texts(element: Any) -> str:
    """Return the text of a cell and of its runs of one format, without the one that says how it is pronounced."""
    runs = [element, *(child for child in element if str(child.tag).endswith("}r"))]
    return "".join(child.text or "" for run in runs for child in run if str(child.tag).endswith("}t"))


def _parse_sheet(sheet: Any) -> Iterator[tuple[int, dict[int, Any]]]:
    """Yield the rows of a sheet as they follow each other, each cell by openpyxl's parser of one cell.

    The number that a row states only finds the header: openpyxl itself would leave out the rows after one whose number
    is too large.
    """
    from openpyxl.worksheet._reader import ROW_TAG, WorkSheetParser
    from openpyxl.xml.functions import iterparse

    book, number = sheet.parent, 0
    with sheet._get_source() as source:
        parser = WorkSheetParser(
            source, sheet._shared_strings, True, book.epoch, book._date_formats, book._timedelta_formats
        )
        for _, element in iterparse(source):
            if element.tag == ROW_TAG:
                stated = element.get("r", "")
                number = int(stated) if stated.isascii() and stated.isdecimal() and len(stated) < 9 else number + 1
                parser.col_counter = 0
                with _ignore_warnings():
                    cells = dict(_parse_cell(parser, cell) for cell in element)
                element.clear()
                yield number, cells


def _parse_cell(parser: Any, element: Any) -> tuple[int, Any]:
    """Return the number of a cell's column and its value; of a cell that is not of its stated type, its text."""
    from openpyxl.worksheet._reader import INLINE_STRING, VALUE_TAG

    before, is_shared = parser.col_counter, element.get("t") == "s"
    inline = element.find(INLINE_STRING)
    text = element.findtext(VALUE_TAG) if inline is None else _join_texts(inline)
    try:
        if is_shared and not (text or "0").strip().isdecimal():
            raise IndexError  # a negative one would count from the end of all texts
        cell = parser.parse_cell(element)
        return cell["column"], cell["value"]
    except Exception:  # openpyxl raises errors of many kinds
        parser.col_counter = parser.col_counter if parser.col_counter > before else before + 1
        return parser.col_counter, UNREADABLE if is_shared or not text else text


def _format_cell(cell: Any) -> str | None:
    """Return a cell as a CSV file has it."""
    if cell is None or cell == "":
        return None
    if isinstance(cell, bool):
        return "true" if cell else "false"
    if isinstance(cell, float) and cell.is_integer() and abs(cell) < 2**53:
        return str(int(cell))
    return cell.isoformat() if isinstance(cell, dt.date | dt.time) else str(cell)
