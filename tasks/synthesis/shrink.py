"""How much of what a noisy marginal says is signal: shrinking towards a simpler guess.

Belongs here: the share of a difference that noise does not explain, and pairs drawn towards independence.
Does not belong here: consistency (tasks/make_consistent.py), moving rows (sweep.py).

The noise's sigma is public and the counts are released, so this is free post-processing.
"""

from __future__ import annotations

import numpy as np

from tasks.marginals import Marginal


def signal_share(difference: np.ndarray, cells: int, sigma: float, kappa: float) -> float:
    """The part of ``difference`` that noise does not explain, 0 .. 1.

    max(0, 1 - kappa cells sigma^2 / sum of squares): for kappa 1 the positive-part James-Stein factor of
    ``cells`` values with noise of standard deviation ``sigma``.  No difference at all counts as signal.
    """
    squares = float((difference**2).sum())
    return max(0.0, 1.0 - kappa * cells * sigma**2 / squares) if squares > 0 else 1.0


def towards_independence(marginal: Marginal, kappa: float) -> Marginal:
    """A pair drawn towards the product of its one-ways by what its noise explains; other marginals as they are.

    The pair's one-ways stay the same.  Cliques hold strong relations by their making, and shrinking them
    was measured to lose.
    """
    total = marginal.counts.sum()
    if len(marginal.attributes) != 2 or total <= 0:
        return marginal
    independent = np.outer(marginal.counts.sum(axis=1), marginal.counts.sum(axis=0)) / total
    difference = marginal.counts - independent
    share = signal_share(difference, int(np.count_nonzero(independent)), marginal.sigma, kappa)
    return Marginal(marginal.attributes, independent + share * difference, marginal.sigma)
