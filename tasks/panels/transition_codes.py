"""The codes by which transitions are counted: an ordered column has as many as its table's noise allows.

A column's relation with itself is strong and measured in one table, so it can use finer codes than the relations of all
pairs of columns.
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
"""The most codes of an ordered column in its transition table."""

RECORDS_A_CELL = 4.0
RECORDS_OF_MEMBERS = 0.7
"""Records per cell, if all cells had as many, in noise standard deviations: for rows of persons, and for members.

Members need fewer: relations between couples, or parents and children, need narrow codes with few rows.
"""


@dataclass(frozen=True, eq=False)
class TransitionCodes:
    """The codes of one attribute in its transition table.

    Attributes:
        recode: The recoding from fine to coarse codes.
        split: How each coarse code's records are shared among the codes, shape (coarse size, size).
        ordered: How many of the codes, from the first on, are ordered.
    """

    recode: AttributeRecode
    split: NDArray[np.float64]
    ordered: int

    @property
    def size(self) -> int:
        """Number of codes."""
        return self.split.shape[1]

    def measure_apart(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the chance that two values drawn from each code differ; ``values``: the number in each fine code."""
        coded, weight = self.recode.kept, self.recode.weight
        alike = np.bincount(self.recode.coarse[coded], weights=(weight**2 / values)[coded], minlength=self.size)
        return np.asarray(np.where(alike < 1 - 1e-9, 1 - alike, 0.0))


def build_transition_codes(plan: EncodingPlan, recode: Recode, rho: Fraction) -> dict[str, TransitionCodes]:
    """Return the codes of every followed attribute, from released counts alone.

    ``rho``: the budget of all transition tables, which gives their approximate noise.
    """
    following, panel = plan.following, plan.get_order()[0]
    looks = len(following) * (2 if panel.counts_later else 1)  # for members: with the next, and with the first
    sigma = np.sqrt(looks / (2 * float(rho))) if following else 1.0
    rows = max(estimate_total(recode), 1.0)
    wanted = RECORDS_OF_MEMBERS if panel.household else RECORDS_A_CELL
    most = int(np.clip(np.sqrt(rows / (wanted * sigma)), 1, MOST_CODES))
    codes_by_attribute = {}
    for a in following:
        codec = plan.get_codec(a)
        if isinstance(codec, OrderedCodec):
            bins = codec.groups
            sections = [(int(np.searchsorted(bins, s)), int(np.searchsorted(bins, e))) for s, e in codec.in_order]
            codes_by_attribute[a] = _cut(recode[a], sections, most, len(codec.cells.fine))
        else:
            codes_by_attribute[a] = _keep(recode[a])
    return codes_by_attribute


def refine_weights(codes: Mapping[str, TransitionCodes], recode: Recode) -> dict[str, TransitionCodes]:
    """Return the same codes with inner weights from the finer counts of ``recode``."""
    return {a: _weigh(c.recode.coarse, c.size, recode[a], c.ordered) for a, c in codes.items()}


def _weigh(code: NDArray[np.integer], size: int, recode: AttributeRecode, ordered: int) -> TransitionCodes:
    """Return codes by fine code, weighted by the counts and weights of ``recode``."""
    coded = recode.kept
    total = np.maximum(np.bincount(recode.coarse[coded], weights=recode.estimate[coded], minlength=recode.size), 1e-9)
    split = np.zeros((recode.size, size))
    np.add.at(split, (recode.coarse[coded], code[coded]), recode.weight[coded])
    mass = np.zeros(len(code))
    mass[coded] = recode.weight[coded] * total[recode.coarse[coded]] + 1e-12
    sums = np.bincount(code[coded], weights=mass[coded], minlength=size)
    weight = np.where(coded, mass / np.maximum(sums[np.minimum(code, size - 1)], 1e-300), 0.0)
    return TransitionCodes(replace(recode, coarse=code.astype(np.int32), weight=weight), split, ordered)


def _keep(recode: AttributeRecode) -> TransitionCodes:
    """Return the coarse codes."""
    return _weigh(recode.coarse, recode.size, recode, 0)


def _cut(recode: AttributeRecode, sections: Sequence[tuple[int, int]], codes: int, cells: int) -> TransitionCodes:
    """Return about ``codes`` codes, each of neighbours in one section, or of fine codes that share a coarse code.

    ``sections``: (first fine code, first fine code after it) of each; ``cells``: how many fine codes, from the first
    on, are ordered.  Codes are equally spaced in the arcsine of the root of the cumulative share: smaller towards both
    ends, where the values of skewed columns lie far apart.  Codes of neighbours come in the order of their values,
    others last.
    """
    mass = np.maximum(recode.estimate, 0.0) * recode.kept
    group = np.full(len(mass), -1, np.int64)
    for start, end in sections:
        part = mass[start:end]
        wanted = max(1, round(codes * float(part.sum()) / max(float(mass.sum()), 1e-9)))
        place = np.floor(_stabilize_variance((np.cumsum(part) - part / 2) / max(float(part.sum()), 1e-9)) * wanted)
        group[start:end] = (start + 1) * len(mass) + np.minimum(place, wanted - 1).astype(np.int64)
    ungrouped = recode.kept & (group < 0)
    for code in np.unique(recode.coarse[ungrouped]):
        members = np.flatnonzero(ungrouped & (recode.coarse == code))
        neighbours = members[-1] < cells and len(members) == members[-1] - members[0] + 1
        group[members] = (members[0] + 1 + (0 if neighbours else len(mass))) * len(mass)
    known = np.unique(group[recode.kept], return_inverse=True)
    code = np.full(len(mass), len(known[0]), np.int64)
    code[recode.kept] = known[1]
    ordered = int((known[0] < (len(mass) + 1) * len(mass)).sum())
    return _weigh(code, len(known[0]), recode, ordered)


def _stabilize_variance(shares: NDArray[np.float64]) -> NDArray[np.float64]:
    return 2 / np.pi * np.arcsin(np.sqrt(np.clip(shares, 0.0, 1.0)))
