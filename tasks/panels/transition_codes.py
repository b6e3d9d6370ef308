"""The codes by which transitions are counted: those of joint counts, cut further where the noise allows it.

A relation of a column with itself is strong, and one table of it is measured; so it bears more codes than relations of
all pairs of columns do.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from privsyn.tasks.codecs import EncodingPlan
from privsyn.tasks.codecs.ordered import OrderedCodec
from privsyn.tasks.estimation.recode import AttributeRecode, Recode, estimate_total

MOST_CODES = 16
"""Codes of a column of numbers or moments in its table of transitions, at most."""

RECORDS_A_CELL = 2.0
"""Records that a cell of the table would have at least if all had as many, in standard deviations of the noise."""


@dataclass(frozen=True, eq=False)
class TransitionCodes:
    """The codes of one attribute in its table of transitions; they divide the coarse codes.

    ``recode``: from fine codes; ``coarse``: the coarse code of each, shape (size,); ``share``: of the coarse code's
    records that each has, shape (size,).
    """

    recode: AttributeRecode
    coarse: NDArray[np.int64]
    share: NDArray[np.float64]

    @property
    def size(self) -> int:
        """Number of codes."""
        return len(self.coarse)


def build_transition_codes(plan: EncodingPlan, recode: Recode, rho: Fraction) -> dict[str, TransitionCodes]:
    """Return the codes of every attribute that is followed, by released counts alone.

    ``rho``: the budget of all tables of transitions, by which the noise is known about.
    """
    following = plan.following
    sigma = np.sqrt(len(following) / (2 * float(rho))) if following else 1.0
    rows = max(estimate_total(recode), 1.0)
    most = int(np.clip(np.sqrt(rows / (RECORDS_A_CELL * sigma)), 1, MOST_CODES))
    return {a: _cut(recode[a], most if isinstance(plan.get_codec(a), OrderedCodec) else 1) for a in following}


def refine_weights(codes: Mapping[str, TransitionCodes], recode: Recode) -> dict[str, TransitionCodes]:
    """Return the same codes with the shares inside them of another recoding, of which more is known."""
    found = {}
    for a, c in codes.items():
        mass = recode[a].weight
        of, size = c.recode.coarse, c.size
        kept = c.recode.kept
        sums = np.bincount(of[kept], weights=mass[kept], minlength=size)
        members = np.bincount(of[kept], minlength=size)
        of_code = np.minimum(of, size - 1)
        weight = np.where(sums[of_code] > 0, mass / np.maximum(sums[of_code], 1e-300), 1.0 / members[of_code])
        share = sums / np.maximum(np.bincount(c.coarse, weights=sums)[c.coarse], 1e-300)
        changed = replace(c.recode, weight=np.where(kept, weight, 0.0))
        found[a] = TransitionCodes(changed, c.coarse, share)
    return found


def count_ordered(plan: EncodingPlan, attribute: str, codes: TransitionCodes) -> int:
    """Return how many of an attribute's codes, from the first one on, are in order: not null, nor of a category."""
    codec = plan.get_codec(attribute)
    if not isinstance(codec, OrderedCodec):
        return 0
    cells = np.flatnonzero(codes.recode.kept[: len(codec.cells.fine)])
    of = codes.recode.coarse[cells]
    return int(of.max()) + 1 if len(of) and bool((np.diff(of) >= 0).all()) else 0


def _cut(recode: AttributeRecode, codes: int) -> TransitionCodes:
    """Return the coarse codes, each cut into parts, about ``codes`` of all together.

    Parts are even in the arc sine of the root of the share of rows below them: smaller towards both ends, where the
    values of skewed columns lie far apart.
    """
    mass = np.maximum(recode.estimate, 0.0) * recode.kept
    found = np.full(len(mass), -1, np.int64)
    coarse: list[int] = []
    total, below = max(float(mass.sum()), 1e-9), 0.0
    for code in range(recode.size):
        members = np.flatnonzero(recode.kept & (recode.coarse == code))
        own = mass[members]
        ends = _warp(np.array([below, below + own.sum()]) / total)
        places = _warp((below + np.cumsum(own) - own / 2) / total)
        below += float(own.sum())
        parts = max(1, round(codes * (ends[1] - ends[0])))
        part = np.floor((places - ends[0]) / max(ends[1] - ends[0], 1e-12) * parts).astype(np.int64)
        part = np.unique(np.clip(part, 0, parts - 1), return_inverse=True)[1]
        found[members] = len(coarse) + part
        coarse += [code] * (int(part.max()) + 1)
    size = len(coarse)
    changed = replace(recode, coarse=np.where(recode.kept, found, size).astype(np.int32))
    codes_of = TransitionCodes(changed, np.array(coarse), np.ones(size))
    return refine_weights({"": codes_of}, {"": recode})[""]


def _warp(shares: NDArray[np.float64]) -> NDArray[np.float64]:
    return 2 / np.pi * np.arcsin(np.sqrt(np.clip(shares, 0.0, 1.0)))
