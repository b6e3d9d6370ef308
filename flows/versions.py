"""Which versions made a release: those of the run that made its tables, whenever its folder is written.

Belongs here: the packages that are named, and remembering their versions.  Does not belong here: the manifest that
shows them (flows/publish.py), comparing them with those here (flows/operations/rerun.py).
"""

from __future__ import annotations

import platform
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path

from flows.formats.described import files_in
from flows.storage.record_kinds import VersionsRecord
from flows.storage.records import Records
from flows.storage.released_files import manifest_if_readable

PACKAGES = (
    "privsyn-flows",
    "prefect",
    "great-expectations",
    "pandas",
    "pyarrow",
    "numpy",
    "numba",
    "networkx",
    "opendp",
)


def versions() -> dict[str, str]:
    """What is installed here: version by package."""
    return {"python": platform.python_version(), **{p: version(p) for p in PACKAGES}}


def made_by(records: Records, building: Path, published: Path) -> dict[str, str]:
    """The versions that made the files in the folder ``building``, by package.

    Those here, unless the same bytes were made before for the folder ``published``: then those of that time, from the
    private record or, where there is none, from that folder's manifest.
    """
    made, record = {name: file.sha256 for name, file in files_in(building).items()}, f"versions-{published.name}"
    kept = records.load_as(record, VersionsRecord)
    if kept is None or kept.files != made:
        by = _of_manifest(published, made) or versions()
        kept = VersionsRecord(files=made, versions=list(by.items()))  # in their order: records sort names
        records.save(record, kept.model_dump(mode="json"))
    return dict(kept.versions)


def _of_manifest(folder: Path, made: Mapping[str, str]) -> dict[str, str] | None:
    """The versions of a released folder whose manifest names these files; None where there is none that does."""
    manifest = manifest_if_readable(folder)
    if manifest is None or not made.items() <= {(name, file.sha256) for name, file in manifest.files.items()}:
        return None
    return dict(manifest.versions)
