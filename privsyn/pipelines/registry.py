"""The registry: every mechanism by the name that a spec gives it."""

from __future__ import annotations

from collections.abc import Callable

from privsyn.engine.request import Request
from privsyn.engine.step import Step, check_shares, connect
from privsyn.pipelines import (
    adaptive,
    aim,
    branches,
    improved,
    independent,
    mst,
    panel,
    priorlevels,
    privbayes,
    privsyn,
)
from privsyn.pipelines.full_cell_steps import follow_cuts

MechanismSteps = Callable[[Request], tuple[Step, ...]]
"""A mechanism: from the public request to its steps, in order."""

MECHANISMS: dict[str, MechanismSteps] = {
    "privsyn": privsyn.build_steps,
    "adaptive": adaptive.build_steps,
    "independent": independent.build_steps,
    "mst": mst.build_steps,
    "privbayes": privbayes.build_steps,
    "aim": aim.build_steps,
    "prior": priorlevels.build_steps,
}
"""Name -> mechanism; its options are of the same name in data_contracts/mechanism_options.py."""


def build_steps(request: Request) -> tuple[Step, ...]:
    """Return every step of the requested mechanism, in order.

    Raises ValueError if their shares are not the whole budget.
    """
    build = MECHANISMS[request.spec.mechanism.name]
    if request.spec.improves is not None:
        build = improved.build_steps
    elif request.branches:
        build = branches.build_steps
    elif request.spec.panel is not None:
        build = panel.build_steps
    steps = follow_cuts(connect(build(request)))
    check_shares(steps, request)
    return steps
