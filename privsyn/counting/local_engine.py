"""The local engine: this process reads the stored table block by block and counts with all its threads."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from privsyn.counting.partitions import list_partitions, read_blocks
from privsyn.data_contracts.domain import Domain
from privsyn.storage.table_files import StoredTable
from privsyn.tasks.kernels.blocks import Blocks
from privsyn.tasks.kernels.counting import CodeTable, Countable

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

        return Blocks(domain, padded, stored.num_rows, read)

    def close(self) -> None:
        """Nothing to give back."""
