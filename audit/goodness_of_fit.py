"""Goodness of fit of integer noise: does a sample come from the discrete Gaussian N_Z(0, sigma^2)?

The exact pmf and Pearson's chi-square test against it, independent of any sampler.  It must reject too little noise,
too much noise and the wrong shape, and a right sampler as rarely as it says: tests/statistical/test_noise.py tests the
test.  `python -m audit sampler` draws from OpenDP's sampler, with the error rates of both kinds.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from scipy import optimize, stats

from audit.table import write_table
from privsyn.tasks.privacy.noise import OpenDPNoise

MIN_EXPECTED = 25.0

SCALES = (0.3, 0.5, 0.8, 1.0, 1.7, 4.0, 10.0, 37.5, 300.0, 5_000.0)
"""Scales that are tested, in counts."""

FALSE_ALARM = 1e-4
"""Chance that a right sampler fails at any of the scales (Bonferroni)."""

MISSED = 0.01
"""Chance that a sampler whose sigma is off by the stated share passes at its scale."""

DRAWS = 1_000_000
HEADER = (
    "sigma",
    "draws",
    "bins",
    "p-value",
    "rejected below",
    "found where sigma is too small by",
    "verdict",
)
PAGE_HEADER = ("sigma", "draws of each", "least p-value", HEADER[4], HEADER[5])


def pmf(sigma: float) -> tuple[np.ndarray, np.ndarray]:
    """Support (integers within 12 sigma + 12) and P(x) proportional to exp(-x^2 / (2 sigma^2))."""
    reach = int(np.ceil(12 * sigma)) + 12
    support = np.arange(-reach, reach + 1)
    weights = np.exp(-((support / sigma) ** 2) / 2)
    return support, weights / weights.sum()


def p_value(sample: np.ndarray, sigma: float) -> float:
    """p-value of Pearson's chi-square, on bins of consecutive integers with at least MIN_EXPECTED expected.

    About 60 bins in the body, so that wide distributions keep power against wrong shapes, and smaller ones towards the
    tails, so that cut or heavy tails are seen.  A draw outside the support (beyond 12 sigma) has probability below
    1e-32 and gives p = 0.
    """
    support, probabilities = pmf(sigma)
    if np.any(np.abs(sample) > support[-1]):
        return 0.0
    observed = np.bincount(np.asarray(sample) + support[-1], minlength=len(support))
    group, expected = _bin(sigma, len(sample)), probabilities * len(sample)
    return float(stats.chisquare(np.bincount(group, observed), np.bincount(group, expected)).pvalue)


def find_detectable_share(sigma: float, draws: int, level: float, missed: float = MISSED) -> float:
    """Return the smallest share by which sigma can be too small and is rejected but with chance ``missed``.

    The power of Pearson's test at ``level``: under another pmf q its statistic is noncentral chi-square, by
    draws * sum (q - p)^2 / p (an approximation for large samples).
    """
    group = _bin(sigma, draws)
    _, probabilities = pmf(sigma)
    support = np.arange(len(probabilities)) - len(probabilities) // 2
    right = np.bincount(group, probabilities)
    limit = float(stats.chi2.isf(level, len(right) - 1))

    def measure(share: float) -> float:
        weights = np.exp(-((support / (sigma * (1 - share))) ** 2) / 2)
        wrong = np.bincount(group, weights / weights.sum())
        return float(stats.ncx2.cdf(limit, len(right) - 1, draws * ((wrong - right) ** 2 / right).sum())) - missed

    return float(optimize.brentq(measure, 1e-6, 0.5))


def _bin(sigma: float, draws: int) -> np.ndarray:
    """Return the bin of each support point, for so many draws."""
    _, probabilities = pmf(sigma)
    expected = probabilities * draws
    beyond = np.minimum(np.cumsum(expected), np.cumsum(expected[::-1])[::-1])  # expected here and further out
    return _groups(expected, np.clip(beyond / 4, MIN_EXPECTED, max(MIN_EXPECTED, draws / 60)))


def _groups(expected: np.ndarray, least: np.ndarray) -> np.ndarray:
    """Bin number of each support point: consecutive points until ``least`` of the point is expected.

    The rest joins the last bin.
    """
    bins, total, current = np.empty(len(expected), dtype=np.int64), 0.0, 0
    for i, e in enumerate(expected):
        bins[i] = current
        total += e
        if total >= least[i]:
            current, total = current + 1, 0.0
    return np.minimum(bins, max(current - 1, 0))


def summarize_scales(lines: Sequence[Sequence[str]]) -> tuple[str, ...]:
    """Return one line for all scales, in the order of PAGE_HEADER."""
    sigmas, draws, _, p_values, levels, shares, _ = zip(*lines, strict=True)
    least, most = (choose(shares, key=lambda share: float(share.rstrip("%"))) for choose in (min, max))
    return (f"{sigmas[0]} to {sigmas[-1]}", draws[0], min(p_values, key=float), levels[0], f"{least} to {most}")


def main(arguments: Sequence[str]) -> int:
    """Print the table; 1 if the sampler is rejected at a scale."""
    parser = argparse.ArgumentParser(prog="python -m audit sampler", description="OpenDP's sampler: goodness of fit.")
    parser.add_argument("--draws", type=int, default=DRAWS, help="draws of each scale")
    parser.add_argument("--markdown", type=Path, help="also write the table into this page, between its marks")
    parsed = parser.parse_args(arguments)
    level, lines, rejected = FALSE_ALARM / len(SCALES), [], False
    print(" | ".join(HEADER), flush=True)
    for sigma in SCALES:
        p = p_value(OpenDPNoise().draw(sigma, parsed.draws), sigma)
        bins, share = int(_bin(sigma, parsed.draws).max()) + 1, find_detectable_share(sigma, parsed.draws, level)
        rejected |= p < level
        verdict = "REJECTED" if p < level else "not rejected"
        lines.append((f"{sigma:g}", f"{parsed.draws:,}", str(bins), f"{p:.3f}", f"{level:g}", f"{share:.2%}", verdict))
        print(" | ".join(lines[-1]), flush=True)
    if parsed.markdown:
        write_table(parsed.markdown, "sampler", PAGE_HEADER, [summarize_scales(lines)])
    return int(rejected)
