"""The versions of packages that made a release's tables, kept when its folder is written again."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from functools import cache
from importlib.metadata import version
from pathlib import Path

from privsyn.publish.formats.described import list_files
from privsyn.storage.record_kinds import VersionsRecord
from privsyn.storage.records import Records
from privsyn.storage.released_files import read_manifest_if_readable

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


@cache
def list_versions() -> Mapping[str, str]:
    """Return package -> installed version."""
    return {"python": platform.python_version(), **{p: version(p) for p in PACKAGES}}


def list_file_versions(records: Records, building: Path, published: Path) -> dict[str, str]:
    """Return package -> version that made the files in the folder ``building``.

    The versions are the installed versions, unless the same bytes were already published in ``published``.  In that
    case they are the earlier versions, from the private record or, without a record, from that folder's manifest.
    """
    hashes, name = {name: file.sha256 for name, file in list_files(building).items()}, f"versions-{published.name}"
    record = records.load_as(name, VersionsRecord)
    if record is None or record.files != hashes:
        packages = _read_manifest_versions(published, hashes) or list_versions()
        record = VersionsRecord(files=hashes, versions=list(packages.items()))  # in their order: records sort names
        records.save(name, record.model_dump(mode="json"))
    return dict(record.versions)


def _read_manifest_versions(folder: Path, hashes: Mapping[str, str]) -> dict[str, str] | None:
    """Return the versions of a released folder; None unless its manifest has all these files with these hashes."""
    manifest = read_manifest_if_readable(folder)
    if manifest is None or not hashes.items() <= {(name, file.sha256) for name, file in manifest.files.items()}:
        return None
    return dict(manifest.versions)
