"""Bug class 19, bugs that only audits see: the empirical lower bound stays below the claim, and above it for mutants.

Short here: some hundred runs, with seeded noise of the same distribution.  `make audit` has thousands, with the
release's own noise.

It does not see counts of cells and of single values, named sets, further rounds, other mechanisms, person_id, linked
rows, linked tables, itemsets or priors: its canary is ten equal rows of three columns of two values, under
records_per_person.
"""

from __future__ import annotations

import math
from fractions import Fraction
from functools import cache
from typing import Any

import numpy as np
import pytest
from scipy import stats

from audit.bounds import bound_epsilon, bound_mu, bound_mu_at, compute_clopper_pearson
from audit.lockstep import LAST_LOOK, Release, gather_evidence
from audit.mutants import MUTANTS
from audit.table import compute_claimed_mu
from audit.worst_case import DELTA, RECORDS, find_worst_pair, make_audited_spec, make_neighbours
from privsyn.data_contracts.receipts import sum_rho
from privsyn.engine.step import ReleaseStep, Step
from privsyn.pipelines.one_shot import STEPS
from privsyn.pipelines.registry import build_steps
from privsyn.tasks.privacy.accountant import convert_epsilon_to_rho
from privsyn.tasks.privacy.noise import OpenDPNoise, SeededNoise
from tests.support.releases import outputs
from tests.support.repeated_noise import renew

RUNS = 150
SELECTION = "selection on exact scores"


@cache
def sides(name: str, epsilon: float, runs: int = RUNS) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """The evidence of runs of the release, or of a mutant."""
    spec = make_audited_spec(epsilon)
    release = {"the release": Release, **MUTANTS}[name](spec, find_worst_pair(spec), SeededNoise(renew(5)))
    release.tells = name == SELECTION
    return gather_evidence(release, runs)


def claimed(epsilon: float) -> float:
    return compute_claimed_mu(make_audited_spec(epsilon))


def bounds_of_the_release() -> tuple[float, float]:
    """The lower bounds on epsilon and mu, at 95 % each."""
    evidence = sides("the release", 4.0)
    return bound_epsilon(*evidence, DELTA).value, bound_mu(*evidence).value


@pytest.mark.slow  # its shorter sister is tests/privacy/test_tightness.py
@pytest.mark.statistical(0.102)
def test_19_the_release_stays_below_its_claim_and_uses_much_of_it() -> None:
    """Of one set of runs: they take seconds.

    The evidence is the whole budget's: ln P/Q of Gaussian noise is N(+-mu^2/2, mu^2), for the canary moves every look
    by its whole sensitivity.
    """
    epsilon, mu = bounds_of_the_release()
    assert 1.0 < epsilon < 4.0
    assert 0.5 * claimed(4.0) < mu < claimed(4.0)
    mu = claimed(4.0)
    for side, sign in zip(sides("the release", 4.0), (-1, 1), strict=True):
        assert abs(side["all"].mean() - sign * mu**2 / 2) < 4 * mu / math.sqrt(RUNS)
        assert side["all"].std() == pytest.approx(mu, rel=0.2)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[] if name == "half the noise" else pytest.mark.slow)
        for name in MUTANTS
        if name != SELECTION
    ],
)
def test_19_mutant_is_above_the_claim(name: str) -> None:
    """Planted mutants: half the noise, one-ways free of charge.  For epsilon it takes more runs: make audit."""
    assert bound_mu(*sides(name, 4.0)).value > claimed(4.0)


@pytest.mark.slow
def test_19_mutant_a_selection_on_exact_scores_is_above_the_claim() -> None:
    """Planted mutant: noisy scores are published, and the marginals chosen by the exact ones."""
    found = bound_epsilon(*sides(SELECTION, 1.0, 120), DELTA)
    assert found.value > 1.0
    assert found.statistic.endswith("asked")


@pytest.mark.slow
@pytest.mark.statistical(0.06)
def test_19_the_look_at_trends_shows_what_its_share_pays_for_and_no_more() -> None:
    """The canary moves every sum of signs by its whole sensitivity: ln P/Q of a look of rho is N(+-rho, 2 rho)."""
    spec, mu = make_audited_spec(1.0, trends=0.5), claimed(1.0)
    release = Release(spec, make_neighbours(0), SeededNoise(renew(7)))
    release.tells = False
    assert release.looks == ("one_way_marginals", "indif_scores", "trend_scores", LAST_LOOK)
    found = gather_evidence(release, RUNS)
    for look, rho in (("trend_scores", 0.7 * 0.5 * mu**2 / 2), ("all", mu**2 / 2)):
        for side, sign in zip(found, (-1, 1), strict=True):
            assert abs(side[look].mean() - sign * rho) < 4 * math.sqrt(2 * rho / RUNS)
            assert side[look].std() == pytest.approx(math.sqrt(2 * rho), rel=0.2)
    assert bound_mu(*found).value <= mu


def test_19_the_audit_runs_the_releases_own_steps_noise_and_budget() -> None:
    """Every step before the last look, OpenDP's noise unless told otherwise, the whole budget, the encoded rows."""
    spec = make_audited_spec(1.0)
    release = Release(spec, make_neighbours(0))
    names = [step.name for step in build_steps(release.request)]
    assert [step.name for step in release.steps] == names[1 : names.index(LAST_LOOK) + 1]
    assert release.looks == ("one_way_marginals", "indif_scores", LAST_LOOK)
    for step, own in zip(release.steps, build_steps(release.request)[1:], strict=False):
        assert codes(step) == codes(own)
        if isinstance(step, ReleaseStep) and isinstance(own, ReleaseStep):
            assert step.rho(release.request) == own.rho(release.request)
    assert isinstance(release.noise, OpenDPNoise)
    receipts = release.run(canary=True).receipts
    rho = convert_epsilon_to_rho(1.0, DELTA, spec.effective_accountant)
    assert rho * Fraction(999_999, 10**6) <= sum_rho(receipts) <= rho
    without, with_canary = (side["encode.encoded_rows"].num_rows for side in release.encoded)
    assert with_canary - without == RECORDS
    assert release.encoded[1]["encode.encoded_rows"].equals(
        outputs(STEPS[0], {}, spec, rows=make_neighbours(0)[1].to_batches)["encoded_rows"]
    )


def codes(step: Step) -> dict[str, Any]:
    """What a step runs, plans and counts: its functions' code."""
    functions = {name: getattr(step, name, None) for name in ("run", "plan", "exact", "settings", "rows_domain")}
    return {name: getattr(function, "__code__", None) for name, function in functions.items()}


# the bounds themselves


def gaussian(mu: float, runs: int, seed: int) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Evidence of a mechanism whose mu is known, beside a statistic that says nothing."""
    rng = np.random.default_rng(renew(seed))
    return tuple(  # type: ignore[return-value]
        {"it": rng.normal(shift, 1, runs), "nothing": rng.normal(0, 1, runs)} for shift in (0.0, mu)
    )


def true_epsilon(mu: float, delta: float) -> float:
    """The exact epsilon of mu-Gaussian privacy at delta (Balle and Wang 2018), by bisection."""
    low, high = 0.0, 50.0
    for _ in range(60):
        middle = (low + high) / 2
        found = stats.norm.cdf(mu / 2 - middle / mu) - math.exp(middle) * stats.norm.cdf(-mu / 2 - middle / mu)
        low, high = (middle, high) if found > delta else (low, middle)
    return high


@pytest.mark.slow
@pytest.mark.statistical(0.01)
@pytest.mark.parametrize("mu", [0.5, 1.5])
def test_19_bounds_are_right_as_often_as_they_say_and_come_near(mu: float) -> None:
    """100 audits of a known mechanism at 80 % confidence: at most about 20 % of the bounds are too high."""
    epsilon = true_epsilon(mu, DELTA)
    audits = [gaussian(mu, 400, seed) for seed in range(100)]
    epsilons = np.array([bound_epsilon(*audit, DELTA, 0.8).value for audit in audits])
    mus = np.array([bound_mu(*audit, 0.8).value for audit in audits])
    assert (epsilons > epsilon).mean() < 0.2 + 0.12
    assert (mus > mu).mean() < 0.2 + 0.12
    assert np.median(mus) > mu - 0.3


@pytest.mark.statistical(0.05)
def test_19_a_test_that_is_chosen_beforehand_uses_all_runs() -> None:
    """Of a mechanism of mu 1, whose error rates are alike at half of it; nothing is proved where nothing differs."""
    without, with_canary = (side["it"] for side in gaussian(1.0, 20_000, 1))
    assert 0.94 < bound_mu_at(without, with_canary, 0.5) < 1
    assert bound_mu_at(without, without, 0.5) == 0
    half = np.arange(10) / 10
    exact = bound_mu_at(half, half + 1, 1.0, 0.9)  # none of ten, and all of ten: each rate at 95 %
    assert exact == pytest.approx(-2 * stats.norm.ppf(1 - 0.05**0.1))


def test_19_no_difference_proves_nothing() -> None:
    without, with_canary = gaussian(0.0, 400, 0)
    assert bound_epsilon(without, with_canary, DELTA).value < 0.2
    same = {"it": np.zeros(400)}
    assert bound_epsilon(same, same, DELTA).value == 0
    assert bound_epsilon({"it": np.zeros(400)}, {"it": np.ones(400)}, 0.0).value == pytest.approx(
        math.log(0.025 ** (1 / 300) / (1 - 0.025 ** (1 / 300)))
    )
    with pytest.raises(ValueError, match="at least 4 runs"):
        bound_epsilon({"it": np.zeros(3)}, {"it": np.ones(3)}, 0.0)


def test_19_clopper_pearson_by_hand() -> None:
    """None of n: the upper bound solves (1 - p)^n = 5 %; all of n: the lower one p^n = 5 %."""
    lower, upper = compute_clopper_pearson(np.array([0, 10]), 10, 0.95)
    assert lower == pytest.approx([0, 0.05**0.1])
    assert upper == pytest.approx([1 - 0.05**0.1, 1])
