"""How many times as much an error of each marginal counts as one of any other: the targets that the spec names.

Not in the paper.  AIM (McKenna and others, 2022) weights the marginals of a workload; here pairs outside it still
count once.  Weights are public, so they cost no budget.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from privsyn.data_contracts.domain import Clique
from privsyn.tasks.estimation.expected_error import Departures, Floats


@dataclass(frozen=True)
class TargetWeights:
    """Weights of the attributes and sets of attributes that a spec names.

    ``focus``: attributes whose relations count ``weight`` times; ``named``: sets of attributes with the weight of every
    clique inside them.  Weights are 1 and more.
    """

    focus: frozenset[str] = frozenset()
    weight: float = 1.0
    named: tuple[tuple[frozenset[str], float], ...] = ()

    def weights(self, cliques: Sequence[Clique]) -> Floats:
        """Return the weight of each clique, shape (m,): the largest of those that apply, 1 where none does."""
        return np.array([self._weight(clique) for clique in cliques], dtype=np.float64)

    def _weight(self, clique: Clique) -> float:
        found = [weight for columns, weight in self.named if columns.issuperset(clique)]
        return max(1.0, *found, self.weight if self.focus.intersection(clique) else 1.0)

    def weighted(self, departures: Departures, cliques: Sequence[Clique]) -> Departures:
        """Return the departures of the cliques, every cell's error counted with the weight of its clique."""
        if not self.focus and not self.named:
            return departures
        return Departures(departures.tau, departures.cells * self.weights(cliques)[:, None])


NO_TARGETS = TargetWeights()
"""All marginals count alike."""
