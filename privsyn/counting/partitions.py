"""Partitions of stored code tables: ranges of Parquet row groups, read block by block and counted."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from privsyn.data_contracts.domain import Clique, Domain
from privsyn.storage.table_files import open_parquet
from privsyn.tasks.kernels.blocks import block_rows, count_blocks, restrict_domain
from privsyn.tasks.kernels.counting import CodeTable, choose_thread_count

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
