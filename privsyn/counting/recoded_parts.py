"""What recodes one part of the encoded table, a range of row groups; as private as the rows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from privsyn.counting.part_files import Made
from privsyn.counting.partitions import Partition
from privsyn.storage.table_files import open_parquet
from privsyn.tasks.estimation.recode import Recode
from privsyn.tasks.steps import compress_domain


@dataclass(frozen=True)
class RecodedParts:
    """Recodes parts of the encoded table."""

    recode: Recode

    def make(self, part: Partition, threads: int) -> Made:
        """Return the coarse codes of one part's rows."""

        def batches() -> Iterator[pa.RecordBatch]:
            with open_parquet(part.path) as file:
                yield from file.iter_batches(row_groups=list(range(part.first, part.stop)))

        return Made(compress_domain.recode_rows(batches(), self.recode))
