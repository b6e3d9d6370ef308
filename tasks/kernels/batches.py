"""Streams of batches: cut at the ends of parts or at the batches of another stream, and read ahead in a thread."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar, cast

import pyarrow as pa

from privsyn.tasks.kernels.counting import choose_thread_count

ALL_LEFT = -1
"""Size of a last part that takes all remaining rows."""


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
