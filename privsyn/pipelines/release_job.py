"""The job and the public plan of a release, from its spec."""

from __future__ import annotations

from privsyn.data_contracts.domain import Domain
from privsyn.data_contracts.release_spec import ReleaseSpec
from privsyn.engine.job import Job
from privsyn.engine.plan import Plan
from privsyn.engine.request import Request
from privsyn.ledgers.calendar_periods import check_period
from privsyn.pipelines.registry import build_steps
from privsyn.tasks.kernels.counting import CodeTable

NO_REDRAW = "release another period: one period is drawn once"
"""What a release of a period says where its noise is lost."""


def release_job(spec: ReleaseSpec, period: str | None = None, new_dataset: str | None = None) -> Job:
    """Return a release of ``spec``, for a period or for none; ``new_dataset`` is the job's.

    Raises RequestError if ``period`` is not a period's label.
    """
    steps = build_steps(_drop_prior_rows(spec))
    if period is None:
        return Job(steps, new_dataset=new_dataset)
    asks = {"period": check_period(period)}
    name = f"{spec.dataset}-{period.lower()}"
    return Job(steps, asks=asks, name=name, redraw=NO_REDRAW, period=period, new_dataset=new_dataset)


def _drop_prior_rows(spec: ReleaseSpec) -> Request:
    """Return the request with no row of its prior: the same steps, and no file is opened before the policy is asked."""
    if spec.prior is None:
        return Request(spec)
    return Request(spec.model_copy(update={"prior": spec.prior.at("")}), prior=CodeTable(Domain((), ()), ()))


def plan_of(spec: ReleaseSpec, column_order: tuple[str, ...] = ()) -> Plan:
    """Return the public plan of a release of ``spec``.  Raises RequestError if its promise cannot be accounted."""
    request = Request(spec, column_order)
    return Plan.of(request, build_steps(request))
