"""The private table as a run reads it, wherever it is: what every source offers, and the structure that it checks.

What can fail a release is structure only (a missing column, a table that cannot be read), and no message holds anything
from a row: a parser's or converter's own words can contain one, so they are never passed on.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa

from privsyn.data_contracts.columns import DropColumn
from privsyn.data_contracts.release_spec import ReleaseSpec
from privsyn.errors import RequestError
from privsyn.storage.table_files import name_list

if TYPE_CHECKING:
    from privsyn.storage.store import Store

BATCH_ROWS = 131_072


class SupportsArrowStream(Protocol):
    """A table in memory: a pyarrow Table or RecordBatch, a pandas or polars DataFrame, and others."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """A PyCapsule with an ArrowArrayStream of the table's rows."""


@dataclass(frozen=True, eq=False)
class Source(ABC):
    """A private table whose structure fits the spec; :func:`privsyn.source.open_source.open_source` opens one.

    ``columns``: every column of the table, in the table's order.  ``read``: those that are streamed: all but the
    dropped ones, and ``unit.person_id`` if the spec names one.  ``types``: the stored Arrow type of each column that
    is read; None: its values are text.
    """

    columns: tuple[str, ...]
    read: tuple[str, ...]
    types: Mapping[str, pa.DataType | None]

    @property
    @abstractmethod
    def names(self) -> tuple[str, ...]:
        """Where the table is, for the private run note."""

    @abstractmethod
    def fingerprint(self, store: Store) -> str:
        """HMAC (hex) of the table's content by the private root's key; reads the whole table anew at every call."""

    def fingerprints(self, store: Store) -> tuple[str, ...]:
        """The table's fingerprint, and those of its files, each as a table of its own, where it has several."""
        return (self.fingerprint(store),)

    @abstractmethod
    def check_rows(self) -> None:
        """Read every row once and keep none; RequestError as of :meth:`batches`.

        So a table that cannot be read to its end is refused before its release reserves anything.
        """

    def batches(self, batch_rows: int = BATCH_ROWS) -> Iterator[pa.RecordBatch]:
        """The rows as batches of at most ``batch_rows`` rows with the columns ``read``, in their order.

        Streams: memory depends on the width of the table, not on its length.  Raises RequestError that names the file
        or column that cannot be read.
        """
        if batch_rows < 1:
            raise ValueError(f"batch_rows must be at least 1, not {batch_rows}")
        for batch in self._stream(batch_rows):
            for start in range(0, batch.num_rows, batch_rows):
                yield batch.slice(start, batch_rows)

    @abstractmethod
    def _stream(self, batch_rows: int) -> Iterator[pa.RecordBatch]:
        """The rows in batches of any size near ``batch_rows``."""


def columns_to_read(columns: Sequence[str], spec: ReleaseSpec, where: str) -> tuple[str, ...]:
    """The columns that a release of ``spec`` reads, in the table's order.

    Raises RequestError unless it has exactly the spec's columns.

    Names that only the table has are shown once all of the spec's are there, because without a header line they would
    be the first row.  ``where`` names the table in errors.
    """
    missing = [name for name in spec.columns if name not in set(columns)]
    unlisted = [name for name in columns if name not in spec.columns]
    if missing:
        alike = {name.strip().casefold() for name in unlisted}
        hint = "Mind capital letters and spaces. " if missing[0].strip().casefold() in alike else ""
        raise RequestError(
            f"the spec lists {name_list(missing)}, which {where} does not have",
            f"{hint}Correct the name in the spec, or take the column out of it",
            "columns",
        )
    if unlisted:
        raise RequestError(
            f"{where} has {name_list(unlisted)}, which the spec does not list",
            "List every column of the table; `{kind: drop}` leaves one out of the release",
            "columns",
        )
    dropped = {name for name, c in spec.columns.items() if isinstance(c, DropColumn)} - {spec.unit.person_id}
    return tuple(name for name in columns if name not in dropped)


def check_types(types: Mapping[str, pa.DataType], read: Sequence[str], where: str) -> None:
    """RequestError that names the first column of ``read`` whose type cannot be encoded."""
    for name in read:
        if not readable(types[name]):
            raise RequestError(
                f"its type in {where} is {str(types[name])[:60]}, which cannot be encoded",
                "Store it as numbers, text, booleans or moments, or list it as `{kind: drop}`",
                f"columns.{name}",
            )


def readable(type_: Any) -> bool:
    """Whether columns of this Arrow type can be encoded: numbers, text, booleans, dates, moments, times."""
    if pa.types.is_dictionary(type_):
        return readable(type_.value_type)
    tests = (
        pa.types.is_integer,
        pa.types.is_floating,
        pa.types.is_decimal,
        pa.types.is_boolean,
        pa.types.is_string,
        pa.types.is_large_string,
        pa.types.is_string_view,
        pa.types.is_date,
        pa.types.is_timestamp,
        pa.types.is_time,
        pa.types.is_null,
    )
    return any(test(type_) for test in tests)


def without_views(array: pa.Array) -> pa.Array:
    """The array with string views as large strings, which every Arrow function takes; also within a dictionary."""
    if pa.types.is_string_view(array.type):
        return array.cast(pa.large_string())
    if pa.types.is_dictionary(array.type) and pa.types.is_string_view(array.type.value_type):
        return pa.DictionaryArray.from_arrays(array.indices, array.dictionary.cast(pa.large_string()))
    return array
