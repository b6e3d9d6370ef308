"""Bug class 19, bugs that only audits see: a release spends all of its price at worst-case neighbours, and no more.

One mechanism and few draws here.  `make audit` has every case, thousands of whole releases and OpenDP's noise.

It does not see the looks of other mechanisms, nor neighbours that the search does not find.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from scipy import stats

from audit.planted_faults import BY_NAME, FAULTS, Fault, ScaledNoise
from audit.referee_cases import CASES, Case
from audit.referee_tables import NEW
from audit.tightness import (
    Effort,
    Release,
    Search,
    change_rows,
    choose_runs,
    draw_evidence,
    draw_person,
    find_worst_neighbours,
    gather_ratios,
    is_fault,
    prove_mu,
)
from audit.tightness_table import WHOLE, bound_power
from privsyn.tasks.privacy.noise import SeededNoise
from tests.support.repeated_noise import renew

CASE, SMALL, RUNS = BY_NAME["mst, persons of 2"], Effort(4, 1, 6), 6_000
UNSEEN = {"post-processing that counts rows": "it is handed no private table"}
LOOK = "one_way_marginals"


@cache
def search() -> Search:
    return find_worst_neighbours(CASE, SMALL)


def measure_look(scale: float) -> tuple[float, bool]:
    """The mu that draws of one look prove, as a share of its price's, and whether it is a fault."""
    look = search().looks[LOOK]
    evidence = draw_evidence(look, ScaledNoise(SeededNoise(renew(11)), scale), RUNS)
    return prove_mu(evidence) / look.mu, is_fault(evidence, look.mu)


def test_19_worst_neighbours_move_each_look_by_its_whole_price() -> None:
    """Each look of histograms and scores, and all of them together: at least 95 % of mu, and never more than mu."""
    found = search()
    assert set(found.looks) == set(CASE.looks)
    for difference in found.looks.values():
        assert 0.95 * difference.mu <= difference.attained <= difference.mu * (1 + 1e-9)
    assert 0.95 * found.mu <= found.attained <= found.mu * (1 + 1e-9)


@pytest.mark.statistical(0.03)
def test_19_the_noise_of_a_look_is_as_large_as_its_price_says() -> None:
    """The bound of so few draws loses some hundredths of mu."""
    share, fault = measure_look(1.0)
    assert 0.85 < share < 1
    assert not fault


@pytest.mark.statistical(0.01)
def test_19_mutant_noise_of_another_scale() -> None:
    """Planted mutants: half of the noise is above the price, and half as much again wastes budget."""
    assert measure_look(0.5)[1]
    share, fault = measure_look(1.5)
    assert share < 0.75 and not fault


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(fault, id=fault.name, marks=[pytest.mark.slow] * (fault.case != CASE.name))
        for fault in FAULTS
        if fault.name not in UNSEEN
    ],
)
def test_19_mutant_planted_faults_are_above_the_price(fault: Fault) -> None:
    """Planted mutants: true answers alone show all but noise of another scale, which draws show."""
    case = BY_NAME[fault.case]
    with fault.plant(case):
        found = find_worst_neighbours(case, Effort(4, 2, 8), change=fault.change)
    if fault.noise == 1:  # the whole release, or one look, moves further than it pays for
        assert found.attained > found.mu or max(found.shares.values()) > 1 + 1e-9
    else:
        assert found.attained <= found.mu * (1 + 1e-9)
        assert measure_look(fault.noise)[1]


@pytest.mark.slow
@pytest.mark.statistical(0.01)
def test_19_whole_releases_ask_anew_and_stay_within_their_price() -> None:
    """Ratios of whole releases have the mean and the spread of a Gaussian mechanism of this mu, where looks adapt."""
    mu, runs = search().mu, 60
    evidence = gather_ratios(Release(CASE, SeededNoise(renew(12))), search().pair, runs)
    for side, sign in zip(evidence, (-1, 1), strict=True):
        assert abs(side.mean() - sign * mu**2 / 2) < 4 * mu / np.sqrt(runs)
        assert side.std() == pytest.approx(mu, rel=0.35)
    assert not is_fault(evidence, mu)


def list_units_of_changed_rows(case: Case) -> set[str]:
    """Whose rows the search makes of a new household's, in a hundred changes one after the other."""
    rng, tables, found = np.random.default_rng(0), case.make(20, 0), set[str]()
    rows = draw_person(case, tables, rng)
    for _ in range(100):
        rows = change_rows(case, tables, rows, rng)
        found |= {unit for table in rows.values() for unit in table[case.structure.unit].to_pylist()}
    return found


def test_19_the_search_changes_rows_of_one_household_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted mutant: a search that changes keys makes two households of one, whose distance proves nothing."""
    case = BY_NAME["privsyn, households and members"]
    assert list_units_of_changed_rows(case) == {NEW}
    with_keys = property(lambda self: frozenset(("hid", "region", "rooms")))
    monkeypatch.setattr(type(case), "value_columns", with_keys)
    assert list_units_of_changed_rows(case) > {NEW}


def test_19_more_runs_are_drawn_where_a_look_is_small() -> None:
    look = search().looks[LOOK]
    assert choose_runs(look, 0.01) > choose_runs(look, 0.1) >= 1_000


@pytest.mark.parametrize("rho", [0.01, 0.5, 3.0])
def test_19_the_curve_of_zcdp_is_above_that_of_the_gaussian_mechanism(rho: float) -> None:
    """Both mechanisms of one price; nothing allows less than guessing, nor more than certainty."""
    alphas = np.linspace(0.001, 0.999, 50)
    allowed = bound_power(rho, alphas)
    assert (allowed >= stats.norm.cdf(stats.norm.ppf(alphas) + np.sqrt(2 * rho)) - 1e-9).all()
    assert (allowed >= alphas).all() and (allowed <= 1).all()
    assert bound_power(1e-6, alphas) == pytest.approx(alphas, abs=0.02)


def test_19_every_whole_release_of_the_audit_is_a_case() -> None:
    assert set(WHOLE) <= {case.name for case in CASES}
