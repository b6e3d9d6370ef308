"""The earth mover cost of two small marginals by linear programming: equation (1) of the MGD paper, word for word."""

from __future__ import annotations

from collections.abc import Sequence
from math import isinf

import numpy as np
from scipy import sparse
from scipy.optimize import linprog

from privsyn.tasks.metrics.earth_mover import Ints
from privsyn.tasks.metrics.mgd import Axis, Floats


def bin_distances(axes: Sequence[Axis]) -> Floats:
    """The matrix M of equation (2), shape (bins, bins) in row-major order, for marginals small enough to hold it."""
    shape = tuple(axis.values.size for axis in axes)
    codes = np.indices(shape).reshape(len(shape), -1)
    total = np.zeros((codes.shape[1],) * 2)
    for axis, code in zip(axes, codes, strict=True):
        i, j = code[:, None], code[None, :]
        if isinf(axis.weight):  # forbids every move between different values; infinity times 0 is 0
            total += np.where(i == j, 0.0, np.inf)
        else:
            total += axis.weight * axis.values.distance(i, j)
    return total


def aemc_linear_program(synthetic: Floats | Ints, real: Floats | Ints, distances: Floats, tolerance: float) -> float:
    """AEMC by linear programming: equation (1), word for word; for up to some hundred bins.

    ``synthetic`` P and ``real`` Q: shape (bins,), >= 0; ``distances`` M: shape (bins, bins), infinity: no move.
    Divided by the sum of Q, or by 1 if that is 0.
    """
    p, q = np.asarray(synthetic, float).ravel(), np.asarray(real, float).ravel()
    source, target = np.nonzero(np.isfinite(distances))
    moves, bins = source.size, p.size
    number, eye = np.arange(moves), sparse.identity(bins)
    leaves = sparse.csr_matrix((np.ones(moves), (source, number)), (bins, moves))
    arrives = sparse.csr_matrix((np.ones(moves), (target, number)), (bins, moves))
    # Variables: X on the allowed moves, then the penalty e of each bin, at least |arrived - Q| - tolerance and 0.
    result = linprog(
        np.concatenate([distances[source, target], np.ones(bins)]),
        A_ub=sparse.vstack([sparse.hstack([arrives, -eye]), sparse.hstack([-arrives, -eye])]),
        b_ub=np.concatenate([q + tolerance, tolerance - q]),
        A_eq=sparse.hstack([leaves, sparse.csr_matrix((bins, bins))]),
        b_eq=p,
        method="highs",
    )
    if not result.success:
        raise RuntimeError(f"the linear program was not solved: {result.message}")
    return float(result.fun) / (float(q.sum()) or 1.0)
