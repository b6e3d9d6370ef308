"""What a public table says of one-ways and pairs: by hand, and whether it is followed."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

import numpy as np
import pytest

from privsyn.data_contracts.domain import Clique, Domain
from privsyn.tasks.estimation.marginals import Marginal
from privsyn.tasks.estimation.pair_departures import FRACTION_BITS
from privsyn.tasks.estimation.recode import AttributeRecode, Recode
from privsyn.tasks.estimation.towards_prior import count_noisy_rows, expect_shares, shrink_towards_prior
from privsyn.tasks.kernels.counting import CodeTable
from privsyn.tasks.knowledge.prior_pairs import PriorPairs, choose_followed, fit_shares, is_better, smooth_counts
from privsyn.tasks.steps.score_columns import compute_l1_distance

SIZE, ROWS = 6, 4_000


def rows(seed: int, keep: float, attributes: str = "abc") -> CodeTable:
    """Each column is the one before in the share ``keep`` of the rows."""
    rng = np.random.default_rng(seed)
    columns = [rng.integers(0, SIZE, ROWS)]
    for _ in attributes[1:]:
        columns.append(np.where(rng.random(ROWS) < keep, columns[-1], rng.integers(0, SIZE, ROWS)))
    domain = Domain(tuple(attributes), (SIZE,) * len(attributes))
    return CodeTable(domain, tuple(c.astype(np.uint8) for c in columns))


def skewed(seed: int, keep: float) -> CodeTable:
    """As ``rows``, small codes more often than large ones."""
    table = rows(seed, keep)
    return CodeTable(table.domain, tuple((c.astype(int) ** 2 // SIZE).astype(np.uint8) for c in table.columns))


def turned(table: CodeTable) -> CodeTable:
    """The codes of every column the other way round."""
    return CodeTable(table.domain, tuple((SIZE - 1 - c).astype(np.uint8) for c in table.columns))


def recode_of(table: CodeTable, known: bool = True) -> Recode:
    """Every code by itself; all one-ways are drawn towards a public table, or none."""
    variance = np.linspace(1.0, 2.0, SIZE) if known else np.ones(SIZE)
    codes, kept, weight = np.arange(SIZE, dtype=np.int32), np.ones(SIZE, bool), np.ones(SIZE)
    counts = {a: np.bincount(table.column(a), minlength=SIZE) * 1.0 for a in table.domain.attributes}
    return {a: AttributeRecode(codes, kept, weight, counts[a], variance) for a in counts}


PAIRS = [("a", "b"), ("a", "c"), ("b", "c")]


def scores(private: CodeTable, prior: PriorPairs, pairs: Sequence[Clique] = PAIRS) -> list[float]:
    """Without noise."""
    found = []
    for a, b in pairs:
        counts = np.zeros((SIZE + 1, SIZE + 1), np.int64)
        np.add.at(counts, (private.column(a), private.column(b)), 1)
        found.append(float(compute_l1_distance(counts, prior.counts(a, b))))
    return found


def test_fitted_agrees_with_the_one_ways_and_smoothed_leaves_no_chance() -> None:
    rng = np.random.default_rng(0)
    first, second = np.array([0.5, 0.3, 0.2]), np.array([0.6, 0.4])
    found = fit_shares(rng.random((3, 2)) + 0.1, first, second)
    assert found.sum(axis=1) == pytest.approx(first, abs=1e-4) and found.sum(axis=0) == pytest.approx(second)
    chance = rng.multinomial(500, np.outer(first, second).ravel()).reshape(3, 2).astype(float)
    independent = np.outer(chance.sum(axis=1), chance.sum(axis=0)) / 500**2
    assert np.abs(smooth_counts(chance) - independent).sum() <= np.abs(chance / 500 - independent).sum()
    strong = 1_000.0 * np.eye(3)
    assert smooth_counts(strong) == pytest.approx(strong / 3_000, abs=1e-3)


def test_a_like_table_is_followed_and_independent_or_other_rows_are_not() -> None:
    private = rows(1, 0.7)
    recode = recode_of(private)
    like = PriorPairs.of(rows(2, 0.7), recode)
    assert is_better(like, PAIRS, scores(private, like), 0.0)
    independent = rows(3, 0.0)
    assert not is_better(like, PAIRS, scores(independent, like), 0.0)
    other = rows(4, 0.7)
    turned = CodeTable(
        other.domain, (other.columns[0], (SIZE - 1 - other.columns[1]).astype(np.uint8), other.columns[2])
    )
    wrong = PriorPairs.of(turned, recode)
    assert not is_better(wrong, PAIRS, scores(private, wrong), 0.0)
    assert not is_better(like, [], [], 1.0)


@pytest.mark.parametrize(("sigma", "mistakes"), [(1_000.0, 0), (4_000.0, 8)])
def test_many_scores_tell_together_what_noise_hides_in_each(sigma: float, mistakes: int) -> None:
    """Noise of a score, up to as many records as there are, against distances of 300 and 2,300."""
    names = "abcdefgh"
    private, other = rows(1, 0.7, names), rows(2, 0.7, names)
    recode, pairs = recode_of(private), list(combinations(names, 2))
    columns = tuple(c if i % 2 else (SIZE - 1 - c).astype(np.uint8) for i, c in enumerate(other.columns))
    like, unlike = PriorPairs.of(other, recode), PriorPairs.of(CodeTable(other.domain, columns), recode)
    rng = np.random.default_rng(0)
    made = 0
    for prior, wanted in ((like, True), (unlike, False)):
        exact = np.array(scores(private, prior, pairs))
        noisy = [(exact + rng.normal(0, sigma, len(pairs))).tolist() for _ in range(20)]
        made += sum(is_better(prior, pairs, y, sigma) != wanted for y in noisy)
    assert made <= mistakes


def test_it_tells_of_an_attribute_whose_own_counts_are_no_worse_if_it_is_like_them() -> None:
    private = skewed(1, 0.7)
    recode = recode_of(private, known=False)
    like, unlike = PriorPairs.of(skewed(2, 0.7), recode), PriorPairs.of(turned(skewed(2, 0.7)), recode)
    assert like.informed == {*"abc"} and not unlike.informed
    assert is_better(like, PAIRS, scores(private, like), 0.0)
    assert (unlike.counts("a", "b") == unlike.independent.counts("a", "b")).all()


def test_one_record_moves_a_distance_from_the_prior_by_at_most_one() -> None:
    prior = PriorPairs.of(rows(2, 0.7), recode_of(rows(1, 0.7)))
    reference, rng = prior.counts("a", "b"), np.random.default_rng(7)
    counts = rng.integers(0, 300, reference.shape)
    before = compute_l1_distance(counts, reference)
    for cell in np.ndindex(*reference.shape):
        more = counts.copy()
        more[cell] += 1
        assert abs(compute_l1_distance(more, reference) - before) <= 1
    assert reference.sum() >> FRACTION_BITS == pytest.approx(ROWS, abs=2)


def test_rows_take_its_rows_without_filtered_values_and_pairs_that_were_not_measured() -> None:
    private, public = rows(1, 0.7), rows(2, 0.7)
    recode = recode_of(private)
    filtered = recode["c"]
    kept = np.array([True] * (SIZE - 1) + [False])
    coarse = np.where(kept, filtered.coarse, SIZE - 1).astype(np.int32)
    recode["c"] = AttributeRecode(coarse, kept, filtered.weight, filtered.estimate, filtered.variance)
    ones = [
        Marginal((a,), np.bincount(private.column(a), minlength=r.size)[: r.size] * 1.0, 3.0) for a, r in recode.items()
    ]
    measured = Marginal(("a", "b"), np.full((SIZE, SIZE), ROWS / SIZE**2), 4.0)
    found = choose_followed(PriorPairs.of(public, recode), recode, [*ones, measured])
    assert found is not None
    assert found.rows.rows == int((public.column("c") < SIZE - 1).sum())
    assert [m.attributes for m in found.pairs] == [("a", "c"), ("b", "c")]
    assert all(m.counts.shape == (SIZE, SIZE - 1) and m.sigma > 4.0 for m in found.pairs)


PUBLIC_SIZES, PUBLIC_ROWS, SIGMA = (40, 25, 12, 60), 3_000, 25.0


def columns(seed: int, rows: int = PUBLIC_ROWS, skew: float = 1.5) -> dict[str, np.ndarray]:
    """Codes of made-up columns: the i-th code has a share as 1 / i^skew, in an order of its own."""
    rng, order = np.random.default_rng([seed, 1]), np.random.default_rng(0)
    found = {}
    for number, size in enumerate(PUBLIC_SIZES):
        shares = order.permutation(1.0 / np.arange(1, size + 1) ** skew)
        found[f"c{number}"] = rng.choice(size, rows, p=shares / shares.sum())
    return found


def case(public: dict[str, np.ndarray], seed: int = 5) -> tuple[float, float, int]:
    """Squared errors of the noisy and of the drawn counts, and how many attributes were drawn."""
    rng = np.random.default_rng(seed)
    true = {a: np.bincount(c, minlength=n) for (a, c), n in zip(columns(seed).items(), PUBLIC_SIZES, strict=True)}
    noisy = {a: t + rng.normal(0, SIGMA, len(t)) for a, t in true.items()}
    drawn = shrink_towards_prior(noisy, dict.fromkeys(noisy, SIGMA), public)
    raw = sum(float(((noisy[a] - true[a]) ** 2).sum()) for a in true)
    means = {a: drawn[a].mean if a in drawn else noisy[a] for a in noisy}
    return raw, sum(float(((means[a] - true[a]) ** 2).sum()) for a in true), len(drawn)


def test_the_right_table_takes_most_of_the_noise_off() -> None:
    raw, drawn, attributes = case(columns(9))
    assert attributes == len(PUBLIC_SIZES) and drawn < 0.3 * raw


def test_a_wrong_table_is_left_alone_or_does_no_harm() -> None:
    rng = np.random.default_rng(3)
    wrong = {
        a: rng.permutation(size).astype(np.int64)[codes]
        for (a, codes), size in zip(columns(9).items(), PUBLIC_SIZES, strict=True)
    }
    raw, drawn, attributes = case(wrong)
    assert attributes < len(PUBLIC_SIZES) and drawn <= 1.03 * raw


def test_shares_and_rows_by_hand() -> None:
    assert expect_shares(np.array([0, 0, 1]), 4) == pytest.approx([2.25 / 4, 1.25 / 4, 0.25 / 4, 0.25 / 4])
    assert count_noisy_rows([np.array([4.0, 6.0]), np.array([20.0])], [1.0, 2.0]) == pytest.approx(
        (10 / 2 + 20 / 4) / (1 / 2 + 1 / 4)
    )


def test_a_table_with_less_to_tell_than_chance_makes_is_not_followed() -> None:
    private, flat = rows(1, 0.0), rows(3, 0.02)
    prior = PriorPairs.of(flat, recode_of(private))
    assert not is_better(prior, PAIRS, scores(private, prior), 100.0)
