"""The pairs of columns that were measured: how strongly they are related, and with how much noise."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from privsyn.data_contracts.domain import Clique
from privsyn.tasks.codecs.codec import Codec
from privsyn.tasks.codecs.split import SplitCodec
from privsyn.tasks.estimation.recode import Recode


class RelatedPair(NamedTuple):
    """Two columns that were counted together.

    ``strength``: the share of rows that would have to change for the two to be independent, by the consistent counts,
    0 to below 1; ``sigma``: the standard deviation of the noise of a count of the pair as it was measured, in records.
    """

    columns: tuple[str, str]
    strength: float
    sigma: float


ColumnCodes = Mapping[str, NDArray[np.int64]]
"""Attribute -> the column's code of each of its own, shape (codes,); attributes that are their column are not in it."""


def find_column_codes(recode: Recode, codecs: Sequence[Codec]) -> dict[str, NDArray[np.int64]]:
    """Return the codes of the columns behind attributes that a computed column splits.

    ``recode``: of the released table.  Codes of an attribute that have values of the column in common are one.
    """
    import networkx as nx  # here: few releases have such attributes, and it loads slowly

    found = {}
    for codec in codecs:
        if isinstance(codec, SplitCodec) and codec.attribute in recode:
            own = recode[codec.attribute]
            links = zip(own.coarse[own.kept].tolist(), (-1 - codec.code_alone[own.kept]).tolist(), strict=True)
            codes = np.zeros(own.size, dtype=np.int64)
            for number, joined in enumerate(nx.connected_components(nx.Graph(links))):
                codes[[code for code in joined if code >= 0]] = number
            found[codec.attribute] = codes
    return found


def list_related_pairs(consistent: pa.Table, column_codes: ColumnCodes) -> list[RelatedPair]:
    """Return every pair inside a measured marginal, the strongest first; ``consistent``: the released table MARGINALS.

    ``column_codes``: :func:`find_column_codes`; strength is of columns, whatever their attributes are split by.
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
                counted = _sum_by_column(shaped.sum(axis=others), [column_codes.get(name) for name in pair])
                best[pair] = RelatedPair(pair, _compute_strength(counted), noise)
    return sorted(best.values(), key=lambda pair: (-round(pair.strength, 6), pair.columns))


def _sum_by_column(counts: NDArray[Any], codes: Sequence[NDArray[np.int64] | None]) -> NDArray[Any]:
    """Return the counts of a pair with codes that are one code of their column summed."""
    for axis, own in enumerate(codes):
        if own is not None:
            summed = np.zeros((int(own.max()) + 1, counts.shape[1 - axis]))
            np.add.at(summed, own, counts if axis == 0 else counts.T)
            counts = summed if axis == 0 else summed.T
    return counts


def _compute_strength(counts: NDArray[Any]) -> float:
    total = float(counts.sum())
    if total <= 0:
        return 0.0
    shares = counts / total
    return 0.5 * float(np.abs(shares - np.outer(shares.sum(axis=1), shares.sum(axis=0))).sum())
