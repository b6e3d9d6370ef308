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
from numpy.typing import NDArray

from data_contracts.tables import PAIRS


@dataclass(frozen=True)
class Chosen:
    """One greedy choice: the pair's position in the input and the total error after taking it."""

    index: int
    error: float


def dense_marg(scores: Sequence[float], cells: Sequence[int], rho: float, records: int = 1) -> list[Chosen]:
    """Algorithm 1, incrementally: one vectorised argmin over the sizes of pairs a choice.

    ``scores`` are noisy dependency errors phi_i in records (negative ones are never taken), ``cells`` the
    sizes c_i, ``rho`` the budget of the measurement stage.  With s_i = c_i^(2/3) and
    K = k / sqrt(pi rho) (k = ``records``), the optimal split makes the noise error of a set X
    K (sum_X s_i)^(3/2) records, so taking i changes the total by
    K ((S + s_i)^(3/2) - S^(3/2)) - phi_i.  Stops when the best change is not negative.
    """
    phi = np.asarray(scores, dtype=np.float64)
    scale = records / math.sqrt(math.pi * rho)
    queues, size = _by_cells(phi, cells)
    at = [0] * len(queues)
    best_phi = np.array([phi[queue[0]] for queue in queues])
    taken, error = 0.0, float(phi.sum())
    chosen: list[Chosen] = []
    while len(chosen) < len(phi):
        change = scale * ((taken + size) ** 1.5 - taken**1.5) - best_phi
        group = int(np.argmin(change))
        if change[group] >= 0:
            break
        chosen.append(Chosen(int(queues[group][at[group]]), error + float(change[group])))
        taken += float(size[group])
        error = chosen[-1].error
        at[group] += 1
        best_phi[group] = phi[queues[group][at[group]]] if at[group] < len(queues[group]) else -np.inf
    return chosen


def _by_cells(phi: NDArray[np.float64], cells: Sequence[int]) -> tuple[list[NDArray[np.intp]], NDArray[np.float64]]:
    """The pairs of each number of cells, largest score first (ties: the first), and c^(2/3) of each such number.

    Among pairs of one size only the one with the largest score can be the best choice, so a choice looks at as many
    candidates as there are sizes, not pairs.
    """
    numbers, group = np.unique(np.asarray(cells, dtype=np.float64), return_inverse=True)
    order = np.lexsort((-phi, group))
    starts = np.searchsorted(group[order], np.arange(1, len(numbers)))
    return (np.split(order, starts) if len(numbers) else []), numbers ** (2 / 3)


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
