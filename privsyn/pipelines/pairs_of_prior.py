"""What steps take from the pairs of a public table: their key, whether the scores trust them, and what rows follow."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from privsyn.engine.inputs import Inputs
from privsyn.engine.request import Request
from privsyn.tasks.estimation.marginals import Marginal
from privsyn.tasks.estimation.recode import Recode
from privsyn.tasks.knowledge.prior_pairs import Followed, PriorPairs, choose_followed, is_better

TOLD = 2
"""The version of which attributes the public table is taken to tell of; a part of keys where there is a prior."""


def key_prior_pairs(request: Request) -> dict[str, Any]:
    """Return the prior, for a step that uses its pairs; nothing without one."""
    prior = request.spec.prior_key()
    return {**prior, "told": TOLD} if prior else {}


def trusts_prior(request: Request, inputs: Inputs) -> bool:
    """Return whether the noisy scores say that the prior's pairs are nearer than independence."""
    recode = inputs.recode()
    if request.prior is None:
        return False
    queries, answers = inputs.noisy("indif_scores")
    if not queries:
        return False
    pairs, scores = [q.attributes for q in queries], [float(y[0]) for y in answers]
    return is_better(PriorPairs.of(request.prior, recode), pairs, scores, queries[0].sigma)


def build_followed_prior(
    request: Request, inputs: Inputs, recode: Recode, consistent: Sequence[Marginal]
) -> Followed | None:
    """Return what rows take from the prior, if the scores trust it."""
    if request.prior is None or not trusts_prior(request, inputs):
        return None
    return choose_followed(PriorPairs.of(request.prior, recode), recode, consistent)
