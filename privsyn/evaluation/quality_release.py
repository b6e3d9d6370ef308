"""Releasing a few figures of a release's quality, with noise, under a budget of their own."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, ValidationError

from privsyn.data_contracts.artifacts import Kind, Zone
from privsyn.data_contracts.certificate import Certificate
from privsyn.data_contracts.quality_report import QualityFigure, QualityReport
from privsyn.data_contracts.release_spec import Guarantee, ReleaseSpec
from privsyn.errors import BudgetRefusedError, LedgerError, RequestError, mention
from privsyn.evaluation.coded_tables import Release, open_release, read_table, to_bins
from privsyn.evaluation.quality_note import TITLES, meaning, quality_note
from privsyn.ledgers.ledger import Ledger
from privsyn.mechanisms.common_steps import ENCODE, ENCODED, RELEASED
from privsyn.mechanisms.release_job import plan_of
from privsyn.publish.certificate_of_run import certificate_of
from privsyn.publish.folder import is_whole, place, write_manifest
from privsyn.publish.release_note import looks_of
from privsyn.publish.versions import versions_of_files
from privsyn.run.inputs import Inputs
from privsyn.run.job import Job
from privsyn.run.open_run import OpenRun, open_run
from privsyn.run.plan import accounted
from privsyn.run.request import Request
from privsyn.run.runner import run_steps
from privsyn.run.step import Look, ReleaseStep, release_steps
from privsyn.run.step_tables import StepRefs, record_name
from privsyn.settings import Settings
from privsyn.storage.records import Records
from privsyn.storage.released_files import synthetic_digest
from privsyn.storage.safe_names import safe_name
from privsyn.storage.store import Store, part_files
from privsyn.tasks import noisy, quality_figures
from privsyn.tasks.kernels.counting import CodeTable
from privsyn.tasks.privacy.noise import MAX_SIGMA, NoiseSource
from privsyn.tasks.quality_figures import Figure

STEP = "quality_figures"
FIELD, DELTA = "evaluate.epsilon_report", "evaluate.delta"
WHOLE_RANGE = 2.0
"""The figures of two tables of one size lie between 0 and this."""


class QualitySummary(BaseModel):
    """The released figures and their cost.  It holds noisy figures and public facts only."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    run: str
    release: str
    released: str
    epsilon: float
    delta: float
    rho: float
    drawn: tuple[str, ...]
    figures: tuple[QualityFigure, ...]


@dataclass(frozen=True)
class Comparison:
    """The public side of the comparison: the synthetic table in public bins, and the figures.

    ``groups``: fine code -> public bin, by attribute; ``sha256``: of the synthetic file.
    """

    synthetic: CodeTable
    groups: Mapping[str, NDArray[np.int32]]
    sha256: str
    figures: tuple[Figure, ...]


def publish_quality(
    run_name_or_folder: str | Path,
    epsilon_report: float,
    settings: Settings,
    *,
    delta: float | None = None,
    data: str | Path | None = None,
    noise: NoiseSource | None = None,
) -> QualitySummary:
    """Release the figures of one release at (``epsilon_report``, ``delta``), charged to its data set; or find them.

    ``delta`` defaults to the release's; ``data`` replaces the private table that the run remembers; ``noise`` other
    than the release source keeps the figures in the private zone.  The same request again draws and costs nothing.

    Privacy: the released folder is (epsilon_report, delta)-differentially private for adding or removing one person
    (the release's ``unit``), by the price of the one release step ``quality_figures``; the synthetic table is
    fixed by an earlier release, whose cost adds up with this one's in the ledger (Theorem 1, adaptive composition).
    Raises RequestError for a wrong argument, BudgetRefusedError when the cap would be passed: then nothing was read or
    spent.
    """
    release = open_release(run_name_or_folder, settings, data)
    _check_release(release)
    keys = _published_keys(release, settings)
    spec = _spec(release, epsilon_report, delta)
    comparison = _compare(release, spec)
    _check_noise(comparison, spec)
    _check_charged(spec, keys, settings)
    step = quality_step(comparison)
    job = Job(
        steps=(ENCODE, step),
        asks={STEP: {"release": release.manifest.run, "synthetic": comparison.sha256}},
        order=tuple(release.manifest.column_order),
        name=f"{release.manifest.run}-quality",
        figures=True,
        redraw="ask for another epsilon: that draws new noise at new cost",
    )
    report = lambda step, done, total: None  # noqa: E731
    with _refusals(), open_run(spec, settings, fresh=False, report=report, noise=noise, job=job) as run:
        refs = run_steps(run.shell.steps, run.shell.execute)
        return _publish(run, refs[STEP], release, comparison)


def quality_step(comparison: Comparison) -> ReleaseStep:
    """The release step over the encoded rows, for one public comparison."""

    def settings(request: Request) -> dict[str, Any]:
        asked = [[f.name, f.compared] for f in comparison.figures]
        return {"synthetic": comparison.sha256, "figures": asked}

    return ReleaseStep(
        STEP,
        "Quality figures",
        Kind.RELEASE,
        (ENCODED,),
        RELEASED,
        settings,
        plan=lambda r, i, rho: quality_figures.plan(comparison.figures, rho, r.records),
        exact=lambda r, i, rows, queries: quality_figures.exact(
            to_bins(_in_memory(r, i), comparison.groups), comparison.synthetic, comparison.figures, r.threads
        ),
        look=Look(
            "how far the synthetic table is from the private one",
            lambda r: "k times the figure's number of marginals or queries: each record changes each by at most 1",
            noise_of="a sum of differences",
        ),
        rows=ENCODED,
        rows_domain=lambda r, i: r.encoding.domain,
    )


def _in_memory(request: Request, inputs: Inputs) -> CodeTable:
    """The private rows: range queries look at whole rows, again and again."""
    return CodeTable.from_arrow(list(inputs.batches(ENCODED)), request.encoding.domain)


def _check_release(release: Release) -> None:
    """Only a whole release counts as public: its synthetic table is what the sums take as given."""
    name = release.manifest.run
    safe_name(name, "evaluate.release")
    if not release.manifest.differentially_private:
        raise RequestError(
            f"{name} was made with test noise, so its synthetic table is not public",
            "Name a release whose manifest says differentially_private",
            "evaluate.release",
        )
    if not release.synthetic or not is_whole(release.folder):
        raise RequestError(
            f"{release.folder} is not a whole release with a synthetic table: files are missing, changed or added",
            "Run the release again, which puts them right",
            "evaluate.release",
        )


def _published_keys(release: Release, settings: Settings) -> Mapping[str, str]:
    """The lineage keys of the run, once its released synthetic table is, byte for byte, the one that was synthesized.

    The released folder and its manifest can be edited; the private zone's signed reference cannot.
    """
    name, dataset = release.manifest.run, release.spec.dataset
    folder = settings.private_root / "runs" / name
    try:
        keys = dict(json.loads((folder / "run.json").read_text(encoding="utf-8"))["keys"])
        record = Records(settings.private_root, dataset).load_as(record_name(keys["decode"]), StepRefs)
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
    kept = [store.mac(path) for path in part_files(Path(ref.path))]
    if not whole or kept != [store.mac(path) for path in release.synthetic]:
        raise RequestError(
            f"the synthetic table of {name} is not the one that the private folder recorded for this run",
            "Run the release again, which puts it right",
            "evaluate.release",
        )
    return keys


def _spec(release: Release, epsilon: float, delta: float | None) -> ReleaseSpec:
    """The release's own spec at this request's price."""
    privacy = _guarantee(epsilon, release.spec.privacy.delta, FIELD)
    if delta is not None:
        privacy = _guarantee(epsilon, delta, DELTA)
    return release.spec.model_copy(update={"privacy": privacy})


def _guarantee(epsilon: float, delta: float, field: str) -> Guarantee:
    try:
        return Guarantee(epsilon=epsilon, delta=delta)
    except ValidationError as error:
        message = str(error.errors(include_url=False)[0]["msg"])
        value = delta if field == DELTA else epsilon
        raise RequestError(f"{value:g} will not do: {message[:1].lower()}{message[1:]}", "Correct it", field) from None


def _compare(release: Release, spec: ReleaseSpec) -> Comparison:
    synthetic = read_table(release.synthetic, release.measured, spec, "evaluate.release").bins
    if not synthetic.rows:
        raise RequestError(
            f"{release.manifest.run} has no synthetic rows", "There is nothing to compare", "evaluate.release"
        )
    sha256 = synthetic_digest(release.manifest)
    return Comparison(synthetic, release.measured.groups, sha256, quality_figures.figures(synthetic.domain))


def _check_noise(comparison: Comparison, spec: ReleaseSpec) -> None:
    """Raises RequestError if so small an epsilon asks for noise that no integer holds, or that hides every figure."""
    rho, rows = accounted(spec.privacy, FIELD, spec.accountant), comparison.synthetic.rows
    planned = quality_figures.plan(comparison.figures, rho, spec.unit.records)
    pairs = zip(comparison.figures, planned, strict=True)
    least = min(quality_figures.per_row(q.sigma, f, rows) for f, q in pairs)
    if max(q.sigma for q in planned) > MAX_SIGMA or least > WHOLE_RANGE:
        raise RequestError(
            f"{spec.privacy.epsilon:g} is too small: the noise of every figure (standard deviation {least:.2g} and "
            f"more) would be wider than the figures' whole range, 0 to {WHOLE_RANGE:g}",
            "Choose a larger epsilon",
            FIELD,
        )


def _check_charged(spec: ReleaseSpec, keys: Mapping[str, str], settings: Settings) -> None:
    """Every noisy table of the release was charged to this ledger; another one would forget that cost.

    By lineage key, not by run: a run that only differs in post-processing rests on an earlier run's charges.  A step
    that had nothing to ask (one column has no pairs) gave its reservation back.
    """
    ledger = Ledger(settings.ledger)
    releases = release_steps(plan_of(spec).steps)
    states = {s.name: ledger.state(spec.dataset, keys.get(s.name, "")) for s in releases}
    if states[releases[0].name] != "spent" or not set(states.values()) <= {"spent", "cancelled"}:
        raise LedgerError(
            f"the ledger {ledger.name} has no charge of {spec.dataset!r} for the noise of this release",
            "Set " + mention("settings.ledger") + " to the ledger of the release; nothing was read",
        )


@contextmanager
def _refusals() -> Iterator[None]:
    """The ledger's refusal, about this request's epsilon."""
    try:
        yield
    except BudgetRefusedError as error:
        raise error.about(FIELD, {"privacy.epsilon": FIELD}) from None


def _publish(run: OpenRun, refs: StepRefs, release: Release, comparison: Comparison) -> QualitySummary:
    """Write the released folder of the figures, or find it whole."""
    shell = run.shell
    report = _report(run, refs, release, comparison)
    certificate = certificate_of(shell, {STEP: refs})
    note = quality_note(report, certificate, looks_of(shell.steps), private=shell.noise.private)

    def build(folder: Path) -> None:
        _write(folder / "figures.json", report)
        made = versions_of_files(shell.records, folder, run.released / shell.run)
        _write(folder / "certificate.json", certificate)
        (folder / "README.md").write_text(note, encoding="utf-8")
        write_manifest(shell, folder, 0, made)

    return QualitySummary(
        run=shell.run,
        release=report.release,
        released=str(place(run, build)),
        epsilon=report.epsilon,
        delta=report.delta,
        rho=float(shell.request.total_rho),
        drawn=tuple(shell.drawn),
        figures=report.figures,
    )


def _write(path: Path, model: QualityReport | Certificate) -> None:
    path.write_text(model.model_dump_json(indent=2) + "\n", encoding="utf-8")


def _report(run: OpenRun, refs: StepRefs, release: Release, comparison: Comparison) -> QualityReport:
    """The figures from the noisy table and its receipts: nothing else of the private table is at hand here."""
    store, privacy = run.shell.store, run.shell.request.spec.privacy
    queries = noisy.receipts_from_table(store.read_table(refs.tables["receipts"]))
    answers = noisy.answers_from_table(store.read_table(refs.tables["noisy"]), queries)
    rows = comparison.synthetic.rows
    return QualityReport(
        run=run.shell.run,
        release=release.manifest.run,
        dataset=run.shell.dataset,
        epsilon=privacy.epsilon,
        delta=privacy.delta,
        synthetic_rows=rows,
        synthetic_sha256=comparison.sha256,
        figures=tuple(
            QualityFigure(
                name=figure.name,
                title=TITLES[figure.name],
                meaning=meaning(figure.name, len(comparison.synthetic.domain.attributes)),
                value=quality_figures.per_row(int(answer[0]), figure, rows),
                noise_sd=quality_figures.per_row(query.sigma, figure, rows),
                compared=figure.compared,
                noisy_sum=int(answer[0]),
                sigma=query.sigma,
            )
            for figure, query, answer in zip(comparison.figures, queries, answers, strict=True)
        ),
    )
