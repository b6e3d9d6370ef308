"""A release on disk: found by its run's name, path or URL; its manifest, certificate and rows read and checked."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
from pydantic import ValidationError

from privsyn.base.errors import RequestError
from privsyn.base.places import expand_path, is_object_url, make_safe_name
from privsyn.base.registry import find_parts
from privsyn.base.settings import Settings
from privsyn.base.wording import mention
from privsyn.data_contracts.certificate import Certificate, Manifest
from privsyn.data_contracts.linked_tables import join_columns, name_one_place
from privsyn.data_contracts.release_spec import ReleaseSpec
from privsyn.storage.stores import find_store


class VersionError(RequestError):
    """A release's file has a version that this program does not know."""


_Model = TypeVar("_Model", Certificate, Manifest)

SYNTHETIC = "synthetic.parquet"
"""The synthetic table in a released folder; in parts, ``synthetic/part-00000.parquet`` .. instead."""

CUTS_FILE = "marginals/cut_cells.parquet"
"""The cells that a first look chose, in a released folder."""

_PART = re.compile(r"synthetic/part-[0-9]+\.parquet")

NOT_KNOWN = "not-known"
"""The private table's place in a request read from a released folder."""


def list_synthetic_names(manifest: Manifest) -> tuple[str, ...]:
    """Return the files of the synthetic table in a released folder, in order; empty if the folder holds none."""
    parts = sorted(name for name in manifest.files if _PART.fullmatch(name))
    return (SYNTHETIC,) if SYNTHETIC in manifest.files else tuple(parts)


def compute_synthetic_digest(manifest: Manifest) -> str:
    """Return the SHA-256 (hex) of the synthetic table by the manifest: of its file, or of its parts' hashes."""
    digests = [manifest.files[name].sha256 for name in list_synthetic_names(manifest)]
    return digests[0] if len(digests) == 1 else hashlib.sha256("\n".join(digests).encode()).hexdigest()


def find_kind(steps: Iterable[object]) -> str | None:
    """Return which kind of release that is of no table has one of the steps; None: it is of a table."""
    return next((name for name in map(str, steps) if name in find_parts("requests")), None)


def find_kind_of(manifest: Manifest) -> str | None:
    """Return the kind of release in a released folder; None: the release is a table."""
    return find_kind(step.get("step") for step in manifest.steps)


def check_measured(manifest: Manifest, spec: ReleaseSpec, field: str) -> None:
    """Raise RequestError if a column that ``spec`` measures was not measured in the release."""
    columns = join_columns(manifest.spec) or {}
    name = next((n for n in spec.measured_columns if columns.get(n, {}).get("measured", True) is False), None)
    if name is not None:
        raise RequestError(
            f"{manifest.run} did not measure the column {name!r}: its values there are random",
            "Name a release that measured it, or leave it unmeasured here, too",
            field,
        )


def check_table(manifest: Manifest, field: str) -> None:
    """Raise RequestError, naming the release's kind, unless it is a release of a table."""
    make_safe_name(manifest.run, field)
    if list_synthetic_names(manifest):
        return
    if kind := find_kind_of(manifest):
        raise make_kind_error(manifest.run, kind, field)
    problem = f"{manifest.run} holds figures of another release, not a synthetic table"
    raise RequestError(problem, "Name the release itself", field)


def make_kind_error(run: str, kind: str, field: str) -> RequestError:
    """Return the error of a command for tables that was given a release of another kind."""
    problem = f"{run} is a release of {kind} by `privsyn {kind}`, not of a table"
    return RequestError(problem, "Open the files that its README.md names, or name a release of a table", field)


def read_public_spec(manifest: Manifest, field: str = "") -> ReleaseSpec:
    """Return a release's request, as public as its manifest, without the private table's place.

    Raises RequestError for figures of another release, for itemsets, for test noise, and for another version's request.
    """
    check_table(manifest, field)
    if not manifest.differentially_private:
        raise RequestError(f"{manifest.run} was made with test noise", "Name a release", field)
    return request_of(manifest, field)


def request_of(manifest: Manifest, field: str = "") -> ReleaseSpec:
    """Return the request in a manifest.  Raises RequestError for one of another version.

    ``synthesis.kappa``, an option before version 0.3.0, is left out: rows made with it cannot be made again.
    """
    content = {**manifest.spec, **hide_places(manifest.spec.get("tables"))}
    # a received folder must not choose a local file
    for part, left_out in (("prior", ("table", "release")), ("cells", ("release",)), ("synthesis", ("kappa",))):
        if isinstance(content.get(part), dict):
            content[part] = {name: value for name, value in content[part].items() if name not in left_out}
    try:
        return ReleaseSpec.model_validate(content)
    except ValidationError:
        problem = f"the manifest of {manifest.run} was written by another version of this program"
        cure = f"Use the version that it names: privsyn-flows {manifest.versions.get('privsyn-flows', '?')}"
        raise RequestError(problem, cure, field) from None


def hide_places(tables: Any) -> dict[str, Any]:
    """Return the fields with the place of the private table, or of each of several, as unknown."""
    if not isinstance(tables, dict) or not tables:
        return {"data": NOT_KNOWN}
    return {"tables": {n: {**t, "data": NOT_KNOWN} if isinstance(t, dict) else t for n, t in tables.items()}}


def read_manifest(folder: Path) -> Manifest:
    """Return ``folder``'s manifest.json.  Raises RequestError unless it is a readable manifest of a known version."""
    return _read(Manifest, folder / "manifest.json")


def read_manifest_if_readable(folder: Path) -> Manifest | None:
    """Return ``folder``'s manifest.json; None if :func:`read_manifest` would refuse it."""
    try:
        return read_manifest(folder)
    except RequestError:
        return None


def read_certificate(folder: Path) -> Certificate:
    """Return ``folder``'s certificate.json.

    Raises RequestError if it cannot be read, is not a certificate, or has an unknown version.
    """
    return _read(Certificate, folder / "certificate.json")


def check_released_file(folder: Path, manifest: Manifest, name: str, field: str) -> Path:
    """Return the path of a released file, after checking it against its hash in the manifest.

    Raises RequestError, about ``field``, for a file that is missing, changed, or not in the manifest.
    """
    listed, path = manifest.files.get(name), folder / name
    try:
        with path.open("rb") as file:
            is_whole = listed is not None and hashlib.file_digest(file, "sha256").hexdigest() == listed.sha256
    except OSError:
        is_whole = False
    if not is_whole:
        problem = f"{name} of {manifest.run} is missing or was changed after its publication: it does not match "
        raise RequestError(problem + "manifest.json", "Get the folder again from its publisher", field)
    return path


def _read(model: type[_Model], path: Path) -> _Model:
    kind, known = model.__name__.lower(), model.model_fields["schema_version"].default
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        raise RequestError(f"there is no readable {kind} in {path.parent}", "Name the folder of a release") from None
    version = content.get("schema_version") if isinstance(content, dict) else None
    if isinstance(version, int) and version != known:
        problem = f"{path} has schema version {version}, and this program knows {known}"
        raise VersionError(problem, "Use the version of privsyn-flows that wrote it")
    try:
        return model.model_validate(content)
    except ValidationError:
        raise RequestError(
            f"{path} is not the {kind} of a release", "Run the release again, which repairs it"
        ) from None


def read_table_pair(spec: ReleaseSpec, table: str, read: Callable[[str], pa.Table]) -> pa.Table:
    """Return the synthetic rows of a further table, joined with the columns of the tables above it.

    ``read``: returns a file of the released folder.
    """
    rows, above = read(f"tables/{table}.parquet"), table
    while above != spec.table_names[0]:
        above, key = spec.get_parent_table(above)
        upper = read(f"tables/{above}.parquet")
        place = np.searchsorted(upper[key].to_numpy(), rows[key].to_numpy())  # keys are ascending numbers
        upper = upper.take(pa.array(place))
        for name in upper.column_names:
            rows = rows if name in rows.column_names else rows.append_column(name, upper[name])
    places = (name_one_place(name) for name in spec.table_names)
    for place in (c for c in places if c in spec.table_pairs[table].columns):
        rows = rows.append_column(place, pa.array(np.ones(rows.num_rows, np.int64)))
    return rows


def find_release(release: str, settings: Settings, field: str) -> Path:
    """Return a release's folder, by its run's name in the released root or by its path; for a URL, a copy.

    Raises RequestError if there is none.
    """
    if is_object_url(release):
        return find_store(release, field).fetch_released(release, field)
    path = expand_path(release, field)
    for folder in (settings.released_root / path, path):
        if (folder / "manifest.json").is_file():
            return folder.absolute()
    raise RequestError(
        f"there is no release {release!r}: no folder with a manifest.json, and no run of that name in "
        f"{settings.released_root}",
        "Name the folder of a release, or a run of the output folder (" + mention("settings.out") + ")",
        field,
    )
