"""A marginal: non-negative counts on a clique, its form as an Arrow table, and projections of noisy counts onto these.

Projections are of section 4.3 of the paper (Norm-Sub).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from privsyn.data_contracts.domain import Clique, Domain, Merge, Merges
from privsyn.data_contracts.tables import MARGINALS


@dataclass(frozen=True, eq=False)
class Marginal:
    """Counts on the attributes of one clique: float64, one axis per attribute, in the clique's order.

    ``sigma``: standard deviation of one measured cell's noise, 0 if unknown.  ``merges``: for each attribute, the
    merged code of each code, or None if the axis has the codes themselves; empty if no attribute is merged.
    """

    attributes: Clique
    counts: np.ndarray
    sigma: float = 0.0
    merges: Merges = ()

    def __post_init__(self) -> None:
        """Raise ValueError unless ``counts`` has one axis per attribute."""
        if self.counts.ndim != len(self.attributes):
            raise ValueError(
                f"counts of shape {self.counts.shape} do not have one axis per attribute of {self.attributes}"
            )

    def project(self, attributes: Iterable[str]) -> Marginal:
        """Return the marginal on some of its attributes, in this marginal's order; the others are summed out."""
        chosen = set(attributes)
        gone = tuple(i for i, a in enumerate(self.attributes) if a not in chosen)
        counts = self.counts.sum(axis=gone)
        summed = self.counts.size / max(1, counts.size)
        merges = tuple(merge for a, merge in zip(self.attributes, self.merges, strict=False) if a in chosen)
        return Marginal(
            tuple(a for a in self.attributes if a in chosen), counts, self.sigma * math.sqrt(summed), merges
        )

    def get_merge(self, attribute: str) -> Merge | None:
        """Return the merge of one of its attributes, or None if the attribute is not merged."""
        return self.merges[self.attributes.index(attribute)] if self.merges else None

    def get_shape(self, domain: Domain) -> tuple[int, ...]:
        """Return the shape of the counts over ``domain``."""
        merges = self.merges or (None,) * len(self.attributes)
        sizes = zip(domain.shape(self.attributes), merges, strict=True)
        return tuple(size if merge is None else int(merge.max()) + 1 for size, merge in sizes)

    def by_code(self, attribute: str) -> np.ndarray:
        """Return the counts as a matrix: a row per cell of the other attributes, a column per code of this one."""
        axis = self.attributes.index(attribute)
        return np.moveaxis(self.counts, axis, -1).reshape(-1, self.counts.shape[axis])


def to_table(marginals: Sequence[Marginal]) -> pa.Table:
    """Return the marginals as a table of the MARGINALS contract, numbered from 0 in the given order."""
    sizes = [m.counts.size for m in marginals]
    flat = np.concatenate([m.counts.ravel() for m in marginals] or [np.zeros(0)]).astype(np.float64, copy=False)
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    counts = pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), pa.array(flat))
    attributes = pa.array([list(m.attributes) for m in marginals], pa.list_(pa.string()))
    numbers = pa.array(range(len(marginals)), pa.int32())
    sigmas = pa.array([m.sigma for m in marginals], pa.float64())
    return pa.Table.from_arrays([numbers, attributes, counts, sigmas], schema=MARGINALS.schema)


def from_table(table: pa.Table, domain: Domain, merges: Sequence[Merges] = ()) -> list[Marginal]:
    """Return the marginals of a MARGINALS table, in its order, shaped by ``domain`` and their ``merges``, if any.

    Raises ValueError if a row's counts do not fill its attributes' cells, and KeyError for an unknown attribute.
    """
    marginals: list[Marginal] = []
    for batch in table.select(["attributes", "counts", "sigma"]).to_batches():
        lists: Any = batch.column("counts")
        starts, flat = lists.offsets.to_numpy(), lists.values.to_numpy(zero_copy_only=False)
        cliques: list[Any] = batch.column("attributes").to_pylist()
        sigmas: list[Any] = batch.column("sigma").to_pylist()
        for i, names in enumerate(cliques):
            counts = flat[starts[i] : starts[i + 1]]
            clique_merges = merges[len(marginals)] if merges else ()
            shape = Marginal(tuple(names), np.empty((0,) * len(names)), 0.0, clique_merges).get_shape(domain)
            if counts.size != prod(shape):
                raise ValueError(f"{', '.join(names)}: there are {counts.size} counts for {prod(shape)} cells")
            marginals.append(Marginal(tuple(names), counts.reshape(shape), sigmas[i], clique_merges))
    return marginals


def list_one_ways(marginals: Iterable[Marginal]) -> dict[str, np.ndarray]:
    """Return attribute -> its counts, for the one-ways among the marginals."""
    return {m.attributes[0]: m.counts for m in marginals if len(m.attributes) == 1}


def sum_to_one_ways(marginals: Iterable[Marginal], domain: Domain) -> dict[str, np.ndarray]:
    """Return the one-way counts of every attribute of the domain.

    Raises ValueError if some are missing.
    """
    counts = list_one_ways(marginals)
    missing = [a for a in domain.attributes if a not in counts]
    if missing:
        raise ValueError(f"the one-way marginal of {', '.join(missing)} is missing")
    return {a: counts[a] for a in domain.attributes}


def list_by_attribute(marginals: Iterable[Marginal], domain: Domain) -> dict[str, list[Marginal]]:
    """Return each attribute's marginals of two or more, in their order; in wide tables these are few among many."""
    holding: dict[str, list[Marginal]] = {a: [] for a in domain.attributes}
    for m in marginals:
        for a in m.attributes if len(m.attributes) > 1 else ():
            holding[a].append(m)
    return holding


Floats = NDArray[np.float64]

MAX_FITTING_PASSES = 20
"""Largest number of passes of iterative proportional fitting: inconsistent margins never fit, and few are enough."""


def apply_norm_sub(counts: Floats, total: float) -> Floats:
    """Return the Euclidean projection onto {x >= 0, sum x = total}, of the same shape.

    Subtracts one constant from all cells and clips at 0 (the maximum-likelihood estimate under equal Gaussian noise).
    All cells are 0 if ``total`` is not positive.
    """
    flat = counts.ravel()
    descending = np.sort(flat)[::-1]
    excess = (np.cumsum(descending) - total) / np.arange(1, len(descending) + 1)
    above = np.flatnonzero(descending - excess > 0)
    last = int(above[-1]) if above.size else 0  # none if the total is lost in the rounding of the largest count
    projected = np.maximum(flat - excess[last], 0.0) if total > 0 else np.zeros_like(flat)
    return projected.reshape(counts.shape)


def rake(counts: Floats, parts: Sequence[Floats], close: float = 1e-3) -> Floats:
    """Return ``counts`` >= 0, of any number of axes, scaled to the sums ``parts`` over each axis.

    ``parts``: one array per axis, in the counts' shape without it.  Iterative proportional fitting keeps zeros and odds
    ratios.  It ends when a pass moves less than the share ``close`` of the first part's total.
    """
    total, fitted = float(parts[0].sum()), counts
    for _ in range(MAX_FITTING_PASSES):
        before = fitted
        for axis, part in enumerate(parts):
            fitted = fitted * np.expand_dims(compute_factors(part, fitted.sum(axis=axis)), axis)
        if np.abs(fitted - before).sum() < close * total:
            break
    return fitted


def fit_to_sums(shares: Floats, parts: Sequence[Floats]) -> Floats:
    """Scale ``shares``, shape (..., m, n), to counts with the sums ``parts`` of rows (..., m) and columns (..., n).

    Iterative proportional fitting; rows and columns that ``shares`` leaves empty are filled by independence.
    """
    rows, columns = parts
    total = np.maximum(rows.sum(axis=-1), 1e-9)[..., None, None]
    fitted = shares * total + 1e-6 * (rows[..., :, None] * columns[..., None, :]) / total
    for _ in range(MAX_FITTING_PASSES):
        fitted *= compute_factors(rows, fitted.sum(axis=-1))[..., :, None]
        fitted *= compute_factors(columns, fitted.sum(axis=-2))[..., None, :]
    return np.asarray(fitted)


def compute_factors(wanted: Floats, sums: Floats) -> Floats:
    """Return ``wanted`` / ``sums``, in their shape; 0 where a sum is 0."""
    return np.divide(wanted, sums, out=np.zeros_like(wanted), where=sums > 0)
