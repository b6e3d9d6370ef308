"""The private table as a run reads it: the interface of every source, and the check of its structure.

Only structure can fail a release (a missing column, a table that cannot be read).  No message holds anything from a
row: the messages of parsers and converters can, so they are never passed on.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from privsyn.base.errors import RequestError
from privsyn.data_contracts.columns import TimeColumn, Zoned
from privsyn.data_contracts.columns.ordered_columns import Written
from privsyn.data_contracts.release_spec import ReleaseSpec
from privsyn.data_contracts.tables import choose_batch_rows
from privsyn.storage.table_files import join_names
from privsyn.tasks.codecs.parsing import get_value_type, is_number

if TYPE_CHECKING:
    from privsyn.storage.store import Store
    from privsyn.tasks.codecs.encode_rows import Repairs

Note = Callable[[str, Counter[str]], None]
"""Called with a column's name, empty for whole records, and the number of rows that each repair touched."""

LEFT_OUT = "record left out"
NOT_UTF8 = "not UTF-8"
"""The repairs of reading."""


BY_A_VALUE = "(PRIVATE: a value may be why); no budget is lost"
"""End of the message of an error found while rows are read."""


def ignore_repairs(column: str, repairs: Counter[str]) -> None:
    """Ignore a note."""


class SupportsArrowStream(Protocol):
    """A table in memory: a pyarrow Table or RecordBatch, a pandas or polars DataFrame, and others."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Return a PyCapsule with an ArrowArrayStream of the table's rows."""


Table: TypeAlias = str | Path | SupportsArrowStream | Mapping[str, str | Path | SupportsArrowStream]
"""A private table: a path (CSV or Parquet, a file or a folder), the URL of a database's table, or a table in memory.

In memory: pandas, pyarrow, polars, or any object that exports an Arrow stream repeatedly.  For a spec of several
tables, a mapping from their names.
"""


@dataclass(frozen=True, eq=False)
class Source(ABC):
    """A private table whose structure fits the spec; :func:`privsyn.sources.open_source.open_source` opens one.

    ``columns``: every column of the table, in the table's order.  ``read``: the columns that are streamed: the measured
    ones, and the unit's identifier if the spec names one.  ``types``: the stored Arrow type of each column that is
    read; None: its values are text.
    """

    columns: tuple[str, ...]
    read: tuple[str, ...]
    types: Mapping[str, pa.DataType | None]

    @property
    @abstractmethod
    def names(self) -> tuple[str, ...]:
        """The table's places, for the private run note."""

    def fingerprint(self, store: Store) -> str:
        """Return the HMAC (hex) of the table's content by the private root's key.

        It reads the table again, unless every pass over the rows is compared with the first.
        """
        return self.fingerprints(store)[0]

    @abstractmethod
    def fingerprints(self, store: Store) -> tuple[str, ...]:
        """Return the table's fingerprint; with several files, also the fingerprint of each as a table of its own."""

    def pin(self, place: str | dict[str, str]) -> str | dict[str, str]:
        """Return ``place`` with the version that is read, for each table; unchanged for a table without versions."""
        return place

    @property
    def further_tables(self) -> Mapping[str, Source]:
        """Further table of the spec -> its rows, joined with the table above; empty for one or two tables."""
        return {}

    def close(self) -> None:  # noqa: B027 - most sources hold nothing open
        """Close what is held open between passes; a later pass opens it again."""

    def check_rows(self) -> int:
        """Read every row once, keep none, and return their number (private).  Raises RequestError like :meth:`batches`.

        A table that cannot be read to its end is thus refused before its release reserves anything.
        """
        return sum(batch.num_rows for batch in self.batches())

    def batches(self, repairs: Repairs | None = None, *, batch_rows: int | None = None) -> Iterator[pa.RecordBatch]:
        """Yield the rows as batches of at most ``batch_rows`` rows with the columns ``read``, in their order.

        None: the batch size of :func:`choose_batch_rows`.

        Each record is read by itself: it becomes one row or none, whatever the other records hold.  ``repairs``
        (private) counts the records left out, and the cells of each column set to null because they are not UTF-8 text.

        Streams: memory depends on the width of the table, not on its length.  Raises RequestError that names the file
        or column that cannot be read.
        """
        if batch_rows is None:
            batch_rows = choose_batch_rows(len(self.read))
        if batch_rows < 1:
            raise ValueError(f"batch_rows must be at least 1, not {batch_rows}")
        for batch in self._stream(batch_rows, ignore_repairs if repairs is None else repairs.add):
            for start in range(0, batch.num_rows, batch_rows):
                yield batch.slice(start, batch_rows)

    @abstractmethod
    def _stream(self, batch_rows: int, note: Note) -> Iterator[pa.RecordBatch]:
        """Yield the rows in batches of any size near ``batch_rows``; ``note`` counts repairs."""


def list_columns_to_read(columns: Sequence[str], spec: ReleaseSpec, where: str) -> tuple[str, ...]:
    """Return the columns that a release of ``spec`` reads, in the table's order.

    Raises RequestError unless the table has exactly the spec's columns.

    The error shows the table's unlisted names only if no column of the spec is missing: without a header line, they
    would be the first row.  ``where``: the table's name in errors.
    """
    names_of_table = set(columns)
    missing = [name for name in spec.columns if name not in names_of_table]
    unlisted = [name for name in columns if name not in spec.columns]
    if missing:
        alike = {name.strip().casefold() for name in unlisted}
        hint = "Mind capital letters and spaces. " if missing[0].strip().casefold() in alike else ""
        raise RequestError(
            f"the spec lists {join_names(missing)}, which {where} does not have",
            f"{hint}Correct the name in the spec, or take the column out of it",
            "columns",
        )
    if unlisted:
        raise RequestError(
            f"{where} has {join_names(unlisted)}, which the spec does not list",
            "List every column of the table; `{kind: drop}` leaves one out of the release",
            "columns",
        )
    read = {*spec.measured_columns, spec.unit.identifier}
    return tuple(name for name in columns if name in read)


def check_types(types: Mapping[str, pa.DataType], read: Sequence[str], spec: ReleaseSpec, where: str) -> None:
    """Raise RequestError for the first column of ``read`` whose type cannot be encoded, or whose zone is unknown."""
    for name in read:
        column = spec.columns[name]
        stored_zone = getattr(get_value_type(types[name]), "tz", None)
        if isinstance(column, Zoned) and column.zone is None and stored_zone is not None:
            zone = str(stored_zone)[:60]
            raise RequestError(
                f"its moments in {where} have a time zone ({zone}), and the spec does not say which clock time to read",
                f"Write `zone: {zone}`, or another zone",
                f"columns.{name}.zone",
            )
        if isinstance(column, Written | TimeColumn):
            _check_moment_type(name, column, types[name], where)
        if not is_readable(types[name]):
            raise RequestError(
                f"its type in {where} is {_describe_type(types[name])}, which cannot be encoded",
                "Store it as numbers, text, booleans or moments, or list it as `{kind: drop}`",
                f"columns.{name}",
            )


def _check_moment_type(name: str, column: Written | TimeColumn, type_: Any, where: str) -> None:
    """Raise RequestError for numbers in a column of moments without a format for numbers."""
    stored = get_value_type(type_)
    kind = "time" if isinstance(column, TimeColumn) else "date or moment"
    if isinstance(column, TimeColumn):
        reads_numbers, cure = column.format in ("hhmm", "seconds"), "Write `format: hhmm` or `format: seconds`"
    else:
        reads_numbers, cure = bool(column.format), 'Write `format`, such as "%Y%m%d" for numbers like 20230623'
    if is_number(stored) and not reads_numbers:
        raise RequestError(
            f"its type in {where} is {_describe_type(type_)}, and a number is not a {kind} by itself; nothing was "
            "spent",
            f"{cure}; or store the column as dates or text; or use `kind: integer`",
            f"columns.{name}.format",
        )


def _describe_type(type_: Any) -> str:
    """Return the name of a type; for a type that only its database knows, the database's name."""
    type_ = get_value_type(type_)
    own = getattr(type_, "type_name", None) or getattr(type_, "extension_name", "").removeprefix("arrow.")
    return str(own or type_)[:60]


def is_readable(type_: Any) -> bool:
    """Return whether columns of this Arrow type can be encoded: numbers, text, booleans, dates, moments, times."""
    tests = (
        is_text,
        pa.types.is_integer,
        pa.types.is_floating,
        pa.types.is_decimal,
        pa.types.is_boolean,
        pa.types.is_date,
        pa.types.is_timestamp,
        pa.types.is_time,
        pa.types.is_null,
    )
    return any(test(get_value_type(type_)) for test in tests)


def replace_views(array: pa.Array) -> pa.Array:
    """Return the array with string views, also in a dictionary, as large strings, which every Arrow function takes."""
    if pa.types.is_string_view(array.type):
        return array.cast(pa.large_string())
    if pa.types.is_dictionary(array.type) and pa.types.is_string_view(array.type.value_type):
        return pa.DictionaryArray.from_arrays(array.indices, array.dictionary.cast(pa.large_string()))
    return array


def with_valid_text(batch: pa.RecordBatch, note: Note) -> pa.RecordBatch:
    """Return the batch with :func:`check_valid_text` applied to each column."""
    names = batch.schema.names
    return pa.RecordBatch.from_arrays([check_valid_text(name, batch.column(name), note) for name in names], names=names)


def check_valid_text(name: str, array: pa.Array, note: Note) -> pa.Array:
    """Return the column's array without views, null for text that is not UTF-8; ``note`` counts these rows.

    Each row is checked by itself.  Raises pyarrow.ArrowException or IndexError if the array's own structure is broken.
    """
    values = array.dictionary if pa.types.is_dictionary(array.type) else array
    if not is_text(values.type):
        array.validate()
        return array
    try:
        array.validate(full=True)
        return replace_views(array)
    except pa.ArrowInvalid:
        text, bad = _drop_bad_text(array)
        note(name, Counter({NOT_UTF8: bad}))
        return text


def _drop_bad_text(array: pa.Array) -> tuple[pa.Array, int]:
    """Return an invalid array with null for bad text, and the number of bad texts; a dictionary is decoded."""
    type_, cells = array.type, array
    if pa.types.is_dictionary(type_):
        type_ = type_.value_type
        cells = pa.DictionaryArray.from_arrays(array.indices, _as_bytes(array.dictionary)).dictionary_decode()
    cells = _as_bytes(cells)
    bad = [cell is not None and cell.decode(errors="ignore").encode() != cell for cell in cells.to_pylist()]
    text = pc.if_else(pa.array(bad, pa.bool_()), pa.scalar(None, cells.type), cells).view(pa.large_string())
    return text.cast(pa.string()) if pa.types.is_string(type_) else text, sum(bad)


def _as_bytes(array: pa.Array) -> pa.Array:
    """Return the text as bytes.  Raises pyarrow.ArrowInvalid if they cannot be read."""
    array = array.cast(pa.large_binary())
    array.validate(full=True)
    return array


def is_text(type_: pa.DataType) -> bool:
    """Return whether values of the type are text, in any layout."""
    return any(test(type_) for test in (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view))
