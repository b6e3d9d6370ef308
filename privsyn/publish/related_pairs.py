"""The pairs of columns that were measured: how strongly they are related, and with how much noise."""

from __future__ import annotations

import math
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from privsyn.data_contracts.domain import Clique


class RelatedPair(NamedTuple):
    """Two columns that were counted together.

    ``strength``: the share of rows that would have to change for the two to be independent, by the consistent counts,
    0 to below 1; ``sigma``: the standard deviation of the noise of a count of the pair as it was measured, in records.
    """

    columns: tuple[str, str]
    strength: float
    sigma: float


def list_related_pairs(consistent: pa.Table) -> list[RelatedPair]:
    """Return every pair inside a measured marginal, the strongest first; ``consistent``: the released table MARGINALS.

    A pair of several marginals has the noise of the one that tells it best; inside a larger marginal a count of the
    pair is a sum of its counts, whose noise adds up.
    """
    found = [
        (tuple(row["attributes"]), np.asarray(row["counts"], dtype=np.float64), float(row["sigma"]))
        for row in consistent.select(["attributes", "counts", "sigma"]).to_pylist()
    ]
    sizes = {names[0]: counts.size for names, counts, _ in found if len(names) == 1}
    best: dict[Clique, RelatedPair] = {}
    for names, counts, sigma in found:
        shaped = counts.reshape([sizes[name] for name in names]) if len(names) > 1 else counts
        for i, j in combinations(range(len(names)), 2):
            others = tuple(axis for axis in range(len(names)) if axis not in (i, j))
            pair = (names[i], names[j])
            noise = sigma * math.sqrt(math.prod(shaped.shape[axis] for axis in others))
            if pair not in best or noise < best[pair].sigma:
                best[pair] = RelatedPair(pair, _compute_strength(shaped.sum(axis=others)), noise)
    return sorted(best.values(), key=lambda pair: (-round(pair.strength, 6), pair.columns))


def _compute_strength(counts: NDArray[Any]) -> float:
    total = float(counts.sum())
    if total <= 0:
        return 0.0
    shares = counts / total
    return 0.5 * float(np.abs(shares - np.outer(shares.sum(axis=1), shares.sum(axis=0))).sum())
