"""A release without Prefect: the same preflight, shell, wiring and publishing, in this process.

Belongs here: the runner for tests and benchmarks.  Does not belong here: anything that the Prefect flow
(flows/release.py) would do differently with the data, the ledger or the files.
"""

from __future__ import annotations

from data_contracts.spec import ReleaseSpec
from flows.preflight import open_run, release_job
from flows.publish import ReleaseSummary, publish, summarize
from flows.settings import Settings
from flows.shell import ReportProgress, StepRefs
from flows.step import Step
from flows.wiring import release_steps
from tasks.privacy.noise import NoiseSource


def release_directly(
    spec: ReleaseSpec,
    settings: Settings,
    *,
    fresh: bool = False,
    period: str | None = None,
    noise: NoiseSource | None = None,
    report: ReportProgress = lambda step, done, total: None,
) -> ReleaseSummary:
    """Run a release, of a period or of none.

    ``noise`` other than the release source marks the run not private and keeps it private.  Same guarantee, errors
    and results as :func:`flows.release.release`; PeriodReleasedError for a period that has its release.
    """
    job = release_job(spec, period)
    with open_run(spec, settings, fresh=fresh, report=report, noise=noise, job=job) as run:

        def step(step: Step, *inputs: StepRefs) -> StepRefs:
            return run.shell.execute(step, {refs.step: refs for refs in inputs})

        return summarize(run, publish(run, release_steps(step, spec.adaptive.rounds)))
