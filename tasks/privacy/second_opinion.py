"""A second opinion on a release's price: receipts accounted by OpenDP and by Google's dp-accounting.

This module decides nothing.  The project's own accountants price a release before it runs (``accountant``,
``gaussian_dp``); this module prices the drawn noise afterwards with two independent libraries:

- OpenDP prices each query in rho from its sensitivity and sigma, and converts the sum into epsilon (zCDP);
- dp-accounting composes the queries as Gaussian mechanisms, by Renyi divergences and by privacy loss distributions
  (PLD).  The PLDs of the queries are rounded up; the PLD of one mechanism with the whole price is rounded down.

An epsilon below the epsilon of the rounded-down PLD is wrong.  Needs the extra ``second-opinion``.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from fractions import Fraction
from functools import reduce
from importlib.metadata import version
from typing import Any

from privsyn.data_contracts.receipts import Query, sum_rho
from privsyn.tasks.privacy.accountant import Accountant

ROUNDING = Fraction(1, 10**9)
"""Largest relative excess of OpenDP's floating-point price over the exact price."""

GRID = 1e-4
"""Grid width of privacy losses, as a share of the stated epsilon; rounding errors are far smaller."""

_ORDERS = tuple(1 + math.exp(math.log(1e-3) + i * math.log(1e8) / 4_000) for i in range(4_001))
"""Orders of Renyi divergence, dense enough for four digits of epsilon."""


@dataclass(frozen=True)
class SecondOpinion:
    """The accounts of two other libraries beside a release's stated (epsilon, delta).

    ``rho``: the exact sum of the noise's zCDP prices; ``opendp_rho``: OpenDP's sum; ``opendp_epsilon``: its conversion
    of that sum; ``renyi_epsilon``, ``pld_epsilon`` and ``pld_epsilon_at_least``: results of dp-accounting.  Every
    epsilon is at the stated ``delta``.
    """

    epsilon: float
    delta: float
    accountant: Accountant
    queries: int
    rho: float
    opendp_rho: float
    opendp_epsilon: float
    renyi_epsilon: float
    pld_epsilon: float
    pld_epsilon_at_least: float

    @property
    def problems(self) -> list[str]:
        """The contradictions between the libraries and the release, one sentence each."""
        found = []
        if self.opendp_rho > self.rho * (1 + float(ROUNDING)):
            found.append(f"OpenDP prices the noise at rho {self.opendp_rho:.6g}, the receipts at {self.rho:.6g}")
        if self.pld_epsilon_at_least > self.epsilon:
            found.append(
                f"dp-accounting finds epsilon at least {self.pld_epsilon_at_least:.6g}, the release states "
                f"{self.epsilon:g}"
            )
        if self.accountant != "gaussian" and self.opendp_epsilon > self.epsilon * (1 + float(ROUNDING)):
            found.append(
                f"OpenDP converts the rho into epsilon {self.opendp_epsilon:.6g}, the release states {self.epsilon:g}"
            )
        return found

    def as_json(self) -> dict[str, Any]:
        """Return all figures and problems, JSON-ready."""
        return {**asdict(self), "problems": self.problems}


def list_libraries() -> dict[str, str]:
    """Return the versions of both libraries.  Raises ModuleNotFoundError without dp-accounting."""
    import dp_accounting  # noqa: F401

    return {name: version(name) for name in ("opendp", "dp-accounting")}


def form_second_opinion(
    queries: Sequence[Query], epsilon: float, delta: float, accountant: Accountant
) -> SecondOpinion:
    """Return OpenDP's and dp-accounting's accounts of the noise of ``queries``, beside the stated (epsilon, delta).

    Raises ValueError without queries, and ModuleNotFoundError without dp-accounting.
    """
    if not queries:
        raise ValueError("there is no query to account for")
    noise = Counter((query.sensitivity, query.sigma) for query in queries)
    opendp_rho, opendp_epsilon = _ask_opendp(noise, delta)
    renyi, most, least = _ask_dp_accounting(noise, epsilon, delta)
    rho = float(sum_rho(replace(query, pricing="zcdp") for query in queries))
    return SecondOpinion(epsilon, delta, accountant, len(queries), rho, opendp_rho, opendp_epsilon, renyi, most, least)


def _ask_opendp(noise: Counter[tuple[int, float]], delta: float) -> tuple[float, float]:
    """Return OpenDP's rho of all queries, and its epsilon at ``delta``."""
    from opendp.combinators import make_zCDP_to_approxDP
    from opendp.domains import atom_domain, vector_domain
    from opendp.measurements import make_gaussian
    from opendp.metrics import l2_distance
    from opendp.mod import enable_features

    enable_features("contrib")
    space = vector_domain(atom_domain(T="i64")), l2_distance(T="f64")
    total = Fraction(0)
    for (sensitivity, sigma), times in noise.items():
        total += times * Fraction(make_gaussian(*space, scale=sigma).map(float(sensitivity)))
    together = make_zCDP_to_approxDP(make_gaussian(*space, scale=1.0))
    distance = math.nextafter(math.sqrt(2 * float(total)), math.inf)
    return float(total), float(together.map(distance).epsilon(delta))


def _ask_dp_accounting(noise: Counter[tuple[int, float]], epsilon: float, delta: float) -> tuple[float, float, float]:
    """Return dp-accounting's epsilon at ``delta``: by Renyi divergences, by PLDs rounded up, and by a PLD rounded down.

    Rounding down accumulates over compositions, so the last PLD is for one Gaussian mechanism with the same sum of
    squared sensitivity / sigma.
    """
    from dp_accounting import GaussianDpEvent
    from dp_accounting.pld import privacy_loss_distribution
    from dp_accounting.rdp import RdpAccountant

    renyi, grid = RdpAccountant(orders=_ORDERS), GRID * epsilon
    for (sensitivity, sigma), times in noise.items():
        renyi.compose(GaussianDpEvent(sigma / sensitivity), times)
    build_losses = privacy_loss_distribution.from_gaussian_mechanism
    each = [
        build_losses(sigma, sensitivity, value_discretization_interval=grid).self_compose(times)
        for (sensitivity, sigma), times in noise.items()
    ]
    most = reduce(lambda one, other: one.compose(other), each)
    whole = math.fsum(times * (sensitivity / sigma) ** 2 for (sensitivity, sigma), times in noise.items()) ** -0.5
    least = build_losses(whole, pessimistic_estimate=False, value_discretization_interval=grid, use_connect_dots=False)
    pessimistic, optimistic = (float(losses.get_epsilon_for_delta(delta)) for losses in (most, least))
    return float(renyi.get_epsilon(delta)), pessimistic, optimistic
