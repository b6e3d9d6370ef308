"""The registry: every mechanism by the name that a spec gives it."""

from __future__ import annotations

from collections.abc import Callable

from privsyn.engine.request import Request
from privsyn.engine.step import Step, check_shares
from privsyn.pipelines.adaptive import adaptive
from privsyn.pipelines.aim import aim
from privsyn.pipelines.improved import improved
from privsyn.pipelines.independent import independent
from privsyn.pipelines.mst import mst
from privsyn.pipelines.priorlevels import priorlevels
from privsyn.pipelines.privbayes import privbayes
from privsyn.pipelines.privsyn import privsyn

MechanismSteps = Callable[[Request], tuple[Step, ...]]
"""A mechanism: from the public request to its steps, in order."""

MECHANISMS: dict[str, MechanismSteps] = {
    "privsyn": privsyn,
    "adaptive": adaptive,
    "independent": independent,
    "mst": mst,
    "privbayes": privbayes,
    "aim": aim,
    "prior": priorlevels,
}
"""Name -> mechanism; its options are of the same name in data_contracts/mechanism_options.py."""


def build_steps(request: Request) -> tuple[Step, ...]:
    """Return every step of the requested mechanism, in order.

    Raises ValueError if their shares are not the whole budget.
    """
    improves = request.spec.improves is not None
    steps = improved(request) if improves else MECHANISMS[request.spec.mechanism.name](request)
    check_shares(steps, request)
    return steps
