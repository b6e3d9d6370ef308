"""Publishing: the released folder with its tables, certificate, manifest and data-release note.

The folder depends only on the public request, the noisy tables and the ledger's public figures.  It has no path, time,
machine or exact count, and the same run always gives the same bytes.  Formats can be added to an existing folder: no
noise, no cost, no look at anything private.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import BaseModel, ConfigDict

from privsyn.base.errors import RequestError
from privsyn.base.places import SAFE_NAME
from privsyn.base.settings import Settings
from privsyn.base.wording import mention
from privsyn.data_contracts.certificate import Certificate, Manifest
from privsyn.data_contracts.publication import Format, check_known_formats
from privsyn.data_contracts.release_spec import ReleaseSpec
from privsyn.engine.execute import Run
from privsyn.engine.plan import Plan
from privsyn.engine.policy_checks import check_formats
from privsyn.engine.request import Request
from privsyn.engine.step import list_published_files
from privsyn.engine.step_tables import StepRefs
from privsyn.pipelines.registry import plan_release
from privsyn.pipelines.table_pairs import name_step
from privsyn.publish.certificate_of_run import build_certificate, list_file_versions
from privsyn.publish.formats import deployments_registry, metadata
from privsyn.publish.formats.tables import (
    DescribedRelease,
    choose_style,
    get_published_spec,
    list_files,
    list_linked_ranges,
    list_ranges,
    name_csv,
    name_linked_file,
    write_csv,
    write_linked_files,
)
from privsyn.publish.release_note import NAME as PICTURE
from privsyn.publish.release_note import (
    RelatedPair,
    ScoredPair,
    draw_picture,
    find_column_codes,
    list_related_pairs,
    list_score_steps,
    list_unmeasured_pairs,
    release_note,
)
from privsyn.storage.records import FormatsRecord, Records, write_json
from privsyn.storage.released_files import (
    CUTS_FILE,
    find_release,
    read_certificate,
    read_manifest,
    read_manifest_if_readable,
    read_public_spec,
    request_of,
)
from privsyn.storage.store import Store
from privsyn.storage.stores import find_store
from privsyn.tasks.estimation.recode import recode_from_table
from privsyn.tasks.estimation.rungs import read_cuts

REPAIRS = "repairs.json"
"""File of repair counts in a run's private folder."""


class ReleaseSummary(BaseModel):
    """The result of a run for people: its name, folders, size and cost.  It holds no private value."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    run: str
    released: str
    private: str
    rows: int
    epsilon: float
    delta: float
    rho: float
    drawn: tuple[str, ...]


@dataclass(frozen=True, repr=False)
class RepairCounts:
    """PRIVATE: number of rows (0: not known), and (column, repair) -> number of values repaired."""

    rows: int
    counts: Mapping[tuple[str, str], int]


@dataclass(frozen=True)
class Published:
    """A released folder and its facts for the run page."""

    folder: Path
    rows: int
    note: str
    pairs: Sequence[RelatedPair] = ()


def publish(run: Run, refs: Mapping[str, StepRefs]) -> Published:
    """Write ``released/<run>/`` atomically unless it is already whole; write repair counts to the private folder.

    If the release source did not draw the run's noise, the release is marked not private and stays in the private zone.
    """
    run = _add_formats(run)
    certificate = build_certificate(run, refs)
    table = refs["decode"].tables["synthetic"]
    rows = run.store.stored(table).num_rows
    listed = pairs, unmeasured = _list_pairs(run, refs)
    note = release_note(run.plan, certificate, rows, pairs, unmeasured, private=run.noise.private)
    _publish_private(run, refs)

    def build(folder: Path) -> None:
        versions = partial(list_file_versions, run.records, folder, run.released_folder)
        fill(folder, run, refs, certificate, versions, listed)

    return Published(locate_folder(run, build), rows, note, pairs)


def _list_pairs(run: Run, refs: Mapping[str, StepRefs]) -> tuple[list[RelatedPair], list[ScoredPair]]:
    """Return the measured pairs of columns, and the pairs that were only scored, from the run's released tables."""

    def read(step: str, table: str) -> pa.Table:
        return run.store.read_table(refs[step].tables[table])

    consistent, recode = read("make_consistent", "marginals"), recode_from_table(read("compress_domain", "recode"))
    codes = find_column_codes(recode, run.cut_request(refs).encoding.codecs)
    pairs = list_related_pairs(consistent, codes)
    scored = [step.name for step in list_score_steps(run.steps)]
    receipts, noisy = ([read(step, table) for step in scored] for table in ("receipts", "noisy"))
    return pairs, list_unmeasured_pairs(receipts, noisy, consistent, pairs, codes, recode, run.request.records)


def _add_formats(run: Run) -> Run:
    """Return the run with the formats that ``privsyn formats`` added to its release."""
    spec = run.request.spec
    formats = check_known_formats((*spec.formats, *read_added_formats(run.records, run.name)))
    if formats == tuple(spec.formats):
        return run
    request = replace(run.request, spec=spec.with_formats(formats))
    return replace(run, plan=replace(run.plan, request=request))


def read_added_formats(records: Records, run: str, more: Sequence[Format] = ()) -> tuple[Format, ...]:
    """Return the formats that were added to a run's release beyond its spec.

    ``more``: further formats, which are stored with them.
    """
    record = f"formats-{run}"
    earlier = records.load_as(record, FormatsRecord) or FormatsRecord(formats=[])
    formats = tuple(dict.fromkeys((*earlier.formats, *more)))
    if more:
        records.save(record, {"formats": list(formats)})
    return formats


def fill(
    folder: Path,
    run: Run,
    refs: Mapping[str, StepRefs],
    certificate: Certificate,
    versions: Callable[[], Mapping[str, str]],
    listed: tuple[list[RelatedPair], list[ScoredPair]] | None = None,
) -> None:
    """Write every file of a release into ``folder``, from the run's released tables and the arguments only.

    ``versions``: returns package -> version that made the tables, called after they are written; ``listed``: the pairs
    of the note (None: list them here).
    """
    table = refs["decode"].tables["synthetic"]
    rows, private = run.store.stored(table).num_rows, run.noise.private
    run.store.add_released(table, folder, "synthetic.parquet")
    for name, source in list_published_files(run.steps).items():
        step, output = source.split(".")
        run.store.add_released(refs[step].tables[output], folder, name)
    packages = versions()
    if run.request.spec.tables:
        without = run.store.read_batches(refs["make_without_rows"].tables["without_rows"])
        names = {name: name_step(name, "decode") for name in run.request.spec.further_tables}
        further = {name: run.store.read_batches(refs[step].tables["synthetic"]) for name, step in names.items()}
        write_linked_files(folder, run.request, write_synthetic_files(folder), without, further)
    write_tables(folder, run.request)
    (folder / "certificate.json").write_text(certificate.model_dump_json(indent=2) + "\n", encoding="utf-8")
    pairs, unmeasured = listed or _list_pairs(run, refs)
    write_note(folder, release_note(run.plan, certificate, rows, pairs, unmeasured, private=private), pairs)
    if private:
        write_descriptions(folder, run.plan, certificate, rows, packages)
    write_manifest(run, folder, rows, packages)


def locate_folder(run: Run, build: Callable[[Path], None]) -> Path:
    """Return the run's released folder, filled atomically by ``build`` unless it is already whole.

    If the release source did not draw the noise, the folder is ``not-private`` in the private zone.
    """
    if run.noise.private:
        folder = run.released_folder
        run.store.released.recover(run.name)
        if not is_whole(folder) or not _matches_request(folder, run.request):
            folder = run.store.released.publish(run.name, build, replace=True)
        copy_to_store(folder, run.store)
    else:
        folder = run.private_folder / "not-private"
        folder.mkdir(exist_ok=True)
        build(folder)
    return folder


def copy_to_store(folder: Path, store: Store) -> None:
    """Copy a released folder into the settings' object store, if any; an existing copy is kept.

    Raises PrivsynError if that fails; the local folder is whole, and the same request tries again.
    """
    if store.released_store:
        place, field = store.released_store, "settings.released_store"
        find_store(place, field).copy_released(folder, place, field)


def summarize(run: Run, published: Published) -> ReleaseSummary:
    """Return the summary for the command line and the flow."""
    request = run.request
    return ReleaseSummary(
        run=run.name,
        released=str(published.folder),
        private=str(run.private_folder),
        rows=published.rows,
        epsilon=request.spec.privacy.epsilon,
        delta=request.spec.privacy.delta,
        rho=float(request.rounds[-1]),
        drawn=tuple(run.drawn),
    )


def read_summary(run: str, settings: Settings) -> ReleaseSummary | None:
    """Return the summary of a published run from its released folder; None if there is no such folder."""
    folder = settings.released_root / run
    try:
        manifest, certificate = read_manifest(folder), read_certificate(folder)
    except RequestError:
        return None
    return ReleaseSummary(
        run=run,
        released=str(folder),
        private=str(settings.private_root / "runs" / run),
        rows=manifest.rows,
        epsilon=certificate.epsilon,
        delta=certificate.delta,
        rho=float(Fraction(certificate.rho_budget)),
        drawn=(),
    )


def is_whole(folder: Path) -> bool:
    """Return whether a released folder has exactly the files of its manifest, unchanged, and no links."""
    manifest = read_manifest_if_readable(folder)
    links = folder.is_symlink() or any(path.is_symlink() for path in folder.rglob("*"))
    return manifest is not None and not links and manifest.files == list_files(folder)


def _matches_request(folder: Path, request: Request) -> bool:
    """Return whether a folder's manifest has the request's public spec; formats and descriptions may differ."""
    manifest = read_manifest_if_readable(folder)
    try:
        return manifest is not None and request_of(manifest).public() == request.spec.public()
    except RequestError:
        return False


def _publish_private(run: Run, refs: Mapping[str, StepRefs]) -> None:
    """Write repair counts as JSON beside run.json; the encoded rows stay in the private store."""
    encoded, place = refs["encode"].tables, run.private_folder / REPAIRS
    table = run.store.read_table(encoded["repairs"])
    where = {name: ref.path for r in refs.values() for name, ref in r.tables.items() if ref.zone == "private"}
    if Path(encoded["encoded_rows"].path).exists():
        rows = run.store.stored(encoded["encoded_rows"]).num_rows
    else:
        rows = count_repairs(run.private_folder).rows  # pruned: keep the earlier count
    steps = {name: name_step(name, "encode") for name in run.request.spec.further_tables}
    further = {n: run.store.read_table(refs[step].tables["repairs"]).to_pylist() for n, step in steps.items()}
    content = {"rows": rows, "repairs": table.to_pylist(), "tables": where}
    write_json(place, {**content, **({"further": further} if further else {})})


def count_repairs(private_folder: Path) -> RepairCounts:
    """Return the repair counts from a run's private folder; empty if the file is missing.  PRIVATE."""
    try:
        content = json.loads((private_folder / REPAIRS).read_text(encoding="utf-8"))
        counts = {(str(r["column"]), str(r["repair"])): int(r["rows"]) for r in content["repairs"]}
        return RepairCounts(int(content.get("rows", 0)), counts)
    except (OSError, ValueError, KeyError, TypeError):
        return RepairCounts(0, {})


def write_manifest(
    run: Run, folder: Path, rows: int, versions: Mapping[str, str], public_request: Mapping[str, Any] | None = None
) -> None:
    """Write ``manifest.json`` for all files in the folder.

    ``rows``: number of rows of the synthetic table; ``versions``: package -> version that made the tables;
    ``public_request``: a request that is not a release spec, such as itemsets, without columns and seed.
    """
    manifest = Manifest(
        run=run.name,
        differentially_private=run.noise.private,
        rows=rows,
        spec=run.request.spec.public() if public_request is None else dict(public_request),
        column_order=list(run.request.column_order) if public_request is None else [],
        seeds={"synthesis": run.request.spec.mechanism.synthesis.seed} if public_request is None else {},
        versions=dict(versions),
        steps=[{"step": s.name, "kind": str(s.kind), "version": s.version} for s in run.steps],
        files=list_files(folder),
    )
    (folder / "manifest.json").write_text(manifest.model_dump_json(indent=2) + "\n", encoding="utf-8")


ADD_FIELD = "add_formats.release"


@dataclass(frozen=True)
class AddedFormats:
    """The folder, and the names of its new files."""

    folder: Path
    files: tuple[str, ...]


def add_formats(release: str, formats: Sequence[Format], settings: Settings) -> AddedFormats:
    """Write the run's released folder again with these formats added, atomically.

    Tables and certificate are copied byte for byte; note, descriptions and manifest are made from the manifest's
    request and the certificate.  The private zone stores the formats, so that the release keeps them when it runs
    again.  Raises RequestError unless ``release`` is a whole release of this output folder.
    """
    folder = _locate_folder(release, settings)
    dataset = read_public_spec(read_manifest(folder), ADD_FIELD).dataset
    check_formats(dataset, formats, settings)
    store = Store(settings.private_root, settings.released_root, dataset, settings.released_store)
    with store.lock(f"release-{dataset}"):
        manifest, certificate = read_manifest(folder), read_certificate(folder)  # a run may have just written them
        if folder.name != manifest.run or not is_whole(folder):
            problem = f"{folder} is not a whole release: files are missing, changed or added"
            raise RequestError(problem, "Run the release again, which puts them right", ADD_FIELD)
        public_spec = read_public_spec(manifest, ADD_FIELD)
        spec = public_spec.with_formats(check_known_formats((*public_spec.formats, *formats)))
        if spec.formats != public_spec.formats:
            store.released.publish(
                manifest.run, lambda new: _build(new, folder, manifest, certificate, spec), replace=True
            )
        read_added_formats(Records(settings.private_root, dataset), manifest.run, formats)
        copy_to_store(folder, store)
        return AddedFormats(folder, tuple(sorted(set(list_files(folder)) - set(manifest.files))))


def _locate_folder(release: str, settings: Settings) -> Path:
    """Return the run's folder in the released root.  Raises RequestError if it or the private root is missing."""
    folder = find_release(release, settings, ADD_FIELD)
    if folder != settings.released_root / folder.name or not SAFE_NAME.fullmatch(folder.name):
        raise RequestError(
            f"there is no release {release!r} in {settings.released_root}",
            "Name a run of this output folder, or another folder with " + mention("settings.out"),
            ADD_FIELD,
        )
    if not settings.private_root.is_dir():
        raise RequestError(
            f"the private folder {settings.private_root} is not there",
            "Add formats where the release was made: its private folder holds the locks",
            ADD_FIELD,
        )
    return folder


def _build(new: Path, old: Path, manifest: Manifest, certificate: Certificate, spec: ReleaseSpec) -> None:
    for name in manifest.files:
        if name.endswith(".parquet") or name == "certificate.json":
            (new / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(old / name, new / name)
    plan = plan_release(spec, column_order=tuple(manifest.column_order))
    write_tables(new, plan.request)
    released = new / "marginals" / "recode.parquet"
    recode = recode_from_table(pq.read_table(released)) if released.exists() else {}  # not released by 0.2.0
    cut = new / CUTS_FILE
    request = plan.request.cut_cells(read_cuts(pq.read_table(cut))) if cut.exists() else plan.request
    codes = find_column_codes(recode, request.encoding.codecs)
    consistent = pq.read_table(new / "marginals" / "consistent.parquet")
    pairs = list_related_pairs(consistent, codes)
    names = [{table: new / file.name for table, file in s.published.items()} for s in list_score_steps(plan.steps)]
    scores = [files for files in names if all(file.exists() for file in files.values())]  # not released by 0.2.0
    receipts, noisy = ([pq.read_table(files[table]) for files in scores] for table in ("receipts", "noisy"))
    unmeasured = list_unmeasured_pairs(receipts, noisy, consistent, pairs, codes, recode, plan.request.records)
    write_note(new, release_note(plan, certificate, manifest.rows, pairs, unmeasured, private=True), pairs)
    write_descriptions(new, plan, certificate, manifest.rows, manifest.versions)
    new_manifest = Manifest(**{**dict(manifest), "spec": spec.public(), "files": list_files(new)})
    (new / "manifest.json").write_text(new_manifest.model_dump_json(indent=2) + "\n", encoding="utf-8")


DESCRIPTIONS = frozenset(
    {"README.md", PICTURE, metadata.SCHEMA, metadata.DATA_PACKAGE, metadata.CROISSANT, deployments_registry.NAME}
)
"""The files that only describe a release; later versions may word them differently."""


def write_tables(folder: Path, request: Request) -> None:
    """Write the tables in the spec's other formats, one file for each Parquet file of the folder."""
    if "csv" in request.spec.formats:
        ranges = list_ranges(request)
        for parquet in write_synthetic_files(folder):
            csv = folder / name_csv(parquet.relative_to(folder).as_posix())
            csv.parent.mkdir(exist_ok=True)
            write_csv(parquet, csv, ranges, choose_style(request.spec, ranges))
        if request.spec.tables:
            for table, linked in list_linked_ranges(request).items():
                name, spec = name_linked_file(table), get_published_spec(request.spec, table)
                write_csv(folder / name, folder / name_csv(name), linked, choose_style(spec, linked))


def write_synthetic_files(folder: Path) -> list[Path]:
    """Return the Parquet files of the synthetic table in order: one file, or parts."""
    return sorted(p for p in (folder / "synthetic.parquet", *folder.glob("synthetic/part-*.parquet")) if p.is_file())


def write_note(folder: Path, note: str, pairs: Sequence[RelatedPair]) -> None:
    """Write ``README.md``, and its picture if pairs of columns were measured."""
    (folder / "README.md").write_text(note, encoding="utf-8")
    if pairs:
        (folder / PICTURE).write_text(draw_picture(pairs), encoding="utf-8")


def write_descriptions(
    folder: Path, plan: Plan, certificate: Certificate, rows: int, versions: Mapping[str, str]
) -> None:
    """Write ``datapackage.json``, ``croissant.json`` and ``registry.yaml``; only the manifest is written later.

    ``rows``: number of rows of the synthetic table.  The result depends only on the arguments and the folder's files.
    """
    ranges = list_ranges(plan.request)
    parts = len(write_synthetic_files(folder))
    release = DescribedRelease(plan, certificate, ranges, rows, list_files(folder), versions)
    if parts > 1:
        _write_json(folder / metadata.SCHEMA, metadata.build_table_schema(release))
        release = replace(release, files=list_files(folder))
    _write_json(folder / metadata.DATA_PACKAGE, metadata.build_data_package(release))
    _write_json(folder / metadata.CROISSANT, metadata.build_croissant(release))
    (folder / deployments_registry.NAME).write_text(
        deployments_registry.format_registry_yaml(release), encoding="utf-8"
    )


def _write_json(path: Path, content: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
