"""The release flow: private table in, differentially private synthetic table out.

Its tasks, with their names in the UI, in the order of Algorithm 3. Only release steps spend budget. In brackets: the
releases that have a step.

    Encode                        transform     the private rows as codes of the public domain
    Rung counts                   release       rough counts of intervals that double in width [ordered columns without
                                                  `bins` or `edges`]
    Choose cells                  postprocess   narrow cells where the rough counts show rows [after rung counts]
    Encode in chosen cells        transform     the rows as codes of the chosen cells [after rung counts]
    One-way marginals             release       rho1: every column on its own
    Compress domain               postprocess   rare values are combined, by their noisy counts
    Recode rows                   transform     the rows in the combined codes
    InDif scores                  release       rho2: how strongly every pair is related
    Trend scores                  release       how two ordered columns rise together, one number a pair [two ordered
                                                  columns or more, no `prior`]
    Select pairs                  postprocess   DenseMarg, or the least expected error
    Combine cliques               postprocess   small overlapping pairs become cliques
    Measure marginals             release       rho3: the cliques' counts, weighted Gaussian noise
    Find heavy cells              postprocess   cells in which one value may have most of the rows [before value counts]
    Locate values                 transform     which of these values each row has [before value counts]
    Value counts                  release       how many rows have each of these values [columns of numbers with wide
                                                  cells]
    Plan halves                   postprocess   each column in two halves of about equal counts [before triple scores]
    Halve rows                    transform     the rows in the merged codes [before triple scores]
    Triple scores                 release       how well two columns together predict one in focus [`focus` asks for
                                                  triples]
    Plan sets                     postprocess   the cells of each named set, as many as the noise allows [before sets
                                                  are measured]
    Merge rows                    transform     the rows in the merged codes [before sets are measured]
    Measure sets                  release       joint counts of the named sets [`workload`, `compare`, triples of
                                                  `focus`]
    Pair rows                     transform     a row of each person with the next one [linked rows whose columns
                                                  change]
    Measure transitions           release       a row's codes by the next row's [linked rows whose columns change]
    Keep rows                     transform     all rows of each person in the combined codes [linked rows of persons]
    Measure rows                  release       every column over all rows [linked rows of persons]
    List persons without rows     transform     persons that have no row [`tables`]
    Measure persons without rows  release       their columns, one by one [`tables`]
    Refine codes                  postprocess   all counts of single columns pooled, and where rows lie inside a code
    Make consistent               postprocess   all counts agree, none is negative
    Synthesize                    postprocess   rows that follow the counts (GUM, or sweeps)
    Append attributes             postprocess   attributes in no larger clique
    Link rows                     postprocess   each record becomes a person with rows before and after [linked rows]
    Make persons without rows     postprocess   as many as the noisy counts say [`tables`]
    Decode                        postprocess   codes become values
    Publish                                     the released folder is written, checked and entered in the ledger

Other mechanisms have other steps (privsyn/pipelines/); every flow runs the steps of its request.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import AbstractContextManager
from contextvars import ContextVar
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any, cast

import filelock
from prefect import Task, flow, get_run_logger
from prefect.cache_policies import CacheKeyFnPolicy
from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import FlowRunFilter
from prefect.context import FlowRunContext
from prefect.locking.filesystem import FileSystemLockManager
from prefect.transactions import IsolationLevel
from pydantic import Field

from privsyn.api.release import propose_release
from privsyn.base.errors import BudgetRefusedError, ContractError, PeriodReleasedError, PrivsynError
from privsyn.base.places import make_safe_name
from privsyn.base.settings import Settings
from privsyn.base.telemetry import Telemetry
from privsyn.data_contracts.release_spec import ReleaseSpec
from privsyn.engine.execute import ReportProgress, Run
from privsyn.engine.open_run import open_run
from privsyn.engine.proposal import log_warning
from privsyn.engine.step import Step, get_step, run_steps
from privsyn.engine.step_tables import StepRefs, validate_with_great_expectations
from privsyn.flows.private_errors import get_settings, hide_private_errors, set_within
from privsyn.flows.run_page import StepProgress, name_run, show_broken_contract, show_refusal, show_release
from privsyn.flows.states import get_dataset, make_already_released_state, make_failed_state, make_released_state
from privsyn.publish.folder import Published, ReleaseSummary, publish, summarize

NewDataset = Annotated[str, Field(description="Why a table that is known under another name gets a second budget.")]

_current: ContextVar[Run] = ContextVar("privsyn_run")
_reporter: ContextVar[ReportProgress | None] = ContextVar("privsyn_reporter", default=None)
_progress: ContextVar[ReportProgress | None] = ContextVar("privsyn_progress", default=None)


@flow(
    name="release",
    flow_run_name="{spec.dataset}",
    description="Private table in, differentially private synthetic table out. What it would be worth, before anything "
    "is spent: `privsyn spec check SPEC --rows-about N`.",
    persist_result=False,
)
def release(spec: ReleaseSpec, fresh: bool = False, new_dataset: NewDataset | None = None) -> ReleaseSummary:
    """Run PrivSyn on the private table that ``spec`` names.

    Args:
        spec: The release spec, in the form of the YAML file.
        fresh: Draw new noise even if a cached release exists; costs budget.
        new_dataset: The reason for a second budget if the table was released under another name; the ledger keeps it.

    Returns the release and its cost.  Privacy: the released files are (epsilon, delta)-differentially private for
    adding or removing one person (``spec.unit``), by the sum of the release steps' prices.  The ledger reserves that
    sum before anything is counted.

    A release that the cap refuses ends in a FAILED state named Refused.  A broken data contract ends in a FAILED state
    named ContractFailed (flows/states.py).  The caller gets BudgetRefusedError or ContractError.
    """
    return run_release(spec, fresh=fresh, new_dataset=new_dataset)


def run_release(
    spec: ReleaseSpec,
    *,
    fresh: bool = False,
    period: str | None = None,
    early: str | None = None,
    calendar: str | None = None,
    new_dataset: str | None = None,
) -> ReleaseSummary:
    """Run the body of this flow and of the scheduled one (flows/schedule.py), with the same results.

    ``period``: the period to release.  If it is released already, the flow run ends in a COMPLETED state named Cached
    and returns the earlier release's summary.  ``early``: the reason for releasing it before it begins.  ``calendar``:
    the time zone in which it begins (None: this computer's).
    """
    try:
        with hide_private_errors("release"):
            proposal = propose_release(
                spec,
                get_settings(),
                fresh=fresh,
                period=period,
                early=early,
                calendar=calendar,
                new_dataset=new_dataset,
            )
            telemetry = Telemetry(proposal.settings)
            log_lock_holder(spec.dataset, proposal.settings)
            with (
                open_run(replace(proposal, report=_report, warn=_warn)) as run,
                telemetry.observe(run.dataset, run.name) as observed,
            ):
                run.validate = validate_with_great_expectations
                name_run(run.name)
                refs = run_steps(run.steps, observed.trace(partial(_run_step, run)))
                published = _run_publish(run, refs)
                observed.released = published.folder.name
                summary = summarize(run, published)
            show_release(run, refs, published)
            return cast(ReleaseSummary, make_released_state(summary))
    except PeriodReleasedError as done:
        state = make_already_released_state(done, get_settings())
        return cast(ReleaseSummary, state)  # Prefect takes a state in a result's place
    except PrivsynError as error:
        if isinstance(error, BudgetRefusedError):
            show_refusal(spec.dataset, error)
        return cast(ReleaseSummary, make_failed_state(error))


def _warn(sentence: str) -> None:
    """Log the sentence in the flow run, or warn with Python outside a flow run."""
    if FlowRunContext.get() is None:
        log_warning(sentence)
    else:
        get_run_logger().warning(sentence)


def _run_step(run: Run, step: Step, inputs: Mapping[str, StepRefs]) -> StepRefs:
    """Run one step as a Prefect task with the step's name; a step with complete cached outputs shows as Cached.

    The kind is in the run's name, not in a tag, because Prefect asks its server for a slot for each tag.  A busy SQLite
    server answers late: a release of 662,000 rows waited 12 of 72 seconds.
    """
    run.report(step.name, 0, 1)
    prefect_task = Task(
        fn=_execute,
        name=step.title,
        task_run_name=step.label,
        cache_policy=_build_cache_policy(run.store.private_root / "prefect", run.dataset),
        persist_result=True,
        result_serializer="json",
        result_storage=_locate_results(run),
        refresh_cache=not _is_reusable(run, step),
        log_prints=False,
    )
    try:
        with set_within(_current, run), StepProgress(step) as bar, set_within(_progress, bar.report):
            refs = prefect_task(step=step.name, key=run.keys[step.name], inputs=list(inputs.values()))
    except ContractError as error:
        show_broken_contract(run.dataset, error)
        raise
    run.report(step.name, 1, 1)
    return refs


def _run_publish(run: Run, refs: Mapping[str, StepRefs]) -> Published:
    """Publish the release as a Prefect task for the run's page; never cached: the folder shows if it is complete."""

    def publish_after(last: StepRefs) -> Published:  # the page draws the line from that step
        with hide_private_errors("release"):
            return publish(run, refs)

    task = Task(fn=publish_after, name="Publish", task_run_name="Publish", persist_result=False, log_prints=False)
    return task(list(refs.values())[-1])


def _is_reusable(run: Run, step: Step) -> bool:
    """Return whether a cached reference may be used: its files are complete, and Prefect still has its result file."""
    record = run.store.private_root / "prefect" / "records" / _format_record_name(step.name, run.keys[step.name])
    try:
        result = Path(json.loads(record.read_text(encoding="utf-8"))["storage_key"])
        refs = StepRefs.model_validate(json.loads(result.read_text(encoding="utf-8"))["data"])
    except (OSError, ValueError, KeyError, TypeError):
        return False
    is_result_of_run = result.is_relative_to(_locate_results(run).resolve()) and refs.key == run.keys[step.name]
    return is_result_of_run and run.is_whole(step)


def _locate_results(run: Run) -> Path:
    """Return the folder of Prefect's results (references only), which all runners share."""
    return run.store.private_root / "prefect" / "results"


def _execute(step: str, key: str, inputs: list[StepRefs]) -> StepRefs:
    """Run one step, as the body of every Prefect task.  Its parameters hold references only."""
    run = _current.get()
    declared = get_step(run.steps, step)
    with hide_private_errors("release"):
        return run.execute(declared, {refs.step: refs for refs in inputs})


def _build_cache_policy(folder: Path, dataset: str) -> Any:
    """Return Prefect's own caching: keyed by lineage, records beside the artifacts, one executor at a time."""
    return CacheKeyFnPolicy(cache_key_fn=lambda _, given: _format_record_name(given["step"], given["key"])).configure(
        key_storage=folder / "records",
        lock_manager=FileSystemLockManager(folder / "locks" / dataset),
        isolation_level=IsolationLevel.SERIALIZABLE,
    )


def _format_record_name(step: str, key: str) -> str:
    return f"{step}-{key}"


def _report(step: str, done: int, total: int) -> None:
    for reporter in (_reporter.get(), _progress.get()):
        if reporter is not None:
            reporter(step, done, total)


def report_steps(reporter: ReportProgress) -> AbstractContextManager[None]:
    """Send the progress of releases inside the block to ``reporter`` (step, done, total)."""
    return set_within(_reporter, reporter)


def log_lock_holder(dataset: str, settings: Settings) -> None:
    """Log one line if another release of ``dataset`` is running now.  Outside a flow run, does nothing.

    The lock itself decides; this is information only.  An error here fails nothing.
    """
    context = FlowRunContext.get()
    if context is None:
        return
    try:
        if _is_held(dataset, settings):
            get_run_logger().info("Waiting for %s, which holds %s.", _name_holder(dataset, context), dataset)
    except Exception as error:  # whatever it is: the release says itself what is wrong
        get_run_logger().warning("Who is waited for cannot be said (%s).", type(error).__name__)


def _is_held(dataset: str, settings: Settings) -> bool:
    """Return whether the data set's lock is held; a free lock is taken and released."""
    file = settings.private_root / "locks" / f"{make_safe_name(f'release-{dataset}')}.lock"
    if not file.exists():
        return False
    try:
        with filelock.FileLock(file, timeout=0):
            return False
    except filelock.Timeout:
        return True


def _name_holder(dataset: str, context: FlowRunContext) -> str:
    own_id = context.flow_run.id if context.flow_run is not None else None
    running = FlowRunFilter.model_validate({"state": {"type": {"any_": ["RUNNING"]}}})
    with get_client(sync_client=True) as client:
        runs = client.read_flow_runs(flow_run_filter=running)
    names = [f"the run {r.name}" for r in runs if r.id != own_id and get_dataset(r.parameters) == dataset]
    return " or ".join(names) or "a release that this server does not know"
