"""Fine codes inside coarse ones: drawn by the recode's weights, or found at a place in the coarse code."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from privsyn.tasks.estimation.recode import AttributeRecode


class FineCodes:
    """Draws the fine code inside a coarse one by the recode's weights (inverse transform)."""

    def __init__(self, recode: AttributeRecode) -> None:
        members = np.flatnonzero(recode.kept)
        self._members = members[np.argsort(recode.coarse[members], kind="stable")]
        code = recode.coarse[self._members]
        self._code, self._size = code.astype(np.int64), len(recode.coarse)
        # Each coarse code's weights sum to 1, so its members span [code, code + 1) of the cumulative sum.
        self._cumulative = np.cumsum(recode.weight[self._members])
        self._first = np.searchsorted(code, np.arange(recode.size))
        self._last = np.append(self._first[1:], len(code)) - 1
        self._several = self._first < self._last

    def __call__(self, coarse: NDArray[np.unsignedinteger], rng: np.random.Generator) -> NDArray[np.int64]:
        """Return one fine code per row; every row takes a random draw, even if its code has one fine code."""
        draws = rng.random(len(coarse))
        position = self._first[coarse]
        several = np.flatnonzero(self._several[coarse])
        if several.size:
            among = coarse[several]
            drawn = np.searchsorted(self._cumulative, among + draws[several] * (1 - 1e-9), side="right")
            position[several] = np.clip(drawn, self._first[among], self._last[among])
        return self._members[position]

    def locate(
        self, fine: NDArray[np.integer], inside: NDArray[np.float64]
    ) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Return the coarse code of each fine code, and the place in it for the place ``inside`` the fine code."""
        position = np.empty(self._size, np.int64)
        position[self._members] = np.arange(len(self._members))
        edge = position[fine]
        start = np.where(edge > 0, self._cumulative[edge - 1], 0.0)
        place = start + inside * (self._cumulative[edge] - start)
        coarse = self._code[edge]
        return coarse, np.clip(place - coarse, 0.0, 1 - 1e-9)

    def find_at(
        self, coarse: NDArray[np.unsignedinteger], places: NDArray[np.float64]
    ) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Return the fine code at a place in each coarse code, and the place in that; both rise with the place.

        ``places``: shares of the coarse code's weight, in [0, 1).  Uniform places give the weights' shares.
        """
        position, inside = self._first[coarse], places.copy()
        several = np.flatnonzero(self._several[coarse])
        if several.size:
            among = coarse[several]
            wanted = among + places[several] * (1 - 1e-9)
            drawn = np.searchsorted(self._cumulative, wanted, side="right")
            drawn = np.clip(drawn, self._first[among], self._last[among])
            before = np.where(drawn > 0, self._cumulative[drawn - 1], 0.0)
            width = np.maximum(self._cumulative[drawn] - before, 1e-12)
            position[several], inside[several] = drawn, np.clip((wanted - before) / width, 0.0, 1 - 1e-9)
        return self._members[position], inside
