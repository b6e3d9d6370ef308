"""PrivSyn's variants of sections 6.3 and 6.4 of its paper: other noise on the scores or on the marginals.

Belongs here: variants that replace the noise of a step and nothing else, and scores without noise for other variants.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction

import numpy as np

from privsyn.data_contracts.receipts import Query, compute_sigma, sum_rho
from privsyn.engine.inputs import Inputs
from privsyn.engine.memory import DrawNoise
from privsyn.engine.request import Request
from privsyn.engine.step import ReleaseStep, Step
from privsyn.evaluation.comparison.method import (
    LaplaceQuery,
    MethodInput,
    MethodResult,
    Steps,
    apply_paper_options,
    choose_aim,
    compute_laplace_scale,
    draw_gaussian,
    request_of,
    run_steps,
)
from privsyn.pipelines.common_steps import list_released_tables
from privsyn.pipelines.registry import build_steps
from privsyn.tasks.estimation import noisy
from privsyn.tasks.privacy.accountant import convert_rho_to_epsilon

_SCORES = re.compile("(indif|residual)_scores")


def vary_paper(trial: MethodInput, steps: Callable[[Request], Steps], *, exact_scores: bool = False) -> MethodResult:
    """Return the paper's settings, but the steps that ``steps`` names for the request.

    ``exact_scores``: scores without noise, whose budget is not spent: NOT private.
    """
    trial = apply_paper_options(trial)
    request = request_of(trial, trial.settings.mechanism)
    if not exact_scores:
        return run_steps(trial, request, steps(request))
    return run_steps(trial, request, steps(request), _drop_score_noise(trial), unpriced=("indif_scores",))


def non_private_aim(trial: MethodInput) -> MethodResult:
    """Return the mechanism ``aim``, but scores without noise, whose budget is not spent: NOT private."""
    request = request_of(trial, choose_aim(trial.settings.mechanism))
    steps = build_steps(request)
    scores = [s.name for s in steps if _SCORES.match(s.name)]
    return run_steps(trial, request, steps, _drop_score_noise(trial), unpriced=scores)


def non_private_selection(trial: MethodInput) -> MethodResult:
    """Return the paper's settings, but scores without noise, whose budget is not spent: NOT private."""
    return vary_paper(trial, build_steps, exact_scores=True)


def _drop_score_noise(trial: MethodInput) -> DrawNoise:
    gaussian = draw_gaussian(trial)

    def draw(step: ReleaseStep, queries: Sequence[Query]) -> noisy.Answers:
        if _SCORES.match(step.name):
            return [np.zeros(q.cells, dtype=np.int64) for q in queries]
        return gaussian(step, queries)

    return draw


def equal_gaussian(trial: MethodInput) -> MethodResult:
    """Return the paper's settings, but each measured marginal gets the same rho."""
    trial = apply_paper_options(trial)
    request = request_of(trial, trial.settings.mechanism)
    steps = build_steps(request)

    def equal(step: ReleaseStep) -> ReleaseStep:
        def plan(request: Request, inputs: Inputs, rho: Fraction) -> list[Query]:
            queries = step.plan(request, inputs, rho)
            if not queries:
                return []
            sigma = compute_sigma(rho / len(queries), request.records)
            return [replace(q, sigma=sigma) for q in queries]

        return replace(step, plan=plan)

    return run_steps(trial, request, tuple(equal(s) if _is_measuring(s) else s for s in steps))  # type: ignore[arg-type]


def equal_laplace(trial: MethodInput) -> MethodResult:
    """Return the paper's settings, but Laplace noise on the measured marginals.

    The looks compose naively, as in the paper.  The Gaussian looks of the first two stages promise an epsilon of their
    own at ``delta``.  The rest of the trial's epsilon is split evenly, and pure epsilons add up.  A marginal's L1
    sensitivity is the number of records of one person.
    """
    trial = apply_paper_options(trial)
    request = request_of(trial, trial.settings.mechanism)
    gaussian, scales = draw_gaussian(trial), dict[str, float]()

    def with_laplace_noise(step: ReleaseStep) -> ReleaseStep:
        def plan(request: Request, inputs: Inputs, rho: Fraction) -> list[Query]:
            queries = step.plan(request, inputs, rho)
            if not queries:
                return []
            before = [q for stage in ("one_way_marginals", "indif_scores") for q in inputs.noisy(stage)[0]]
            spent = convert_rho_to_epsilon(sum_rho(before), trial.delta, trial.settings.accountant)
            scale = compute_laplace_scale((Fraction(trial.epsilon) - Fraction(spent)) / len(queries), trial.records)
            scales[step.name] = scale
            return [replace(q, sigma=np.sqrt(2.0) * scale, pricing=request.pricing) for q in queries]

        looks = (*list_released_tables("one_way_marginals"), *list_released_tables("indif_scores"))
        return replace(step, plan=plan, inputs=(*step.inputs, *looks))

    def draw(step: ReleaseStep, queries: Sequence[Query]) -> noisy.Answers:
        if step.name not in scales:
            return gaussian(step, queries)
        return [trial.noise.draw_laplace(scales[step.name], q.cells) for q in queries]

    steps = tuple(with_laplace_noise(s) if _is_measuring(s) else s for s in build_steps(request))  # type: ignore[arg-type]
    result = run_steps(trial, request, steps, draw, unpriced=("measure_marginals",))
    pure = [
        LaplaceQuery(q.attributes, q.cells, trial.records, scales["measure_marginals"])
        for q in result.unpriced["measure_marginals"]
    ]
    return replace(result, pure=tuple(pure))


def _is_measuring(step: Step) -> bool:
    return step.name == "measure_marginals"
