"""Release a few figures of a release's quality, with noise and a separate budget."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, ValidationError

from privsyn.base.errors import BudgetRefusedError, LedgerError, RequestError
from privsyn.base.places import make_safe_name
from privsyn.base.settings import Settings
from privsyn.base.telemetry import Telemetry
from privsyn.base.wording import mention
from privsyn.data_contracts.artifacts import LookKind, StepKind, Zone
from privsyn.data_contracts.certificate import Certificate
from privsyn.data_contracts.evaluation import QualityFigure, QualityReport
from privsyn.data_contracts.promise import Guarantee
from privsyn.data_contracts.release_spec import ReleaseSpec
from privsyn.engine.execute import Run
from privsyn.engine.open_run import open_run
from privsyn.engine.plan import Plan, account_rho
from privsyn.engine.proposal import Proposal
from privsyn.engine.request import Request
from privsyn.engine.step import LookDescription, ReleaseStep, release_steps, run_steps
from privsyn.engine.step_tables import StepRefs, format_record_name
from privsyn.evaluation.coded_tables import EvaluatedRelease, open_release, open_table, to_bins
from privsyn.ledgers.ledger import Ledger
from privsyn.pipelines.common_steps import ENCODE, ENCODED, RELEASED
from privsyn.pipelines.registry import plan_release
from privsyn.publish.certificate_of_run import build_certificate, list_file_versions
from privsyn.publish.folder import is_whole, locate_folder, write_manifest
from privsyn.publish.markdown import render_note
from privsyn.publish.release_note import list_looks
from privsyn.storage.records import Records
from privsyn.storage.released_files import compute_synthetic_digest
from privsyn.storage.store import Store, list_part_files
from privsyn.tasks.estimation import noisy
from privsyn.tasks.kernels.counting import CodeTable
from privsyn.tasks.privacy.noise import MAX_SIGMA, NoiseSource, OpenDPNoise
from privsyn.tasks.steps import quality_figures
from privsyn.tasks.steps.quality_figures import Figure

STEP = "quality_figures"
WHOLE_RANGE = 2.0
"""Largest figure of two tables with the same number of rows; the smallest is 0."""


class QualitySummary(BaseModel):
    """The released figures and their cost: noisy figures and public facts only."""

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
class PublicSide:
    """The public side of the comparison: the synthetic table in public bins, and the figures.

    ``groups``: attribute -> public bin of each fine code; ``sha256``: digest of the synthetic table.
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
    """Release the figures of one release at (``epsilon_report``, ``delta``), charged to its data set.

    ``delta`` defaults to the release's; ``data`` replaces the private table recorded with the run; ``noise`` other
    than the release source keeps the figures in the private zone.  Repeating a request draws and costs nothing.

    Privacy: the released folder is (epsilon_report, delta)-differentially private for adding or removing one person
    (the release's ``unit``), by the price of its only release step ``quality_figures``.  The synthetic table is fixed
    by an earlier release, and the ledger adds up both costs (Theorem 1, adaptive composition).
    Raises RequestError for a wrong argument, and BudgetRefusedError, with nothing read or spent, if the cost would
    exceed the cap.
    """
    release = open_release(run_name_or_folder, settings, data)
    check_release(release)
    keys = read_published_keys(release, settings)
    spec = build_figures_spec(release, epsilon_report, delta)
    comparison = _compare(release, spec)
    _check_noise(comparison, spec)
    check_charged(release.spec, keys, settings)
    step = build_quality_step(comparison)
    plan = Plan(
        Request(spec, tuple(release.manifest.column_order)),
        (ENCODE, step),
        asks={STEP: {"release": release.manifest.run, "synthetic": comparison.sha256}},
        name=f"{release.manifest.run}-quality",
        output="figures",
        redraw="ask for another epsilon: that draws new noise at new cost",
    )
    proposal = Proposal(plan=plan, settings=settings, noise=noise or OpenDPNoise())
    telemetry = Telemetry(settings)
    with (
        translate_refusals(),
        open_run(proposal) as run,
        telemetry.observe(run.dataset, run.name, "evaluation", released=[release.manifest.run]) as observed,
    ):
        refs = run_steps(run.steps, observed.trace(run.execute))
        summary = _publish(run, refs[STEP], release, comparison)
        observed.released = summary.run
        return summary


def build_quality_step(comparison: PublicSide) -> ReleaseStep:
    """Return the release step over the encoded rows, for one public comparison."""

    def settings(request: Request) -> dict[str, Any]:
        compared_figures = [[f.name, f.compared] for f in comparison.figures]
        return {"synthetic": comparison.sha256, "figures": compared_figures}

    return ReleaseStep(
        name=STEP,
        title="Quality figures",
        kind=StepKind.RELEASE,
        measures=LookKind.FIGURES,
        shares={STEP: Fraction(1)},
        inputs=(ENCODED,),
        outputs=RELEASED,
        settings=settings,
        plan=lambda r, i, rho: quality_figures.plan_queries(comparison.figures, rho, r.records),
        exact=lambda r, i, rows, queries: quality_figures.count_exactly(
            # in memory, since range queries read whole rows repeatedly
            to_bins(CodeTable.from_arrow(list(i.batches(ENCODED)), r.encoding.domain), comparison.groups),
            comparison.synthetic,
            comparison.figures,
            r.threads,
        ),
        look=LookDescription(
            counted="how far the synthetic table is from the private one",
            reason=("k times the figure's number of marginals or queries: each record changes each by at most 1"),
            noise_of="a sum of differences",
        ),
        rows=ENCODED,
        rows_domain=lambda r, i: r.encoding.domain,
    )


def _compare(release: EvaluatedRelease, spec: ReleaseSpec) -> PublicSide:
    synthetic = open_table(release.synthetic, release.measured, spec, "evaluate.release").read().bins
    if not synthetic.rows:
        raise RequestError(
            f"{release.manifest.run} has no synthetic rows", "There is nothing to compare", "evaluate.release"
        )
    sha256 = compute_synthetic_digest(release.manifest)
    return PublicSide(synthetic, release.measured.groups, sha256, quality_figures.build_figures(synthetic.domain))


def _check_noise(comparison: PublicSide, spec: ReleaseSpec) -> None:
    """Raise RequestError if epsilon is so small that the noise overflows integers or hides every figure."""
    rho, rows = account_rho(spec.privacy, FIELD, spec.effective_accountant), comparison.synthetic.rows
    planned = quality_figures.plan_queries(comparison.figures, rho, spec.unit.records)
    pairs = zip(comparison.figures, planned, strict=True)
    least = min(quality_figures.divide_by_rows(q.sigma, f, rows) for f, q in pairs)
    if max(q.sigma for q in planned) > MAX_SIGMA or least > WHOLE_RANGE:
        raise RequestError(
            f"{spec.privacy.epsilon:g} is too small: the noise of every figure (standard deviation {least:.2g} and "
            f"more) would be wider than the figures' whole range, 0 to {WHOLE_RANGE:g}",
            "Choose a larger epsilon",
            FIELD,
        )


def _publish(run: Run, refs: StepRefs, release: EvaluatedRelease, comparison: PublicSide) -> QualitySummary:
    """Write the released folder of the figures unless it is already whole."""
    report = _report(run, refs, release, comparison)
    certificate = build_certificate(run, {STEP: refs})
    note = render_note(
        "quality.md.j2",
        c=certificate,
        looks=list_looks(run.steps),
        report=report,
        private=run.noise.private,
        unmeasured=(certificate.not_measured or {}).get("columns", ()),
    )

    def build(folder: Path) -> None:
        _write(folder / "figures.json", report)
        files = list_file_versions(run.records, folder, run.released_folder)
        _write(folder / "certificate.json", certificate)
        (folder / "README.md").write_text(note, encoding="utf-8")
        write_manifest(run, folder, 0, files)

    return QualitySummary(
        run=run.name,
        release=report.release,
        released=str(locate_folder(run, build)),
        epsilon=report.epsilon,
        delta=report.delta,
        rho=float(run.request.total_rho),
        drawn=tuple(run.drawn),
        figures=report.figures,
    )


def _write(path: Path, model: QualityReport | Certificate) -> None:
    path.write_text(model.model_dump_json(indent=2) + "\n", encoding="utf-8")


def _report(run: Run, refs: StepRefs, release: EvaluatedRelease, comparison: PublicSide) -> QualityReport:
    """Return the figures from the noisy table and its receipts, without access to the private table."""
    store, privacy = run.store, run.request.spec.privacy
    queries = noisy.read_receipts(store.read_table(refs.tables["receipts"]))
    answers = noisy.read_answers(store.read_table(refs.tables["noisy"]), queries)
    rows, columns = comparison.synthetic.rows, len(comparison.synthetic.domain.attributes)
    ranges = {1: "the column", 2: "the two columns"}.get(columns, "three columns")
    return QualityReport(
        run=run.name,
        release=release.manifest.run,
        dataset=run.dataset,
        epsilon=privacy.epsilon,
        delta=privacy.delta,
        synthetic_rows=rows,
        synthetic_sha256=comparison.sha256,
        figures=tuple(
            QualityFigure(
                name=figure.name,
                title=TITLES[figure.name],
                meaning=_MEANINGS[figure.name].format(ranges=ranges),
                value=quality_figures.divide_by_rows(int(answer[0]), figure, rows),
                noise_sd=quality_figures.divide_by_rows(query.sigma, figure, rows),
                compared=figure.compared,
                noisy_sum=int(answer[0]),
                sigma=query.sigma,
            )
            for figure, query, answer in zip(comparison.figures, queries, answers, strict=True)
        ),
    )


TITLES = {
    "one_way": "Columns: mean difference of the counts",
    "pairs": "Pairs of columns: mean difference of the counts",
    "triples": "Triples of columns: mean difference of the counts",
    "range_queries": "Range queries: mean difference of the answers",
}

_APART = "0 where all counts agree, 2 where two tables of one size have nothing in common"

_MEANINGS = {
    "one_way": "For every column: the counts of its values (in public bins) in both tables, their differences added "
    f"up, per synthetic row; then the mean over the columns. {_APART}",
    "pairs": "The same for the joint counts of two columns: over all pairs, or a fixed random choice of 1,000. "
    f"{_APART}",
    "triples": f"The same for the joint counts of three columns: over a fixed random choice of at most 100. {_APART}",
    "range_queries": "How many rows lie in ranges of {ranges}: the difference of the two tables' answers, "
    "per synthetic row; the mean over 1,000 fixed random queries. 0 where all answers agree",
}


FIELD, DELTA = "evaluate.epsilon_report", "evaluate.delta"
"""The arguments that set the price."""


def check_release(release: EvaluatedRelease) -> None:
    """Raise RequestError unless this is a whole, private release of single rows: only its table counts as public."""
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


def read_published_keys(release: EvaluatedRelease, settings: Settings) -> Mapping[str, str]:
    """Return the run's lineage keys, after checking that its released table equals the synthesized one byte for byte.

    Anyone may edit the released folder and its manifest, but not the private zone's signed reference.  Raises
    RequestError if the tables differ or the private zone does not know the run.
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
            f"the private folder {settings.private_root} does not know a release {name} of {dataset!r}",
            "Name its output folder with " + mention("settings.out") + ", or run the release again there",
            "evaluate.release",
        )
    ref = record.tables["synthetic"]
    store = Store(settings.private_root, settings.released_root, dataset)
    is_whole = ref.zone is Zone.RELEASED and ref.key == keys["decode"] and store.verify(ref)
    marks = [store.mac(path) for path in list_part_files(Path(ref.path))]
    if not is_whole or marks != [store.mac(path) for path in release.synthetic]:
        raise RequestError(
            f"the synthetic table of {name} is not the one that the private folder recorded for this run",
            "Run the release again, which puts it right",
            "evaluate.release",
        )
    return keys


def build_figures_spec(release: EvaluatedRelease, epsilon: float, delta: float | None) -> ReleaseSpec:
    """Return the release's spec at this request's price, without its prior and the releases that it improves."""
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
        raise RequestError(f"{value:g} is not valid: {message[:1].lower()}{message[1:]}", "Correct it", field) from None


def check_charged(spec: ReleaseSpec, keys: Mapping[str, str], settings: Settings) -> None:
    """Raise LedgerError unless every noisy table of the release was charged to this ledger.

    The check is by lineage key, not by run: a run that differs only in post-processing uses an earlier run's charges.
    A step without queries (one column has no pairs) has returned its reservation.
    """
    ledger = Ledger(settings.ledger)
    releases = release_steps(plan_release(spec.with_prior(None)).steps)
    states = {s.name: ledger.state(spec.dataset, keys.get(s.name, "")) for s in releases}
    if states[releases[0].name] != "spent" or not set(states.values()) <= {"spent", "cancelled"}:
        raise LedgerError(
            f"the ledger {ledger.name} has no charge of {spec.dataset!r} for the noise of this release",
            "Set " + mention("settings.ledger") + " to the ledger of the release; nothing was read",
        )


@contextmanager
def translate_refusals() -> Iterator[None]:
    """Translate the ledger's refusal into one about this request's epsilon."""
    try:
        yield
    except BudgetRefusedError as error:
        raise error.about(FIELD, {"privacy.epsilon": FIELD}) from None
