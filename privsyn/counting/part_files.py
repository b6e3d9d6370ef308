"""Parts of large tables: each is made by itself and written to a file of its own, here or by a worker elsewhere.

What makes a part is a function of the part alone, so that who makes it, how many at once, and how often, changes no
byte of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import pyarrow as pa

from privsyn.base.process_memory import return_unused_memory
from privsyn.storage.parquet_writing import write_parquet
from privsyn.storage.table_files import iterate_batches
from privsyn.tasks.kernels.read_ahead import read_ahead


class Made(NamedTuple):
    """A part: its rows, as a stream, and what else is known of it (``extra``), which is small."""

    batches: Iterable[pa.RecordBatch]
    extra: Any = None


Make: TypeAlias = Callable[[Any, int], Made]
"""Makes one part from its task on so many threads.  It is pickled for workers: a function of a module, or a partial."""

Profile: TypeAlias = Callable[[Iterable[pa.RecordBatch]], pa.Table]
"""Returns the profile of batches on which their contract is checked; pickled, too."""


@dataclass(frozen=True)
class PartFile:
    """A part in its file; ``profile``: of its batches, to check its contract; ``extra``: as of :class:`Made`."""

    path: str
    profile: pa.Table
    extra: Any = None


def write_part(make: Make, profile: Profile, schema: pa.Schema, task: Any, path: str, threads: int) -> PartFile:
    """Make one part and write it to ``path``, whole under this name or not at all."""
    return_unused_memory()  # of the parts before
    part, profiles = make(task, threads), []

    def profiled() -> Iterator[pa.RecordBatch]:
        for batch in read_ahead(part.batches, threads):
            profiles.append(profile([batch]))
            yield batch

    unfinished = Path(f"{path}.part")
    write_parquet(unfinished, profiled(), schema)
    unfinished.replace(path)
    if not profiles:
        profiles.append(profile([pa.RecordBatch.from_pylist([], schema=schema)]))
    return PartFile(path, pa.concat_tables(profiles), part.extra)


def read_parts(parts: Sequence[PartFile]) -> Iterator[pa.RecordBatch]:
    """Yield the rows of the parts, in their order, in batches of bounded size."""
    for part in parts:
        yield from iterate_batches(part.path)
