"""How a budget is shared over marginals by their sizes (equation (1) of the paper), exactly.

Sharing by what is known of the marginals' departures is in expected_error.py.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from fractions import Fraction


def compute_size_weight(cells: int) -> float:
    """Equation (1): the weight c^(2/3) of a marginal of ``cells`` = c >= 1 cells.

    Shares proportional to it make the summed expected L1 noise, sum_i c_i / sqrt(pi rho_i), least.
    """
    return float(cells ** (2 / 3))


def split_by_weight(weights: Sequence[float], rho: Fraction) -> list[Fraction]:
    """rho_i = rho w_i / sum_j w_j for positive weights, exact and summing to exactly ``rho``.

    Weights count with nine digits: the last ones of a power or a logarithm differ from CPU to CPU.
    """
    rounded = [float(f"{w:.8e}") for w in weights]
    times = Counter(rounded)  # many weights are equal, and fractions are slow to add
    total = sum((Fraction(w) * n for w, n in times.items()), Fraction(0))
    shares = {w: rho * Fraction(w) / total for w in times}
    return [shares[w] for w in rounded]
