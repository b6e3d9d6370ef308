"""Codes of equal noisy mass: how many there are, which bins they hold, and what of the default stays."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from privsyn.data_contracts.domain import Domain
from privsyn.data_contracts.mechanism_options import Compression
from privsyn.data_contracts.receipts import Query
from privsyn.tasks.codecs.cells import AttributeBins
from privsyn.tasks.estimation.pair_departures import IndependentCounts
from privsyn.tasks.estimation.recode import (
    LEAST_CODES,
    are_worth_joining,
    build_coarse_domain,
    compress_attribute,
    count_codes,
    mark_first_of_equal_mass,
)
from privsyn.tasks.kernels.counting import CodeTable
from privsyn.tasks.steps import score_columns
from privsyn.tasks.steps.compress_domain import compress_domain

EACH = np.arange(32, dtype=np.int32)
IN_ORDER = AttributeBins(EACH, in_order=((0, 32),), is_open=True)
ON, OFF = Compression(equal_mass=True), Compression()


def _one_ways(rows: int, columns: int, sigma: float) -> tuple[dict[str, np.ndarray], list[Query]]:
    counts = {f"c{i}": np.full(32, rows / 32) for i in range(columns)}
    return counts, [Query((a,), 32, 1, sigma) for a in counts]


def test_more_rows_a_larger_budget_and_fewer_columns_pay_for_more_codes() -> None:
    # rho of the pairs: 3 x 3 / 2 / 20^2 = .01125; noise sqrt(3 / .0225) = 11.5; sqrt(7,000 / (3 x 11.5)) = 14.2
    assert count_codes(*_one_ways(7_000, 3, 20.0)) == 14
    assert count_codes(*_one_ways(28_000, 3, 20.0)) == 28
    assert count_codes(*_one_ways(7_000, 3, 80.0)) == 7
    assert count_codes(*_one_ways(7_000, 12, 20.0)) < 14
    assert all(count_codes(*_one_ways(n, 3, 20.0)) % 2 == 0 for n in (3_000, 8_000, 9_000, 33_000))
    assert count_codes(*_one_ways(0, 3, 20.0)) == LEAST_CODES


def test_codes_have_about_equal_mass_and_a_bin_of_several_parts_is_alone() -> None:
    even = mark_first_of_equal_mass(np.full(12, 10.0), 4)
    assert np.flatnonzero(even).tolist() == [0, 3, 6, 9]
    heavy = mark_first_of_equal_mass(np.array([1.0, 1, 60, 1, 1, 36]), 4)
    assert np.flatnonzero(heavy).tolist() == [0, 2, 3, 5]
    assert np.flatnonzero(mark_first_of_equal_mass(np.array([-3.0, 0, -1]), 4)).tolist() == [0]


def test_every_bin_has_a_code_and_null_keeps_its_own() -> None:
    counts = np.append(np.linspace(200, 10, 31), 50.0)
    found = compress_attribute(counts, 5.0, AttributeBins(EACH, in_order=((0, 31),)), ON, codes=4)
    assert found.kept.all()
    assert found.size == 5
    assert (found.coarse == found.coarse[-1]).sum() == 1
    assert (np.diff(found.coarse[:-1]) >= 0).all()
    mass = np.bincount(found.coarse, weights=counts)[:4]
    assert mass.max() < 1.5 * mass.min()


def test_nothing_is_joined_across_the_end_of_a_section() -> None:
    found = compress_attribute(np.full(32, 100.0), 5.0, AttributeBins(EACH, in_order=((0, 5), (5, 32))), ON, codes=4)
    assert found.coarse[4] != found.coarse[5]


def test_columns_without_order_and_columns_of_fewer_codes_are_left_alone() -> None:
    counts, queries = _one_ways(7_000, 3, 20.0)
    counts["c1"] = np.append(np.full(4, 1_750.0), np.zeros(28))
    answers = [y.astype(np.int64) for y in counts.values()]
    binning = {"c0": AttributeBins(EACH), "c1": IN_ORDER, "c2": IN_ORDER}
    plain, joined = (compress_domain(answers, queries, binning, s) for s in (OFF, ON))
    assert joined["c0"].size == plain["c0"].size == 32
    assert joined["c1"].coarse.tolist() == plain["c1"].coarse.tolist()
    assert joined["c2"].size == 14


def _score(codes: list[np.ndarray], cut_by: list[np.ndarray]) -> int:
    """Return the exact score of two columns over codes of equal mass of the counts ``cut_by``."""
    queries = [Query((a,), 32, 1, 20.0) for a in "ab"]
    recode = compress_domain(cut_by, queries, dict.fromkeys("ab", IN_ORDER), ON)
    domain = build_coarse_domain(recode)
    padded = Domain.of({a: domain.size(a) + 1 for a in "ab"})  # one more for values that were filtered: none here
    rows = CodeTable(padded, tuple(recode[a].coarse[c].astype(np.uint8) for a, c in zip("ab", codes, strict=True)))
    asked = score_columns.plan_indif(domain, Fraction(1), 1, score_columns.REFERENCE_SENSITIVITY, max_cells=10_000)
    (score,) = score_columns.count_indif(rows, asked, 1, IndependentCounts.of(recode))
    return int(score[0])


@pytest.mark.parametrize("seed", range(5))
def test_one_record_moves_a_score_over_released_codes_by_at_most_one(seed: int) -> None:
    rng = np.random.default_rng(seed)
    rows = [rng.integers(0, 32, 300), rng.integers(0, 32, 300)]
    noisy = [np.bincount(r, minlength=32) + rng.integers(-20, 20, 32) for r in rows]
    whole = _score(rows, noisy)
    for gone in range(0, 300, 30):
        assert abs(_score([np.delete(r, gone) for r in rows], noisy) - whole) <= 1


def test_mutant_codes_cut_by_the_rows_themselves_move_a_score_by_more() -> None:
    moved = 0
    for seed in range(20):
        rng = np.random.default_rng(seed)
        x = rng.integers(0, 32, 300)
        rows = [x, (x + rng.integers(0, 4, 300)) % 32]
        exact = [np.bincount(r, minlength=32) for r in rows]
        whole = _score(rows, exact)
        for gone in range(0, 300, 30):
            fewer = [np.delete(r, gone) for r in rows]
            moved = max(moved, abs(_score(fewer, [np.bincount(r, minlength=32) for r in fewer]) - whole))
    assert moved > 1


def test_many_codes_of_equal_mass_take_the_place_of_half_as_many_again_only() -> None:
    assert are_worth_joining(7, 6) and not are_worth_joining(6, 6)
    assert are_worth_joining(12, 8) and not are_worth_joining(11, 8)


def test_a_column_with_bins_of_its_own_keeps_them() -> None:
    answers = [np.full(32, 200.0), np.full(32, 200.0)]
    queries = [Query((a,), 32, 1, 20.0) for a in ("open", "own")]
    binning = {"open": IN_ORDER, "own": replace(IN_ORDER, is_open=False)}
    found = compress_domain(answers, queries, binning, ON)
    assert found["open"].size < 32 and found["own"].size == 32
    off = Compression(equal_mass=True, enabled=False)
    assert compress_domain(answers, queries, binning, off)["open"].size == 32
