"""The registry of mechanisms, by their names in the spec, and the plan of a release."""

from __future__ import annotations

from collections.abc import Callable

from privsyn.base.calendar_periods import check_period
from privsyn.data_contracts.release_spec import ReleaseSpec
from privsyn.engine.plan import Plan
from privsyn.engine.request import Request
from privsyn.engine.step import Step, check_shares, connect, fund
from privsyn.pipelines import (
    adaptive,
    aim,
    improved,
    independent,
    mst,
    one_shot,
    panel,
    prior_levels,
    privbayes,
    table_pairs,
)
from privsyn.pipelines.budget import split_budget
from privsyn.pipelines.rung_steps import follow_cuts

MechanismSteps = Callable[[Request], tuple[Step, ...]]
"""A mechanism: from the public request to its steps, in order."""

MECHANISMS: dict[str, MechanismSteps] = {
    "privsyn": one_shot.build_steps,
    "adaptive": adaptive.build_steps,
    "independent": independent.build_steps,
    "mst": mst.build_steps,
    "privbayes": privbayes.build_steps,
    "aim": aim.build_steps,
    "prior": prior_levels.build_steps,
}
"""Name -> mechanism; data_contracts/mechanism_options.py has its options under the same name."""


def build_steps(request: Request) -> tuple[Step, ...]:
    """Return every step of the requested mechanism, in order, with its budget and the looks that it reads.

    Raises ValueError if the looks' shares do not add up to the whole budget.
    """
    spec = request.spec
    if request.table_pairs and spec.improves is None:
        steps = table_pairs.build_steps(request)
    else:
        mechanism = MECHANISMS[spec.mechanism.name] if spec.panel is None else panel.build_steps
        declared = (mechanism if spec.improves is None else improved.build_steps)(request)
        steps = follow_cuts(connect(fund(declared, split_budget(request))))
    check_shares(steps)
    return steps


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
