"""Reading what a release says of itself: its manifest and certificate, of a version that this program knows.

Belongs here: finding a release's folder, the one reader of both files, and the refusals.  Does not belong here: their
models (data_contracts/certificate.py), writing them (flows/publish.py).
"""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path
from typing import TypeVar

from pydantic import ValidationError

from data_contracts.certificate import Certificate, Manifest
from data_contracts.spec import ReleaseSpec
from flows.errors import RequestError
from flows.paths import expanded
from flows.settings import Settings
from flows.storage.store import safe_name


class VersionError(RequestError):
    """A file of a release is of a version that this program does not know."""


_Model = TypeVar("_Model", Certificate, Manifest)

SYNTHETIC = "synthetic.parquet"
"""The synthetic table in a released folder; one in parts is ``synthetic/part-00000.parquet`` .. instead."""

_PART = re.compile(r"synthetic/part-[0-9]+\.parquet")


def synthetic_names(manifest: Manifest) -> tuple[str, ...]:
    """The files of the synthetic table in a released folder, in order; empty where the folder holds none."""
    parts = sorted(name for name in manifest.files if _PART.fullmatch(name))
    return (SYNTHETIC,) if SYNTHETIC in manifest.files else tuple(parts)


def synthetic_digest(manifest: Manifest) -> str:
    """SHA-256 (hex) of the synthetic table as the manifest states it: its file's, or one over those of its parts."""
    digests = [manifest.files[name].sha256 for name in synthetic_names(manifest)]
    return digests[0] if len(digests) == 1 else hashlib.sha256("\n".join(digests).encode()).hexdigest()


def release_folder(release: str, settings: Settings, field: str) -> Path:
    """A release's folder, by its run's name in the released root or by its path; RequestError where there is none."""
    path = expanded(release, field)
    for folder in (settings.released_root / path, path):
        if (folder / "manifest.json").is_file():
            return folder.absolute()
    raise RequestError(
        f"there is no release {release!r} here: no folder with a manifest.json, and no run of that name in "
        f"{settings.released_root}",
        "Name the folder of a release, or a run of the output folder (--out)",
        field,
    )


def public_spec(manifest: Manifest, field: str) -> ReleaseSpec:
    """The request of a release, as public as its manifest: where the private table lies is not known.

    RequestError for figures of another release, for test noise, and for a request of another version.
    """
    safe_name(manifest.run, field)
    if not synthetic_names(manifest):
        problem = f"{manifest.run} holds figures of another release, not a synthetic table"
        raise RequestError(problem, "Name the release itself", field)
    if not manifest.differentially_private:
        raise RequestError(f"{manifest.run} was made with test noise", "Name a release", field)
    try:
        return ReleaseSpec.model_validate({**manifest.spec, "data": "not-known"})
    except ValidationError:
        problem = f"the manifest of {manifest.run} was written by another version of this program"
        cure = f"Use the version that it names: privsyn-flows {manifest.versions.get('privsyn-flows', '?')}"
        raise RequestError(problem, cure, field) from None


def read_manifest(folder: Path) -> Manifest:
    """``folder``'s manifest.json; RequestError where it cannot be read, is none, or is of an unknown version."""
    return _read(Manifest, folder / "manifest.json")


def manifest_if_readable(folder: Path) -> Manifest | None:
    """``folder``'s manifest.json; None where :func:`read_manifest` would refuse."""
    try:
        return read_manifest(folder)
    except RequestError:
        return None


def read_certificate(folder: Path) -> Certificate:
    """``folder``'s certificate.json; RequestError where it cannot be read, is none, or is of an unknown version."""
    return _read(Certificate, folder / "certificate.json")


def _read(model: type[_Model], path: Path) -> _Model:
    kind, known = model.__name__.lower(), model.model_fields["schema_version"].default
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        raise RequestError(f"there is no readable {kind} in {path.parent}", "Name the folder of a release") from None
    version = content.get("schema_version") if isinstance(content, dict) else None
    if isinstance(version, int) and version != known:
        problem = f"{path} has schema version {version}, and this program knows {known}"
        raise VersionError(problem, "Use the version of privsyn-flows that wrote it", "RELEASE")
    try:
        return model.model_validate(content)
    except ValidationError:
        raise RequestError(f"{path} is no {kind} of a release", "Run the release again, which puts it right") from None
