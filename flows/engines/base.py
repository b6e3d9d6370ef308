"""What an engine is: the one thing that a release asks of it.

Belongs here: the protocol, and the stored table that it counts.  Does not belong here: any one engine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import pyarrow as pa
import pyarrow.parquet as pq

from data_contracts.domain import Domain
from tasks.kernels.counting import Countable


@dataclass(frozen=True)
class StoredTable:
    """A whole table in Parquet files: a stream of batches for who reads it, files for an engine."""

    files: tuple[Path, ...]
    batches: Callable[[], Iterator[pa.RecordBatch]]

    @property
    def num_rows(self) -> int:
        """How many rows the files say they have."""
        return sum(pq.read_metadata(file).num_rows for file in self.files)


class Engine(Protocol):
    """Counts rows of codes; the results are the same integers whatever the engine."""

    def open(self) -> None:
        """Be ready to count; RequestError that names the spec's field where that cannot be.  Any number of times."""

    def rows(self, stored: StoredTable, domain: Domain, *, padded: bool = False) -> Countable:
        """The rows of a stored table of codes, to be counted; nothing is read before a count is asked for."""

    def close(self) -> None:
        """Give back what :meth:`open` took."""
