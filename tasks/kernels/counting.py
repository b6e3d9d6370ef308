"""Exact counts of code tables: any marginal, many marginals, on several threads.

Counts are integers, so every result is exact and independent of the number of threads.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from math import prod
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from privsyn.data_contracts.domain import Clique, Domain, choose_code_dtype
from privsyn.data_contracts.tables import build_code_schema

MAX_CELLS = 1 << 31
"""Largest number of cells of a marginal: keys must fit 31 bits."""

_BLOCK_ROWS = 1 << 16  # rows per batch of keys for cliques of three or more attributes
_GROUP_CLIQUES, _GROUP_CELLS = 16, 1 << 20  # largest unit of work for a thread, which bounds look-ahead
_ROWS_OF_ONE_THREAD = 1 << 14  # with fewer rows, half the time is Python's own: two threads take as long as one


@dataclass(frozen=True, eq=False)
class CodeTable:
    """Rows of codes, one contiguous array of uint8, uint16 or uint32 per attribute, all of one length.

    Codes of attribute a are 0 .. size(a) - 1; in a ``padded`` table also size(a), for filtered values.
    Raises ValueError for wrong lengths, types or codes outside the domain.
    """

    domain: Domain
    columns: tuple[np.ndarray, ...]
    padded: bool = False

    def __post_init__(self) -> None:
        """Check everything that the kernels rely on; raises ValueError."""
        if len(self.columns) != len(self.domain.attributes):
            raise ValueError(f"{len(self.columns)} columns for {len(self.domain.attributes)} attributes")
        for attribute, size, column in zip(self.domain.attributes, self.domain.sizes, self.columns, strict=True):
            if column.dtype not in (np.uint8, np.uint16, np.uint32) or column.ndim != 1:
                raise ValueError(f"{attribute}: codes must be one-dimensional uint8, uint16 or uint32")
            if not column.flags.c_contiguous or column.size != self.rows:
                raise ValueError(f"{attribute}: columns must be contiguous and of one length")
            if column.size and int(column.max()) >= size + int(self.padded):
                raise ValueError(f"{attribute}: the code {int(column.max())} is outside the domain of {size} codes")

    @property
    def rows(self) -> int:
        """Number of rows."""
        return self.columns[0].size if self.columns else 0

    def column(self, attribute: str) -> np.ndarray:
        """Return the codes of one attribute; raises KeyError if unknown."""
        return self.columns[self.domain.index(attribute)]

    def shape(self, clique: Iterable[str]) -> tuple[int, ...]:
        """Return the number of codes that each attribute's column may hold, including the one for filtered values."""
        return tuple(size + int(self.padded) for size in self.domain.shape(clique))

    @classmethod
    def from_arrow(
        cls, data: pa.Table | Sequence[pa.RecordBatch], domain: Domain, *, padded: bool = False
    ) -> CodeTable:
        """Build from an Arrow table or batches with the domain's columns in order; a single chunk is not copied.

        Raises ValueError for other columns, nulls, or types that are not unsigned.
        """
        schema = build_code_schema(domain, padded=padded)
        table = data if isinstance(data, pa.Table) else pa.Table.from_batches(data, None if data else schema)
        if tuple(table.schema.names) != domain.attributes:
            raise ValueError("the table's columns are not the domain's attributes, in order")
        if any(column.null_count for column in table.columns):
            raise ValueError("a table of codes must not have nulls")
        return cls(domain, tuple(_to_numpy(column) for column in table.columns), padded)

    def counts(
        self, cliques: Iterable[Clique], *, threads: int = 0, padded_result: bool = False
    ) -> Iterator[np.ndarray]:
        """Return the counts of each clique as by :func:`count`, in the order of the cliques, lazily."""
        return _count_in_memory(self, cliques, threads, padded_result)

    def to_arrow(self) -> pa.Table:
        """Return an Arrow table in the schema of ``build_code_schema``; columns of the right type are not copied."""
        schema = build_code_schema(self.domain, padded=self.padded)
        codes = [
            pa.array(column.astype(choose_code_dtype(size + int(self.padded)), copy=False))
            for column, size in zip(self.columns, self.domain.sizes, strict=True)
        ]
        return pa.Table.from_arrays(codes, schema=schema)


def build_code_batch(schema: pa.Schema, columns: Iterable[NDArray[Any]]) -> pa.RecordBatch:
    """Return columns of codes, in the schema's order, as a batch of its types."""
    arrays = [pa.array(c.astype(f.type.to_pandas_dtype())) for c, f in zip(columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


class Countable(Protocol):
    """Rows of codes that can be counted: in memory, in files, or on other machines."""

    @property
    def domain(self) -> Domain:
        """The attributes and their numbers of codes."""

    @property
    def padded(self) -> bool:
        """Whether an attribute may hold one more code, for filtered values."""

    def counts(
        self, cliques: Iterable[Clique], *, threads: int = 0, padded_result: bool = False
    ) -> Iterator[np.ndarray]:
        """Return the counts of each clique as by :func:`count`, in the order of the cliques, lazily."""


def _to_numpy(column: pa.ChunkedArray) -> np.ndarray:
    if column.num_chunks == 1:
        return column.chunk(0).to_numpy(zero_copy_only=True)
    return np.ascontiguousarray(column.to_numpy())


def fill_keys(keys: np.ndarray, columns: Sequence[np.ndarray], shape: Sequence[int]) -> None:
    """Write every row's row-major cell number into ``keys`` (uint32, as long as the columns; at least one column)."""
    from privsyn.tasks.kernels.small_kernels import push_digit  # here: compiled code loads slowly

    np.copyto(keys, columns[0])
    for codes, width in zip(columns[1:], shape[1:], strict=True):
        push_digit(keys, codes, np.uint32(width))


def check_cells(shape: Sequence[int], clique: Clique) -> int:
    """Return the number of cells of ``shape``; raises ValueError if the cell numbers would not fit."""
    cells = prod(shape)
    if cells > MAX_CELLS:
        names = ", ".join(clique)
        raise ValueError(f"the marginal of {names} has {cells:,} cells; at most {MAX_CELLS:,} can be counted")
    return cells


def count(table: CodeTable, clique: Clique, *, padded_result: bool = False) -> np.ndarray:
    """Return exact marginal counts: int64, shaped ``domain.shape(clique)``; the empty clique gives the total.

    In a padded table, rows with a filtered value in the clique are left out, unless ``padded_result``: then every axis
    has one more position, for filtered values.  Raises ValueError if the marginal has more than 2**31 cells.
    """
    shape = table.shape(clique)
    counts = np.zeros(check_cells(shape, clique), np.int64)
    add_counts(table, clique, counts)
    return reshape_counts(counts, shape, filtered=not table.padded or padded_result)


def load_compiled_counting() -> None:
    """Import the compiled counting code in the calling thread, so that other threads import nothing."""
    import privsyn.tasks.kernels.small_kernels  # noqa: F401 - here: compiled code loads slowly


def add_counts(table: CodeTable, clique: Clique, counts: np.ndarray) -> None:
    """Add every row of ``table`` to its cell of ``counts``: int64, flat, with the cells of ``table.shape(clique)``."""
    from privsyn.tasks.kernels.small_kernels import make_lanes, tally, tally_pair  # here: compiled code loads slowly

    shape, columns = table.shape(clique), [_as_read_only(table.column(a)) for a in clique]
    if not columns:
        counts[0] += table.rows
        return
    lanes = make_lanes(counts, table.rows)
    if len(columns) == 1:
        tally(columns[0], lanes)
    elif len(columns) == 2:
        tally_pair(columns[0], columns[1], np.uint64(shape[1]), lanes)
    else:
        keys = np.empty(min(_BLOCK_ROWS, table.rows), np.uint32)
        for first in range(0, table.rows, _BLOCK_ROWS):
            block = [codes[first : first + _BLOCK_ROWS] for codes in columns]
            fill_keys(keys[: block[0].size], block, shape)
            tally(_as_read_only(keys[: block[0].size]), lanes)
    if len(lanes) > 1:
        counts += lanes.sum(axis=0)


def _as_read_only(codes: np.ndarray) -> np.ndarray:
    """Return a read-only view, so that code is compiled for one kind of array."""
    view = codes.view()
    view.flags.writeable = False
    return view


def reshape_counts(counts: np.ndarray, shape: Sequence[int], *, filtered: bool) -> np.ndarray:
    """Reshape flat counts to one axis per attribute; drop the last position of every axis unless ``filtered``."""
    counts = counts.reshape(shape)
    return counts if filtered else np.ascontiguousarray(counts[tuple(slice(0, -1) for _ in shape)])


def choose_thread_count(threads: int) -> int:
    """Return ``threads``, or the number of usable cores for 0; raises ValueError below 0."""
    if threads < 0:
        raise ValueError(f"threads must not be negative: {threads}")
    if threads:
        return threads
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _count_in_memory(
    table: CodeTable, cliques: Iterable[Clique], threads: int, padded_result: bool
) -> Iterator[np.ndarray]:
    """Yield counts in order; each thread counts at most a few groups of marginals ahead of the reader."""

    def work(group: list[Clique]) -> list[np.ndarray]:
        return [count(table, clique, padded_result=padded_result) for clique in group]

    threads = choose_thread_count(threads)
    if threads == 1 or table.rows <= _ROWS_OF_ONE_THREAD:
        yield from (count(table, clique, padded_result=padded_result) for clique in cliques)
        return
    pending: deque[Future[list[np.ndarray]]] = deque()
    load_compiled_counting()
    pool = ThreadPoolExecutor(threads)
    try:
        for group in _group_cliques(table, cliques):
            pending.append(pool.submit(work, group))
            if len(pending) > 2 * threads:
                yield from pending.popleft().result()
        while pending:
            yield from pending.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)


def _group_cliques(table: CodeTable, cliques: Iterable[Clique]) -> Iterator[list[Clique]]:
    """Yield groups of consecutive cliques that are quick to count and small to hold."""
    group: list[Clique] = []
    cells = 0
    for clique in cliques:
        group.append(clique)
        cells += prod(table.shape(clique))
        if len(group) == _GROUP_CLIQUES or cells >= _GROUP_CELLS:
            yield group
            group, cells = [], 0
    if group:
        yield group
