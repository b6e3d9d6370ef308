"""A made-up table of codes with the size and correlation of a census extract.

Every attribute depends on one earlier attribute (a random tree) and on one of 12 household types; its
code is a noisy monotone image of both, pushed through a skewed one-way distribution.
"""

from __future__ import annotations

import numpy as np

from privsyn.data_contracts.domain import Domain, choose_code_dtype
from privsyn.tasks.kernels.counting import CodeTable

ROWS, ATTRIBUTES, SMALLEST, LARGEST = 662_000, 97, 2, 248
_TYPES = 12


def census_domain(attributes: int = ATTRIBUTES, seed: int = 1) -> Domain:
    """Domain sizes from 2 to 248, most of them small, as in a census."""
    rng = np.random.default_rng(seed)
    few = np.exp(rng.uniform(np.log(SMALLEST), np.log(16), attributes))
    many = np.exp(rng.uniform(np.log(16), np.log(LARGEST), attributes))
    sizes = np.where(rng.random(attributes) < 0.6, few, many).astype(int)
    sizes[0], sizes[-1] = SMALLEST, LARGEST
    return Domain(tuple(f"a{i:02d}" for i in range(attributes)), tuple(int(s) for s in sizes))


def census_like(rows: int = ROWS, attributes: int = ATTRIBUTES, seed: int = 1) -> CodeTable:
    """``rows`` x ``attributes`` codes over :func:`census_domain`; the same table for the same arguments."""
    return correlated_rows(census_domain(attributes, seed), rows, seed)


def correlated_rows(domain: Domain, rows: int, seed: int = 1) -> CodeTable:
    """``rows`` rows over any domain, made in this way."""
    rng = np.random.default_rng([seed, rows])
    types = rng.choice(_TYPES, rows, p=_skewed(_TYPES, 0.8)).astype(np.float32) / _TYPES
    latent: list[np.ndarray] = []
    columns = []
    for i, size in enumerate(domain.sizes):
        parent = latent[int(rng.integers(i))] if i else types
        own = rng.random(rows, dtype=np.float32)
        weights = rng.dirichlet([1.5, 0.5, 3.0]).astype(np.float32)
        score = weights[0] * parent + weights[1] * types + weights[2] * own
        latent.append(_ranks(score))
        marks = np.cumsum(rng.permutation(_skewed(size, rng.uniform(0.5, 1.5))))[:-1]
        columns.append(
            np.searchsorted(marks.astype(np.float32), latent[-1], side="right").astype(choose_code_dtype(size))
        )
    return CodeTable(domain, tuple(columns))


def _skewed(size: int, power: float) -> np.ndarray:
    weights = np.arange(1, size + 1) ** -power
    return weights / weights.sum()


def _ranks(score: np.ndarray) -> np.ndarray:
    """Scores mapped to about uniform values in [0, 1) through their 4,096 quantiles."""
    sample = np.sort(score[:: max(1, score.size // 65_536)])
    return (np.searchsorted(sample, score) / (sample.size + 1)).astype(np.float32)
