"""Parts of large tables: each is made by itself and written to its own file, here or by a worker elsewhere.

A part depends on its task alone, so it has the same bytes whoever makes it, with any number at once, any number of
times.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import pyarrow as pa

from privsyn.base.process_memory import return_unused_memory
from privsyn.storage.table_files import TableWriter, iterate_batches
from privsyn.tasks.kernels.blocks import read_ahead


class Made(NamedTuple):
    """A part: its rows, as a stream, and a small ``extra`` result.

    If several tables are made together, each item of the stream is a tuple with a batch of each.
    """

    batches: Iterable[Any]
    extra: Any = None


Make: TypeAlias = Callable[[Any, int], Made]
"""Makes one part from its task, using a number of threads.  Pickled for workers: a module's function, or a partial."""

Profile: TypeAlias = Callable[[Iterable[pa.RecordBatch]], pa.Table]
"""Returns the profile of batches that their contract checks; pickled too."""


class Shape(NamedTuple):
    """How a table is written: its schema, and its profile function for the contract."""

    schema: pa.Schema
    profile: Profile


@dataclass(frozen=True)
class PartFile:
    """A part in its file; ``profile``: of its batches, for the contract check; ``extra``: as in :class:`Made`.

    ``beside``: the parts of other tables that were made with it.
    """

    path: str
    profile: pa.Table
    extra: Any = None
    beside: tuple[PartFile, ...] = ()


def write_part(make: Make, shapes: Sequence[Shape], task: Any, path: str, threads: int) -> PartFile:
    """Make one part and write it to ``path``, completely or not at all.

    ``shapes``: of the part's table, and of the tables made with it, which are written next to it.
    """
    return_unused_memory()  # of earlier parts
    part = make(task, threads)
    paths = [path, *(f"{path}.{number}" for number in range(1, len(shapes)))]
    profiles: list[list[pa.Table]] = [[] for _ in shapes]
    with ExitStack() as stack:
        writers = [
            stack.enter_context(TableWriter(Path(f"{file}.part"), shape.schema))
            for file, shape in zip(paths, shapes, strict=True)
        ]
        for made in read_ahead(part.batches, threads):
            batches = (made,) if isinstance(made, pa.RecordBatch) else made
            for batch, shape, writer, own_profiles in zip(batches, shapes, writers, profiles, strict=True):
                own_profiles.append(shape.profile([batch]))
                writer.write(batch)
    files = []
    for file, shape, own_profiles in zip(paths, shapes, profiles, strict=True):
        Path(f"{file}.part").replace(file)
        if not own_profiles:
            own_profiles.append(shape.profile([pa.RecordBatch.from_pylist([], schema=shape.schema)]))
        files.append(PartFile(file, pa.concat_tables(own_profiles)))
    return replace(files[0], extra=part.extra, beside=tuple(files[1:]))


def read_parts(parts: Sequence[PartFile]) -> Iterator[pa.RecordBatch]:
    """Yield the rows of the parts, in order, in batches of bounded size."""
    for part in parts:
        yield from iterate_batches(part.path)
