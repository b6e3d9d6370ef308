"""Feather and Arrow files, by Arrow itself."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa

from privsyn.sources.private_table import Note
from privsyn.sources.reader import Reader, refuse_damaged


class ArrowFileReader(Reader):
    """A file of record batches (Feather's second version); its types are kept, as with Parquet."""

    def __init__(self, path: Path) -> None:
        self._path = path
        with refuse_damaged(path, ""), pa.OSFile(str(path)) as file:
            self.schema = pa.ipc.open_file(file).schema

    def read(self, columns: Sequence[str], batch_rows: int, note: Note) -> Iterator[pa.RecordBatch]:
        """Yield the batches of the file."""
        places = [self.schema.get_field_index(name) for name in columns]
        options = pa.ipc.IpcReadOptions(included_fields=sorted(places))
        with refuse_damaged(self._path), pa.OSFile(str(self._path)) as file:
            batches = pa.ipc.open_file(file, options=options)
            for number in range(batches.num_record_batches):
                yield batches.get_batch(number).select(list(columns))
