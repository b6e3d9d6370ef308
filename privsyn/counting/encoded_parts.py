"""Encode one part of the private table, a range of row groups.

Every row is encoded by itself, so a part equals the same rows of a table encoded at once.  The files of parts are as
private as the rows: only workers of the private zone make the files.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa

from privsyn.counting.engine import Made, Partition
from privsyn.data_contracts.tables import choose_batch_rows
from privsyn.sources.file_source import read_parquet
from privsyn.tasks.codecs import EncodingPlan
from privsyn.tasks.steps import encode


def encode_part(
    read: Sequence[str], plan: EncodingPlan, with_numbers: bool, partition: Partition, threads: int
) -> Made:
    """Return the codes of one part's rows, their lattice numbers if wanted, and the repairs; ``read``: its columns."""
    repairs = encode.Repairs()

    def batches() -> Iterator[pa.RecordBatch | tuple[pa.RecordBatch, ...]]:
        rows, groups = choose_batch_rows(len(read)), range(partition.first, partition.stop)
        for batch in read_parquet(partition.path, read, rows, repairs.add, groups):
            encode_one = encode.encode_batch_with_numbers if with_numbers else encode.encode_batch
            yield encode_one(batch, plan, repairs)

    return Made(batches(), repairs)
