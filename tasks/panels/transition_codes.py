"""The codes by which transitions are counted: as many of a column with an order as the noise of its table allows.

A relation of a column with itself is strong, and one table of it is measured; so it bears other codes than relations of
all pairs of columns do.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from privsyn.tasks.codecs import EncodingPlan
from privsyn.tasks.codecs.ordered import OrderedCodec
from privsyn.tasks.estimation.recode import AttributeRecode, Recode, estimate_total

MOST_CODES = 16
"""Codes of a column of numbers or moments in its table of transitions, at most."""

RECORDS_A_CELL = 4.0
"""Records that a cell of the table would have at least if all had as many, in standard deviations of the noise."""


@dataclass(frozen=True, eq=False)
class TransitionCodes:
    """The codes of one attribute in its table of transitions.

    ``recode``: from fine codes; ``split``: the share of each coarse code's records that each has, shape (coarse size,
    size).
    """

    recode: AttributeRecode
    split: NDArray[np.float64]

    @property
    def size(self) -> int:
        """Number of codes."""
        return self.split.shape[1]


def build_transition_codes(plan: EncodingPlan, recode: Recode, rho: Fraction) -> dict[str, TransitionCodes]:
    """Return the codes of every attribute that is followed, by released counts alone.

    ``rho``: the budget of all tables of transitions, by which the noise is known about.
    """
    following = plan.following
    sigma = np.sqrt(len(following) / (2 * float(rho))) if following else 1.0
    rows = max(estimate_total(recode), 1.0)
    most = int(np.clip(np.sqrt(rows / (RECORDS_A_CELL * sigma)), 1, MOST_CODES))
    found = {}
    for a in following:
        codec = plan.get_codec(a)
        if isinstance(codec, OrderedCodec):
            bins = codec.groups
            sections = [(int(np.searchsorted(bins, s)), int(np.searchsorted(bins, e))) for s, e in codec.in_order]
            found[a] = _cut(recode[a], sections, most)
        else:
            found[a] = _keep(recode[a])
    return found


def refine_weights(codes: Mapping[str, TransitionCodes], recode: Recode) -> dict[str, TransitionCodes]:
    """Return the same codes with the shares inside them of another recoding, of which more is known."""
    return {a: _weigh(c.recode.coarse, c.size, recode[a]) for a, c in codes.items()}


def _weigh(code: NDArray[np.integer], size: int, recode: AttributeRecode) -> TransitionCodes:
    """Return codes by fine code, weighed by the counts and weights of ``recode``."""
    kept = recode.kept
    total = np.maximum(np.bincount(recode.coarse[kept], weights=recode.estimate[kept], minlength=recode.size), 1e-9)
    split = np.zeros((recode.size, size))
    np.add.at(split, (recode.coarse[kept], code[kept]), recode.weight[kept])
    mass = np.zeros(len(code))
    mass[kept] = recode.weight[kept] * total[recode.coarse[kept]] + 1e-12
    sums = np.bincount(code[kept], weights=mass[kept], minlength=size)
    weight = np.where(kept, mass / np.maximum(sums[np.minimum(code, size - 1)], 1e-300), 0.0)
    return TransitionCodes(replace(recode, coarse=code.astype(np.int32), weight=weight), split)


def count_ordered(plan: EncodingPlan, attribute: str, codes: TransitionCodes) -> int:
    """Return how many of an attribute's codes, from the first one on, are in order: not null, nor of a category."""
    codec = plan.get_codec(attribute)
    if not isinstance(codec, OrderedCodec):
        return 0
    cells = np.flatnonzero(codes.recode.kept[: len(codec.cells.fine)])
    of = codes.recode.coarse[cells]
    return int(of.max()) + 1 if len(of) and bool((np.diff(of) >= 0).all()) else 0


def _keep(recode: AttributeRecode) -> TransitionCodes:
    """Return the coarse codes."""
    return _weigh(recode.coarse, recode.size, recode)


def _cut(recode: AttributeRecode, sections: Sequence[tuple[int, int]], codes: int) -> TransitionCodes:
    """Return about ``codes`` codes, each of neighbours of one section; what is in no section keeps its coarse code.

    ``sections``: the first fine code of each and the first after it.  Codes are even in the arc sine of the root of the
    share of rows below them: smaller towards both ends, where the values of skewed columns lie far apart.
    """
    mass = np.maximum(recode.estimate, 0.0) * recode.kept
    code, size = np.full(len(mass), -1, np.int64), 0
    for start, end in sections:
        part = mass[start:end]
        middle = np.cumsum(part) - part / 2
        wanted = max(1, round(codes * float(part.sum()) / max(float(mass.sum()), 1e-9)))
        place = np.floor(_warp(middle / max(float(part.sum()), 1e-9)) * wanted)
        code[start:end] = size + np.unique(np.minimum(place, wanted - 1), return_inverse=True)[1]
        size = int(code[start:end].max()) + 1
    others = recode.kept & (code < 0)
    code[others] = size + np.unique(recode.coarse[others], return_inverse=True)[1]
    size = int(code.max()) + 1
    return _weigh(np.where(recode.kept, code, size), size, recode)


def _warp(shares: NDArray[np.float64]) -> NDArray[np.float64]:
    return 2 / np.pi * np.arcsin(np.sqrt(np.clip(shares, 0.0, 1.0)))
