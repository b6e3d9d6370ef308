"""How much of the third stage's budget measures the one-ways once more.

Belongs here: that share, from released counts and public constants.  Does not belong here: measuring them
(measure_marginals.py), pooling them with the first stage's (compress_domain.refined).
Not in the paper.  With few rows or a small epsilon little can be known of pairs, and every marginal of the synthetic
table carries the error of its one-ways; there the split of a larger table would waste most of the budget.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np

from tasks.compress_domain import Recode, noisy_total

MOST = 0.75
"""Most of a release's budget that the one-ways get, first and again."""

_LEVEL, _REFERENCE, _EXPONENT = 0.3, 0.012, 0.4


def again(recode: Recode, rho: Fraction, first: Fraction, third: Fraction, records: int) -> float:
    """The share of the third stage's budget, 0 .. 1, that goes to measuring the one-ways once more.

    ``rho``: of the whole release; ``first`` and ``third``: what the stages have of it.  The noise that all of ``rho``
    would leave in a one-way, as a share nu of the noisy number of rows, says how far pairs can be had at all: the
    one-ways get 0.3 (nu / 0.012)^0.4 of ``rho`` altogether, at least ``first`` and at most MOST.  Public constants
    (chosen on public tables) and released counts only.  Not in the paper.
    """
    sizes = np.array([len(r.coarse) for r in recode.values()], dtype=np.float64)
    noise = math.sqrt(2 / math.pi) * float((sizes ** (2 / 3)).sum()) ** 1.5 * records / math.sqrt(2 * float(rho))
    share = noise / len(sizes) / max(noisy_total(recode), 1.0)
    wanted = min(_LEVEL * (share / _REFERENCE) ** _EXPONENT, MOST) * float(rho)
    return min(max((wanted - float(first)) / float(third), 0.0), 1.0)
