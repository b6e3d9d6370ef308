"""The pie-chart metric: one pie of kinds per place and time, compared pie by pie without its small slices.

Sources: MGD paper, section 2.2; NIST Differential Privacy Temporal Map Challenge, sprint 1 (class Deid2Metric of the
challenge's runtime/scripts/metric.py, github.com/drivendataorg/deid2-runtime), whose constants are used.
"""

from __future__ import annotations

from dataclasses import dataclass

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


@dataclass(frozen=True, eq=False)
class PieChart:
    """Scores of all pies; P places, T times, arrays of shape (P, T) by their codes.

    ``score``: mean of ``scores``, 0..1, higher is better; ``total``: their sum, 0..P T, as the challenge ranked.
    ``scores``: 1 - (divergence + misleading + bias), at least 0.  ``divergence``: Jensen-Shannon distance to base 2 of
    the denoised pies, 0..1.  ``misleading``: MISLEADING_PENALTY times the number of wrongly shown kinds.  ``bias``: 0
    or BIAS_PENALTY.
    """

    score: float
    total: float
    scores: Floats
    divergence: Floats
    misleading: Floats
    bias: Floats


def score_pie_charts(real: CodeTable, synthetic: CodeTable, place: str, time: str, kind: str) -> PieChart:
    """Return the pie-chart metric of three different attributes: 1 for equal tables, 0 where every pie is wrong.

    For every place and time, the counts of the kinds are a pie.  Slices below 5 % become zero.  The penalty is a sum.
    It begins with the Jensen-Shannon distance of the pies.  Each kind that only the synthetic pie still shows adds 0.2.
    A pie whose number of rows (with small slices) is off by more than 500 adds 0.25.  A pie's score is 1 minus the
    penalty, at least 0; equal pies score 1, including empty ones.  The challenge summed the scores over places and
    times (``total``); ``score`` is their mean, so that it does not depend on the number of pies.  Raw counts are
    compared, so a synthetic table of another size is penalised where the pies' sizes differ.  Raises ValueError for
    tables that cannot be compared, repeated attributes, or more than 2**31 cells.
    """
    check_tables(real, synthetic)
    if len({place, time, kind}) < 3:
        raise ValueError("a pie chart needs three different attributes: place, time and kind")
    ours, theirs = count(real, (place, time, kind)), count(synthetic, (place, time, kind))
    parts = np.array(
        [_compute_penalties(a, b) for a, b in zip(ours, theirs, strict=True)]
    )  # place by place: bounded memory
    divergence, misleading, bias = parts.transpose(1, 0, 2)
    scores = np.clip(1 - (divergence + misleading + bias), 0, 1)
    return PieChart(float(scores.mean()), float(scores.sum()), scores, divergence, misleading, bias)


def denoise(counts: NDArray[np.int64]) -> NDArray[np.int64]:
    """Set the slices below MIN_SLICE_SHARE of their pie's sum to zero; the last axis has the kinds."""
    return np.where(counts / np.maximum(counts.sum(axis=-1, keepdims=True), 1) < MIN_SLICE_SHARE, 0, counts)


def _compute_penalties(real: NDArray[np.int64], synthetic: NDArray[np.int64]) -> Floats:
    """Return (divergence, misleading, bias) of each pie, shape (3, T), from counts of shape (T, kinds); 0 if equal."""
    shown, shown_synthetic = (denoise(counts) for counts in (real, synthetic))
    divergence = compute_jensen_shannon(shown.astype(np.float64) + _TINY, shown_synthetic.astype(np.float64) + _TINY)
    misleading = MISLEADING_PENALTY * ((shown == 0) & (shown_synthetic > 0)).sum(axis=-1)
    bias = BIAS_PENALTY * (np.abs(real.sum(axis=-1) - synthetic.sum(axis=-1)) > ALLOWED_BIAS)
    return np.stack([divergence, misleading, bias])


def compute_jensen_shannon(p: Floats, q: Floats) -> Floats:
    """Return the base-2 Jensen-Shannon distance, 0..1, of distributions on the last axis, which need not sum to 1.

    It is sqrt((KL(p | m) + KL(q | m)) / 2), m = (p + q) / 2 (Endres and Schindelin, 2003).
    """
    p, q = p / p.sum(axis=-1, keepdims=True), q / q.sum(axis=-1, keepdims=True)
    middle = (p + q) / 2
    nats = (rel_entr(p, middle) + rel_entr(q, middle)).sum(axis=-1) / 2
    return np.sqrt(np.clip(nats / np.log(2), 0, 1))
