"""How a CSV file begins: whether its first line is a header, for a draft that would take its fields for names.

Nothing of the file stands in an error: its first line may be a person's record.
"""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from privsyn.base.errors import RequestError
from privsyn.base.wording import mention
from privsyn.data_contracts.csv_options import CsvOptions
from privsyn.storage.table_files import detect_delimiter, open_stream

_HEAD_BYTES = 1 << 16
_LINES = 20
"""Lines after the first one whose fields are counted."""

_VALUES = (
    re.compile(r"[-+]?[0-9]*[.,]?[0-9]+(?:[eE][-+]?[0-9]+)?"),
    re.compile(r"[0-9]{1,4}([-/.])[0-9]{1,2}\1[0-9]{1,4}([ T].*)?"),
    re.compile(r"[0-9]{1,2}:[0-9]{2}(:[0-9]{2}([.,][0-9]+)?)?"),
)
"""How numbers, days, moments and times of day are written."""


def check_first_line(file: Path, names: Sequence[str], options: CsvOptions) -> None:
    """Raise RequestError where the first line of a CSV file, with the fields ``names``, is not a header, it seems.

    It has values among its fields, or fewer fields than most of the lines that follow.
    """
    if any(is_value(name) for name in names):
        raise RequestError(
            f"the first line of {file} has numbers, dates or empty fields where names should be: is it a record?",
            "Put a line of names above it; if these are the names, say so with " + mention("draft_spec.header"),
            "draft_spec.data",
        )
    most = _count_most_fields(file, options)
    if len(names) < most:
        raise RequestError(
            f"the first line of {file} has fewer fields than most lines after it: are there lines before the header?",
            "Take them out; if it is the header, say so with " + mention("draft_spec.header"),
            "draft_spec.data",
        )


def is_value(field: str) -> bool:
    """Return whether a field reads as a value, not as a name: empty, a number, a day, a moment or a time of day."""
    text = field.strip()
    return not text or any(pattern.fullmatch(text) for pattern in _VALUES)


def _count_most_fields(file: Path, options: CsvOptions) -> int:
    """Return how many fields most of the first lines after the first one have; 0 where there are none."""
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
