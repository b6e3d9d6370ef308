"""Rows of synthetic tables, with the numbers by which rows of child tables refer to them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from privsyn.tasks.codecs import EncodingPlan

Numbered: TypeAlias = tuple[NDArray[np.int64], pa.RecordBatch]
"""Rows of a synthetic table, and the numbers by which child rows refer to them."""


def number_rows(batches: Iterable[pa.RecordBatch]) -> Iterator[Numbered]:
    """Yield a table's rows with their numbers, from 1."""
    last = 0
    for batch in batches:
        yield np.arange(last + 1, last + 1 + batch.num_rows), batch
        last += batch.num_rows


def number_persons(rows: Iterable[pa.RecordBatch], without: Iterable[pa.RecordBatch], key: str) -> Iterator[Numbered]:
    """Yield one row of each synthetic person with its number, persons without rows last.

    ``rows``: person by person, with the person's columns and number (``key``); ``without``: the columns of persons
    without rows.
    """
    last = 0
    for batch in rows:
        if batch.num_rows:
            person = np.asarray(batch.column(key))
            begins = np.flatnonzero(np.diff(person, prepend=last))
            yield person[begins], batch.take(pa.array(begins))
            last = int(person[-1])
    for number, batch in number_rows(without):
        yield last + number, batch


def lay_persons_beside(rows: Iterable[Numbered], persons: Iterable[Numbered], key: str) -> Iterator[Numbered]:
    """Yield numbered rows, joined by ``key`` to the columns of their persons."""
    numbers, batches = zip(*persons, strict=True)
    names = batches[-1].schema.names
    number = np.concatenate(numbers)
    table = pa.concat_tables([pa.table([b.column(n) for n in names], names=names) for b in batches])
    for row_numbers, batch in rows:
        place = pa.array(np.searchsorted(number, np.asarray(batch.column(key))))
        persons_columns = table.take(place).combine_chunks()
        columns = {n: batch.column(n) for n in batch.schema.names}
        columns |= {n: persons_columns.column(n).combine_chunks() for n in names if n not in columns}
        yield row_numbers, pa.RecordBatch.from_pydict(columns)


def read_values_above(
    rows: Iterable[Numbered], numbers: NDArray[np.int64], plan: EncodingPlan, columns: Collection[str]
) -> dict[str, pa.Array]:
    """Return columns of the parent rows with these ``numbers`` as rules read them, each of shape (numbers,).

    ``plan``: of a request that has these columns; ``rows``: numbered in ascending order.
    """
    codecs = [codec for codec in plan.row_plan.codecs if not set(columns).isdisjoint(codec.ranges())]
    every, parts = [np.empty(0, np.int64)], dict[str, list[pa.Array]]()
    for number, batch in rows:
        every.append(number)
        for codec in codecs:
            for name, values in codec.read({source: batch.column(source) for source in codec.sources}).items():
                parts.setdefault(name, []).append(values)
    place = pa.array(np.searchsorted(np.concatenate(every), numbers))
    return {
        name: pa.chunked_array(arrays).combine_chunks().take(place) for name, arrays in parts.items() if name in columns
    }
