"""The public functions that make releases and look at them: release, improve, evaluate, rerun and ledger.

The command line and the Prefect flows do the same by the same parts.  What a function needs is imported when it is
called, so that ``import privsyn`` is quick.  Errors are those of ``privsyn.base.errors``: each says in one paragraph
what is wrong with which argument or field, and how to mend it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from privsyn.api.open_release import Release
from privsyn.api.progress import show_progress
from privsyn.base.arguments import check_arguments
from privsyn.base.data_url import resolve_place
from privsyn.base.errors import PeriodReleasedError, RequestError
from privsyn.base.interrupts import defer_interrupts
from privsyn.base.loading import pause_gc
from privsyn.base.notebook import is_in_notebook
from privsyn.base.settings import Settings, load_settings
from privsyn.base.telemetry import Telemetry
from privsyn.base.wording import mention
from privsyn.data_contracts.release_spec import ReleaseSpec
from privsyn.sources.open_source import AnyPlace
from privsyn.sources.private_table import Table
from privsyn.specs.spec_file import AnySpec, load_any_spec

if TYPE_CHECKING:
    from privsyn.api.ledger import LedgerView
    from privsyn.api.rerun import Rerun
    from privsyn.engine.candidate import Candidate
    from privsyn.engine.execute import ReportProgress
    from privsyn.evaluation.private_evaluation import Report
    from privsyn.publish.folder import ReleaseSummary
    from privsyn.tasks.privacy.noise import NoiseSource


@check_arguments
def release(
    data: Table | None,
    spec: AnySpec,
    *,
    epsilon: float | None = None,
    delta: float | None = None,
    out: str | Path | None = None,
    fresh: bool = False,
    period: str | None = None,
    early: str | None = None,
    new_dataset: str | None = None,
    progress: bool | None = None,
) -> Release:
    """Make a differentially private synthetic table from a private one, in this process.

    The same request on the same table finds its release, draws nothing and spends nothing.

    Args:
        data: The private table, or a mapping of the spec's tables by their names; None: what the spec names.
        spec: What may be released, and the domain of every column, from public sources.
        epsilon: In place of the spec's ``privacy.epsilon``, > 0.
        delta: In place of the spec's ``privacy.delta``, in (0, 1).
        out: The folder for ``released/`` (give away) and ``private/`` (keep); default: ``PRIVSYN_OUT``, else
            ``privsyn-out`` in the working folder.  Nothing else is written but the ledger (``PRIVSYN_LEDGER``, else a
            file in the user's data folder, so that the data set's cap does not depend on ``out``).
        fresh: Draw new noise although this release exists; costs budget.
        period: The period of the data set to release, such as ``2026-11``, which is released once, and not before it
            begins.
        early: Why the period is released before it begins; it is kept in the ledger.
        new_dataset: Why this table, which was released under another ``dataset``, gets a second lifetime budget; it is
            kept in the ledger.  Without it such a release is refused.
        progress: Show progress; None: in a notebook only.

    Returns:
        The release: its table, marginals, certificate and folder.

    Raises:
        RequestError: An argument, the spec or the table is wrong; nothing was spent.
        BudgetRefusedError: The data set's lifetime cap would be passed; nothing was read and nothing spent.
        LedgerError: The ledger cannot be trusted or reached; no row was read.
        ContractError: A step's table broke its contract; nothing was released from it.
        PrivsynError: Anything else, such as a full disk; call again, nothing is charged twice.

    Privacy: the released folder is (epsilon, delta)-differentially private for adding or removing one person, which is
    what the spec's ``unit`` says.  The ledger reserves the whole price before anything is counted.
    """
    loaded = load_any_spec(spec, {"privacy": {"epsilon": epsilon, "delta": delta}})
    in_memory: AnyPlace | None = None
    if loaded.tables:
        loaded, in_memory = _place_tables(data, loaded)
    elif isinstance(data, str | Path):
        if not str(data):
            raise RequestError("names no table", "Give a path, or hand over a table in memory", "release.data")
        loaded = loaded.model_copy(update={"data": resolve_place(data, "release.data"), "query": ""})
    else:
        in_memory = data
    settings = load_settings(out)
    shown = is_in_notebook() if progress is None else progress
    with defer_interrupts():
        with pause_gc():
            from privsyn.pipelines.release_plan import build_candidate

        candidate = build_candidate(
            loaded, settings, data=in_memory, fresh=fresh, period=period, early=early, new_dataset=new_dataset
        )
        with show_progress(candidate.plan.steps) if shown else nullcontext(candidate.report) as report:
            try:
                summary = run_candidate(replace(candidate, report=report))
            except PeriodReleasedError as done:
                return _open_released_period(done, settings)
    return Release(Path(summary.released), summary.drawn)


_make_release = release


def _open_released_period(done: PeriodReleasedError, settings: Settings) -> Release:
    """Return the release that a period has.  Raises RequestError if its folder is not under the settings' root."""
    folder = settings.released_root / done.run
    if not folder.is_dir():
        raise RequestError(
            f"{done.problem}; its released folder is not in {settings.released_root}",
            "Set " + mention("settings.out") + " to the folder that has it",
            "release.period",
        )
    return Release(folder)


def _place_tables(data: object, spec: ReleaseSpec) -> tuple[ReleaseSpec, Mapping[str, Any] | None]:
    """Return the spec with the places of its tables, and the tables where one is in memory; ``data``: as given."""
    if data is None:
        return spec, None
    if not isinstance(data, Mapping) or data.keys() != spec.tables.keys():
        wanted = f"a mapping with a table each for {' and '.join(spec.tables)}"
        raise RequestError("does not fit the spec's tables", f"Hand over {wanted}", "release.data")
    paths = {n: resolve_place(place, "release.data") for n, place in data.items() if isinstance(place, str | Path)}
    tables = {name: t.model_copy(update={"data": paths.get(name, "")}) for name, t in spec.tables.items()}
    placed = spec.model_copy(update={"tables": tables})
    return placed, None if len(paths) == len(tables) else {**data, **paths}


@check_arguments
def improve(
    release: Release | str | Path,
    epsilon: float,
    *,
    data: Table | None = None,
    out: str | Path | None = None,
    fresh: bool = False,
    progress: bool | None = None,
) -> Release:
    """Measure more of the same unchanged table, and make a better one of all that was paid for.

    Args:
        release: The release, a run's name, or its released folder; its private folder must be here.  It may itself be
            an improvement.
        epsilon: What the new looks cost by themselves, > 0, at the release's own delta.
        data: The private table; None: the file that the run remembers.  It must be unchanged.
        out: As for ``release``.
        fresh: Draw new noise although this improvement exists; costs budget.
        progress: As for ``release``.

    Returns:
        A release of its own.  Its certificate's epsilon is that of all its looks together, the earlier ones included,
        and only the new ones are charged.

    Raises:
        RequestError: The table has changed, or the run was made by another mechanism than privsyn or by steps of
            another version; nothing was spent.
        PrivsynError: As for ``release``.

    Privacy: the released folder is (epsilon, delta)-differentially private with its certificate's epsilon; by the
    ledger's sum, so are the earlier releases and this one together.
    """
    from privsyn.engine.improved_run import build_improved_spec

    settings = load_settings(out)
    run = release.run if isinstance(release, Release) else str(release)
    path = data if isinstance(data, str | Path) else None
    spec = build_improved_spec(run, settings, epsilon, path)
    if data is None and not spec.data:
        raise RequestError(
            f"the table of {run} was handed over in memory, and is not here", "Hand it over again", "release.data"
        )
    return _make_release(spec.data if data is None else data, spec, out=out, fresh=fresh, progress=progress)


def release_in_process(
    spec: ReleaseSpec,
    settings: Settings,
    *,
    data: AnyPlace | None = None,
    fresh: bool = False,
    period: str | None = None,
    early: str | None = None,
    new_dataset: str | None = None,
    noise: NoiseSource | None = None,
    report: ReportProgress | None = None,
) -> ReleaseSummary:
    """Run a release, of a period or of none: ``release`` for callers with settings and a progress of their own.

    ``data``: the table in memory (None: the file that the spec names); ``noise`` other than the release source marks
    the run not private and keeps it private.  Guarantee and errors as ``release``; PeriodReleasedError for a
    period that has its release.
    """
    with defer_interrupts():
        with pause_gc():
            from privsyn.pipelines.release_plan import build_candidate

        candidate = build_candidate(
            spec, settings, data=data, fresh=fresh, period=period, early=early, new_dataset=new_dataset
        )
        if noise is not None:
            candidate = replace(candidate, noise=noise)
        return run_candidate(replace(candidate, report=report or candidate.report))


def run_candidate(candidate: Candidate) -> ReleaseSummary:
    """Run an admitted release in this process, and publish it.  Guarantee and errors as ``release``."""
    with defer_interrupts():
        with pause_gc():
            from privsyn.engine.open_run import open_run
            from privsyn.engine.step import run_steps
            from privsyn.publish.folder import publish, summarize

        telemetry = Telemetry(candidate.settings)
        with open_run(candidate) as run, telemetry.observe(run.dataset, run.name) as observed:
            published = publish(run, run_steps(run.steps, observed.trace(run.run_reported)))
            observed.released = published.folder.name
            return summarize(run, published)


@check_arguments
def evaluate(
    release: Release | str | Path,
    data: Table | None = None,
    *,
    holdout: Table | None = None,
    against: Sequence[Table] = (),
    settings: str | Path | None = None,
    labels: Sequence[str] = (),
    out: str | Path | None = None,
) -> Report:
    """Compare a release with the private table: scores, causes, and one private page.  PRIVATE: do not share.

    Args:
        release: The release, a run's name, or a released folder.
        data: The private table; None: the file that the run remembers.
        holdout: Real rows that the release has not seen, for attacks and honest model tests.
        against: Other tables of the same columns, to be scored beside it.
        settings: The path of an evaluation settings file (YAML).
        labels: Columns that models predict; default: the settings', or none.
        out: As for ``release``; the report lies in its private folder.

    Returns:
        The report: ``scores`` by table and metric; ``html`` and ``figures``, its files.  It prints no figure.

    Raises:
        RequestError: An argument is wrong, or a table does not fit the release; raised before any row is read.

    Privacy: nothing is released and nothing is charged, but every figure is a function of the private rows.
    """
    from privsyn.evaluation.private_evaluation import EvaluationRequest
    from privsyn.evaluation.private_evaluation import evaluate as run_evaluation
    from privsyn.evaluation.settings_file import load_evaluation_spec

    evaluation_spec = load_evaluation_spec(None if settings is None else Path(settings), labels)
    return run_evaluation(
        EvaluationRequest(_name_release(release), data, holdout, against, evaluation_spec), load_settings(out)
    )


@check_arguments
def rerun(
    release: Release | str | Path,
    *,
    keep: str | Path | None = None,
    out: str | Path | None = None,
    prior: str | Path | None = None,
) -> Rerun:
    """Make a release again from its released folder alone, and compare every file with its manifest.

    Args:
        release: The release, a run's name, or a released folder.
        keep: A folder that is not there yet, for the files that were made; None: they are not kept.
        out: As for ``open_release``.
        prior: The file of the release's public prior, or the folder of the release that it was, where it had one.

    Returns:
        What agrees: ``agrees`` (all does), ``files``, ``problems``.

    Raises:
        RequestError: It is not a release or is one of another version, ``prior`` is not its public prior, or ``keep``
            exists already.

    Privacy: anybody may do this.  It needs no ledger, no private folder and no table, draws nothing and costs nothing.
    """
    from privsyn.api.rerun import rerun as run_again

    places = [None if place is None else Path(place) for place in (keep, prior)]
    return run_again(_name_release(release), load_settings(out), places[0], prior=places[1])


@check_arguments
def ledger(*, out: str | Path | None = None) -> LedgerView:
    """Return the privacy ledger, to look at: ``show()``, ``entries(dataset)``, ``verify()``.

    Args:
        out: The folder whose certificates ``verify`` compares it with; default: as for ``release``.

    Returns:
        A view of the ledger that ``PRIVSYN_LEDGER`` names, else of the one in the user's data folder.

    Raises:
        RequestError: A setting is wrong.  The view's own methods say what they raise.

    Privacy: reads no private table, spends nothing, and makes no ledger where there is none.
    """
    from privsyn.api.ledger import LedgerView

    return LedgerView(load_settings(out))


def _name_release(release: Release | str | Path) -> str:
    """Return the folder of a release, or the run or folder that names it."""
    return str(release.folder if isinstance(release, Release) else release)
