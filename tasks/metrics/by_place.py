"""Metrics of rows by place: pies of kinds per place and time, and the Gini index and pay gap of incomes.

Pies are compared one by one without their small slices.
Sources: MGD paper, section 2.2; NIST Differential Privacy Temporal Map Challenge, sprint 1 (class Deid2Metric of the
challenge's runtime/scripts/metric.py, github.com/drivendataorg/deid2-runtime), whose constants are used.

Incomes are NIST 2018's third metric.
Paper: DPSyn report, section 5.1.  The report does not define the pay gap or how the two deviations become a score; the
code follows the challenge's published scorer there.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import rel_entr

from privsyn.tasks.kernels.counting import CodeTable, count
from privsyn.tasks.metrics.marginal_distance import check_tables

Floats = NDArray[np.float64]

MIN_SLICE_SHARE = 0.05
"""Slices below this share of their pie are set to zero, separately in each table."""

MISLEADING_PENALTY = 0.2
"""For each kind that only the synthetic pie shows, after small slices are removed."""

BIAS_PENALTY, ALLOWED_BIAS = 0.25, 500
"""For a pie whose number of rows is off by more than ALLOWED_BIAS."""

_TINY = 1e-9  # added to every count, as in the challenge: an empty pie counts as equal slices


def score_pie_charts(real: CodeTable, synthetic: CodeTable, place: str, time: str, kind: str) -> Floats:
    """Return the pie-chart metric of three different attributes, 0 (worst) to 1 (same), shape (places, times).

    For every place and time, the counts of the kinds are a pie.  Slices below 5 % become zero.  The penalty is a sum.
    It begins with the Jensen-Shannon distance of the pies.  Each kind that only the synthetic pie still shows adds 0.2.
    A pie whose number of rows (with small slices) is off by more than 500 adds 0.25.  A pie's score is 1 minus the
    penalty, at least 0; equal pies score 1, including empty ones.  The challenge summed the scores over places and
    times.  Raw counts are compared, so a synthetic table of another size is penalised where the pies' sizes differ.
    Raises ValueError for tables that cannot be compared, repeated attributes, or more than 2**31 cells.
    """
    check_tables(real, synthetic)
    if len({place, time, kind}) < 3:
        raise ValueError("a pie chart needs three different attributes: place, time and kind")
    ours, theirs = count(real, (place, time, kind)), count(synthetic, (place, time, kind))
    return np.array([_score_pies(a, b) for a, b in zip(ours, theirs, strict=True)])  # by place: bounded memory


def denoise(counts: NDArray[np.int64]) -> NDArray[np.int64]:
    """Set the slices below MIN_SLICE_SHARE of their pie's sum to zero; the last axis has the kinds."""
    return np.where(counts / np.maximum(counts.sum(axis=-1, keepdims=True), 1) < MIN_SLICE_SHARE, 0, counts)


def _score_pies(real: NDArray[np.int64], synthetic: NDArray[np.int64]) -> Floats:
    """Return the score of each pie, shape (T,), from counts of shape (T, kinds)."""
    shown, shown_synthetic = (denoise(counts) for counts in (real, synthetic))
    p, q = (pie / pie.sum(axis=-1, keepdims=True) for pie in (shown + _TINY, shown_synthetic + _TINY))
    middle = (p + q) / 2
    nats = (rel_entr(p, middle) + rel_entr(q, middle)).sum(axis=-1) / 2
    divergence = np.sqrt(np.clip(nats / np.log(2), 0, 1))  # Jensen-Shannon distance (Endres and Schindelin 2003)
    misleading = MISLEADING_PENALTY * ((shown == 0) & (shown_synthetic > 0)).sum(axis=-1)
    bias = BIAS_PENALTY * (np.abs(real.sum(axis=-1) - synthetic.sum(axis=-1)) > ALLOWED_BIAS)
    return np.clip(1 - (divergence + misleading + bias), 0, 1)


class Income(NamedTuple):
    """NIST 2018's two scores, of Gini indices and of ranks by pay gap, each 0 (worst) to 1,000,000 (same)."""

    gini_score: float
    rank_score: float


def compute_gini(counts: NDArray[np.int64], wages: Floats) -> Floats:
    """Return the Gini index of each group: 0 (everybody earns the same) to 1 - 1/n (one of n people earns everything).

    ``counts`` (..., codes): people of each group with each wage; ``wages`` (codes): values >= 0.  With the n wages in
    ascending order and their running sums W_i, the index is (n + 1)/n - 2 sum_i W_i / (n W_n).  This is the mean
    absolute difference of two people's wages, over twice the mean wage.  A group without people or without any wage has
    index 0.
    """
    order = np.argsort(wages, kind="stable")
    people, worth = counts[..., order].astype(np.float64), wages[order]
    n, total = people.sum(axis=-1), people @ worth
    before = np.cumsum(people, axis=-1) - people
    weighted = (people * worth * (2 * before + people)).sum(axis=-1)  # each wage times its rank from both ends
    with np.errstate(divide="ignore", invalid="ignore"):
        index = weighted / (n * total) - 1
    return np.where((n > 0) & (total > 0), np.clip(index, 0.0, 1.0), 0.0)


def score_income(
    real: CodeTable, synthetic: CodeTable, place: str, sex: str, wage: str, wages: Floats, sexes: tuple[int, int]
) -> Income:
    """Return NIST 2018's third metric; ``wages``: the value (>= 0) of every code of ``wage``, NaN for null, left out.

    Two figures per place, over the people with a wage: their Gini index, and the gap between the mean wages of the two
    ``sexes`` (codes; the first minus the second).  Places are ranked by gap, largest first, ties by code; each table
    ranks its own places.  Averages are over the C places of the real table; a place that the synthetic table lacks
    contributes 0:

    - gini_score = 1e6 sqrt(mean of (1 - |Gini_real - Gini_synthetic|)^2)
    - rank_score = 1e6 sqrt(mean of max(0, 1 - |rank_real - rank_synthetic| / max(C - 1, 1))^2)

    These are the challenge scorer's formulas (its Gini index is 1/n smaller).  A real table without rows has no places:
    both scores are then 1e6 if the synthetic table has no rows either, else 0.  Raises ValueError for ``wages`` of
    another length, below 0 or infinite, or for equal sexes.
    """
    if wages.shape != (real.domain.size(wage),) or np.isinf(wages).any() or (wages < 0).any():
        raise ValueError(f"{wage}: every code needs one value, at least 0 and finite, or NaN for null")
    if sexes[0] == sexes[1]:
        raise ValueError(f"{sex}: a pay gap compares two different values")
    if len({place, sex, wage}) < 3:
        raise ValueError("place, sex and wage must be three different columns")
    gini, ranks = _compute_figures(count(real, (place, sex, wage)), wages, sexes)
    other_gini, other_ranks = _compute_figures(count(synthetic, (place, sex, wage)), wages, sexes)
    if not ranks:
        both = 0.0 if synthetic.rows else 1e6
        return Income(both, both)
    span = max(len(ranks) - 1, 1)
    common = [c for c in sorted(ranks) if c in other_ranks]
    gini_score = _compute_score([1 - abs(float(gini[c] - other_gini[c])) for c in common], len(ranks))
    rank_score = _compute_score([max(0.0, 1 - abs(ranks[c] - other_ranks[c]) / span) for c in common], len(ranks))
    return Income(gini_score, rank_score)


def _compute_figures(counts: NDArray[np.int64], wages: Floats, sexes: tuple[int, int]) -> tuple[Floats, dict[int, int]]:
    """Return the Gini index of every place, and the rank of each place with people by its pay gap."""
    has_wage = ~np.isnan(wages)
    people, worth = counts[:, :, has_wage], wages[has_wage]
    # a mean over nobody counts as 0 (as in the scorer)
    first, second = (people[:, sex] @ worth / np.maximum(people[:, sex].sum(axis=-1), 1) for sex in sexes)
    places, gaps = np.flatnonzero(counts.sum(axis=(1, 2))), first - second
    order = places[np.argsort(-gaps[places], kind="stable")]
    return compute_gini(people.sum(axis=1), worth), {int(c): rank for rank, c in enumerate(order)}


def _compute_score(closeness: list[float], places: int) -> float:
    return 1e6 * math.sqrt(sum(c * c for c in closeness) / places)
