"""Plan a release from its spec."""

from __future__ import annotations

from privsyn.base.calendar_periods import check_period
from privsyn.data_contracts.release_spec import ReleaseSpec
from privsyn.engine.plan import Plan
from privsyn.engine.request import Request
from privsyn.pipelines.registry import build_steps

NO_REDRAW = "release another period: one period is drawn once"
"""The advice when the noise of a period's release is lost."""


def plan_release(spec: ReleaseSpec, period: str | None = None, *, column_order: tuple[str, ...] = ()) -> Plan:
    """Return the public plan of a release of ``spec``, for a period if one is given.  Opens no file.

    ``column_order``: see the request.  Raises RequestError if ``period`` is not a valid label.
    """
    request = Request(spec, column_order)
    steps = build_steps(request)
    if period is None:
        return Plan(request, steps)
    name, asks = f"{spec.dataset}-{period.lower()}", {"period": check_period(period)}
    return Plan(request, steps, asks=asks, period=period, name=name, redraw=NO_REDRAW)
