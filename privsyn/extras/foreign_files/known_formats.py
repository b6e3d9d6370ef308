"""Facts about workbooks and statistics files that are known without reading a row or loading a reader."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from privsyn.base.errors import RequestError

READERS = {
    ".dta": "read_dta",
    ".sav": "read_sav",
    ".zsav": "read_sav",
    ".por": "read_por",
    ".sas7bdat": "read_sas7bdat",
    ".xpt": "read_xport",
}
MOMENTS = ("%tc", "datetime", "dateampm", "mdyampm", "e8601dt", "b8601dt")
DAYS = (
    *("%td", "date", "adate", "edate", "sdate", "mmddyy", "ddmmyy", "yymmdd", "mmyy", "yymm", "monyy", "yymon"),
    *("weekdate", "weekdatx", "worddate", "worddatx", "e8601da", "b8601da"),
)
"""Prefixes of Stata, SPSS and SAS formats; moments are tried first."""
_FEWEST_LABELS = 2
"""Fewer labels than this mark special values of a number, not a list."""


def find_catalogue(path: Path) -> dict[str, str]:
    """Return the option that names a SAS file's value labels, which are in a separate file next to it."""
    catalogue = path.with_suffix(".sas7bcat")
    return {"catalog_file": str(catalogue)} if path.suffix.lower() == ".sas7bdat" and catalogue.is_file() else {}


def is_a_list(labels: Mapping[Any, str], measure: str) -> bool:
    """Return whether the value labels list a column's values."""
    return len(labels) >= _FEWEST_LABELS and measure != "scale"


def refuse_large_unpacked(path: Path, limit: int, field: str) -> None:
    """Raise RequestError for a workbook with macros, or if its parts declare more than ``limit`` unpacked bytes.

    The declared size is binding: no ZIP reader returns more.  Raises zipfile.BadZipFile for files that are no ZIP
    files.
    """
    with zipfile.ZipFile(path) as book:
        size, names = sum(part.file_size for part in book.infolist()), book.namelist()
    if size > limit:
        problem = f"{path.name} unpacks to more than {limit // 10**6} MB"
        raise RequestError(problem, "Keep the sheet of columns alone, or save it as CSV", field)
    if any(name.lower().endswith("vbaproject.bin") for name in names):
        raise RequestError(f"{path.name} has macros", "Save it as .xlsx without macros", field)
