"""Another format for a release that is there: no noise, no cost, no look at anything private."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow.parquet as pq

from privsyn.base.errors import RequestError
from privsyn.base.paths import SAFE_NAME
from privsyn.base.settings import Settings
from privsyn.base.wording import mention
from privsyn.data_contracts.certificate import Certificate, Manifest
from privsyn.data_contracts.publication import Format, check_known_formats
from privsyn.data_contracts.release_spec import ReleaseSpec
from privsyn.engine.policy_checks import check_formats
from privsyn.pipelines.release_plan import plan_release
from privsyn.publish.folder import copy_to_store, is_whole, read_added_formats
from privsyn.publish.formats.described import list_files
from privsyn.publish.formats.writing import write_descriptions, write_note, write_tables
from privsyn.publish.related_pairs import find_column_codes, list_related_pairs, list_score_steps, list_unmeasured_pairs
from privsyn.publish.release_note import release_note
from privsyn.storage.records import Records
from privsyn.storage.released_files import read_certificate, read_manifest, read_public_spec, release_folder
from privsyn.storage.store import Store
from privsyn.tasks.estimation.recode import recode_from_table

FIELD = "add_formats.release"


@dataclass(frozen=True)
class AddedFormats:
    """The folder, and the names of the files that it did not have before; none where all was there."""

    folder: Path
    files: tuple[str, ...]


def add_formats(release: str, formats: Sequence[Format], settings: Settings) -> AddedFormats:
    """Write the run's released folder anew, with these formats too; it appears whole or stays as it was.

    The tables are copied byte for byte; note, descriptions and manifest are made from the manifest's own request and
    the certificate, which stays as it is.  The private zone remembers the formats, so that the release keeps them when
    it runs again, whatever its spec says.  Raises RequestError unless ``release`` is a whole release of this output
    folder.
    """
    folder = _locate_folder(release, settings)
    dataset = read_public_spec(read_manifest(folder), FIELD).dataset
    check_formats(dataset, formats, settings)
    store = Store(settings.private_root, settings.released_root, dataset, settings.released_store)
    with store.lock(f"release-{dataset}"):
        manifest, certificate = read_manifest(folder), read_certificate(folder)  # a run may have just written them
        if folder.name != manifest.run or not is_whole(folder):
            raise _make_damage_error(folder)
        known = read_public_spec(manifest, FIELD)
        spec = known.model_copy(update={"formats": check_known_formats((*known.formats, *formats))})
        if spec.formats != known.formats:
            store.released.publish(
                manifest.run, lambda new: _build(new, folder, manifest, certificate, spec), replace=True
            )
        read_added_formats(Records(settings.private_root, dataset), manifest.run, formats)
        copy_to_store(folder, store)
        return AddedFormats(folder, tuple(sorted(set(list_files(folder)) - set(manifest.files))))


def _locate_folder(release: str, settings: Settings) -> Path:
    """Return the run's folder in the released root, whose private folder is there too."""
    folder = release_folder(release, settings, FIELD)
    if folder != settings.released_root / folder.name or not SAFE_NAME.fullmatch(folder.name):
        raise RequestError(
            f"there is no release {release!r} in {settings.released_root}",
            "Name a run of this output folder, or another folder with " + mention("settings.out"),
            FIELD,
        )
    if not settings.private_root.is_dir():
        raise RequestError(
            f"the private folder {settings.private_root} is not there",
            "Add formats where the release was made: its private folder holds the locks",
            FIELD,
        )
    return folder


def _make_damage_error(folder: Path) -> RequestError:
    problem = f"{folder} is not a whole release: files are missing, changed or added"
    return RequestError(problem, "Run the release again, which puts them right", FIELD)


def _build(new: Path, old: Path, manifest: Manifest, certificate: Certificate, spec: ReleaseSpec) -> None:
    for name in manifest.files:
        if name.endswith(".parquet") or name == "certificate.json":
            (new / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(old / name, new / name)
    plan = plan_release(spec, column_order=tuple(manifest.column_order))
    write_tables(new, plan.request)
    released = new / "marginals" / "recode.parquet"
    recode = recode_from_table(pq.read_table(released)) if released.exists() else {}  # 0.2.0 did not release it
    codes = find_column_codes(recode, plan.request.encoding.codecs)
    consistent = pq.read_table(new / "marginals" / "consistent.parquet")
    pairs = list_related_pairs(consistent, codes)
    names = [{table: new / file.name for table, file in s.published.items()} for s in list_score_steps(plan.steps)]
    scores = [files for files in names if all(file.exists() for file in files.values())]  # nor these
    receipts, noisy = ([pq.read_table(files[table]) for files in scores] for table in ("receipts", "noisy"))
    unmeasured = list_unmeasured_pairs(receipts, noisy, consistent, pairs, codes, recode, plan.request.records)
    write_note(new, release_note(plan, certificate, manifest.rows, pairs, unmeasured, private=True), pairs)
    write_descriptions(new, plan, certificate, manifest.rows, manifest.versions)
    asked = spec.public()
    made = manifest.model_copy(update={"spec": asked, "files": list_files(new)})
    (new / "manifest.json").write_text(made.model_dump_json(indent=2) + "\n", encoding="utf-8")
