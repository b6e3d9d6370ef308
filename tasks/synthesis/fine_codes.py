"""Fine codes inside coarse ones: drawn by the recode's weights, or at a place of the coarse code."""

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
        # Each coarse code's weights sum to 1, so its members' share of the cumulative sum is [code, code + 1).
        self._cumulative = np.cumsum(recode.weight[self._members])
        self._first = np.searchsorted(code, np.arange(recode.size))
        self._last = np.append(self._first[1:], len(code)) - 1
        self._several = self._first < self._last

    def __call__(self, coarse: NDArray[np.unsignedinteger], rng: np.random.Generator) -> NDArray[np.int64]:
        """One fine code per row; a draw is taken for every row, looked up only where the code has several."""
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
        """Return the coarse code of each fine one, and the place in it that lies ``inside`` the fine one."""
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
        """Return the fine code at a place of each coarse one, and where in that it lies; both rise with the place.

        ``places``: shares of the coarse code's weight, from 0 to below 1.  Even places give the weights' shares.
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
