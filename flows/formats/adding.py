"""Another format for a release that is there: no noise, no cost, no look at anything private.

Belongs here: the released folder made anew from its own files.  Does not belong here: the formats themselves.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from data_contracts.certificate import Certificate, Manifest
from data_contracts.publication import Format, checked_formats
from data_contracts.spec import ReleaseSpec
from flows.errors import RequestError
from flows.formats.described import files_in
from flows.formats.writing import write_descriptions, write_tables
from flows.note import release_note
from flows.publish import added_formats, is_whole
from flows.settings import Settings
from flows.step import Request
from flows.storage.records import Records
from flows.storage.released_files import public_spec, read_certificate, read_manifest, release_folder
from flows.storage.store import SAFE_NAME, Store

FIELD = "RELEASE"


@dataclass(frozen=True)
class Added:
    """The folder, and the names of the files that it did not have before; none where all was there."""

    folder: Path
    files: tuple[str, ...]


def add_formats(release: str, formats: Sequence[Format], settings: Settings) -> Added:
    """Write the run's released folder anew, with these formats too; it appears whole or stays as it was.

    The tables are copied byte for byte; note, descriptions and manifest are made from the manifest's own request and
    the certificate, which stays as it is.  The private zone remembers the formats, so that the release keeps them when
    it runs again, whatever its spec says.  Raises RequestError for what is no whole release of this released folder.
    """
    folder = _folder(release, settings)
    dataset = public_spec(read_manifest(folder), FIELD).dataset
    store = Store(settings.private_root, settings.released_root, dataset)
    with store.lock(f"release-{dataset}"):
        manifest, certificate = read_manifest(folder), read_certificate(folder)  # a run may have just written them
        if folder.name != manifest.run or not is_whole(folder):
            raise _damaged(folder)
        known = public_spec(manifest, FIELD)
        spec = known.model_copy(update={"formats": checked_formats((*known.formats, *formats))})
        if spec.formats != known.formats:
            store.publish(manifest.run, lambda new: _build(new, folder, manifest, certificate, spec), replace=True)
        added_formats(Records(settings.private_root, dataset), manifest.run, formats)
        return Added(folder, tuple(sorted(set(files_in(folder)) - set(manifest.files))))


def _folder(release: str, settings: Settings) -> Path:
    """The run's folder in the released root, whose private folder is there too."""
    folder = release_folder(release, settings, FIELD)
    if folder != settings.released_root / folder.name or not SAFE_NAME.fullmatch(folder.name):
        raise RequestError(
            f"there is no release {release!r} in {settings.released_root}",
            "Name a run of this output folder, or another folder with --out",
            FIELD,
        )
    if not settings.private_root.is_dir():
        raise RequestError(
            f"the private folder {settings.private_root} is not there",
            "Add formats where the release was made: its private folder holds the locks",
            FIELD,
        )
    return folder


def _damaged(folder: Path) -> RequestError:
    problem = f"{folder} is not a whole release: files are missing, changed or added"
    return RequestError(problem, "Run the release again, which puts them right", FIELD)


def _build(new: Path, old: Path, manifest: Manifest, certificate: Certificate, spec: ReleaseSpec) -> None:
    for name in manifest.files:
        if name.endswith(".parquet") or name == "certificate.json":
            (new / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(old / name, new / name)
    order = tuple(manifest.column_order)
    write_tables(new, spec, order)
    note = release_note(Request(spec, order, lambda: ()), certificate, manifest.rows, private=True)
    (new / "README.md").write_text(note, encoding="utf-8")
    write_descriptions(new, spec, certificate, order, manifest.rows, manifest.versions)
    asked = {**manifest.spec, "formats": list(spec.formats)}
    made = manifest.model_copy(update={"spec": asked, "files": files_in(new)})
    (new / "manifest.json").write_text(made.model_dump_json(indent=2) + "\n", encoding="utf-8")
