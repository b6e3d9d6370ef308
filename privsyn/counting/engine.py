"""Engines, which count stored rows and make new ones, and large tables that are made in parts.

A part is made by itself and written to its own file, here or by a worker elsewhere.  It depends on its task alone, so
it has the same bytes whoever makes it, with any number at once, any number of times.

A table is cut into parts, ranges of row groups of its files, by its files alone.
"""

from __future__ import annotations

import shutil
import tempfile
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from importlib.metadata import version
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from privsyn.base.interrupts import check_interrupts, watch_interrupts
from privsyn.base.process_memory import return_unused_memory
from privsyn.data_contracts.domain import Clique, Domain
from privsyn.storage.table_files import (
    StoredTable,
    TableWriter,
    iterate_batches,
    name_part,
    open_parquet,
    strip_schema,
    write_parts,
)
from privsyn.tasks.kernels.blocks import BlockwiseRows, block_rows, count_blocks, read_ahead, restrict_domain
from privsyn.tasks.kernels.counting import CodeTable, Countable, choose_thread_count

PART_ROWS = 1 << 21
"""The most rows of a part, unless one row group has more; larger private tables are made in parts."""


@dataclass(frozen=True)
class Partition:
    """Row groups ``first`` .. ``stop`` - 1 of a Parquet file, and their number of rows."""

    path: str
    first: int
    stop: int
    rows: int


def list_partitions(files: Sequence[Path], most_rows: int) -> list[Partition]:
    """Return the partitions of all row groups, each of at most ``most_rows`` rows unless a single group has more."""
    partitions = []
    for file in files:
        metadata = pq.read_metadata(file)
        first, rows = 0, 0
        for group in range(metadata.num_row_groups):
            more = metadata.row_group(group).num_rows
            if rows and rows + more > most_rows:
                partitions.append(Partition(str(file), first, group, rows))
                first, rows = group, 0
            rows += more
        partitions.append(Partition(str(file), first, metadata.num_row_groups, rows))
    return partitions


def list_parts(files: Sequence[Path]) -> list[Partition]:
    """Return the parts in which a private table is encoded or recoded; none if it is small enough."""
    parts = list_partitions(files, PART_ROWS)
    return parts if sum(part.rows for part in parts) > PART_ROWS else []


def read_blocks(partition: Partition, domain: Domain, *, padded: bool = False, threads: int = 1) -> Iterator[CodeTable]:
    """Yield the partition's rows, with the columns of ``domain``, in blocks of bounded size.

    ``threads``: with at least one per core, Arrow reads columns in parallel.
    """
    if partition.first == partition.stop:
        return
    rows = block_rows(domain, padded=padded)
    use_threads = choose_thread_count(threads) >= pa.cpu_count()
    with open_parquet(partition.path) as file:
        groups = range(partition.first, partition.stop)
        batches = file.iter_batches(
            rows, row_groups=list(groups), columns=list(domain.attributes), use_threads=use_threads
        )
        for block in gather_counts(batches, rows):
            yield CodeTable.from_arrow([b.select(list(domain.attributes)) for b in block], domain, padded=padded)


def gather_counts(batches: Iterator[pa.RecordBatch], rows: int) -> Iterator[list[pa.RecordBatch]]:
    """Yield consecutive batches in lists of about ``rows`` rows, because small row groups cost time."""
    waiting: list[pa.RecordBatch] = []
    gathered_rows = 0
    for batch in batches:
        if waiting and gathered_rows + batch.num_rows > rows:
            yield waiting
            waiting, gathered_rows = [], 0
        waiting.append(batch)
        gathered_rows += batch.num_rows
    if waiting:
        yield waiting


def count_partition(
    partition: Partition, domain: Domain, cliques: Sequence[Clique], *, padded: bool = False, threads: int = 1
) -> list[np.ndarray]:
    """Return exact counts (int64, flat) of each clique over one partition, including filtered values."""
    blocks = read_blocks(partition, restrict_domain(domain, cliques), padded=padded)
    return count_blocks(blocks, domain, cliques, padded=padded, threads=threads)


def add_up(parts: Sequence[Sequence[np.ndarray]]) -> list[np.ndarray]:
    """Return the summed counts of several partitions, clique by clique.

    The order does not matter, because counts are integers.
    """
    total = [counts.copy() for counts in parts[0]]
    for part in parts[1:]:
        for sum_, counts in zip(total, part, strict=True):
            sum_ += counts
    return total


def get_worker_version() -> str:
    """Return the version of this program in the current process."""
    return version("privsyn-flows")


class Made(NamedTuple):
    """A part: its rows, as a stream, and a small ``extra`` result.

    If several tables are made together, each item of the stream is a tuple with a batch of each.
    """

    batches: Iterable[Any]
    extra: Any = None


Make: TypeAlias = Callable[[Any, int], Made]
"""Makes one part from its task, using a number of threads.  Pickled for workers: a module's function, or a partial."""

Profile: TypeAlias = Callable[[Iterable[pa.RecordBatch]], pa.Table]
"""Returns the profile of batches that their contract checks; pickled too."""


class Shape(NamedTuple):
    """How a table is written: its schema, and its profile function for the contract."""

    schema: pa.Schema
    profile: Profile


@dataclass(frozen=True)
class PartFile:
    """A part in its file; ``profile``: of its batches, for the contract check; ``extra``: as in :class:`Made`.

    ``beside``: the parts of other tables that were made with it.
    """

    path: str
    profile: pa.Table
    extra: Any = None
    beside: tuple[PartFile, ...] = ()


def write_part(make: Make, shapes: Sequence[Shape], task: Any, path: str, threads: int) -> PartFile:
    """Make one part and write it to ``path``, completely or not at all.

    ``shapes``: of the part's table, and of the tables made with it, which are written next to it.
    """
    return_unused_memory()  # of earlier parts
    part = make(task, threads)
    paths = [path, *(f"{path}.{number}" for number in range(1, len(shapes)))]
    profiles: list[list[pa.Table]] = [[] for _ in shapes]
    with ExitStack() as stack:
        writers = [
            stack.enter_context(TableWriter(Path(f"{file}.part"), shape.schema))
            for file, shape in zip(paths, shapes, strict=True)
        ]
        for made in read_ahead(part.batches, threads):
            batches = (made,) if isinstance(made, pa.RecordBatch) else made
            for batch, shape, writer, own_profiles in zip(batches, shapes, writers, profiles, strict=True):
                own_profiles.append(shape.profile([batch]))
                writer.write(batch)
    files = []
    for file, shape, own_profiles in zip(paths, shapes, profiles, strict=True):
        Path(f"{file}.part").replace(file)
        if not own_profiles:
            own_profiles.append(shape.profile([pa.RecordBatch.from_pylist([], schema=shape.schema)]))
        files.append(PartFile(file, pa.concat_tables(own_profiles)))
    return replace(files[0], extra=part.extra, beside=tuple(files[1:]))


def read_parts(parts: Sequence[PartFile]) -> Iterator[pa.RecordBatch]:
    """Yield the rows of the parts, in order, in batches of bounded size."""
    for part in parts:
        yield from iterate_batches(part.path)


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


def _make_temporary_folder() -> Path:
    return Path(tempfile.mkdtemp(prefix="privsyn-"))


class RowWork:
    """Makes parts of tables by an engine, as files in one folder, which is removed when nothing refers to it.

    ``make_folder``: makes that folder before the first part; ``threads``: of this process, 0 for all cores.  ``apart``:
    whether the engine's workers can read only that folder.
    """

    def __init__(
        self,
        engine: Engine | None = None,
        make_folder: Callable[[], Path] = _make_temporary_folder,
        threads: int = 0,
        *,
        apart: bool = False,
    ) -> None:
        """Nothing is made yet."""
        self._engine, self._make_folder, self._threads = engine or LocalEngine(), make_folder, threads
        self._apart = apart
        self._folder: Path | None = None
        self._numbers = count()

    def make(
        self,
        make: Make,
        profile: Profile,
        schema: pa.Schema,
        tasks: Sequence[Any],
        report: Callable[[int, int], None] = lambda done, total: None,
        beside: Sequence[Shape] = (),
    ) -> Iterator[PartFile]:
        """Yield the parts in the order of their tasks, each as soon as it and the parts before are made.

        ``report``: called with (parts made, all parts) after each; ``beside``: the shapes of other tables made with it.
        """
        folder = self._open_folder()
        paths = [str(folder / name_part(i)) for i in range(len(tasks))]
        shapes = [Shape(schema, profile), *beside]
        write = partial(write_part, make, [Shape(strip_schema(schema), profile) for schema, profile in shapes])
        parts = self._engine.make_parts(write, list(zip(tasks, paths, strict=True)), self._threads)
        for number, part in enumerate(parts, 1):
            report(number, len(tasks))
            yield part

    def write_together(self, batches: Iterable[Any], shapes: Sequence[Shape]) -> tuple[PartFile, ...]:
        """Return the files of several tables made here in one pass; each item is a batch of each table."""
        stripped = [Shape(strip_schema(schema), profile) for schema, profile in shapes]
        path = str(self._open_folder() / name_part(0))
        first = write_part(lambda task, threads: Made(watch_interrupts(batches)), stripped, None, path, 1)
        return (first, *first.beside)

    def split(self, batches: Iterable[pa.RecordBatch], schema: pa.Schema, rows: Sequence[int]) -> list[str]:
        """Return the paths of files with ``rows[i]`` of the rows each."""
        folder = self._open_folder()
        write_parts(folder, batches, strip_schema(schema), rows)
        return [str(folder / name_part(i)) for i in range(len(rows))]

    def lend(self, files: Sequence[Path]) -> list[str]:
        """Return paths where workers can read these files: the files' own, or copies in the shared folder."""
        if not self._apart:
            return list(map(str, files))
        folder = self._open_folder()
        return [str(shutil.copyfile(file, folder / name_part(i))) for i, file in enumerate(files)]

    def _open_folder(self) -> Path:
        """Return a new folder inside this work's folder."""
        if self._folder is None:
            self._folder = self._make_folder()
            weakref.finalize(self, shutil.rmtree, self._folder, ignore_errors=True)
        folder = self._folder / str(next(self._numbers))
        folder.mkdir(mode=0o700)
        return folder
