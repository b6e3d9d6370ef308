"""The best shares of a budget over marginals whose departures from a known table are roughly known.

Not in the paper.  Its noise error (section 4.2) is the error of raw counts, which overstates the cost of a pair with
many small cells: consistency and shrinkage reduce it.  So the paper selects too few pairs.

The model: a cell's departure from the known table is normal around 0 with standard deviation tau.  Measured with noise
of standard deviation sigma = k / sqrt(2 rho), its posterior has standard deviation tau sigma / sqrt(tau^2 + sigma^2).
So the expected error is

    sqrt(2 / pi) tau / sqrt(1 + 2 rho tau^2 / k^2):

tau (times the constant) without a measurement, sigma with little noise.  It is decreasing and convex in rho, so the
best shares have one common slope (the Lagrange multiplier); a marginal with a flatter initial slope gets none.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from privsyn.data_contracts.domain import Clique

Floats = NDArray[np.float64]

NORMAL_MEAN_ABSOLUTE = math.sqrt(2 / math.pi)
"""E|X| of a standard normal X: the expected L1 norm of noise is this times the sum of its standard deviations."""

_GRID = 10.0 ** np.linspace(-6, 0, 41)  # shares of the budget with computed slopes; log-linear interpolation between
_HALVINGS = 60


@dataclass(frozen=True, eq=False)
class Departures:
    """Cells of m marginals in groups; both arrays have shape (m, groups).

    ``tau``: standard deviation of a cell's departure in records, >= 0; ``cells``: number of such cells.
    """

    tau: Floats
    cells: Floats

    def error(self, rho: Floats, records: int = 1) -> Floats:
        """Return each marginal's expected L1 error in records, shape (m,), measured at ``rho``, shape (m,) or one."""
        shrinkage = np.sqrt(1 + 2 * np.asarray(rho)[..., None] * (self.tau / records) ** 2)
        return np.asarray(NORMAL_MEAN_ABSOLUTE * (self.cells * self.tau / shrinkage).sum(axis=-1))

    def slope(self, rho: float, records: int = 1) -> Floats:
        """Return minus the derivative of that error at ``rho``, shape (m,)."""
        scaled = (self.tau / records) ** 2
        shrinkage = 1 + 2 * rho * scaled
        return np.asarray(
            NORMAL_MEAN_ABSOLUTE * (self.cells * self.tau * scaled / (shrinkage * np.sqrt(shrinkage))).sum(axis=1)
        )

    def followed_by(self, other: Departures) -> Departures:
        """Return these marginals followed by the others; missing groups are padded with no cells."""
        groups = max(self.tau.shape[1], other.tau.shape[1])

        def pad(values: Floats) -> Floats:
            return np.pad(values, ((0, 0), (0, groups - values.shape[1])))

        return Departures(np.vstack([pad(self.tau), pad(other.tau)]), np.vstack([pad(self.cells), pad(other.cells)]))

    def subset(self, chosen: NDArray[np.intp]) -> Departures:
        """Return the departures of the marginals at the positions ``chosen``."""
        return Departures(self.tau[chosen], self.cells[chosen])


def share_out(departures: Departures, rho: float, records: int = 1) -> Floats:
    """Return the rho_i >= 0, shape (m,), that sum to ``rho`` and minimize the summed expected error.

    Slopes are interpolated between 41 shares of ``rho``, so the error is within about one part in 1,000 of the minimum.
    All 0 if no marginal departs from the known table.  Raises ValueError for rho <= 0.
    """
    if rho <= 0:
        raise ValueError(f"rho must be positive, not {rho}")
    grid = _GRID * rho
    slopes = np.stack([departures.slope(x, records) for x in grid], axis=1)
    with np.errstate(divide="ignore"):
        logs = np.log(slopes)
    if not np.isfinite(logs).any():
        return np.zeros(len(slopes))
    low, high = float(logs[np.isfinite(logs)].min()) - 1, float(logs.max()) + 1
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if _allocate_at_slope(logs, grid, middle).sum() > rho else (low, middle)
    shares = _allocate_at_slope(logs, grid, low)  # this slope's shares exceed rho, so they are not all 0
    return np.asarray(shares * (rho / shares.sum())) if shares.sum() > 0 else shares


LEAST_GAIN = 0.3
"""A marginal is measured only if that is expected to remove at least this share of its error."""


def choose_worth_measuring(
    departures: Departures, candidates: NDArray[np.intp], rho: float, records: int, one_ways: Departures | None = None
) -> tuple[NDArray[np.intp], Floats, Floats]:
    """Choose which of the marginals at positions ``candidates`` to measure; return positions, shares of ``rho``, gains.

    Marginals whose error falls by less than LEAST_GAIN are left out until all others gain that much: many faint
    measurements hurt the rows more than the model shows.  The largest gains come first.  ``one_ways`` compete for the
    budget and may get the rest; the shares sum to at most ``rho``.
    """
    rivals = Departures(np.zeros((0, 1)), np.zeros((0, 1))) if one_ways is None else one_ways
    remaining, shares, gains = candidates, np.zeros(0), np.zeros(0)
    while remaining.size:
        chosen = departures.subset(remaining)
        unmeasured_error = chosen.error(np.zeros(remaining.size))
        shares = share_out(chosen.followed_by(rivals), rho, records)[: remaining.size]
        gains = unmeasured_error - chosen.error(shares, records)
        stays = gains >= LEAST_GAIN * unmeasured_error
        if stays.all():
            break
        remaining, shares, gains = remaining[stays], np.zeros(0), np.zeros(0)
    order = np.argsort(-gains, kind="stable")
    return remaining[order], shares[order], gains[order]


def _allocate_at_slope(logs: Floats, grid: Floats, slope: float) -> Floats:
    """Return the point of ``grid`` where each marginal's falling log slope ``logs`` reaches ``slope``."""
    steeper = (logs > slope).sum(axis=1)
    shares = np.where(steeper == len(grid), grid[-1], 0.0)
    between = np.flatnonzero((steeper > 0) & (steeper < len(grid)))
    after = steeper[between]
    first, second = logs[between, after - 1], logs[between, after]
    part = np.where(np.isfinite(second), (first - slope) / np.maximum(first - second, 1e-300), 0.0)
    shares[between] = grid[after - 1] * (grid[after] / grid[after - 1]) ** part
    return np.asarray(shares)


def compute_size_weight(cells: int) -> float:
    """Return the weight c^(2/3) of equation (1) for a marginal of ``cells`` = c >= 1 cells.

    Shares proportional to it minimize the summed expected L1 noise, sum_i c_i / sqrt(pi rho_i).
    """
    return float(cells ** (2 / 3))


def split_by_weight(weights: Sequence[float], rho: Fraction) -> list[Fraction]:
    """Return rho_i = rho w_i / sum_j w_j for positive weights, exact and summing to exactly ``rho``.

    Weights are rounded to nine digits: the last digits of a power or a logarithm differ between CPUs.
    """
    rounded = [float(f"{w:.8e}") for w in weights]
    times = Counter(rounded)  # many weights are equal, and fractions are slow to add
    total = sum((Fraction(w) * n for w, n in times.items()), Fraction(0))
    shares = {w: rho * Fraction(w) / total for w in times}
    return [shares[w] for w in rounded]


@dataclass(frozen=True)
class TargetWeights:
    """Weights of the attributes and sets of attributes that a spec names.

    ``focus``: attributes whose relations count ``weight`` times; ``named``: sets of attributes, each with the weight of
    the cliques inside it.  Weights are at least 1.
    """

    focus: frozenset[str] = frozenset()
    weight: float = 1.0
    named: tuple[tuple[frozenset[str], float], ...] = ()

    def weights(self, cliques: Sequence[Clique]) -> Floats:
        """Return the weight of each clique, shape (m,): the largest that applies, else 1."""
        return np.array([self._weigh_clique(clique) for clique in cliques], dtype=np.float64)

    def _weigh_clique(self, clique: Clique) -> float:
        weights = [weight for columns, weight in self.named if columns.issuperset(clique)]
        return max(1.0, *weights, self.weight if self.focus.intersection(clique) else 1.0)

    def weighted(self, departures: Departures, cliques: Sequence[Clique]) -> Departures:
        """Return the departures of the cliques with every cell's error multiplied by the clique's weight."""
        if not self.focus and not self.named:
            return departures
        return Departures(departures.tau, departures.cells * self.weights(cliques)[:, None])


NO_TARGETS = TargetWeights()
"""All marginals count alike."""
