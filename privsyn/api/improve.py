"""The spec of a release that improves an earlier one: the same request, with the earlier looks and the new ones."""

from __future__ import annotations

from pathlib import Path

from pydantic import ValidationError

from privsyn.base.data_url import resolve_place
from privsyn.base.errors import RequestError
from privsyn.base.settings import Settings
from privsyn.data_contracts.release_spec import ReleaseSpec
from privsyn.engine.improved_run import note_of
from privsyn.engine.plan import account_rho
from privsyn.engine.request import Request
from privsyn.specs import messages
from privsyn.storage.released_files import check_table, read_manifest_if_readable
from privsyn.tasks.privacy.accountant import convert_rho_to_epsilon

RUN = "improve.release"
EPSILON = "improve.epsilon"
MOST_EPSILON = 1e6
"""Largest epsilon of an improvement: a spec's largest."""


def build_improved_spec(
    release: str, settings: Settings, epsilon: float, data: str | Path | None = None
) -> ReleaseSpec:
    """Return the spec by which ``release`` is improved for ``epsilon`` more, at the release's own delta.

    ``release``: a run's name, or its released folder; ``data``: where the unchanged table lies now (None: where it
    was).  ``privacy`` is what all looks cost together, rounded up.  Raises RequestError if the run is not in the
    private folder, cannot be improved, or the epsilon cannot be accounted.
    """
    if not 0 < epsilon <= MOST_EPSILON:
        raise RequestError(f"must be above 0 and at most {MOST_EPSILON:,.0f}, not {epsilon:g}", "Correct it", EPSILON)
    note = note_of(_run_of(release, settings), settings)
    place = str(note.get("data", "")) if data is None else resolve_place(data, "release.data")
    try:
        spec = ReleaseSpec.model_validate({**note["spec"], "data": place})
        if spec.prior is not None:
            spec = spec.model_copy(update={"prior": spec.prior.at(str(note.get("prior", "")))})
    except ValidationError:
        raise RequestError(
            f"{note['run']} was made by another version of this program", "Improve it with that version", RUN
        ) from None
    own = spec.improves or spec.privacy
    earlier = [] if spec.improves is None else [look.model_dump() for look in spec.improves.earlier]
    earlier.append({"run": note["run"], "epsilon": own.epsilon, "delta": own.delta})
    delta = spec.privacy.delta
    try:
        new = ReleaseSpec.model_validate(
            {**_list_requested(spec), "improves": {"earlier": earlier, "epsilon": epsilon, "delta": delta}}
        )
    except ValidationError as error:
        raise messages.request_error(messages.from_validation(error, {})) from None
    account_rho(spec.privacy.model_copy(update={"epsilon": epsilon}), EPSILON, spec.accountant)
    together = convert_rho_to_epsilon(Request(new).total_rho, delta, spec.accountant)
    return new.model_copy(update={"privacy": spec.privacy.model_copy(update={"epsilon": together})})


def _list_requested(spec: ReleaseSpec) -> dict[str, object]:
    return spec.model_dump(mode="json", by_alias=True)


def _run_of(release: str, settings: Settings) -> str:
    """Return the run's name.  A path is that of a released folder, which names its run.

    RequestError for one of no table.
    """
    manifest = read_manifest_if_readable(Path(release)) or read_manifest_if_readable(settings.released_root / release)
    if manifest is None:
        return release
    check_table(manifest, RUN)
    return manifest.run
