"""Streams of batches, cut: where parts end, and where those of another stream do."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa

ALL_LEFT = -1
"""Size of a last part that has whatever rows are left."""


def pair_batches(
    first: Iterable[pa.RecordBatch], second: Iterable[pa.RecordBatch]
) -> Iterator[tuple[pa.RecordBatch, pa.RecordBatch]]:
    """Yield the same rows of two tables beside each other.  Raises ValueError if one has more rows than the other."""
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
    """Yield the batches, cut where a part of ``sizes`` rows ends, each with its part's number.

    The last size may be ALL_LEFT; then there may be fewer rows than the others say, too.  Raises ValueError unless
    there are as many rows as ``sizes`` says.
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
                raise ValueError(f"there are more rows than the {sum(sizes):,} of the parts")
            rows = min(remaining, batch.num_rows - first)
            yield part, batch.slice(first, rows)
            first, remaining = first + rows, remaining - rows
    if sizes[-1] != ALL_LEFT and (remaining or any(sizes[part + 1 :])):
        raise ValueError(f"there are fewer rows than the {sum(sizes):,} of the parts")
