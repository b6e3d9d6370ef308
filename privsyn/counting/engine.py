"""The engine interface, for counting stored rows and making new ones, and the engine of this process."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeAlias

from privsyn.base.interrupts import check_interrupts
from privsyn.counting.part_files import PartFile
from privsyn.counting.partitions import list_partitions, read_blocks
from privsyn.data_contracts.domain import Domain
from privsyn.storage.table_files import StoredTable
from privsyn.tasks.kernels.blocks import BlockwiseRows
from privsyn.tasks.kernels.counting import CodeTable, Countable, choose_thread_count

WritePart: TypeAlias = Callable[[Any, str, int], PartFile]
"""Makes the part of a task and writes it to a path, using a number of threads."""

PARTS_AT_ONCE = 4
"""The most parts that this process makes at once: each holds a shard's rows, so their number must not depend on the
cores alone."""

_LOOK_EVERY = 0.2
"""Seconds between checks for interrupts while waiting for a part."""


class Engine(Protocol):
    """Counts rows of codes and makes parts of tables; results are the same for every engine."""

    def open(self) -> None:
        """Get ready to count; may be called any number of times.

        Raises RequestError that names the spec's field if that is impossible.
        """

    def rows(self, stored: StoredTable, domain: Domain, *, padded: bool = False) -> Countable:
        """Return a stored table's rows as something to count; nothing is read before a count is requested."""

    def make_parts(self, write: WritePart, tasks: Sequence[tuple[Any, str]], threads: int) -> Iterator[PartFile]:
        """Yield the part of each (task, path), in order, several made at once; ``threads`` of this process.

        Parts depend on released tables alone, so a lost part is made again without using budget.
        """

    def close(self) -> None:
        """Release what :meth:`open` took."""


class ClusterEngine(Engine, Protocol):
    """An engine of workers that a scheduler sends what they do; a package adds it to the registry's ``engines``."""

    def check_apart(self, counting: Engine) -> None:
        """Raise RequestError if the workers that count are of the same scheduler, as far as is known by now."""

    def check_folder(self, folder: Path) -> None:
        """Have every worker read and write in an empty folder that this process reads, too.

        Raises RequestError that names the folder's setting if one of them cannot.
        """


def count_at_once(tasks: int, at_once: int) -> list[int]:
    """Return, for each task, how many are made at once with it: fewer at the end, with more threads each."""
    remainder = tasks % at_once
    return [at_once] * (tasks - remainder) + [remainder] * remainder


_WHOLE = 1 << 62  # a file is one partition


@dataclass(frozen=True)
class LocalEngine:
    """Counts in this process."""

    def open(self) -> None:
        """Do nothing."""

    def rows(self, stored: StoredTable, domain: Domain, *, padded: bool = False) -> Countable:
        """Yield the rows, read anew for every pass."""
        parts = list_partitions(stored.files, _WHOLE)

        def read(columns: Domain, threads: int) -> Iterator[CodeTable]:
            for part in parts:
                yield from read_blocks(part, columns, padded=padded, threads=threads)

        return BlockwiseRows(domain, padded, stored.num_rows, read)

    def make_parts(self, write: WritePart, tasks: Sequence[tuple[Any, str]], threads: int) -> Iterator[PartFile]:
        """Yield the parts, made on threads of this process."""
        threads = choose_thread_count(threads)
        at_once = max(1, min(threads, PARTS_AT_ONCE, len(tasks)))
        pool = ThreadPoolExecutor(at_once)
        try:
            waiting = deque(
                pool.submit(write, task, path, max(1, threads // tasks_at_once))
                for (task, path), tasks_at_once in zip(tasks, count_at_once(len(tasks), at_once), strict=True)
            )
            while waiting:
                while not wait([waiting[0]], _LOOK_EVERY).done:
                    check_interrupts()
                yield waiting.popleft().result()
        finally:
            pool.shutdown(cancel_futures=True)

    def close(self) -> None:
        """Do nothing."""
