"""Streams of batches of equally many rows, cut alike."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa


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
