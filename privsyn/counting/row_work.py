"""Make a large table in parts: how each is made, and from what."""

from __future__ import annotations

import shutil
import tempfile
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa

from privsyn.base.interrupts import watch_interrupts
from privsyn.counting.engine import Engine, LocalEngine
from privsyn.counting.part_files import Made, Make, PartFile, Profile, Shape, write_part
from privsyn.storage.table_files import name_part, strip_schema, write_parts


def _make_temporary_folder() -> Path:
    return Path(tempfile.mkdtemp(prefix="privsyn-"))


class RowWork:
    """Makes parts of tables by an engine, as files in one folder, which is removed when nothing refers to it.

    ``make_folder``: makes that folder before the first part; ``threads``: of this process, 0 for all cores.  ``apart``:
    whether the engine's workers can read only that folder.
    """

    def __init__(
        self,
        engine: Engine | None = None,
        make_folder: Callable[[], Path] = _make_temporary_folder,
        threads: int = 0,
        *,
        apart: bool = False,
    ) -> None:
        """Nothing is made yet."""
        self._engine, self._make_folder, self._threads = engine or LocalEngine(), make_folder, threads
        self._apart = apart
        self._folder: Path | None = None
        self._numbers = count()

    def make(
        self,
        make: Make,
        profile: Profile,
        schema: pa.Schema,
        tasks: Sequence[Any],
        report: Callable[[int, int], None] = lambda done, total: None,
        beside: Sequence[Shape] = (),
    ) -> list[PartFile]:
        """Return the parts in the order of their tasks; ``report``: called with (parts made, all parts) after each.

        ``beside``: the shapes of other tables made with this one.
        """
        return list(self.iterate(make, profile, schema, tasks, report, beside))

    def write_together(self, batches: Iterable[Any], shapes: Sequence[Shape]) -> tuple[PartFile, ...]:
        """Return the files of several tables made here in one pass; each item is a batch of each table."""
        stripped = [Shape(strip_schema(schema), profile) for schema, profile in shapes]
        path = str(self._open_folder() / name_part(0))
        first = write_part(lambda task, threads: Made(watch_interrupts(batches)), stripped, None, path, 1)
        return (first, *first.beside)

    def iterate(
        self,
        make: Make,
        profile: Profile,
        schema: pa.Schema,
        tasks: Sequence[Any],
        report: Callable[[int, int], None] = lambda done, total: None,
        beside: Sequence[Shape] = (),
    ) -> Iterator[PartFile]:
        """Yield the parts of :meth:`make`, each as soon as it and the parts before are made."""
        folder = self._open_folder()
        paths = [str(folder / name_part(i)) for i in range(len(tasks))]
        shapes = [Shape(schema, profile), *beside]
        write = partial(write_part, make, [Shape(strip_schema(schema), profile) for schema, profile in shapes])
        parts = self._engine.make_parts(write, list(zip(tasks, paths, strict=True)), self._threads)
        for number, part in enumerate(parts, 1):
            report(number, len(tasks))
            yield part

    def split(self, batches: Iterable[pa.RecordBatch], schema: pa.Schema, rows: Sequence[int]) -> list[str]:
        """Return the paths of files with ``rows[i]`` of the rows each."""
        folder = self._open_folder()
        write_parts(folder, batches, strip_schema(schema), rows)
        return [str(folder / name_part(i)) for i in range(len(rows))]

    def lend(self, files: Sequence[Path]) -> list[str]:
        """Return paths where workers can read these files: the files' own, or copies in the shared folder."""
        if not self._apart:
            return list(map(str, files))
        folder = self._open_folder()
        return [str(shutil.copyfile(file, folder / name_part(i))) for i, file in enumerate(files)]

    def _open_folder(self) -> Path:
        """Return a new folder inside this work's folder."""
        if self._folder is None:
            self._folder = self._make_folder()
            weakref.finalize(self, shutil.rmtree, self._folder, ignore_errors=True)
        folder = self._folder / str(next(self._numbers))
        folder.mkdir(mode=0o700)
        return folder
