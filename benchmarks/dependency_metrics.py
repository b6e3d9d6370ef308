"""Metrics of how strongly two columns go together, and what noise costs them: PrivSyn, appendix B, Tables 3 and 4.

All logarithms are to base 2; tables of two columns are counts, shape (c_A, c_B).  A sensitivity here is the one that
the paper prints; which neighbours each holds for is said with it, and tested over all neighbours of small tables.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privsyn.data_contracts.receipts import compute_sigma
from privsyn.extras.papers.exponential_network import INDIF_SENSITIVITY, compute_in_dif
from privsyn.tasks.privacy.noise import NoiseSource

Floats = NDArray[np.float64]

ROWS = 600_000
CODES = (2, 50, 100, 1_000, 10_000, 100_000)
REPORTED = {
    "InDif": (2.0,) * 6,
    "mutual information": (39.3, 7.0, 5.9, 3.9, 3.0, 2.4),
    "entropy": (41.8, 7.4, 6.3, 4.2, 3.1, 2.5),
}
"""Table 3: n times the noise-range ratio, at n = ROWS and c in CODES."""

_GRAIN = 2.0**20  # the noise is drawn in whole numbers; this many make one standard deviation


def compute_information_sensitivity(n: int) -> float:
    """(2 / n) log((n + 1) / 2) + ((n - 1) / n) log((n + 1) / (n - 1)): PrivBayes (Zhang et al. 2017), Lemma 1.

    Of the mutual information of two columns of ``n`` >= 2 rows, for replacing one row (bounded neighbours).  PrivSyn
    prints n + 1 for the second n - 1 before the logarithm, which changes no digit of its Table 3.
    """
    return (2.0 * math.log2((n + 1) / 2) + (n - 1) * math.log2((n + 1) / (n - 1))) / n


def compute_entropy_sensitivity(n: int) -> float:
    """(2 + 1 / ln 2 + 2 log n) / n: BSG (Bindschaedler et al. 2017), as PrivSyn quotes it, for ``n`` >= 1 rows.

    Of the entropy of one column or of two together, for replacing one row as for adding or removing one.
    """
    return (2.0 + 1.0 / math.log(2.0) + 2.0 * math.log2(n)) / n


def list_noise_range_ratios(n: int, codes: int) -> dict[str, float]:
    """Sensitivity over range, times n, of each metric: ranges are [0, 2n] of InDif, [0, log c] of the others."""
    width = math.log2(codes)
    return {
        "InDif": n * INDIF_SENSITIVITY / (2.0 * n),
        "mutual information": n * compute_information_sensitivity(n) / width,
        "entropy": n * compute_entropy_sensitivity(n) / width,
    }


def compute_entropy(counts: NDArray[np.int64]) -> float:
    """H of the shares that ``counts`` are, in bits; 0 without rows."""
    held = counts[counts > 0]
    n = held.sum()
    return float(math.log2(n) - (held * np.log2(held)).sum() / n) if n else 0.0


def compute_entropies(counts: NDArray[np.int64]) -> tuple[float, float, float]:
    """H(A), H(B) and H(A, B), in bits."""
    return compute_entropy(counts.sum(axis=1)), compute_entropy(counts.sum(axis=0)), compute_entropy(counts)


def compute_mutual_information(counts: NDArray[np.int64]) -> float:
    """I(A; B) = H(A) + H(B) - H(A, B), in bits; never negative."""
    a, b, both = compute_entropies(counts)
    return max(0.0, a + b - both)


def compute_symmetrical_uncertainty(a: Any, b: Any, both: Any) -> Any:
    """2 - 2 H(A, B) / (H(A) + H(B)) from entropies, 0..1; numbers or arrays."""
    return 2.0 - 2.0 * both / (a + b)


def list_relative_errors(
    tables: Sequence[NDArray[np.int64]], rho: Fraction, repeats: int, source: NoiseSource
) -> dict[str, float]:
    """Return table 4: mean of |s - noisy s| / s over pairs of columns and ``repeats`` draws, for each metric.

    All pairs together are ``rho``-zCDP by the stated sensitivities; symmetrical uncertainty is made from three noisy
    entropies a pair (section B), each at a third of the pair's part.  Pairs without any dependency, whose relative
    error has no value, are left out.  A study on a public table, not a release.
    """
    part, n = rho / len(tables), int(tables[0].sum())
    found: dict[str, list[Floats]] = {"InDif": [], "mutual information": [], "symmetrical uncertainty": []}
    for counts in tables:
        h = compute_entropies(counts)
        truth = (
            compute_in_dif(counts),
            compute_mutual_information(counts),
            compute_symmetrical_uncertainty(*h) if sum(h[:2]) else 0.0,
        )
        if min(truth) <= 0:
            continue
        unit = compute_sigma(part, 1)  # per unit of sensitivity
        noise = source.draw(_GRAIN, 5 * repeats).reshape(5, repeats) / _GRAIN
        noisy = [
            e + z * compute_entropy_sensitivity(n) * compute_sigma(part / 3, 1)
            for e, z in zip(h, noise[2:], strict=True)
        ]
        answers = (
            truth[0] + noise[0] * unit * INDIF_SENSITIVITY,
            truth[1] + noise[1] * unit * compute_information_sensitivity(n),
            compute_symmetrical_uncertainty(*noisy),
        )
        for name, exact, answer in zip(found, truth, answers, strict=True):
            found[name].append(np.abs(answer - exact) / exact)
    return {name: float(np.mean(parts)) for name, parts in found.items()}


def list_ratios() -> list[str]:
    """Return table 3 beside the paper's figures, as markdown."""
    rows = ["| metric | " + " | ".join(f"c = {c:,}" for c in CODES) + " |", "|---|" + "---|" * len(CODES)]
    ratios = [list_noise_range_ratios(ROWS, c) for c in CODES]
    for name, reported in REPORTED.items():
        cells = [f"{r[name]:.2f} ({paper})" for r, paper in zip(ratios, reported, strict=True)]
        rows.append(f"| {name} | " + " | ".join(cells) + " |")
    return rows
