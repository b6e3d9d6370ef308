"""The release, step by step: the table of contents that every runner follows.

Belongs here: the order of the steps and which outputs go where.  Does not belong here: how a step is run
(flows/shell.py), by Prefect (flows/release.py) or directly (flows/direct.py).
"""

from __future__ import annotations

from typing import Protocol

from flows import steps
from flows.shell import StepRefs
from flows.step import Step


class RunStep(Protocol):
    """Runs one step on the outputs of earlier ones."""

    def __call__(self, step: Step, *inputs: StepRefs) -> StepRefs:
        """References to what the step left."""


def release_steps(run: RunStep) -> dict[str, StepRefs]:
    """PrivSyn, Algorithm 3, over artifacts; returns every step's references by its name."""
    rows = run(steps.ENCODE)
    one_way = run(steps.ONE_WAY_MARGINALS, rows)
    recode = run(steps.COMPRESS_DOMAIN, one_way)
    coarse = run(steps.RECODE_ROWS, rows, recode)
    scores = run(steps.INDIF_SCORES, coarse, recode)
    pairs = run(steps.SELECT_PAIRS, scores, recode)
    cliques = run(steps.COMBINE_CLIQUES, pairs, recode)
    measured = run(steps.MEASURE_MARGINALS, coarse, rows, recode, cliques)
    consistent = run(steps.MAKE_CONSISTENT, recode, measured)
    core = run(steps.SYNTHESIZE, consistent, recode, measured)
    codes = run(steps.APPEND_ATTRIBUTES, core, consistent, recode)
    table = run(steps.DECODE, codes, recode, measured)
    done = (rows, one_way, recode, coarse, scores, pairs, cliques, measured, consistent, core, codes, table)
    return {refs.step: refs for refs in done}
