"""Codes by their counts: of equal mass, by levels, decided anew by all one-ways, and towards a public table."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from numpy.typing import NDArray

from privsyn.data_contracts.domain import Domain
from privsyn.data_contracts.mechanism_options import Compression
from privsyn.data_contracts.receipts import Query
from privsyn.tasks.codecs.cells import AttributeBins, Level
from privsyn.tasks.estimation.pair_departures import IndependentCounts
from privsyn.tasks.estimation.recode import (
    LEAST_CODES,
    Recode,
    are_worth_joining,
    build_coarse_domain,
    combine_by_levels,
    compress_attribute,
    count_codes,
    make_levels_agree,
    mark_first_of_equal_mass,
    pool_one_ways,
    recompress,
)
from privsyn.tasks.kernels.counting import CodeTable
from privsyn.tasks.steps import score_columns
from privsyn.tasks.steps.compress_domain import compress_domain, compress_towards

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


TRUE = {"a": np.array([300, 200, 120, 60, 30, 15, 8, 4]), "b": np.array([500, 200, 30, 7])}
MIXED_BINNING = {
    "a": AttributeBins(np.arange(8, dtype=np.int32), in_order=((0, 8),), is_open=True),
    "b": AttributeBins(np.arange(4, dtype=np.int32), added=3),
}


def asked(sigma: float, *more: tuple[str, ...]) -> list[Query]:
    cliques = [*((a,) for a in TRUE), *more]
    return [Query(c, 4, 1, sigma) for c in cliques]


def first_look(sigma: float, seed: int = 0, added: int | None = None) -> Recode:
    rng = np.random.default_rng(seed)
    noisy = [np.rint(c + rng.normal(0, sigma, c.size)).astype(np.int64) for c in TRUE.values()]
    binning = {**MIXED_BINNING, "b": replace(MIXED_BINNING["b"], added=added)}
    return compress_domain(noisy, asked(sigma), binning, Compression())


def again(first: Recode, sigma: float, *more: tuple[str, ...], settings: Compression | None = None) -> Recode:
    answers: list[NDArray[np.int64]] = [*TRUE.values(), *(np.zeros(4, np.int64) for _ in more)]
    pooled = pool_one_ways(first, asked(sigma, *more), answers, MIXED_BINNING)
    return recompress(pooled, asked(sigma, *more), MIXED_BINNING, settings or Compression())


def sum_by_code(recode: Recode, a: str) -> NDArray[np.float64]:
    r = recode[a]
    sums = np.bincount(r.coarse, weights=r.estimate, minlength=r.size + 1)
    return np.asarray(r.weight * sums[r.coarse])


def test_what_was_low_in_the_first_look_is_told_apart_after_a_sharp_second_one() -> None:
    first = first_look(150.0)
    assert first["a"].size < 8
    found = again(first, 0.1)
    for a, true in TRUE.items():
        np.testing.assert_allclose(sum_by_code(found, a), true, atol=3)
        np.testing.assert_array_equal(found[a].coarse, first[a].coarse)


def test_where_a_larger_marginal_was_measured_only_the_inside_of_codes_changes() -> None:
    first = first_look(150.0)
    pooled = pool_one_ways(first, asked(0.1), list(TRUE.values()), MIXED_BINNING)
    found = again(first, 0.1, ("a", "b"))
    for a in TRUE:
        np.testing.assert_array_equal(found[a].estimate, pooled[a].estimate)
        for code in range(found[a].size):
            inside = found[a].coarse == code
            np.testing.assert_allclose(found[a].weight[inside], TRUE[a][inside] / TRUE[a][inside].sum(), atol=0.02)


@pytest.mark.parametrize("settings", [Compression(enabled=False), Compression(neighbours=False)])
def test_the_papers_rule_is_left_alone(settings: Compression) -> None:
    first = first_look(150.0)
    pooled = pool_one_ways(first, asked(10.0), list(TRUE.values()), MIXED_BINNING)
    for a, r in again(first, 10.0, settings=settings).items():
        np.testing.assert_array_equal(r.estimate, pooled[a].estimate)


SIZE, ROWS, SIGMA = 50, 2_000, 30.0
NAMES = ("a", "b", "c")
BINNING = {a: AttributeBins(np.arange(SIZE, dtype=np.int32)) for a in NAMES}


def table(seed: int, turned: int = 0) -> CodeTable:
    rng = np.random.default_rng(seed)
    shares = 1.0 / np.arange(1, SIZE + 1) ** 1.5
    columns = ((rng.choice(SIZE, ROWS, p=shares / shares.sum()) + turned) % SIZE for _ in NAMES)
    return CodeTable(Domain(NAMES, (SIZE,) * 3), tuple(c.astype(np.uint8) for c in columns))


def made(public: CodeTable | None) -> Recode:
    rng, private = np.random.default_rng(7), table(1)
    exact = [np.bincount(private.column(a), minlength=SIZE) for a in NAMES]
    answers = [np.rint(y + rng.normal(0, SIGMA, SIZE)).astype(np.int64) for y in exact]
    queries = [Query((a,), SIZE, 1, SIGMA) for a in NAMES]
    if public is None:
        return compress_domain(answers, queries, BINNING, Compression())
    return compress_towards(public, answers, queries, BINNING, Compression())


def error(recode: Recode) -> float:
    """Of the fine counts that the recode stands for, in squares."""
    private, whole = table(1), 0.0
    for a, r in recode.items():
        true = np.bincount(private.column(a), minlength=SIZE)
        codes = np.bincount(r.coarse, weights=r.estimate)
        whole += float(((codes[r.coarse] * r.weight - true) ** 2).sum())
    return whole


def test_a_right_prior_makes_the_counts_surer_and_nearer() -> None:
    usual, drawn = made(None), made(table(2))
    assert all(r.by_prior and r.noise < SIGMA**2 for r in drawn.values())
    assert not any(r.by_prior for r in usual.values())
    assert error(drawn) < 0.5 * error(usual)


def test_a_wrong_prior_changes_nothing() -> None:
    usual, drawn = made(None), made(table(2, turned=SIZE // 2))
    for a in NAMES:
        assert not drawn[a].by_prior
        assert (drawn[a].coarse == usual[a].coarse).all() and (drawn[a].weight == usual[a].weight).all()


def test_attributes_with_levels_keep_their_own_counts_beside_a_prior() -> None:
    of = np.arange(SIZE) // 10
    public, tens = table(2), Level("a (in tens)", of)
    queries = [Query((a,), SIZE, 1, SIGMA) for a in ("a", "b")] + [Query(("a (in tens)",), 5, 1, SIGMA)]
    exact = [np.bincount(table(1).column(a), minlength=SIZE) for a in ("a", "b")]
    answers = [*exact, np.bincount(of, weights=exact[0]).astype(np.int64)]
    binning = {
        **BINNING,
        "a": replace(BINNING["a"], levels=(tens,)),
        "a (in tens)": AttributeBins(np.arange(5, dtype=np.int32)),
    }
    found = compress_towards(public, answers, queries, binning, Compression())
    assert not found["a"].by_prior and found["b"].by_prior
    alone = compress_towards(public, answers[::2], queries[::2], binning, Compression())
    assert (alone["a"].estimate == found["a"].estimate).all()


COUNTY = np.array([0, 0, 1, 1, 1, 2, 3, 3])
STATE = np.array([0, 0, 0, 0, 0, 1, 1, 1])


def test_counts_agree_level_by_level_and_are_the_least_squares() -> None:
    rng = np.random.default_rng(0)
    streets, counties, states = rng.normal(50, 30, 8), rng.normal(150, 40, 4), rng.normal(300, 50, 2)
    found = make_levels_agree(streets, 9.0, [(STATE, states, 25.0), (COUNTY, counties, 4.0)])
    rows = [np.eye(8) / 3.0, (np.arange(2)[:, None] == STATE) / 5.0, (np.arange(4)[:, None] == COUNTY) / 2.0]
    wanted = np.concatenate([streets / 3.0, states / 5.0, counties / 2.0])
    assert np.allclose(found, np.linalg.lstsq(np.vstack(rows), wanted, rcond=None)[0])


def test_few_values_share_a_code_with_their_county_else_with_their_state() -> None:
    counts = np.array([90.0, 5, 30, 30, 9, 20, 15, 20])
    shared = combine_by_levels(counts, counts < 50, 50.0, [STATE, COUNTY])
    assert shared.tolist() == [-1, -1, 0, 0, 0, 1, 1, 1]
    assert (combine_by_levels(counts, counts < 50, 50.0, []) == -1).all()
