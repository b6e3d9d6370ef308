"""The registry of mechanisms, by their names in the spec."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from privsyn.engine.request import Request
from privsyn.engine.step import Step
from privsyn.engine.step_list import check_shares, connect, fund
from privsyn.pipelines import (
    adaptive,
    aim,
    improved,
    mst,
    one_shot,
    panel,
    prior_levels,
    privbayes,
    table_pairs,
)
from privsyn.pipelines.budget import split_budget
from privsyn.pipelines.common_steps import COMPRESS_DOMAIN, ENCODE, ONE_WAYS
from privsyn.pipelines.rung_steps import build_first_look, follow_cuts
from privsyn.pipelines.synthesis_steps import build_row_steps

COUNT_COLUMNS = replace(
    ONE_WAYS,
    limit="Each column is made on its own: the rows show no relation between columns, even where there is one.",
)


def build_independent(request: Request) -> tuple[Step, ...]:
    """Return one look, at the one-ways, with the whole budget, then rows that keep no relation between columns."""
    return ENCODE, *build_first_look(), COUNT_COLUMNS, COMPRESS_DOMAIN, *build_row_steps(request)


MechanismSteps = Callable[[Request], tuple[Step, ...]]
"""A mechanism: from the public request to its steps, in order."""

MECHANISMS: dict[str, MechanismSteps] = {
    "privsyn": one_shot.build_steps,
    "adaptive": adaptive.build_steps,
    "independent": build_independent,
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
    if request.table_pairs and request.spec.improves is None:
        steps = table_pairs.build_steps(request)
    else:
        steps = follow_cuts(connect(fund(_choose_mechanism(request)(request), split_budget(request))))
    check_shares(steps)
    return steps


def _choose_mechanism(request: Request) -> MechanismSteps:
    if request.spec.improves is not None:
        return improved.build_steps
    return MECHANISMS[request.spec.mechanism.name] if request.spec.panel is None else panel.build_steps
