"""Rows that are read block by block in every pass: streams of batches, and exact counts.

Batches are cut at the ends of parts or at the batches of another stream, and read ahead in a thread.  Memory does not
depend on the number of rows.  Public figures bound a pass's memory: the cells of its marginals, and the bytes of a
block, which follow from the domain.  Counts are integers, so the sums do not depend on the order or size of blocks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass
from typing import TypeVar, cast

import numpy as np
import pyarrow as pa

from privsyn.data_contracts.domain import Clique, Domain, choose_code_dtype
from privsyn.tasks.kernels.counting import (
    CodeTable,
    add_counts,
    check_cells,
    choose_thread_count,
    load_compiled_counting,
    reshape_counts,
)

ALL_LEFT = -1
"""Size of a last part that takes all remaining rows."""

PASS_CELLS = 1 << 24
"""Largest number of cells (int64) that one pass over the rows counts; a larger marginal has a pass of its own."""

BLOCK_BYTES = 1 << 25
"""Largest size of a block of rows, in bytes of codes."""

_SHARES = 4  # units of work per thread and block, so that unequal marginals even out
_MOST_OF_ONE_THREAD = 1 << 20  # rows times cliques that one thread counts before other threads have started


def pair_batches(
    first: Iterable[pa.RecordBatch], second: Iterable[pa.RecordBatch]
) -> Iterator[tuple[pa.RecordBatch, pa.RecordBatch]]:
    """Yield pairs of batches with the same rows of two tables.  Raises ValueError if their numbers of rows differ."""
    others, rest = iter(second), None
    for batch in first:
        while batch.num_rows:
            while rest is None or not rest.num_rows:
                rest = next(others, None)
                if rest is None:
                    raise ValueError("the second table has fewer rows than the first")
            rows = min(batch.num_rows, rest.num_rows)
            yield batch.slice(0, rows), rest.slice(0, rows)
            batch, rest = batch.slice(rows), rest.slice(rows)
    if (rest is not None and rest.num_rows) or any(batch.num_rows for batch in others):
        raise ValueError("the second table has more rows than the first")


def cut_batches(batches: Iterable[pa.RecordBatch], sizes: Sequence[int]) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Yield the batches, cut at the ends of parts with ``sizes`` rows, each with its part's number.

    Raises ValueError if the number of rows is not the sum of ``sizes``.  If the last size is ALL_LEFT, any number of
    rows is accepted.
    """
    part, remaining = 0, sizes[0]
    for batch in batches:
        first = 0
        while first < batch.num_rows:
            while remaining == 0 and part + 1 < len(sizes):
                part, remaining = part + 1, sizes[part + 1]
            if remaining == ALL_LEFT:
                yield part, batch.slice(first)
                break
            if remaining == 0:
                raise ValueError(f"there are more rows than the {sum(sizes):,} rows of the parts")
            rows = min(remaining, batch.num_rows - first)
            yield part, batch.slice(first, rows)
            first, remaining = first + rows, remaining - rows
    if sizes[-1] != ALL_LEFT and (remaining or any(sizes[part + 1 :])):
        raise ValueError(f"there are fewer rows than the {sum(sizes):,} rows of the parts")


Item = TypeVar("Item")

_END = object()


def read_ahead(items: Iterable[Item], threads: int) -> Iterator[Item]:
    """Yield the items in order, each made by another thread while the one before is used; holds two items at once.

    An error in making an item is raised in the item's place.  ``threads``: 0 for all cores; with 1, nothing is read
    ahead.
    """
    if choose_thread_count(threads) == 1:
        yield from items
        return
    iterator, pool = iter(items), ThreadPoolExecutor(1)
    try:
        following = pool.submit(next, iterator, _END)
        while (item := following.result()) is not _END:
            following = pool.submit(next, iterator, _END)
            yield cast("Item", item)
    finally:
        pool.shutdown(cancel_futures=True)


def block_rows(domain: Domain, *, padded: bool = False) -> int:
    """Return the rows of a block: as many as fit BLOCK_BYTES by the width of the codes, at least 1,024."""
    width = sum(choose_code_dtype(size + int(padded)).itemsize for size in domain.sizes)
    return max(1_024, BLOCK_BYTES // max(1, width))


def restrict_domain(domain: Domain, cliques: Iterable[Clique]) -> Domain:
    """Return the attributes in the cliques, at least one, in domain order: the columns that a pass reads."""
    named = {attribute for clique in cliques for attribute in clique} or set(domain.attributes[:1])
    return Domain.of({a: domain.size(a) for a in domain.attributes if a in named})


def iterate_passes(domain: Domain, cliques: Iterable[Clique], *, padded: bool = False) -> Iterator[list[Clique]]:
    """Yield groups of consecutive cliques whose cells fit PASS_CELLS together.

    Raises ValueError for a marginal that is too large to count.
    """
    group: list[Clique] = []
    cells = 0
    for clique in cliques:
        more = check_cells(_get_shape(domain, clique, padded), clique)
        if group and cells + more > PASS_CELLS:
            yield group
            group, cells = [], 0
        group.append(clique)
        cells += more
    if group:
        yield group


def count_blocks(
    blocks: Iterable[CodeTable], domain: Domain, cliques: Sequence[Clique], *, padded: bool = False, threads: int = 0
) -> list[np.ndarray]:
    """Return flat counts (int64) of each clique over all blocks, with filtered values; empty cliques count rows.

    ``blocks``: tables with at least the cliques' attributes.  Threads (0: all cores) share the cliques of each block.
    """
    counts = [np.zeros(check_cells(_get_shape(domain, c, padded), c), np.int64) for c in cliques]
    threads = choose_thread_count(threads)
    number = min(len(cliques), _SHARES * threads)
    load_compiled_counting()
    with ThreadPoolExecutor(threads) if threads > 1 else nullcontext() as pool:
        for block in read_ahead(blocks, threads):

            def add(share: int, block: CodeTable = block) -> None:
                for i in range(share, len(cliques), number):
                    add_counts(block, cliques[i], counts[i])

            for _ in pool.map(add, range(number)) if pool else map(add, range(number)):
                pass
    return counts


def iterate_in_shape(
    counts: Iterable[np.ndarray], domain: Domain, cliques: Sequence[Clique], rows: int, *, padded: bool, filtered: bool
) -> Iterator[np.ndarray]:
    """Yield flat counts with their axes, as :func:`privsyn.tasks.kernels.counting.count` returns them.

    Raises RuntimeError if the counts of a clique do not add up to ``rows``: a block was lost or counted twice.
    """
    for flat, clique in zip(counts, cliques, strict=True):
        if int(flat.sum()) != rows:
            raise RuntimeError(f"the counts of {', '.join(clique)} do not add up to the table's rows")
        yield reshape_counts(flat, _get_shape(domain, clique, padded), filtered=filtered or not padded)


def _get_shape(domain: Domain, clique: Clique, padded: bool) -> tuple[int, ...]:
    return tuple(size + int(padded) for size in domain.shape(clique))


@dataclass(frozen=True, eq=False)
class BlockwiseRows:
    """Rows that are never in memory together.

    ``read``: starts a pass that yields blocks of the columns of a subdomain, in its order, on the given number of
    threads; ``rows``: number of rows.
    """

    domain: Domain
    padded: bool
    rows: int
    read: Callable[[Domain, int], Iterator[CodeTable]]

    def counts(
        self, cliques: Iterable[Clique], *, threads: int = 0, padded_result: bool = False
    ) -> Iterator[np.ndarray]:
        """Yield the counts of each clique, in order, with one pass per group of :func:`iterate_passes`."""
        for group in iterate_passes(self.domain, cliques, padded=self.padded):
            used = threads if self.rows * len(group) > _MOST_OF_ONE_THREAD else 1
            blocks = self.read(restrict_domain(self.domain, group), used)
            counts = count_blocks(blocks, self.domain, group, padded=self.padded, threads=used)
            yield from iterate_in_shape(
                counts, self.domain, group, self.rows, padded=self.padded, filtered=padded_result
            )
