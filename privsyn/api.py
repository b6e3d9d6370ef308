"""The public functions: epsilon, forecast, release, evaluate, compare, rerun, and looking at specs and at the ledger.

The command line and the Prefect flows do the same by the same parts.  What a function needs is imported when it is
called, so that ``import privsyn`` is quick.  Errors are those of ``privsyn.errors``: each says
in one paragraph what is wrong with which argument or field, and how to mend it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from privsyn.data_contracts.release_spec import ReleaseSpec
from privsyn.errors import PeriodReleasedError, RequestError
from privsyn.loading import no_collection
from privsyn.notebook import in_notebook
from privsyn.paths import expanded
from privsyn.progress import shown_progress
from privsyn.released import Release
from privsyn.settings import Settings, settings_for
from privsyn.source.private_table import SupportsArrowStream
from privsyn.spec_draft import spec_of

if TYPE_CHECKING:
    import pandas as pd

    from privsyn.comparison.compare_methods import Compared
    from privsyn.evaluation.private_evaluation import Report
    from privsyn.forecasts.forecast import Forecast
    from privsyn.ledger_view import LedgerView
    from privsyn.publish.folder import ReleaseSummary
    from privsyn.reproduction import Rerun
    from privsyn.run.execute import ReportProgress
    from privsyn.spec_check import CheckReport
    from privsyn.tasks.privacy.noise import NoiseSource

Table: TypeAlias = str | Path | SupportsArrowStream
"""A private table: a path (CSV or Parquet, a file or a folder), or a table in memory (pandas, pyarrow, polars, or any
object that exports an Arrow stream as often as it is asked)."""

AnySpec: TypeAlias = ReleaseSpec | Mapping[str, Any] | str | Path
"""A release spec: the model, a mapping as the YAML file has it (a draft is one), or the path of such a file."""


def release(
    data: Table | None,
    spec: AnySpec,
    *,
    epsilon: float | None = None,
    delta: float | None = None,
    out: str | Path | None = None,
    fresh: bool = False,
    period: str | None = None,
    new_dataset: str | None = None,
    progress: bool | None = None,
) -> Release:
    """Make a differentially private synthetic table from a private one, in this process.

    The same request on the same table finds its release, draws nothing and spends nothing.

    Args:
        data: The private table; None: the file that the spec names.
        spec: What may be released, and the domain of every column, from public sources.
        epsilon: In place of the spec's ``privacy.epsilon``, > 0.
        delta: In place of the spec's ``privacy.delta``, in (0, 1).
        out: The folder for ``released/`` (give away) and ``private/`` (keep); default: ``PRIVSYN_OUT``, else
            ``privsyn-out`` in the working folder.  Nothing else is written but the ledger (``PRIVSYN_LEDGER``, else a
            file in the user's data folder, so that the data set's cap does not depend on ``out``).
        fresh: Draw new noise although this release exists; costs budget.
        period: The period of the data set to release, such as ``2026-11``, which is released once.
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
    asked = spec_of(spec, {"privacy": {"epsilon": epsilon, "delta": delta}})
    in_memory = None
    if isinstance(data, str | Path):
        if not str(data):
            raise RequestError("names no table", "Give a path, or hand over a table in memory", "release.data")
        asked = asked.model_copy(update={"data": str(expanded(data, "release.data").absolute())})
    else:
        in_memory = data
    settings = settings_for(out)
    shown = in_notebook() if progress is None else progress
    with _shown(asked, period) if shown else nullcontext(_silent) as report:
        try:
            summary = release_in_process(
                asked, settings, data=in_memory, fresh=fresh, period=period, new_dataset=new_dataset, report=report
            )
        except PeriodReleasedError as done:
            return Release(settings.released_root / done.run)
    return Release(Path(summary.released), summary.drawn)


_make_release = release


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
        out: As for :func:`release`.
        fresh: Draw new noise although this improvement exists; costs budget.
        progress: As for :func:`release`.

    Returns:
        A release of its own.  Its certificate's epsilon is that of all its looks together, the earlier ones included,
        and only the new ones are charged.

    Raises:
        As :func:`release`, and RequestError if the table has changed, or the run was made by another mechanism than
        privsyn or by steps of another version; nothing was spent.

    Privacy: the released folder is (epsilon, delta)-differentially private with its certificate's epsilon; by the
    ledger's sum, so are the earlier releases and this one together.
    """
    from privsyn.improvement import improved_spec

    settings = settings_for(out)
    run = release.run if isinstance(release, Release) else str(release)
    path = data if isinstance(data, str | Path) else None
    spec = improved_spec(run, settings, epsilon, path)
    if data is None and not spec.data:
        raise RequestError(
            f"the table of {run} was handed over in memory, and is not here", "Hand it over again", "release.data"
        )
    return _make_release(spec.data if data is None else data, spec, out=out, fresh=fresh, progress=progress)


def release_in_process(
    spec: ReleaseSpec,
    settings: Settings,
    *,
    data: SupportsArrowStream | None = None,
    fresh: bool = False,
    period: str | None = None,
    new_dataset: str | None = None,
    noise: NoiseSource | None = None,
    report: ReportProgress = lambda step, done, total: None,
) -> ReleaseSummary:
    """Run a release, of a period or of none: :func:`release` for callers with settings and a progress of their own.

    ``data``: the table in memory (None: the file that the spec names); ``noise`` other than the release source marks
    the run not private and keeps it private.  Guarantee and errors as :func:`release`; PeriodReleasedError for a
    period that has its release.
    """
    with no_collection():
        from privsyn.mechanisms.release_job import release_job
        from privsyn.publish.folder import publish, summarize
        from privsyn.run.open_run import open_run
        from privsyn.run.runner import run_steps

    job = release_job(spec, period, new_dataset)
    with open_run(spec, settings, fresh=fresh, report=report, noise=noise, job=job, data=data) as run:
        return summarize(run, publish(run, run_steps(run.shell.steps, run.shell.run_reported)))


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
        out: As for :func:`release`; the report lies in its private folder.

    Returns:
        The report: ``scores`` by table and metric; ``html`` and ``figures``, its files.  It prints no figure.

    Raises:
        RequestError: An argument is wrong, or a table does not fit the release; raised before any row is read.

    Privacy: nothing is released and nothing is charged, but every figure is a function of the private rows.
    """
    from privsyn.evaluation.private_evaluation import EvaluationRequest
    from privsyn.evaluation.private_evaluation import evaluate as run_evaluation
    from privsyn.evaluation.settings_file import load_evaluation_spec

    asked = load_evaluation_spec(None if settings is None else Path(settings), labels)
    return run_evaluation(EvaluationRequest(_name_of(release), data, holdout, against, asked), settings_for(out))


def compare(
    spec: AnySpec,
    *,
    methods: Sequence[str] | Literal["all"] | None = None,
    epsilons: Sequence[float] | None = None,
    seeds: int = 3,
    holdout: str | Path | None = None,
    labels: Sequence[str] = (),
    out: str | Path | None = None,
) -> Compared:
    """Run methods at several epsilons and seeds on one table and score each.  PRIVATE, and not a release.

    Args:
        spec: The table's file, its columns, delta, and the settings of the method ``default``; its ``rules``,
            ``levels`` and ``totals`` take no part.
        methods: Names of methods, or ``all``; None: ``default``, ``privsyn-paper`` and ``independent``.
        epsilons: Each > 0; None: 0.2, 1 and 2.
        seeds: Repetitions, with the seeds 0 to ``seeds`` - 1; at least 1.
        holdout: The path of real rows that no method sees.
        labels: Columns that models predict; default: chosen by their kinds.
        out: As for :func:`release`; results lie in its private folder.

    Returns:
        ``folder``, with a table and plots, and ``results``, which print no figure.

    Raises:
        RequestError: An argument is wrong, or the table does not fit the spec.

    Privacy: the noise has a seed and the figures are exact functions of the real rows, so this is for data that is
    public or stays where it is.  Nothing is released and nothing is charged.
    """
    from privsyn.comparison.compare_methods import DEFAULT_EPSILONS, DEFAULT_METHODS, CompareRequest
    from privsyn.comparison.compare_methods import compare as run_comparison
    from privsyn.comparison.methods import METHODS
    from privsyn.evaluation.settings_file import load_evaluation_spec

    request = CompareRequest(
        spec=spec_of(spec),
        methods=DEFAULT_METHODS if methods is None else tuple(METHODS) if methods == "all" else methods,
        epsilons=DEFAULT_EPSILONS if epsilons is None else epsilons,
        seeds=seeds,
        holdout=None if holdout is None else str(holdout),
        evaluation=load_evaluation_spec(None, labels or "auto"),
    )
    return run_comparison(request, settings_for(out))


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
        out: As for :func:`open_release`.
        prior: The file of the release's public prior, where it had one.

    Returns:
        What agrees: ``agrees`` (all does), ``files``, ``problems``.

    Raises:
        RequestError: It is not a release or is one of another version, or ``keep`` exists already.

    Privacy: anybody may do this.  It needs no ledger, no private folder and no table, draws nothing and costs nothing.
    """
    from privsyn.reproduction import rerun as run_again

    places = [None if place is None else Path(place) for place in (keep, prior)]
    return run_again(_name_of(release), settings_for(out), places[0], prior=places[1])


def check_spec(spec: AnySpec, data: Table | None = None) -> CheckReport:
    """What a spec would do: warnings, predicted noise and sizes; with a table also how well it fits.

    Args:
        spec: The spec.
        data: The private table; None: nothing but the spec is looked at.

    Returns:
        ``warnings``, ``noise`` and ``columns``, all public; ``fit``, PRIVATE, which prints no figure.

    Raises:
        RequestError: The spec is wrong or still open, or the table does not have its columns.

    Privacy: draws nothing, spends nothing and writes nothing; ``fit`` is an exact function of the private rows.
    """
    from privsyn.source.open_source import open_source
    from privsyn.spec_check import check

    asked = spec_of(spec)
    return check(asked, None if data is None else open_source(data, asked))


def forecast(
    spec: AnySpec,
    rows: int,
    *,
    epsilons: Sequence[float] | None = None,
    earlier: str | Path | None = None,
    public: str | Path | None = None,
    strength: float | None = None,
    seeds: int = 2,
    progress: bool | None = None,
) -> Forecast:
    """What a release would be worth, before anything is spent: releases in memory of a table from public things.

    Args:
        spec: The spec; the table that it names is not opened.
        rows: About how many rows the table has, from public knowledge: 1 to 1,000,000.
        epsilons: At most 11, each > 0; None: 0.2, 0.5, 1, 2 and 5.  The spec's own is added.
        earlier: A released folder (or a run's name) of the same columns, whose rows stand in for the private ones.
        public: The path of a public table of the same columns that does so.
        strength: Without both, rows are like those of the spec's prior, which cannot fit better.  Without a prior,
            columns of a usual shape are made up; pairs of them are correlated by 0 to ``strength``, which is 0 to 1,
            most of them weakly; None: 0.9.
        seeds: Simulated releases at each epsilon, 1 to 20.
        progress: Show a bar; None: in a notebook only.

    Returns:
        For each epsilon: how sure each column will be, the error of each mean, how many pairs of columns will be
        measured and how strongly they must be related, and as how large a random sample the rows will be as good.
        ``words`` says what was assumed and where that enters; ``plot(path)`` draws it.

    Raises:
        RequestError: An argument or the spec is wrong, or a table does not fit it.

    Privacy: no argument may be private.  Nothing is drawn for a release, spent or written; the noise has a seed.
    """
    from privsyn.forecasts.forecast import forecast as simulated
    from privsyn.progress import one_bar

    shown = in_notebook() if progress is None else progress
    with one_bar("simulating") if shown else nullcontext(_unseen) as report:
        return simulated(
            spec_of(spec),
            rows,
            epsilons=epsilons,
            earlier=earlier,
            public=public,
            strength=strength,
            seeds=seeds,
            progress=report,
        )


def epsilon(
    spec: AnySpec | None = None, *, epsilons: Sequence[float] | None = None, delta: float | None = None
) -> pd.DataFrame:
    """What an attacker can learn at each epsilon, to choose one: what ``privsyn epsilon`` shows.

    Args:
        spec: Its epsilon is added, and its delta taken; the table that it names is not opened.
        epsilons: Each > 0; None: 0.1, 0.2, 0.5, 1, 2, 5 and 10.
        delta: Between 0 and 1; None: the spec's, else 1e-9.

    Returns:
        A row an epsilon, ascending: ``epsilon``; ``delta``; ``guess`` and ``any_promise``, the probability (0.5 to 1)
        that the best guess at even chances whether a person is in the table is right, of this noise and of any
        mechanism of the same promise; ``typical_10`` and ``most_10``, what an attacker who believed 10 % of a person
        who is in the table believes then (0 to 1), in half of all releases at most and at most; ``found``, the share of
        those in the table that a test recognises which is wrong for 1 % of the others.  ``attrs["published"]``: what
        others published with, as mappings, from ``attrs["source"]``.  :func:`forecast` says what a release is worth.

    Raises:
        RequestError: The spec is wrong, or the epsilons and delta cannot be accounted.

    Privacy: reads no private table, spends nothing.
    """
    import pandas as pd

    from privsyn.forecasts.attacker import USUAL_DELTA, USUAL_EPSILONS, risks
    from privsyn.forecasts.published_epsilons import PUBLISHED, SOURCE

    asked = None if spec is None else spec_of(spec)
    promised = delta if delta is not None else USUAL_DELTA if asked is None else asked.privacy.delta
    wanted = [*(USUAL_EPSILONS if epsilons is None else epsilons), *([] if asked is None else [asked.privacy.epsilon])]
    rows = []
    for risk in risks(wanted, promised):
        even, tenth, _ = risk.guesses
        told = {"guess": even.after, "any_promise": even.any_promise, "typical_10": tenth.typical}
        rows.append({"epsilon": risk.epsilon, "delta": risk.delta, **told, "most_10": tenth.most, "found": risk.found})
    table = pd.DataFrame(rows)
    table.attrs |= {"published": [entry._asdict() for entry in PUBLISHED], "source": SOURCE}
    return table


def ledger(*, out: str | Path | None = None) -> LedgerView:
    """The privacy ledger, to look at: ``show()``, ``entries(dataset)``, ``verify()``.

    Args:
        out: The folder whose certificates ``verify`` compares it with; default: as for :func:`release`.

    Returns:
        A view of the ledger that ``PRIVSYN_LEDGER`` names, else of the one in the user's data folder.

    Raises:
        RequestError: A setting is wrong.  The view's own methods say what they raise.

    Privacy: reads no private table, spends nothing, and makes no ledger where there is none.
    """
    from privsyn.ledger_view import LedgerView

    return LedgerView(settings_for(out))


def _shown(spec: ReleaseSpec, period: str | None) -> AbstractContextManager[ReportProgress]:
    """A bar over the steps of a release."""
    from privsyn.mechanisms.release_job import release_job

    return shown_progress(release_job(spec, period).steps)


def _name_of(release: Release | str | Path) -> str:
    return str(release.folder if isinstance(release, Release) else release)


def _silent(step: str, done: int, total: int) -> None:
    """No progress."""


def _unseen(done: int, total: int) -> None:
    """No progress."""
