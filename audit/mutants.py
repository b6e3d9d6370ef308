"""Three planted faults that the audit must find: bugs of the kind that trusted code has shipped."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from audit.lockstep import Release
from privsyn.tasks.estimation.noisy import Answers

SELECTION = "indif_scores"
ONE_WAYS = "one_way_marginals"


class HalfNoise(Release):
    """Every draw has half the sigma that its receipt states."""

    tells = False

    def draw(self, sigma: float, cells: int) -> NDArray[np.int64]:
        """Return half of the noise."""
        return self.noise.draw(sigma / 2, cells)


class UnNoisedSelection(Release):
    """The noisy scores are published, and the marginals chosen by the exact ones."""

    def handed_on(self, look: str, answers: Answers, exact: Answers) -> Answers:
        """Return the exact scores."""
        return exact if look == SELECTION else answers


class FreeOneWays(Release):
    """The one-ways are left out of the sum: the shares of the other looks add up to the whole budget.

    The shares keep their proportions, so that all of them grow by 1 / (1 - the one-ways' share).
    """

    tells = False

    def shares(self, declared: Mapping[str, Fraction]) -> Mapping[str, Fraction]:
        """Return shares that add up to more than 1."""
        return {look: share / (1 - declared[ONE_WAYS]) for look, share in declared.items()}


MUTANTS: dict[str, type[Release]] = {
    "half the noise": HalfNoise,
    "selection on exact scores": UnNoisedSelection,
    "one-ways free of charge": FreeOneWays,
}
