"""Split a release's error by source: noise, consistency, synthesis, or marginals that were not measured.

Paper: the error terms of PrivSyn, section 4.1: noise error of selected marginals, dependency error of other marginals.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from privsyn.data_contracts.domain import Clique
from privsyn.tasks.estimation.expected_error import NORMAL_MEAN_ABSOLUTE
from privsyn.tasks.estimation.marginals import Marginal
from privsyn.tasks.estimation.recode import Recode, build_coarse_domain
from privsyn.tasks.kernels.counting import CodeTable

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class CliqueError:
    """One measured marginal's L1 distance to the real one (0..2; ``measured`` can exceed 2) after each stage."""

    measured: float
    consistent: float
    synthetic: float


def recode_codes(fine: CodeTable, recode: Recode) -> CodeTable:
    """Return fine codes in the compressed domain, with one extra code for filtered values (padded)."""
    domain = build_coarse_domain(recode)
    columns = [recode[a].coarse[fine.column(a)].astype(np.uint32) for a in domain.attributes]
    return CodeTable(domain, tuple(columns), padded=True)


def compute_clique_errors(
    real: CodeTable,
    synthetic: CodeTable,
    measured: Sequence[Marginal],
    consistent: Sequence[Marginal],
    threads: int = 0,
) -> list[CliqueError]:
    """Return the errors of the measured cliques, in their order; all on the compressed domain, as shares.

    ``real`` and ``synthetic`` come from :func:`recode_codes`.  Real rows with a filtered value count as one extra cell
    that no marginal of the release has.  Noisy counts become shares of the consistent marginal's total.
    """
    cliques = [m.attributes for m in measured]
    consistent_counts = {m.attributes: m.counts for m in consistent}
    errors = []
    for noisy, true, synthesized in zip(
        measured, _iterate_shares(real, cliques, threads), _iterate_shares(synthetic, cliques, threads), strict=True
    ):
        adjusted = consistent_counts[noisy.attributes]
        total = max(float(adjusted.sum()), 1.0)
        errors.append(
            CliqueError(
                _compute_distance(true, _pad(noisy.counts / total)),
                _compute_distance(true, _pad(adjusted / total)),
                _compute_distance(true, synthesized),
            )
        )
    return errors


@dataclass(frozen=True)
class PairError:
    """One pair inside a measured marginal: L1 of the consistent counts to real, and of synthetic to consistent."""

    consistent: float
    synthesis: float


def compute_pair_errors(
    real: CodeTable, synthetic: CodeTable, consistent: Sequence[Marginal], threads: int = 0
) -> dict[Clique, PairError]:
    """Return the errors of every pair inside a consistent marginal; tables as in :func:`compute_clique_errors`."""
    expected: dict[Clique, Floats] = {}
    for marginal in consistent:
        for two in combinations(marginal.attributes, 2):
            expected.setdefault(two, marginal.project(two).counts)
    pairs = list(expected)
    errors: dict[Clique, PairError] = {}
    for pair, true, synthesized in zip(
        pairs, _iterate_shares(real, pairs, threads), _iterate_shares(synthetic, pairs, threads), strict=True
    ):
        shares = _pad(expected[pair] / max(float(expected[pair].sum()), 1.0))
        errors[pair] = PairError(_compute_distance(true, shares), _compute_distance(synthesized, shares))
    return errors


def compute_dependency(real: CodeTable, pairs: Sequence[Clique], threads: int = 0) -> Floats:
    """Return the L1 distance of each real pair to the product of its one-ways, as shares, 0..2, shape (pairs,)."""
    out = np.zeros(len(pairs))
    for i, shares in enumerate(_iterate_shares(real, pairs, threads)):
        out[i] = np.abs(shares - np.multiply.outer(shares.sum(axis=1), shares.sum(axis=0))).sum()
    return out


def sum_bin_noise(recode: Recode, groups: Mapping[str, NDArray[np.int32]]) -> dict[str, Floats]:
    """Return the standard deviation, in records, of the noise in each public bin's one-way count, by attribute.

    A bin's count is the sum of its fine cells' counts.
    """
    return {a: np.sqrt(np.bincount(groups[a], weights=r.variance)) for a, r in recode.items()}


def compute_expected_l1(noise_sd: Floats) -> float:
    """Return the expected L1 norm of independent normal noise with these standard deviations, in their unit."""
    return float(NORMAL_MEAN_ABSOLUTE * noise_sd.sum())


def _iterate_shares(table: CodeTable, cliques: Sequence[Clique], threads: int) -> Iterator[Floats]:
    rows = max(table.rows, 1)
    for counts in table.counts(cliques, threads=threads, padded_result=True):
        yield counts / rows


def _pad(shares: Floats) -> Floats:
    """Add an empty cell along every axis, where real rows with filtered values are counted."""
    return np.pad(shares, [(0, 1)] * shares.ndim)


def _compute_distance(a: Floats, b: Floats) -> float:
    return float(np.abs(a - b).sum())
