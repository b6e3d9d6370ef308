"""What scores say of their pairs, by hand, and which pairs of a wide table are scored."""

from __future__ import annotations

import math
from itertools import combinations

import numpy as np
import pytest

from privsyn.data_contracts.mechanism_options import Compression
from privsyn.data_contracts.presets import ALL_PAIRS_COLUMNS
from privsyn.data_contracts.receipts import Query
from privsyn.tasks.codecs.cells import AttributeBins
from privsyn.tasks.estimation.pair_departures import (
    BLOCK_PART,
    MAX_CLEAR_SCORE_NOISE,
    MAX_SCORE_CAUTION,
    MAX_USABLE_SCORE_NOISE,
    MIN_SCORE_CAUTION,
    MOST_PAIRS,
    ONE_WAY_ERROR_WEIGHT,
    POOLED_ONE_WAY_ERROR_WEIGHT,
    REFERENCE_SCORE_COUNT,
    IndependentCounts,
    compute_caution,
    estimate_clique_departures,
    estimate_one_way_departures,
    estimate_pair_departures,
    is_wide,
    list_near_pairs,
    name_block,
)
from privsyn.tasks.estimation.recode import Recode
from privsyn.tasks.steps.compress_domain import compress_domain

MEAN = math.sqrt(2 / math.pi)


def recoded(counts: dict[str, list[int]], sigma: float, *others: float) -> Recode:
    """``others``: the noise of the attributes after the first, where it is another."""
    sigmas = [sigma, *(others or [sigma] * (len(counts) - 1))]
    queries = [Query((a,), len(c), 1, s) for (a, c), s in zip(counts.items(), sigmas, strict=True)]
    binning = {a: AttributeBins(np.arange(len(c), dtype=np.int32)) for a, c in counts.items()}
    return compress_domain([np.array(c) for c in counts.values()], queries, binning, Compression(enabled=False))


def test_an_exact_score_is_spread_over_the_cells_by_their_expected_counts() -> None:
    recode = recoded({"a": [600, 400], "b": [900, 90, 10]}, 1e-3)
    found = estimate_pair_departures([("a", "b")], [200.0], 0.0, recode, noisy_reference=True)
    assert found.error(np.zeros(1)) == pytest.approx([200.0])
    assert found.cells.sum() == 6
    taus = sorted(found.tau[found.cells > 0])
    expected = [200 / MEAN * p * q for p in (0.6, 0.4) for q in (0.9, 0.09, 0.01)]
    total = float((found.tau * found.cells).sum())
    assert total == pytest.approx(sum(expected))
    assert max(taus) == pytest.approx(200 / MEAN * 0.5 * 0.9)  # 0.6 and 0.4 are of one group: their mean


def test_noise_of_the_score_and_of_the_one_ways_is_taken_off() -> None:
    sigma = 20.0
    recode = recoded({"a": [500, 500], "b": [500, 500]}, sigma)
    own = MEAN * 4 * math.sqrt(2 * (sigma * 0.5) ** 2)
    found = estimate_pair_departures([("a", "b")], [100.0], 10.0, recode, noisy_reference=True)
    assert found.error(np.zeros(1)) == pytest.approx([math.sqrt((100 - MIN_SCORE_CAUTION * 10) ** 2 - own**2)])
    exact = estimate_pair_departures([("a", "b")], [100.0], 10.0, recode, noisy_reference=False)
    assert exact.error(np.zeros(1)) == pytest.approx([100 - MIN_SCORE_CAUTION * 10])
    uneven = recoded({"a": [900, 100], "b": [250, 250, 250, 250]}, 10.0, 25.0)
    own_uneven = MEAN * sum(4 * math.hypot(10 * 0.25, 25 * share) for share in (0.9, 0.1))
    found = estimate_pair_departures([("a", "b")], [100.0], 10.0, uneven, noisy_reference=True)
    assert found.error(np.zeros(1)) == pytest.approx([math.sqrt((100 - MIN_SCORE_CAUTION * 10) ** 2 - own_uneven**2)])
    for score in (own, 0.0, -50.0):
        nothing = estimate_pair_departures([("a", "b")], [score], 10.0, recode, noisy_reference=True)
        assert nothing.error(np.zeros(1)) == pytest.approx([0.0])


def test_scores_in_which_noise_hides_everything_say_nothing() -> None:
    recode = recoded({"a": [600, 400], "b": [500, 500]}, 1.0)
    total = IndependentCounts.of(recode).total
    for sigma, heard in ((total * MAX_USABLE_SCORE_NOISE * 0.99, True), (total * MAX_USABLE_SCORE_NOISE * 1.01, False)):
        found = estimate_pair_departures([("a", "b")], [2_900.0], sigma, recode, noisy_reference=True)
        again = estimate_clique_departures([("a", "b")], [2_900.0], sigma, recode)
        assert (found.error(np.zeros(1)) > 1_000).all() == (again.error(np.zeros(1)) > 1_000).all() == heard
        assert heard or found.error(np.zeros(1)) == 0


def test_more_is_taken_off_where_noise_is_a_large_part_of_the_table() -> None:
    assert (
        compute_caution(0.0, 1_000.0, 9)
        == compute_caution(MAX_CLEAR_SCORE_NOISE * 1_000, 1_000.0, REFERENCE_SCORE_COUNT)
        == MIN_SCORE_CAUTION
    )
    assert compute_caution((MAX_CLEAR_SCORE_NOISE + MAX_USABLE_SCORE_NOISE) / 2 * 1_000, 1_000.0, 9) == pytest.approx(
        (MIN_SCORE_CAUTION + MAX_SCORE_CAUTION) / 2
    )
    assert compute_caution(MAX_USABLE_SCORE_NOISE * 1_000, 1_000.0, 9) == pytest.approx(MAX_SCORE_CAUTION)
    assert compute_caution(MAX_USABLE_SCORE_NOISE * 1_000 + 1, 1_000.0, 9) == math.inf
    recode = recoded({"a": [600, 400], "b": [500, 500]}, 1e-3)
    sigma = 0.9 * MAX_USABLE_SCORE_NOISE * IndependentCounts.of(recode).total
    left = 3_000 - compute_caution(sigma, IndependentCounts.of(recode).total, 1) * sigma
    found = estimate_pair_departures([("a", "b")], [3_000.0], sigma, recode, noisy_reference=True)
    assert left < 3_000 - MIN_SCORE_CAUTION * sigma and found.error(np.zeros(1)) == pytest.approx([left])


def test_pooled_pairs_have_nothing_taken_off_for_noise_and_one_ways_count_in_more_of_them() -> None:
    recode = recoded({"a": [600, 400], "b": [500, 500]}, 1e-3)
    for sigma in (30.0, 900.0):
        found = estimate_pair_departures([("a", "b")], [120], sigma, recode, noisy_reference=False, pooled=True)
        assert found.error(np.zeros(1))[0] == pytest.approx(120, rel=1e-3)
    silent = estimate_pair_departures([("a", "b")], [120], 900.0, recode, noisy_reference=False)
    assert silent.error(np.zeros(1))[0] == 0
    usual, pooled = estimate_one_way_departures(recode), estimate_one_way_departures(recode, pooled=True)
    assert pooled.cells == pytest.approx(usual.cells * POOLED_ONE_WAY_ERROR_WEIGHT / ONE_WAY_ERROR_WEIGHT)


def near(names: list[str], focus: tuple[str, ...] = (), most: int = MOST_PAIRS) -> list[tuple[str, ...]]:
    return list_near_pairs(names, {name: name for name in names}, focus, most)


def test_as_many_pairs_as_there_are_are_all() -> None:
    names = [f"a{i}" for i in range(ALL_PAIRS_COLUMNS)]
    assert near(names) == list(combinations(names, 2)) and not is_wide(names) and is_wide([*names, "b"])


@pytest.mark.parametrize(
    ("name", "block"),
    [("q12_1", "q12"), ("q12", "q"), ("q12b", "q12"), ("income.2020", "income"), ("age", "age"), ("part_a", "part")],
)
def test_a_block_is_a_name_without_its_last_number_or_letter(name: str, block: str) -> None:
    assert name_block(name) == block


def test_blocks_come_before_neighbours_and_neighbours_have_their_part() -> None:
    names = [f"q{block}_{item}" for item in range(8) for block in "abcdefgh"]  # members of a block stand 8 apart
    found, most = near(names, most=400), 400
    inside = {p for p in combinations(names, 2) if name_block(p[0]) == name_block(p[1])}
    assert inside < {*found} and len(found) == most and len(inside) == 224 <= BLOCK_PART * most
    others = [names.index(b) - names.index(a) for a, b in found if (a, b) not in inside]
    assert max(others) <= 4 and min(others) == 1
    assert found == sorted(found, key=lambda p: (names.index(p[0]), names.index(p[1])))


def test_a_column_in_focus_is_scored_with_all() -> None:
    names = [f"q{i}" for i in range(400)]
    found = near(names, ("q7",))
    assert sum("q7" in pair for pair in found) == 399 and len(found) == MOST_PAIRS + 399


def test_attributes_of_one_column_stand_together() -> None:
    columns = {**{f"a{i}": f"a{i}" for i in range(50)}, "a0: weekday": "a0"}
    found = list_near_pairs(tuple(columns), columns, limit=60)
    assert ("a0", "a0: weekday") in found and ("a1", "a0: weekday") in found
