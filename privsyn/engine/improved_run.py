"""A release that improves earlier runs: its spec, and their keys after a check of data, spec and steps."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from itertools import takewhile
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from privsyn.base.errors import BudgetRefusedError, RequestError
from privsyn.base.places import make_safe_name, resolve_place
from privsyn.base.settings import Settings
from privsyn.data_contracts.promise import Guarantee
from privsyn.data_contracts.release_spec import ReleaseSpec
from privsyn.engine.keys import compute_lineage_keys
from privsyn.engine.plan import Plan, account_rho
from privsyn.engine.request import Request
from privsyn.engine.step import ReleaseStep
from privsyn.engine.step_tables import read_recorded_outputs
from privsyn.ledgers.ledger import Ledger
from privsyn.specs import messages
from privsyn.storage.records import CounterRecord, Records, read_note
from privsyn.storage.released_files import check_table, find_kind, make_kind_error, read_manifest_if_readable
from privsyn.storage.store import Store
from privsyn.tasks.privacy.accountant import convert_rho_to_epsilon
from privsyn.tasks.privacy.noise import NoiseSource

RUN = "improve.release"
EPSILON = "improve.epsilon"
MOST_EPSILON = 1e6
"""Largest epsilon of an improvement, equal to a spec's largest."""


@contextmanager
def name_asked_epsilon(spec: ReleaseSpec) -> Iterator[None]:
    """Make the cap's refusal name the requested epsilon: an improved spec's own epsilon covers all its looks."""
    try:
        yield
    except BudgetRefusedError as error:
        if spec.improves is None:
            raise
        raise error.about("budget", {"privacy.epsilon": EPSILON}) from None


def build_improved_spec(
    release: str, settings: Settings, epsilon: float, data: str | Path | None = None
) -> ReleaseSpec:
    """Return the spec that improves ``release`` for ``epsilon`` more, at the release's own delta.

    ``release``: a run's name, or its released folder; ``data``: the current place of the unchanged table (None: the old
    place).  ``privacy`` is the cost of all looks together, rounded up.  Raises RequestError if the run is not in the
    private folder, cannot be improved, or the epsilon cannot be accounted.
    """
    if not 0 < epsilon <= MOST_EPSILON:
        raise RequestError(f"must be above 0 and at most {MOST_EPSILON:,.0f}, not {epsilon:g}", "Correct it", EPSILON)
    note = note_of(_run_of(release, settings), settings)
    place = str(note.get("data", "")) if data is None else resolve_place(data, "release.data")
    try:
        several = bool(note["spec"].get("tables"))  # these have places of their own; `improves` refuses them below
        spec = ReleaseSpec.model_validate({**note["spec"], **({} if several else {"data": place})})
        if spec.prior is not None:
            spec = spec.with_prior(spec.prior.at(str(note.get("prior", ""))))
    except ValidationError:
        raise RequestError(
            f"{note['run']} was made by another version of this program", "Improve it with that version", RUN
        ) from None
    promise = spec.improves or spec.privacy
    earlier = [] if spec.improves is None else [look.model_dump() for look in spec.improves.earlier]
    earlier.append({"run": note["run"], "epsilon": promise.epsilon, "delta": promise.delta})
    delta = spec.privacy.delta
    try:
        new = ReleaseSpec.model_validate(
            {
                **spec.model_dump(mode="json", by_alias=True),
                "improves": {"earlier": earlier, "epsilon": epsilon, "delta": delta},
            }
        )
    except ValidationError as error:
        problem = f"{note['run']} cannot be improved: {messages.from_validation(error, {})[0].text}"
        raise RequestError(problem, "Make a release of its own instead", RUN) from None
    account_rho(Guarantee(epsilon=epsilon, delta=delta), EPSILON, spec.effective_accountant)
    together = convert_rho_to_epsilon(Request(new).total_rho, delta, spec.effective_accountant)
    if together > MOST_EPSILON:
        problem = f"with what {note['run']} cost gives {together:g}, above {MOST_EPSILON:,.0f}"
        raise RequestError(problem, "Ask for less", EPSILON)
    return new.at_price(Guarantee(epsilon=together, delta=delta))


def _run_of(release: str, settings: Settings) -> str:
    """Return the run that a name or a released folder's path names.  Raises RequestError for a release of no table."""
    manifest = read_manifest_if_readable(Path(release)) or read_manifest_if_readable(settings.released_root / release)
    if manifest is None:
        return release
    check_table(manifest, RUN)
    return manifest.run


def read_earlier_keys(
    plan: Plan,
    fingerprint: str,
    noise: type[NoiseSource],
    settings: Settings,
    store: Store,
    records: Records,
    ledger: Ledger,
) -> dict[str, str]:
    """Return step -> key, for the steps that the improved runs have made and paid for; empty without improved runs.

    The last improved run has the keys of all.  Every key is recomputed from this request and this table, so it matches
    only if the data, the domain, the options, and the steps' versions are the same.  Raises RequestError, having read
    only the fingerprint, if they are not, if the run is not in this private folder, or if its noise is not completely
    drawn and stored.
    """
    improves = plan.request.spec.improves
    if improves is None:
        return {}
    run = improves.earlier[-1].run
    note = note_of(run, settings)
    if note.get("fingerprint") != fingerprint:
        raise RequestError(
            f"the table has changed since {run} was released, and counts of other rows cannot be pooled",
            "Give the unchanged table, or make a release of the new one",
            "release.data",
        )
    noted = (note["spec"].get("improves") or {}).get("earlier", ())
    if [look.run for look in improves.earlier[:-1]] != [str(look["run"]) for look in noted]:
        raise RequestError(
            f"the runs before {run} are not the runs that it improved", "Leave the spec as it was written", RUN
        )
    keys = note["keys"]
    steps = tuple(takewhile(lambda step: step.name in keys, plan.steps))
    if not steps:
        raise RequestError(f"{run} has no step of this release", "Improve another run", RUN)
    taken = {step.name for step in steps}
    if any(name not in taken and ledger.state(store.dataset, str(key)) == "spent" for name, key in keys.items()):
        raise RequestError(f"{run} was made by steps of another version", "Improve it with that version", RUN)
    last = (records.load_as(f"generations-{keys[steps[0].name]}", CounterRecord) or CounterRecord(last=0)).last

    def compute_keys(generation: int, known_keys: Mapping[str, str]) -> dict[str, str]:
        return compute_lineage_keys(plan.request, fingerprint, generation, noise, steps, known_keys=known_keys)

    _check_keys(compute_keys, keys, last, run)
    for step in steps:
        if isinstance(step, ReleaseStep):
            _check_paid(step, keys[step.name], run, store, records, ledger)
    return {step.name: str(keys[step.name]) for step in steps}


def note_of(run: str, settings: Settings) -> dict[str, Any]:
    """Return the private note of a run that can be improved.

    Raises RequestError if there is no such run, or it cannot be improved.
    """
    note = read_note(settings.private_root / "runs" / make_safe_name(run, RUN) / "run.json")
    if not isinstance(note.get("keys"), Mapping) or not isinstance(note.get("spec"), Mapping):
        raise RequestError(
            f"there is no run {run!r} in the private folder {settings.private_root}",
            "Name a run whose private folder is here: its paid counts are stored there",
            RUN,
        )
    if kind := find_kind(note.get("asks") or {}):
        raise make_kind_error(run, kind, RUN)
    if note.get("asks"):
        raise RequestError(
            f"{run} is a release of a period, or of quality figures, which cannot be improved",
            "Name a release of the whole table",
            RUN,
        )
    return note


def _check_keys(
    compute_keys: Callable[[int, Mapping[str, str]], dict[str, str]], keys: Mapping[str, str], last: int, run: str
) -> None:
    """Raise RequestError unless ``keys`` follow from the request; each earlier run has a generation up to ``last``.

    ``compute_keys``: returns the keys of the steps in order, at a generation, given the keys of the first ones.
    """
    sure: dict[str, str] = {}
    while True:
        computed = [compute_keys(generation, sure) for generation in range(last + 1)]
        agreeing = max((_take_agreeing(of_generation, keys) for of_generation in computed), key=len)
        if len(agreeing) == len(computed[0]):
            return
        if len(agreeing) == len(sure):
            raise RequestError(
                f"{run} was made from another spec than this request, or by steps of another version, so their counts "
                "cannot be pooled",
                "Improve it with the spec and the version that made it",
                RUN,
            )
        sure = agreeing


def _take_agreeing(computed: Mapping[str, str], keys: Mapping[str, str]) -> dict[str, str]:
    """Return the computed keys of the first steps, up to the first key that differs from the run's."""
    return dict(takewhile(lambda step_and_key: step_and_key in keys.items(), computed.items()))


def _check_paid(step: ReleaseStep, key: str, run: str, store: Store, records: Records, ledger: Ledger) -> None:
    refs = read_recorded_outputs(step, key, store, records)
    asked_nothing = refs is not None and store.read_table(refs.tables["receipts"]).num_rows == 0
    if refs is None or not (asked_nothing or ledger.state(store.dataset, key) == "spent"):
        raise RequestError(
            f"the noisy table of the step {step.name!r} of {run} is missing",
            "Run that release again, which finishes it, or restore the private folder from a backup",
            RUN,
        )
