"""The interface of an engine: count the rows of stored tables of codes."""

from __future__ import annotations

from typing import Protocol

from privsyn.data_contracts.domain import Domain
from privsyn.storage.table_files import StoredTable
from privsyn.tasks.kernels.counting import Countable


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
