"""What an attacker, who knows everything except whether one person is in the table, can learn at an epsilon.

With the accountant ``gaussian``, the whole release tells such an attacker at most as much as one normal draw.  The
draw's mean is mu = sqrt(2 rho) higher if the person is in the table (Dong, Roth and Su 2022, Definition 2.6 and
Theorem 2.7).  The rest follows from the Neyman-Pearson test.  An (epsilon, delta) promise of an arbitrary mechanism
allows more (Kairouz, Oh and Viswanath 2015, Theorem 2.1).

For comparison, the module lists entries of the OpenDP Deployments Registry as of 2026-07-15.  Their source is
https://github.com/opendp/deployments-registry-data at commit 3e9c812.  The board had not yet approved these entries
(status "Pending").  The entries are central-model releases of statistics or synthetic rows.  An epsilon says little
without its unit: what one person may add or remove.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

from scipy.stats import norm

from privsyn.base.errors import RequestError
from privsyn.tasks.privacy.accountant import convert_epsilon_to_rho

PRIORS = (0.5, 0.1, 0.01)
"""The attacker's prior probabilities that the person is in the table."""

FALSE_ALARM = 0.01

USUAL_EPSILONS, USUAL_DELTA = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0), 1e-9


@dataclass(frozen=True)
class MembershipGuess:
    """A guess whether a person is in the table, given the prior probability ``prior``.

    Probabilities that the best guess is right: ``before``: without the release; ``after``: with it, at most;
    ``any_promise``: with any mechanism of the same (epsilon, delta), at most.  Beliefs if the person is in the table:
    ``typical``: median over releases; ``most``: after odds grow by exp(epsilon), exceeded with probability ``beyond``.
    """

    prior: float
    before: float
    after: float
    any_promise: float
    typical: float
    most: float


@dataclass(frozen=True)
class Risk:
    """What an attacker can learn at one (epsilon, delta).

    ``mu``: the parameter of Gaussian differential privacy.  ``found``: the largest share of people in the table whom
    an attacker detects, at a false alarm rate of 1 %.  ``odds``: the factor exp(epsilon) of the odds.
    ``beyond``: the largest probability that the odds grow by a larger factor.
    """

    epsilon: float
    delta: float
    mu: float
    found: float
    odds: float
    beyond: float
    guesses: tuple[MembershipGuess, ...]

    def as_json(self) -> dict[str, Any]:
        """Return the risk, JSON-ready."""
        return {**vars(self), "guesses": [vars(guess) for guess in self.guesses]}


def compute_risk(epsilon: float, delta: float) -> Risk:
    """Return what an attacker can learn about one person.  Raises ValueError if the accountant refuses the promise."""
    mu = math.sqrt(2 * float(convert_epsilon_to_rho(epsilon, delta, "gaussian")))
    return Risk(
        epsilon,
        delta,
        mu,
        float(norm.sf(norm.isf(FALSE_ALARM) - mu)),
        math.exp(min(epsilon, 700.0)),
        float(norm.sf(epsilon / mu - mu / 2)),
        tuple(_guess(prior, mu, epsilon, delta) for prior in PRIORS),
    )


def compute_risks(epsilons: Iterable[float], delta: float) -> list[Risk]:
    """Return :func:`compute_risk` at each distinct epsilon, ascending.  Raises RequestError if one is refused."""
    try:
        return [compute_risk(epsilon, delta) for epsilon in sorted({*epsilons})]
    except (ValueError, OverflowError):
        raise RequestError(
            "these cannot be accounted with this delta",
            "Choose epsilons above 0 and a delta between 0 and 1",
            "forecast.epsilons",
        ) from None


def _guess(prior: float, mu: float, epsilon: float, delta: float) -> MembershipGuess:
    odds = prior / (1 - prior)
    border = mu / 2 - math.log(odds) / mu
    after = prior * float(norm.sf(border - mu)) + (1 - prior) * float(norm.cdf(border))
    before = max(prior, 1 - prior)
    return MembershipGuess(
        prior,
        before,
        max(after, before),
        _bound_any_promise(prior, epsilon, delta),
        _compute_belief(odds, mu**2 / 2),
        _compute_belief(odds, epsilon),
    )


def _bound_any_promise(prior: float, epsilon: float, delta: float) -> float:
    """Return the best guess under any (epsilon, delta) promise, from the corners of its trade-off curve."""
    grown = math.exp(min(epsilon, 700.0))
    corner = (1 - delta) / (1 + grown)  # both errors are the same
    corners = ((0.0, 1 - delta), (corner, corner), (1 - delta, 0.0))  # (false alarm, missed)
    least = min(prior * missed + (1 - prior) * alarm for alarm, missed in corners)
    return max(1 - least, prior, 1 - prior)


def _compute_belief(odds: float, log_factor: float) -> float:
    """Return the probability after the odds grow by exp(``log_factor``)."""
    return 1 / (1 + math.exp(-min(log_factor, 700.0)) / odds)


REGISTRY = "https://registry.opendp.org (github.com/opendp/deployments-registry-data, commit 3e9c812, 2026-07-15)"


class KnownDeployment(NamedTuple):
    """One entry: ``parameters`` as published; ``unit``: the privacy unit; ``entry``: name of its file."""

    name: str
    curator: str
    year: int
    parameters: str
    unit: str
    entry: str


PUBLISHED = (
    KnownDeployment("Broadband coverage", "Microsoft", 2021, "epsilon 0.2", "a user", "broadband_coverage"),
    KnownDeployment("Current pageviews", "Wikimedia Foundation", 2023, "rho 0.015 (zCDP)", "a device and day",
              "wikimedia_current_usage_data"),
    KnownDeployment("Historical pageviews", "Wikimedia Foundation", 2023, "epsilon 1", "30 or 300 pageviews of a day",
              "wikimedia_historical_usage_data"),
    KnownDeployment("Movement range maps", "Meta", 2020, "epsilon 2", "a user and day", "movement_ranges_maps"),
    KnownDeployment("Vaccine search insights", "Google", 2021, "epsilon 2.19, delta 1e-5", "a user's searches of a day",
              "vaccine_search_insights"),
    KnownDeployment("2020 Census redistricting data, housing units", "US Census Bureau", 2021,
              "epsilon 2.47, delta 1e-10 (rho 0.07)", "a housing unit, changed", "census_redistricting_data"),
    KnownDeployment("Community mobility reports", "Google", 2020, "epsilon 2.64", "a user and day", "google_mobility"),
    KnownDeployment("Hiring reports", "LinkedIn", 2020, "epsilon 4.8, delta 4e-10", "a hiring, a month",
              "linkedin_hiring_reports"),
    KnownDeployment("Registry of live births 2014 (synthetic rows)", "Israeli Ministry of Health", 2024, "epsilon 9.98",
              "a birth", "birth_dataset"),
    KnownDeployment("2020 Census redistricting data, persons", "US Census Bureau", 2021,
              "epsilon 17.14, delta 1e-10 (rho 2.56)", "a person, changed", "census_redistricting_data"),
)  # fmt: skip
"""Deployments by epsilon, ascending."""
