"""The interface of an engine, which counts the rows of stored tables of codes, and the engine of this process."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from privsyn.counting.partitions import list_partitions, read_blocks
from privsyn.data_contracts.domain import Domain
from privsyn.storage.table_files import StoredTable
from privsyn.tasks.kernels.blocks import BlockwiseRows
from privsyn.tasks.kernels.counting import CodeTable, Countable


class Engine(Protocol):
    """Counts rows of codes; the results are the same integers whatever the engine."""

    def open(self) -> None:
        """Be ready to count.

        Raises RequestError that names the spec's field if that cannot be.  Any number of times.
        """

    def rows(self, stored: StoredTable, domain: Domain, *, padded: bool = False) -> Countable:
        """Return the rows of a stored table of codes, to be counted; nothing is read before a count is asked for."""

    def close(self) -> None:
        """Give back what :meth:`open` took."""


_WHOLE = 1 << 62  # a file is one partition


@dataclass(frozen=True)
class LocalEngine:
    """Counts in this process."""

    def open(self) -> None:
        """Nothing to do."""

    def rows(self, stored: StoredTable, domain: Domain, *, padded: bool = False) -> Countable:
        """Yield the rows, read anew for every pass."""
        parts = list_partitions(stored.files, _WHOLE)

        def read(columns: Domain) -> Iterator[CodeTable]:
            for part in parts:
                yield from read_blocks(part, columns, padded=padded)

        return BlockwiseRows(domain, padded, stored.num_rows, read)

    def close(self) -> None:
        """Nothing to give back."""
