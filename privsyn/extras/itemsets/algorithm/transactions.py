"""Step *transactions* (transform): private baskets as lists of item codes, and exact counts of them.

An item's code is its place in the public universe.  Every transaction is read by itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from heapq import heappush, heapreplace

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

Codes = NDArray[np.int64]

ROW_SCHEMA = pa.schema([pa.field("items", pa.list_(pa.int32()), nullable=False)])
"""One transaction a row: the codes of its items, ascending, each once."""

_BLOCK = 1 << 17  # transactions that are looked at together
_FIRST_ITEMS = 64  # items whose pairs are counted first, for a bound that spares most others


def gather_transactions(rows: Codes, codes: Codes, size: int, items: int, limit: int) -> tuple[pa.RecordBatch, int]:
    """Return transactions 0 to ``size`` - 1 in ROW_SCHEMA from (row, code) pairs, and how many exceeded ``limit``.

    ``rows``, ``codes``: int64, one a held item, in any order and with repetitions; codes below ``items``.  Of a
    transaction with more than ``limit`` items, ``limit`` are kept: a choice that follows from its own items alone, so
    that no other transaction and no order matters.
    """
    pairs = np.unique(rows * items + codes)
    rows, codes = pairs // items, pairs % items
    lengths = np.bincount(rows, minlength=size)
    starts = np.concatenate([[0], np.cumsum(lengths)])
    keep = np.ones(pairs.size, dtype=np.bool_)
    long = np.flatnonzero(lengths > limit)
    for row in long:
        items_of_row = codes[starts[row] : starts[row + 1]]
        chosen = np.random.default_rng(items_of_row).permutation(items_of_row.size) < limit
        keep[starts[row] : starts[row + 1]] = chosen
    offsets = np.concatenate([[0], np.cumsum(np.minimum(lengths, limit))])
    lists = pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), pa.array(codes[keep], pa.int32()))
    return pa.RecordBatch.from_arrays([lists], schema=ROW_SCHEMA), int(long.size)


@dataclass(frozen=True, eq=False)
class Transactions:
    """Transactions in memory: the codes of all, one transaction after another, and where each begins.

    ``codes``: int64; ``starts``: int64, shape (transactions + 1,); ``items``: the universe's size.
    """

    codes: Codes
    starts: Codes
    items: int

    @classmethod
    def from_arrow(cls, batches: Iterable[pa.RecordBatch], items: int) -> Transactions:
        """Return the transactions of batches of ROW_SCHEMA."""
        lists = pa.chunked_array([b.column(0) for b in batches], ROW_SCHEMA.field(0).type).combine_chunks()
        lists = lists if isinstance(lists, pa.Array) else pa.array([], ROW_SCHEMA.field(0).type)
        lengths = lists.value_lengths().to_numpy(zero_copy_only=False)
        starts = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
        return cls(lists.flatten().to_numpy(zero_copy_only=False).astype(np.int64), starts, items)

    @classmethod
    def of(cls, baskets: Sequence[Sequence[int]], items: int) -> Transactions:
        """Return the transactions of lists of codes, each ascending and without repetition."""
        return cls.from_arrow([pa.record_batch([pa.array(baskets, pa.list_(pa.int32()))], schema=ROW_SCHEMA)], items)

    def __len__(self) -> int:
        return len(self.starts) - 1

    def count_items(self) -> Codes:
        """Return how many transactions hold each item: int64, shape (items,)."""
        return np.bincount(self.codes, minlength=self.items).astype(np.int64)

    def mark_items(self, chosen: Sequence[int], first: int = 0, last: int | None = None) -> NDArray[np.bool_]:
        """Return which transactions hold each chosen item: bool, shape (len(chosen), last - first).

        Of the transactions ``first`` to ``last`` - 1; None: to the end.
        """
        last = len(self) if last is None else last
        place = np.full(self.items, -1)
        place[list(chosen)] = np.arange(len(chosen))
        where = place[self.codes[self.starts[first] : self.starts[last]]]
        row = np.repeat(np.arange(last - first), np.diff(self.starts[first : last + 1]))
        marks = np.zeros((len(chosen), last - first), dtype=np.bool_)
        marks[where[where >= 0], row[where >= 0]] = True
        return marks

    def _iterate_blocks(self, chosen: Sequence[int]) -> Iterator[NDArray[np.bool_]]:
        """Yield :meth:`mark_items` of all transactions, _BLOCK at a time."""
        for first in range(0, len(self), _BLOCK):
            yield self.mark_items(chosen, first, min(first + _BLOCK, len(self)))

    def count_pairs(self, chosen: Sequence[int]) -> Codes:
        """Return how many transactions hold each pair of ``chosen`` items: int64, upper triangle row by row."""
        total = np.zeros((len(chosen), len(chosen)))
        for marks in self._iterate_blocks(chosen):
            block = marks.astype(np.float32)  # exact: a block's counts are below 2^24
            total += block @ block.T
        return np.rint(total[np.triu_indices(len(chosen), 1)]).astype(np.int64)

    def count_subsets(self, basis: Sequence[int]) -> Codes:
        """Return how many transactions hold exactly each subset of ``basis``: int64, 2^len(basis) cells.

        Bit j of a cell's number says whether the item ``basis[j]`` is held.
        """
        weights = 1 << np.arange(len(basis), dtype=np.int64)
        cells = np.zeros(1 << len(basis), np.int64)
        for marks in self._iterate_blocks(basis):
            cells += np.bincount(weights @ marks, minlength=cells.size)
        return cells

    def find_support_at_rank(self, rank: int, largest: int) -> int:
        """Return the count of the itemset that is the ``rank``-th most frequent of all with 1 to ``largest`` items.

        Itemsets that nobody holds count 0.  One more transaction raises each itemset's count by at most one, and so
        the count at a rank.  Depth first over sets that can still be among the first (Eclat: Zaki 2000).
        """
        counts = self.count_items()
        order = np.argsort(-counts, kind="stable")[:rank]
        best = _TopNumbers(rank)
        best.add(counts[order])
        if largest == 1:
            return best.least
        floor = best.least
        if len(order) > _FIRST_ITEMS:
            pairs = _TopNumbers(rank)
            pairs.add(counts[order])
            pairs.add(self.count_pairs(order[:_FIRST_ITEMS].tolist()))
            floor = pairs.least
        order = order[counts[order] > max(floor - 1, 0)]
        packed = [np.packbits(held, axis=1) for held in self._iterate_blocks(order.tolist())]
        bits = np.concatenate(packed, axis=1) if packed else np.empty((len(order), 0), np.uint8)
        stack = [(bits[i], i + 1, 1) for i in range(len(order))][::-1]
        while stack:
            held, begin, size = stack.pop()
            both = bits[begin:] & held
            counts = np.bitwise_count(both).sum(axis=1, dtype=np.int64)
            best.add(counts)
            if size + 1 < largest:  # a set that is no more frequent than the last one has no superset that is
                extended = np.flatnonzero(counts > best.least)
                stack.extend((both[i], begin + int(i) + 1, size + 1) for i in extended[::-1])
        return best.least


class _TopNumbers:
    """The ``rank`` largest of the numbers added, zeros without end included."""

    def __init__(self, rank: int) -> None:
        self._rank, self._heap = rank, list[int]()

    def add(self, numbers: Codes) -> None:
        """Take in more numbers, each at least 0."""
        for number in numbers[numbers > self.least].tolist():
            if len(self._heap) < self._rank:
                heappush(self._heap, number)
            else:
                heapreplace(self._heap, max(number, self._heap[0]))

    @property
    def least(self) -> int:
        """The ``rank``-th largest number."""
        return self._heap[0] if len(self._heap) == self._rank else 0
