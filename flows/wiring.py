"""The release, step by step: the table of contents that every runner follows.

Belongs here: the order of the steps and which outputs go where.  Does not belong here: how a step is run
(flows/shell.py), by Prefect (flows/release.py) or directly (flows/direct.py).
"""

from __future__ import annotations

from typing import Protocol

from flows import steps
from flows.rounds import after_rounds, rounds
from flows.shell import StepRefs
from flows.step import Step


class RunStep(Protocol):
    """Runs one step on the outputs of earlier ones."""

    def __call__(self, step: Step, *inputs: StepRefs) -> StepRefs:
        """References to what the step left."""


def release_steps(run: RunStep, further_rounds: int = 0) -> dict[str, StepRefs]:
    """PrivSyn, Algorithm 3, over artifacts; returns every step's references by its name.

    ``further_rounds``: how many rounds of measuring follow the paper's one.
    """
    done: dict[str, StepRefs] = {}

    def step(declared: Step, *inputs: StepRefs) -> StepRefs:
        done[declared.name] = run(declared, *inputs)
        return done[declared.name]

    rows = step(steps.ENCODE)
    one_way = step(steps.ONE_WAY_MARGINALS, rows)
    recode = step(steps.COMPRESS_DOMAIN, one_way)
    coarse = step(steps.RECODE_ROWS, rows, recode)
    scores = step(steps.INDIF_SCORES, coarse, recode)
    pairs = step(steps.SELECT_PAIRS, scores, recode)
    cliques = step(steps.COMBINE_CLIQUES, pairs, recode)
    measured = [step(steps.MEASURE_MARGINALS, coarse, rows, recode, cliques)]
    for further in rounds(further_rounds):
        so_far = step(further.rows, recode, *measured)
        distances = step(further.scores, coarse, recode, scores, *measured, so_far)
        choice = step(further.choice, distances, recode, *measured)
        measured.append(step(further.measure, coarse, rows, recode, choice))
    consistent = step(after_rounds(steps.MAKE_CONSISTENT, further_rounds), recode, *measured)
    core = step(after_rounds(steps.SYNTHESIZE, further_rounds), consistent, recode, *measured)
    codes = step(steps.APPEND_ATTRIBUTES, core, consistent, recode)
    step(after_rounds(steps.DECODE, further_rounds), codes, recode, *measured)
    return done
