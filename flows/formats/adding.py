"""Another format for a release that is there: no noise, no cost, no look at anything private.

Belongs here: the released folder made anew from its own files.  Does not belong here: the formats themselves.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from data_contracts.certificate import Certificate, Manifest
from data_contracts.publication import Format, checked_formats
from data_contracts.spec import ReleaseSpec
from flows.errors import RequestError
from flows.formats.described import files_in
from flows.formats.writing import write_descriptions, write_tables
from flows.note import release_note
from flows.publish import is_whole
from flows.released_files import read_certificate, read_manifest
from flows.settings import Settings
from flows.step import Request
from flows.store import SAFE_NAME, Store

FIELD = "RELEASE"


@dataclass(frozen=True)
class Added:
    """The folder, and the names of the files that it did not have before; none where all was there."""

    folder: Path
    files: tuple[str, ...]


def add_formats(release: str, formats: Sequence[Format], settings: Settings) -> Added:
    """Write the run's released folder anew, with these formats too; it appears whole or stays as it was.

    The tables are copied byte for byte; note, descriptions and manifest are made from the manifest's own request and
    the certificate, which stays as it is.  Raises RequestError for what is no whole release of this released folder.
    """
    folder = _folder(release, settings)
    manifest, certificate = read_manifest(folder), read_certificate(folder)
    _check(folder, manifest, settings)
    spec = _spec(manifest, formats)
    asked = {**manifest.spec, "formats": list(spec.formats)}
    if asked == manifest.spec:
        return Added(folder, ())
    store = Store(settings.private_root, settings.released_root, spec.dataset)
    with store.lock(f"release-{spec.dataset}"):
        if not is_whole(folder):
            raise _damaged(folder)
        store.publish(manifest.run, lambda new: _build(new, folder, manifest, certificate, spec, asked), replace=True)
    return Added(folder, tuple(sorted(set(files_in(folder)) - set(manifest.files))))


def _folder(release: str, settings: Settings) -> Path:
    """The run's folder in the released root, by the run's name or by its path."""
    path = Path(release).expanduser()
    folder = settings.released_root / path.name
    here = path.name == release or path.absolute() == folder
    if not SAFE_NAME.fullmatch(path.name) or not here or not folder.is_dir():
        raise RequestError(
            f"there is no release {release!r} in {settings.released_root}",
            "Name a run of this output folder, or another folder with --out",
            FIELD,
        )
    return folder


def _check(folder: Path, manifest: Manifest, settings: Settings) -> None:
    if not any(name.startswith("synthetic") for name in manifest.files):
        problem = f"{manifest.run} holds figures of another release, not a synthetic table"
        raise RequestError(problem, "Name the release itself", FIELD)
    if not manifest.differentially_private or folder.name != manifest.run or not is_whole(folder):
        raise _damaged(folder)
    if not settings.private_root.is_dir():
        raise RequestError(
            f"the private folder {settings.private_root} is not there",
            "Add formats where the release was made: its private folder holds the locks",
            FIELD,
        )


def _damaged(folder: Path) -> RequestError:
    problem = f"{folder} is not a whole release: files are missing, changed or added"
    return RequestError(problem, "Run the release again, which puts them right", FIELD)


def _spec(manifest: Manifest, formats: Sequence[Format]) -> ReleaseSpec:
    """The manifest's request with these formats too; the private table's path is none of a manifest's business."""
    try:
        spec = ReleaseSpec.model_validate({**manifest.spec, "data": "not-known"})
    except ValidationError:
        problem = f"the manifest of {manifest.run} was written by another version of this program"
        raise RequestError(problem, "Use the version that it names, or release again", FIELD) from None
    return spec.model_copy(update={"formats": checked_formats((*spec.formats, *formats))})


def _build(
    new: Path, old: Path, manifest: Manifest, certificate: Certificate, spec: ReleaseSpec, asked: dict[str, object]
) -> None:
    for name in manifest.files:
        if name.endswith(".parquet") or name == "certificate.json":
            (new / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(old / name, new / name)
    order = tuple(manifest.column_order)
    write_tables(new, spec, order)
    note = release_note(Request(spec, order, lambda: ()), certificate, manifest.rows, private=True)
    (new / "README.md").write_text(note, encoding="utf-8")
    write_descriptions(new, spec, certificate, order, manifest.rows, manifest.versions)
    made = manifest.model_copy(update={"spec": asked, "files": files_in(new)})
    (new / "manifest.json").write_text(made.model_dump_json(indent=2) + "\n", encoding="utf-8")
