"""Counts of values and of the public groups that they lie in, level by level, as one set of counts that agree.

DPSyn report, section 5.3 ("Attributes with Large Domains"); the estimate is that of Hay, Rastogi, Miklau and Suciu,
Boosting the Accuracy of Differentially Private Histograms Through Consistency (VLDB 2010), for levels with noise of
their own.  Post-processing of noisy counts and public tables costs no budget.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from privsyn.tasks.codecs.binning import Binning

Floats = NDArray[np.float64]


def make_levels_agree(
    counts: Floats, variance: float, levels: Sequence[tuple[NDArray[np.int64], Floats, float]]
) -> Floats:
    """Return the weighted least-squares estimate of fine counts, of shape (fine size,), by all counts of all levels.

    counts, variance: noisy fine counts and the noise variance of each; levels: the top one first, each as the group of
    every fine code, the noisy counts of its groups, and the noise variance of each of these.  The sums of the result
    over the groups of a level are that level's estimates: counts agree level by level.
    """
    below, spread = counts, np.full(len(counts), variance)
    code = np.arange(len(counts))
    climbed = []
    for of, noisy, noise in reversed(levels):
        up = np.zeros(len(below), dtype=np.int64)
        up[code] = of
        sums = np.bincount(up, weights=below)
        variances = np.bincount(up, weights=spread)
        climbed.append((up, below, spread, sums, variances))
        spread = 1.0 / (1.0 / variances + 1.0 / noise)
        below = spread * (sums / variances + noisy / noise)
        code = of
    for up, own, own_spread, sums, variances in reversed(climbed):
        below = own + own_spread * ((below - sums) / variances)[up]
    return below


def with_levels(counts: Mapping[str, Floats], sigmas: Mapping[str, float], binning: Binning) -> dict[str, Floats]:
    """Return the counts of all attributes, those of attributes with levels and of these made to agree."""
    found: dict[str, Floats] = dict(counts)
    for a, levels in ((a, bins.levels) for a, bins in binning.items() if bins.levels):
        known = [(level.of, counts[level.attribute], sigmas[level.attribute] ** 2) for level in levels]
        found[a] = make_levels_agree(counts[a], sigmas[a] ** 2, known)
        for level in levels:
            found[level.attribute] = np.bincount(level.of, weights=found[a]).astype(np.float64)
    return found


def combine_by_levels(
    counts: Floats, low: NDArray[np.bool_], least: float, levels: Sequence[NDArray[np.int64]]
) -> NDArray[np.int64]:
    """Return which low codes are combined, shape (size,): the number of the set from 0 on, -1 for codes in no set.

    From the lowest level up, the low codes of a group that are in no set yet become one if they count ``least``
    together.  levels: the group of every code, the top level first.
    """
    found = np.full(len(counts), -1, dtype=np.int64)
    sets = 0
    for of in reversed(levels):
        open_codes = low & (found < 0)
        sums = np.bincount(of[open_codes], weights=counts[open_codes], minlength=int(of.max()) + 1)
        enough = np.flatnonzero(sums >= least)
        number = np.full(len(sums), -1, dtype=np.int64)
        number[enough] = sets + np.arange(len(enough))
        found[open_codes] = number[of[open_codes]]
        sets += len(enough)
    return found
