"""A second opinion on a release's price: receipts accounted by OpenDP and by Google's dp-accounting.

Nothing here decides.  The project's own accountants price a release before it runs (``accountant``, ``gaussian_dp``);
this module prices what was drawn, afterwards, by two libraries that others wrote:

- OpenDP gives each query a price rho from its sensitivity and sigma, and turns the sum into epsilon (zCDP);
- dp-accounting composes the queries as Gaussian mechanisms, by Renyi divergences and by privacy loss distributions
  (PLD).  It rounds the PLDs of the queries up, and that of one mechanism with their whole price down.

An epsilon below the PLD's rounded down cannot be right.  Needs the extra ``second-opinion``.
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
"""How far a price that OpenDP computes in floats may lie above the exact one, as a share of it."""

GRID = 1e-4
"""Width of the grid of privacy losses, as a share of the stated epsilon; errors of rounding are far below it."""

_ORDERS = tuple(1 + math.exp(math.log(1e-3) + i * math.log(1e8) / 4_000) for i in range(4_001))
"""Orders of Renyi divergence, as close as needed for four digits of epsilon."""


@dataclass(frozen=True)
class SecondOpinion:
    """What two other libraries say of receipts, beside what a release states.

    ``rho``: the exact sum of prices under zCDP, of the same noise; ``opendp_rho``: OpenDP's; ``opendp_epsilon``: its
    conversion of that sum; ``renyi_epsilon``, ``pld_epsilon`` and ``pld_epsilon_at_least``: dp-accounting's, all at
    the stated ``delta``.
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
        """Return where a library contradicts the release, in sentences."""
        found = []
        if self.opendp_rho > self.rho * (1 + float(ROUNDING)):
            found.append(f"OpenDP prices the noise at rho {self.opendp_rho:.6g}, the receipts at {self.rho:.6g}")
        if self.pld_epsilon_at_least > self.epsilon:
            found.append(
                f"dp-accounting finds epsilon {self.pld_epsilon_at_least:.6g} at least, the release states "
                f"{self.epsilon:g}"
            )
        if self.accountant != "gaussian" and self.opendp_epsilon > self.epsilon * (1 + float(ROUNDING)):
            found.append(
                f"OpenDP converts it into epsilon {self.opendp_epsilon:.6g}, the release states {self.epsilon:g}"
            )
        return found

    def as_json(self) -> dict[str, Any]:
        """Return all figures and problems, JSON-ready."""
        return {**asdict(self), "problems": self.problems}


def list_libraries() -> dict[str, str]:
    """Return the versions of the libraries that are asked.  Raises ModuleNotFoundError without dp-accounting."""
    import dp_accounting  # noqa: F401

    return {name: version(name) for name in ("opendp", "dp-accounting")}


def form_second_opinion(
    queries: Sequence[Query], epsilon: float, delta: float, accountant: Accountant
) -> SecondOpinion:
    """Return what OpenDP and dp-accounting say of the noise of ``queries``, beside the stated (epsilon, delta).

    Raises ValueError without a query, ModuleNotFoundError without dp-accounting.
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
    """Return dp-accounting's epsilon at ``delta``: by Renyi divergences, by PLDs rounded up, and rounded down.

    Rounding down adds up over compositions, so the last is of one Gaussian mechanism with the same sum of squares.
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
