"""The public functions that make releases: release and improve.

The command line and the Prefect flows use the same parts.  Functions import what they need when called, so that
``import privsyn`` is quick.  Errors come from ``privsyn.base.errors``: each names in one paragraph the wrong argument
or field, the fault, and the cure.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from privsyn.api.open_release import Release
from privsyn.base.arguments import check_arguments
from privsyn.base.errors import PeriodReleasedError, RequestError
from privsyn.base.interrupts import defer_interrupts
from privsyn.base.places import resolve_place
from privsyn.base.process_memory import pause_gc
from privsyn.base.settings import Settings, load_settings
from privsyn.base.telemetry import Telemetry
from privsyn.base.wording import mention
from privsyn.data_contracts.release_spec import ReleaseSpec
from privsyn.engine.progress import is_in_notebook, show_progress
from privsyn.sources.open_source import AnyPlace
from privsyn.sources.private_table import Table
from privsyn.specs.spec_file import AnySpec, load_any_spec

if TYPE_CHECKING:
    from privsyn.engine.proposal import Proposal
    from privsyn.publish.folder import ReleaseSummary


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
        data: The private table, or a mapping from table names to tables; None: the table that the spec names.
        spec: What may be released, and the domain of every column, from public sources.
        epsilon: In place of the spec's ``privacy.epsilon``, > 0.
        delta: In place of the spec's ``privacy.delta``, in (0, 1).
        out: The folder for ``released/`` (publish) and ``private/`` (keep); default: ``PRIVSYN_OUT``, else
            ``privsyn-out`` in the working folder.  Apart from these, only the ledger is written (``PRIVSYN_LEDGER``,
            else a file in the user's data folder, so that the data set's cap does not depend on ``out``).
        fresh: Draw new noise even if this release exists; costs budget.
        period: The period to release, such as ``2026-11``: once, and not before it begins.
        early: The reason for releasing the period before it begins; the ledger keeps it.
        new_dataset: The reason for a second lifetime budget if this table was released under another ``dataset``; the
            ledger keeps it.  Without a reason, such a release is refused.
        progress: Show progress; None: in a notebook only.

    Returns:
        The release: its table, marginals, certificate and folder.

    Raises:
        RequestError: An argument, the spec or the table is wrong; nothing was spent.
        BudgetRefusedError: The data set's lifetime cap would be passed; no row was counted and nothing spent.
        LedgerError: The ledger cannot be trusted or reached; no row was read.
        ContractError: A step's table broke its contract; nothing was released.
        PrivsynError: Anything else, such as a full disk; call again, nothing is charged twice.

    Privacy: the released folder is (epsilon, delta)-differentially private for adding or removing one person, as the
    spec's ``unit`` defines a person.  The ledger reserves the whole price before anything is counted.
    """
    loaded = load_any_spec(spec, {"privacy": {"epsilon": epsilon, "delta": delta}})
    return _make_release(
        data, loaded, load_settings(out), progress, fresh=fresh, period=period, early=early, new_dataset=new_dataset
    )


def _make_release(
    data: Table | None,
    spec: ReleaseSpec,
    settings: Settings,
    progress: bool | None,
    *,
    fresh: bool,
    period: str | None = None,
    early: str | None = None,
    new_dataset: str | None = None,
) -> Release:
    """Make a release of ``data``, or find it; arguments and errors as :func:`release`."""
    placed, in_memory = _place_data(data, spec)
    shown = is_in_notebook() if progress is None else progress
    with defer_interrupts():
        proposal = propose_release(
            placed, settings, data=in_memory, fresh=fresh, period=period, early=early, new_dataset=new_dataset
        )
        with show_progress(proposal.plan.steps) if shown else nullcontext(proposal.report) as report:
            try:
                summary = run_proposal(replace(proposal, report=report))
            except PeriodReleasedError as done:
                folder = settings.released_root / done.run
                if folder.is_dir():
                    return Release(folder)
                raise RequestError(
                    f"{done.problem}; its released folder is not in {settings.released_root}",
                    "Set " + mention("settings.out") + " to the folder that has it",
                    "release.period",
                ) from done
    return Release(Path(summary.released), summary.drawn)


def propose_release(
    spec: ReleaseSpec,
    settings: Settings,
    *,
    data: AnyPlace | None = None,
    fresh: bool = False,
    period: str | None = None,
    new_dataset: str | None = None,
    early: str | None = None,
    calendar: str | None = None,
) -> Proposal:
    """Return the proposal of a release of ``spec``, to be admitted.  Reads no file but the ledger.

    ``data``: the table in memory (None: the file that the spec names); ``early``, ``calendar``: see the proposal.

    Raises RequestError if ``period`` is not a valid label, and LedgerError if the data set's cap decides the accountant
    and the ledger cannot be read.
    """
    with pause_gc():
        from privsyn.engine.choose_accountant import settle_accountant
        from privsyn.engine.proposal import Proposal
        from privsyn.pipelines.registry import plan_release

    spec_to_plan = spec if data is None else spec.read_at("")
    settled = settle_accountant(spec_to_plan, settings, partial(plan_release, period=period), fresh=fresh)
    plan = plan_release(settled, period)
    return Proposal(
        plan=plan, settings=settings, data=data, fresh=fresh, new_dataset=new_dataset, early=early, calendar=calendar
    )


def run_proposal(proposal: Proposal) -> ReleaseSummary:
    """Run an admitted release in this process and publish it, for the command line and for Python.

    Test noise marks the run as not private and keeps it in the private folder.  Guarantee and errors as
    :func:`release`; PeriodReleasedError if the period is released already.
    """
    with defer_interrupts():
        with pause_gc():
            from privsyn.engine.open_run import open_run
            from privsyn.engine.step import run_steps
            from privsyn.publish.folder import publish, summarize

        telemetry = Telemetry(proposal.settings)
        with open_run(proposal) as run, telemetry.observe(run.dataset, run.name) as observed:
            published = publish(run, run_steps(run.steps, observed.trace(run.run_reported)))
            observed.released = published.folder.name
            return summarize(run, published)


def _place_data(data: Table | None, spec: ReleaseSpec) -> tuple[ReleaseSpec, AnyPlace | None]:
    """Return the spec with the place of ``data``, and the table if it is in memory."""
    if spec.tables:
        return _place_tables(data, spec)
    if not isinstance(data, str | Path):
        return spec, data
    if not str(data):
        raise RequestError("names no table", "Give a path, or hand over a table in memory", "release.data")
    return spec.read_at(resolve_place(data, "release.data")), None


def _place_tables(data: object, spec: ReleaseSpec) -> tuple[ReleaseSpec, Mapping[str, Any] | None]:
    """Return the spec with the places of its tables, and the tables if any is in memory; ``data``: as given."""
    if data is None:
        return spec, None
    if not isinstance(data, Mapping) or data.keys() != spec.tables.keys():
        wanted = f"a mapping with a table each for {' and '.join(spec.tables)}"
        raise RequestError("does not fit the spec's tables", f"Hand over {wanted}", "release.data")
    paths = {n: resolve_place(place, "release.data") for n, place in data.items() if isinstance(place, str | Path)}
    placed = spec.read_at({name: paths.get(name, "") for name in spec.tables})
    return placed, None if len(paths) == len(spec.tables) else {**data, **paths}


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
    """Measure more of the unchanged table, and make a better release from all paid counts.

    Args:
        release: The release, a run's name, or its released folder; its private folder must be here.  It may itself be
            an improvement.
        epsilon: The price of the new looks alone, > 0, at the release's delta.
        data: The private table; None: the file that the run remembers.  It must be unchanged.
        out: As for ``release``.
        fresh: Draw new noise even if this improvement exists; costs budget.
        progress: As for ``release``.

    Returns:
        A new release.  Its certificate's epsilon covers all looks together, including earlier ones; only the new looks
        are charged.

    Raises:
        RequestError: The table has changed, or another mechanism than privsyn or another version of the steps made the
            run.  Nothing was spent.
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
    return _make_release(spec.data if data is None else data, spec, settings, progress, fresh=fresh)
