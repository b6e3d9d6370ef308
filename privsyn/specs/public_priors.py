"""The public table that a spec names as its prior: found and hashed where the spec is read."""

from __future__ import annotations

from pathlib import Path

from privsyn.base.errors import RequestError
from privsyn.base.paths import expand_path
from privsyn.data_contracts.release_spec import ReleaseSpec
from privsyn.sources.public_table import compute_sha256, locate_public_file


def with_prior(spec: ReleaseSpec, folder: Path) -> ReleaseSpec:
    """Return the spec with the place of its prior made absolute from ``folder`` and the file's SHA-256 in it.

    Raises RequestError (exit 2) for a file that is not there, is the private table itself, or has another content
    than a stated hash.
    """
    prior = spec.prior
    if prior is None or not prior.place:
        return spec
    kind = "table" if prior.table else "release"
    field = f"prior.{kind}"
    place = folder.absolute() / expand_path(prior.place, field)
    prior = prior.model_copy(update={kind: str(place)})
    path = locate_public_file(prior)
    if spec.data:
        private = (folder / spec.data).resolve()
        if path.resolve() == private or private in path.resolve().parents:
            raise RequestError(
                "is the private table itself", "Name a public table: its statistics show in the release", field
            )
    found = compute_sha256(path)
    if prior.sha256 not in ("", found):
        raise RequestError(
            f"{path.name} has another content than its `sha256` says", "Name the file that was meant", "prior.sha256"
        )
    return spec.model_copy(update={"prior": prior.model_copy(update={"sha256": found})})
