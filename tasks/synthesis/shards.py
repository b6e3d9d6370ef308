"""Shards: separately made parts of a synthetic table larger than memory.

Every shard follows the same marginals, scaled to its rows, and is made independently: by any process, in any order.
Two steps make all shards together as close to the marginals as a table made at once.  First, rounding: 50 shards that
each round 0.4 records to 0 would lose 20.  So shard b of k rounds with the offset u + b / k, where u is the table's
own.  By Hermite's identity, floor(x) + floor(x + 1/k) + ... + floor(x + (k-1)/k) = floor(k x), the shards' integers add
up to the table's rounding.  Second, refinement: one shard after another takes a few sweeps towards the residuals of
all shards together (:data:`Residuals`), until the table is as close as a shard alone.  GUM has neither step.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from privsyn.data_contracts.mechanism_options import Rows
from privsyn.tasks.kernels.blocks import ALL_LEFT, cut_batches
from privsyn.tasks.kernels.streams import derive_stream

Residuals = dict[int, NDArray[np.int64]]
"""Component (its first attribute's number) -> wanted minus present records, in all cells of its marginals."""

_SHARD = 200  # purpose of the random streams, used by no other step


@dataclass(frozen=True)
class Shard:
    """Shard ``number`` of ``count``, with ``rows`` rows; ``seed``: the seed of the whole table."""

    seed: int
    number: int = 0
    count: int = 1
    rows: int = 0

    @property
    def own_seed(self) -> int:
        """The seed of the shard's own random streams; the first shard uses the table's seed."""
        return int(derive_stream(self.seed, _SHARD, self.number)) >> 1 if self.number else self.seed

    def offset(self, table_offset: float) -> float:
        """Return the shard's offset for systematic rounding, in [0, 1), given the whole table's offset."""
        return (table_offset + self.number / self.count) % 1.0


def plan_shards(rows: int, settings: Rows) -> list[Shard]:
    """Return the fewest shards, at least one, of at most ``settings.shard_rows`` rows; sizes differ by at most one."""
    number = max(1, -(-rows // settings.shard_rows))
    edges = [rows * i // number for i in range(number + 1)]
    sizes = [stop - first for first, stop in pairwise(edges)]
    return [Shard(settings.seed, i, number, size) for i, size in enumerate(sizes)]


def add_residuals(shards: Sequence[Residuals]) -> Residuals:
    """Return the residuals of all shards together."""
    return {component: np.sum([shard[component] for shard in shards], axis=0) for component in shards[0]}


def measure_residuals(residuals: Residuals) -> int:
    """Return the sum of absolute residuals over all cells."""
    return sum(int(np.abs(component).sum()) for component in residuals.values())


def compute_open_part_rows(parts: Sequence[Shard]) -> tuple[int, ...]:
    """Return the rows of each part of a table whose total may differ from the plan: the last part takes the rest.

    Empty for a table of one shard.
    """
    return (*(shard.rows for shard in parts[:-1]), ALL_LEFT) if len(parts) > 1 else ()


def iterate_shards(
    batches: Iterable[pa.RecordBatch], parts: Sequence[Shard]
) -> Iterator[tuple[Shard, list[pa.RecordBatch]]]:
    """Yield the rows of each shard, holding one shard at a time."""
    shard_batches: list[pa.RecordBatch] = []
    current = 0
    for number, batch in cut_batches(batches, [shard.rows for shard in parts]):
        while current < number:
            yield parts[current], shard_batches
            shard_batches, current = [], current + 1
        shard_batches.append(batch)
    while current < len(parts):
        yield parts[current], shard_batches
        shard_batches, current = [], current + 1
