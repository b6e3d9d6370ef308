"""Private records of ``spec check --data``: which table was checked with which spec.  They hold no value of a row.

A record serves the check before a data set's first charge, which reads no row.  So a table is identified by its place,
and by the size and time of its files.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal, TypeAlias

from privsyn.base.errors import PrivsynError
from privsyn.base.settings import Settings
from privsyn.data_contracts.release_spec import ReleaseSpec
from privsyn.storage.records import write_json
from privsyn.storage.released_root import make_private_root

Places: TypeAlias = str | Path | Mapping[str, str | Path]
"""The place of a table; for several tables, each by its name."""

FOLDER = "checks"
"""The folder of these records under the private root."""

State = Literal["checked", "changed", "not noted"]
"""The state of a table: checked with this spec; checked before the spec or the table changed; or without a record."""


def note_checked(spec: ReleaseSpec, data: Places, settings: Settings) -> None:
    """Record that the table at ``data`` was checked with the spec; nothing is recorded if no file can be written."""
    with suppress(OSError, PrivsynError):
        path = _locate_record(spec, data, settings)
        make_private_root(settings.private_root)
        path.parent.mkdir(mode=0o700, exist_ok=True)
        write_json(path, _describe(spec, data))


def find_state(spec: ReleaseSpec, settings: Settings) -> State:
    """Return whether the spec's table was checked with it, by the private root's records."""
    data: Places = {name: table.data for name, table in spec.tables.items()} if spec.tables else spec.data
    with suppress(OSError, ValueError, PrivsynError):
        path = _locate_record(spec, data, settings)
        if path.exists():
            return "checked" if json.loads(path.read_text(encoding="utf-8")) == _describe(spec, data) else "changed"
    return "not noted"


def _locate_record(spec: ReleaseSpec, data: Places, settings: Settings) -> Path:
    """Return the record's file, for a data set and the places of its tables."""
    places = json.dumps([spec.dataset, _list_places(data)])
    return settings.private_root / FOLDER / f"{hashlib.sha256(places.encode()).hexdigest()[:32]}.json"


def _list_places(data: Places) -> list[str]:
    """Return the place of each table, with absolute paths."""
    places = [place for _, place in sorted(data.items())] if isinstance(data, Mapping) else [data]
    return [str(place) if "://" in str(place) else str(Path(place).absolute()) for place in places]


def _describe(spec: ReleaseSpec, data: Places) -> dict[str, Any]:
    """Return the record's content: digests of the spec's part on the table, and of sizes and times of its files."""
    said = spec.model_dump(mode="json", include={"columns", "unit", "rules", "csv", "null_values", "tables"})
    stamps = [stamp for place in _list_places(data) for stamp in _list_stamps(place)]
    return {"spec": _hash(said), "files": _hash(stamps)}


def _list_stamps(place: str) -> list[Any]:
    """Return name, size and time of a place's files; empty if it has no local file, such as a database's table."""
    if "://" in place:
        return []
    path = Path(place)
    files = sorted(path.iterdir()) if path.is_dir() else [path]
    return [[file.name, file.stat().st_size, file.stat().st_mtime_ns] for file in files if file.exists()]


def _hash(content: Any) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True, default=str).encode()).hexdigest()
