"""Step *measure marginals* (release, rho3): noisy counts of the chosen cliques, and of one-ways measured again.

Paper: section 4.2, equation (1), and Theorem 6.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from privsyn.data_contracts.domain import Clique, Domain
from privsyn.data_contracts.receipts import Query, compute_sigma
from privsyn.tasks.estimation.expected_error import split_by_weight
from privsyn.tasks.kernels.counting import Countable
from privsyn.tasks.steps import one_way_marginals


def plan_queries(
    weights: Mapping[Clique, float], domain: Domain, fine: Domain, rho: Fraction, records: int
) -> list[Query]:
    """Plan one query per clique at exactly rho_i = ``rho`` w_i / sum_j w_j; single attributes use the fine codes.

    weights: clique -> positive number, in the order of the queries; ``domain``: of the coarse codes.

    Privacy: all answers together are rho-zCDP for adding or removing one person with at most ``records`` = k records.
    Each marginal has L2 sensitivity k (Theorem 6 for k = 1) and costs k^2 / (2 sigma_i^2) <= rho_i.  The rho_i sum to
    rho whatever stage 2 selected, so the bound holds for every outcome of the earlier stages (adaptive composition,
    Theorem 1).  One mechanism instance per clique.
    """
    cells = [(fine if len(c) == 1 else domain).cells(c) for c in weights]
    shares = split_by_weight(list(weights.values()), rho)
    return [Query(c, n, records, compute_sigma(r, records)) for c, n, r in zip(weights, cells, shares, strict=True)]


def count_exactly(
    rows: Countable, fine: Callable[[], Countable], queries: Sequence[Query], threads: int
) -> Iterator[NDArray[np.int64]]:
    """Yield exact counts of each query, flat, in order; larger cliques come before single attributes.

    ``rows``: coarse codes; ``fine``: returns the fine codes, called only if a single attribute is asked.  Private until
    the run adds noise.  Raises ValueError if a larger clique comes after a single attribute.
    """
    larger = [q for q in queries if len(q.attributes) > 1]
    single = list(queries[len(larger) :])
    if any(len(q.attributes) > 1 for q in single):
        raise ValueError("larger cliques must come before single attributes")
    yield from one_way_marginals.count_exactly(rows, larger, threads)
    if single:
        yield from one_way_marginals.count_exactly(fine(), single, threads)
