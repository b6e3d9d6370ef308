"""The request for quality figures: whether its release may be built on, and at what price."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from pydantic import ValidationError

from privsyn.base.errors import BudgetRefusedError, LedgerError, RequestError
from privsyn.base.paths import make_safe_name
from privsyn.base.settings import Settings
from privsyn.base.wording import mention
from privsyn.data_contracts.artifacts import Zone
from privsyn.data_contracts.promise import Guarantee
from privsyn.data_contracts.release_spec import ReleaseSpec
from privsyn.engine.step import release_steps
from privsyn.engine.step_tables import StepRefs, format_record_name
from privsyn.evaluation.coded_tables import Release
from privsyn.ledgers.ledger import Ledger
from privsyn.pipelines.release_plan import plan_release
from privsyn.publish.folder import is_whole
from privsyn.storage.records import Records
from privsyn.storage.store import Store, list_part_files

FIELD, DELTA = "evaluate.epsilon_report", "evaluate.delta"
"""The arguments with the price."""


def check_release(release: Release) -> None:
    """Only a whole release counts as public: its synthetic table is what the sums take as given."""
    name = release.manifest.run
    make_safe_name(name, "evaluate.release")
    if not release.manifest.differentially_private:
        raise RequestError(
            f"{name} was made with test noise, so its synthetic table is not public",
            "Name a release whose manifest says differentially_private",
            "evaluate.release",
        )
    if release.spec.panel is not None:
        raise RequestError(
            f"{name} has linked rows of persons, and the released figures compare single rows",
            "Evaluate it without an epsilon, for a private report; it has a part on persons over time",
            "evaluate.release",
        )
    if not release.synthetic or not is_whole(release.folder):
        raise RequestError(
            f"{release.folder} is not a whole release with a synthetic table: files are missing, changed or added",
            "Run the release again, which puts them right",
            "evaluate.release",
        )


def read_published_keys(release: Release, settings: Settings) -> Mapping[str, str]:
    """Return the lineage keys of the run, once its released synthetic table equals the synthesized one byte for byte.

    The released folder and its manifest can be edited; the private zone's signed reference cannot.
    """
    name, dataset = release.manifest.run, release.spec.dataset
    folder = settings.private_root / "runs" / name
    try:
        keys = dict(json.loads((folder / "run.json").read_text(encoding="utf-8"))["keys"])
        record = Records(settings.private_root, dataset).load_as(format_record_name(keys["decode"]), StepRefs)
    except (OSError, ValueError, KeyError, TypeError):
        record = None
    if record is None or "synthetic" not in record.tables or (folder / "not-private").exists():
        raise RequestError(
            f"the private folder {settings.private_root} knows no release {name} of {dataset!r}",
            "Name its output folder with " + mention("settings.out") + ", or run the release again there",
            "evaluate.release",
        )
    ref = record.tables["synthetic"]
    store = Store(settings.private_root, settings.released_root, dataset)
    whole = ref.zone is Zone.RELEASED and ref.key == keys["decode"] and store.verify(ref)
    kept = [store.mac(path) for path in list_part_files(Path(ref.path))]
    if not whole or kept != [store.mac(path) for path in release.synthetic]:
        raise RequestError(
            f"the synthetic table of {name} is not the one that the private folder recorded for this run",
            "Run the release again, which puts it right",
            "evaluate.release",
        )
    return keys


def build_figures_spec(release: Release, epsilon: float, delta: float | None) -> ReleaseSpec:
    """Return the release's own spec at this request's price, of this one look.

    No prior, and no releases that it improves.
    """
    privacy = _build_guarantee(epsilon, release.spec.privacy.delta, FIELD)
    if delta is not None:
        privacy = _build_guarantee(epsilon, delta, DELTA)
    return release.spec.model_copy(update={"privacy": privacy, "prior": None, "improves": None})


def _build_guarantee(epsilon: float, delta: float, field: str) -> Guarantee:
    try:
        return Guarantee(epsilon=epsilon, delta=delta)
    except ValidationError as error:
        message = str(error.errors(include_url=False)[0]["msg"])
        value = delta if field == DELTA else epsilon
        raise RequestError(f"{value:g} will not do: {message[:1].lower()}{message[1:]}", "Correct it", field) from None


def check_charged(spec: ReleaseSpec, keys: Mapping[str, str], settings: Settings) -> None:
    """Check that every noisy table of the release was charged to this ledger; another one would forget that cost.

    By lineage key, not by run: a run that only differs in post-processing rests on an earlier run's charges.  A step
    that had nothing to ask (one column has no pairs) gave its reservation back.
    """
    ledger = Ledger(settings.ledger)
    releases = release_steps(plan_release(spec.model_copy(update={"prior": None})).steps)
    states = {s.name: ledger.state(spec.dataset, keys.get(s.name, "")) for s in releases}
    if states[releases[0].name] != "spent" or not set(states.values()) <= {"spent", "cancelled"}:
        raise LedgerError(
            f"the ledger {ledger.name} has no charge of {spec.dataset!r} for the noise of this release",
            "Set " + mention("settings.ledger") + " to the ledger of the release; nothing was read",
        )


@contextmanager
def translate_refusals() -> Iterator[None]:
    """Translate the ledger's refusal to one about this request's epsilon."""
    try:
        yield
    except BudgetRefusedError as error:
        raise error.about(FIELD, {"privacy.epsilon": FIELD}) from None
