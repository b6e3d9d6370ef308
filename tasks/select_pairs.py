"""Step *select pairs* (postprocess): DenseMarg, the greedy choice of 2-way marginals.

Belongs here: the greedy minimization of noise error + dependency error.  Does not belong here: scores
(indif_scores.py), merging pairs into cliques (combine_cliques.py).
Paper: section 4.2, Algorithm 1.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from data_contracts.tables import PAIRS


@dataclass(frozen=True)
class Chosen:
    """One greedy choice: the pair's position in the input and the total error after taking it."""

    index: int
    error: float


def dense_marg(scores: Sequence[float], cells: Sequence[int], rho: float, records: int = 1) -> list[Chosen]:
    """Algorithm 1, incrementally: one vectorised argmin a choice.

    ``scores`` are noisy dependency errors phi_i in records (negative ones are never taken), ``cells`` the
    sizes c_i, ``rho`` the budget of the measurement stage.  With s_i = c_i^(2/3) and
    K = k / sqrt(pi rho) (k = ``records``), the optimal split makes the noise error of a set X
    K (sum_X s_i)^(3/2) records, so taking i changes the total by
    K ((S + s_i)^(3/2) - S^(3/2)) - phi_i.  Stops when the best change is not negative.
    """
    phi = np.asarray(scores, dtype=np.float64)
    size = np.asarray(cells, dtype=np.float64) ** (2 / 3)
    scale = records / math.sqrt(math.pi * rho)
    left = np.ones(len(phi), dtype=bool)
    taken, error = 0.0, float(phi.sum())
    chosen: list[Chosen] = []
    while left.any():
        change = np.where(left, scale * ((taken + size) ** 1.5 - taken**1.5) - phi, np.inf)
        best = int(np.argmin(change))
        if change[best] >= 0:
            break
        left[best] = False
        taken += float(size[best])
        error += float(change[best])
        chosen.append(Chosen(best, error))
    return chosen


def select_pairs(
    pairs: Sequence[tuple[str, str]],
    scores: Sequence[float],
    cells: Sequence[int],
    rho: float,
    records: int,
    max_cells: int,
) -> pa.Table:
    """The contract PAIRS: what DenseMarg takes among pairs of at most ``max_cells`` cells, in its order."""
    candidates = [i for i, c in enumerate(cells) if c <= max_cells]
    chosen = dense_marg([scores[i] for i in candidates], [cells[i] for i in candidates], rho, records)
    rows = []
    for order, choice in enumerate(chosen):
        i = candidates[choice.index]
        a, b = pairs[i]
        rows.append(
            {"order": order, "a": a, "b": b, "score": float(scores[i]), "cells": cells[i], "error": choice.error}
        )
    return pa.Table.from_pylist(rows, schema=PAIRS.schema)
