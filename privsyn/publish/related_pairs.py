"""The pairs of columns that a note lists: those measured, how strongly they are related and with how much noise.

Beside them those that were scored and not counted together: their noisy scores, and what chance alone makes.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from privsyn.data_contracts.domain import Clique
from privsyn.engine.step import ReleaseStep, Step, release_steps
from privsyn.tasks.codecs.codec import Codec
from privsyn.tasks.codecs.split import SplitCodec
from privsyn.tasks.estimation.noisy import list_all_measured
from privsyn.tasks.estimation.recode import Recode
from privsyn.tasks.steps.indif_scores import REFERENCE_SENSITIVITY


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

    codes_by_attribute = {}
    for codec in codecs:
        if isinstance(codec, SplitCodec) and codec.attribute in recode:
            recoded = recode[codec.attribute]
            links = zip(
                recoded.coarse[recoded.kept].tolist(), (-1 - codec.code_alone[recoded.kept]).tolist(), strict=True
            )
            codes = np.zeros(recoded.size, dtype=np.int64)
            for number, joined in enumerate(nx.connected_components(nx.Graph(links))):
                codes[[code for code in joined if code >= 0]] = number
            codes_by_attribute[codec.attribute] = codes
    return codes_by_attribute


def list_related_pairs(consistent: pa.Table, column_codes: ColumnCodes) -> list[RelatedPair]:
    """Return every pair inside a measured marginal, the strongest first; ``consistent``: the released table MARGINALS.

    ``column_codes``: :func:`find_column_codes`; strength is of columns, whatever their attributes are split by.
    A pair of several marginals has the noise of the one that tells it best; inside a larger marginal a count of the
    pair is a sum of its counts, whose noise adds up.
    """
    marginals = [
        (tuple(row["attributes"]), np.asarray(row["counts"], dtype=np.float64), float(row["sigma"]))
        for row in consistent.select(["attributes", "counts", "sigma"]).to_pylist()
    ]
    sizes = {names[0]: counts.size for names, counts, _ in marginals if len(names) == 1}
    best: dict[Clique, RelatedPair] = {}
    for names, counts, sigma in marginals:
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
    for axis, column_codes in enumerate(codes):
        if column_codes is not None:
            summed = np.zeros((int(column_codes.max()) + 1, counts.shape[1 - axis]))
            np.add.at(summed, column_codes, counts if axis == 0 else counts.T)
            counts = summed if axis == 0 else summed.T
    return counts


def _compute_strength(counts: NDArray[Any]) -> float:
    total = float(counts.sum())
    if total <= 0:
        return 0.0
    shares = counts / total
    return 0.5 * float(np.abs(shares - np.outer(shares.sum(axis=1), shares.sum(axis=0))).sum())


SCORES = "indif_scores"
"""How the names of the release steps begin that score pairs against independence."""


class ScoredPair(NamedTuple):
    """A pair of columns with a noisy score and without joint counts; all shares of the rows.

    ``score``: half the noisy distance from independence, in the codes that joint counts would have; ``chance``: what
    columns with these counts have on average though they are independent; ``noise``: the score's standard deviation.
    """

    columns: tuple[str, str]
    score: float
    chance: float
    noise: float


def list_score_steps(steps: Sequence[Step]) -> list[ReleaseStep]:
    """Return the release steps whose noisy answers are scores of pairs."""
    return [step for step in release_steps(steps) if step.name.startswith(SCORES)]


def list_unmeasured_pairs(
    receipts: Sequence[pa.Table],
    answers: Sequence[pa.Table],
    consistent: pa.Table,
    measured: Sequence[RelatedPair],
    column_codes: ColumnCodes,
    recode: Recode,
    records: int,
) -> list[ScoredPair]:
    """Return every scored pair that is in no measured marginal, by how far its score is above chance.

    ``receipts``, ``answers``: the released tables of :func:`list_score_steps`; ``consistent``: the released table
    MARGINALS.  Attributes that a computed column splits (``column_codes``) are left out: their score is of the split
    codes.  ``recode``: the released one, whose noisy counts scores with the sensitivity ``records`` are distances from.
    """
    counted = {frozenset(pair.columns) for pair in measured}
    singles = {
        row["attributes"][0]: np.maximum(np.asarray(row["counts"], dtype=np.float64), 0.0)
        for row in consistent.select(["attributes", "counts"]).to_pylist()
        if len(row["attributes"]) == 1
    }
    totals = {name: float(counts.sum()) for name, counts in singles.items()}
    shares = {name: counts / max(totals[name], 1.0) for name, counts in singles.items()}
    noise_of = {name: _find_noise(recode, name, len(counts)) for name, counts in singles.items()}
    unmeasured = []
    for query, answer in zip(*list_all_measured(receipts, answers), strict=True):
        names = query.attributes
        if frozenset(names) in counted or not _are_columns(names, singles, column_codes):
            continue
        rows = totals[names[0]]
        if rows > 0:
            score, noise = float(answer[0]) / (2 * rows), query.sigma / (2 * rows)
            noisy = query.sensitivity == REFERENCE_SENSITIVITY * records
            sigmas = [noise_of[name] / rows if noisy else 0.0 * noise_of[name] for name in names]
            chance = _compute_chance([shares[name] for name in names], sigmas, rows)
            unmeasured.append(ScoredPair((names[0], names[1]), score, chance, noise))
    return sorted(unmeasured, key=lambda pair: (round(pair.chance - pair.score, 6), pair.columns))


def _are_columns(names: Clique, column_names: Collection[str], column_codes: ColumnCodes) -> bool:
    return all(name in column_names and name not in column_codes for name in names)


def _find_noise(recode: Recode, name: str, size: int) -> NDArray[np.float64]:
    """Return the standard deviation of the noise in each of ``size`` codes, in records; 0 where none is known."""
    r = recode.get(name)
    if r is None or r.size != size:
        return np.zeros(size)
    return np.sqrt(np.bincount(r.coarse[r.kept], weights=r.variance[r.kept], minlength=size))


def _compute_chance(shares: Sequence[NDArray[np.float64]], sigmas: Sequence[NDArray[np.float64]], rows: float) -> float:
    """Return half the mean L1 distance from the product of the one-ways of so many independent rows, as a share.

    ``shares``: of the codes of both columns; ``sigmas``: the noise in those that the distance is from.  A cell is about
    normal with n p q (1 - p) (1 - q) for its variance, beside that of the noisy product.
    """
    (p, q), (of_p, of_q) = shares, sigmas
    variance = np.outer(p * (1 - p), q * (1 - q)) / rows + np.outer(of_p**2, q**2) + np.outer(p**2, of_q**2)
    return 0.5 * math.sqrt(2 / math.pi) * float(np.sqrt(variance.clip(min=0.0)).sum())
