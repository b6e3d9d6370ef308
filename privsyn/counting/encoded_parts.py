"""Encode one part of the private table, a range of row groups.

Every row is encoded by itself, so a part equals the same rows of a table encoded at once.  The files of parts are as
private as the rows: only workers of the private zone make the files.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from privsyn.counting.engine import Made, Partition
from privsyn.data_contracts.tables import choose_batch_rows
from privsyn.sources.file_source import read_parquet
from privsyn.tasks.codecs import EncodingPlan
from privsyn.tasks.steps import encode


@dataclass(frozen=True)
class EncodedParts:
    """Encodes parts of a table in Parquet files, and reports repairs."""

    read: Sequence[str]
    plan: EncodingPlan
    with_numbers: bool

    def make(self, partition: Partition, threads: int) -> Made:
        """Return the codes of one part's rows, and their lattice numbers if wanted."""
        repairs = encode.Repairs()

        def batches() -> Iterator[pa.RecordBatch | tuple[pa.RecordBatch, ...]]:
            rows, groups = choose_batch_rows(len(self.read)), range(partition.first, partition.stop)
            for batch in read_parquet(partition.path, self.read, rows, repairs.add, groups):
                encode_one = encode.encode_batch_with_numbers if self.with_numbers else encode.encode_batch
                yield encode_one(batch, self.plan, repairs)

        return Made(batches(), repairs)
