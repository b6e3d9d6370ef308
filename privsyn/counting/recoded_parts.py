"""Recode one part of the encoded table, a range of row groups; as private as the rows."""

from __future__ import annotations

from privsyn.counting.engine import Made, Partition
from privsyn.storage.table_files import iterate_batches
from privsyn.tasks.estimation.recode import Recode
from privsyn.tasks.steps import compress_domain


def recode_part(recode: Recode, partition: Partition, threads: int) -> Made:
    """Return the coarse codes of one part's rows."""
    rows = iterate_batches(partition.path, range(partition.first, partition.stop))
    return Made(compress_domain.recode_rows(rows, recode))
