"""Where in its code the next value of a person lies: where it was, near it, or anywhere."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri

from privsyn.tasks.panels.transitions import Transition

Floats: TypeAlias = NDArray[np.float64]
Codes: TypeAlias = NDArray[Any]

_LEAST, _MOST = 1e-9, 1 - 1e-9


@dataclass(frozen=True, eq=False)
class Places:
    """Draws where in their coarse codes the next values of one attribute lie.

    ``transition``: to the rows that are made; ``ordered``: whether the attribute's codes are intervals.
    """

    transition: Transition
    ordered: bool

    def draw(
        self, before: Codes, old: Floats, code: Codes, rng: np.random.Generator
    ) -> tuple[Floats, NDArray[np.bool_]]:
        """Return the place of each new value in ``code``, and whether it stays as it was.

        ``old``: the place of the value before, in the code ``before``.

        A value that stays keeps its place.  Another lies near where it was in a column with an order, by a normal
        copula that has the correlation between the codes, and anywhere in its code in a column without.
        """
        t = self.transition
        stays = t.same / np.maximum(t.same + np.diag(t.moves), 1e-12)
        same = (code == before) & (rng.random(len(code)) < stays[before])
        new = rng.random(len(code))
        return np.where(same, old, self._draw_near(before, old, code, new) if self.ordered else new), same

    def _draw_near(self, before: Codes, old: Floats, code: Codes, draws: Floats) -> Floats:
        correlation = self.transition.correlate_moves()
        spread = np.sqrt(1 - correlation**2)
        low, width = _rank(self.transition.shares)
        low_next, width_next = _rank(self.transition.shares @ self.transition.next_codes)
        expected = correlation * ndtri(np.clip(low[before] + old * width[before], _LEAST, _MOST))
        ends = [ndtri(np.clip(end[code], _LEAST, _MOST)) for end in (low_next, low_next + width_next)]
        bottom, top = (ndtr((end - expected) / spread) for end in ends)
        rank = ndtr(expected + spread * ndtri(np.clip(bottom + draws * (top - bottom), _LEAST, _MOST)))
        inside = (rank - low_next[code]) / np.maximum(width_next[code], 1e-12)
        return np.clip(np.where(top - bottom > 1e-6, inside, draws), 0.0, _MOST)


def _rank(shares: Floats) -> tuple[Floats, Floats]:
    """Return the share of rows below each code, and in it."""
    return np.cumsum(shares) - shares, shares
