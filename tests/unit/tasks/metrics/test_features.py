"""Samples and one-hot features, and classification and propensity on tables whose best rule is known."""

from __future__ import annotations

import numpy as np
import pytest

from privsyn.data_contracts.domain import Domain
from privsyn.tasks.kernels.counting import CodeTable
from privsyn.tasks.metrics.models import (
    Classification,
    Propensity,
    compare_classifiers,
    compute_majority_error,
    compute_svm_error,
    find_most_frequent,
    measure_propensity,
    split,
)
from privsyn.tasks.metrics.samples import encode_one_hot, make_row_keys, sample_rows, take_rows

CODED = Domain.of({"a": 3, "b": 2, "id": 1_000})
IDS = CodeTable(
    CODED,
    (
        (np.arange(1_000) % 3).astype(np.uint8),
        (np.arange(1_000) // 500).astype(np.uint8),
        np.arange(1_000, dtype=np.uint16),
    ),
)


def test_samples_are_even_distinct_seeded_and_never_larger_than_the_table() -> None:
    ids = sample_rows(IDS, 300, 0).column("id")
    assert len(set(ids.tolist())) == 300
    assert np.all(np.diff(ids.astype(int)) > 0)
    assert sample_rows(IDS, 300, 0).column("id").tolist() == ids.tolist()
    assert sample_rows(IDS, 300, 1).column("id").tolist() != ids.tolist()
    assert sample_rows(IDS, 1_000, 0) is IDS
    drawn = np.bincount(np.concatenate([sample_rows(IDS, 300, s).column("id") for s in range(200)]), minlength=1_000)
    assert drawn.mean() == 60
    assert 60 * 0.7 * 0.8 < drawn.var() < 60 * 0.7 * 1.2  # binomial: 200 x 0.3 x 0.7
    with pytest.raises(ValueError, match="at least one row"):
        sample_rows(IDS, 0, 0)


def test_row_keys_are_equal_for_equal_rows_and_in_row_major_order() -> None:
    keys = make_row_keys([take_rows(IDS, np.array([1, 3])), take_rows(IDS, np.array([4, 999]))], ("b", "a"))
    assert keys.tolist() == [1, 0, 1, 3]
    assert make_row_keys([IDS], ()).tolist() == [0] * 1_000


DOMAIN = Domain.of({"x": 4, "noise": 5, "label": 3})


def table(x: np.ndarray, label: np.ndarray, seed: int = 0) -> CodeTable:
    noise = np.random.default_rng(seed).integers(5, size=len(x))
    return CodeTable(DOMAIN, tuple(np.ascontiguousarray(c, dtype=np.uint8) for c in (x, noise, label)))


def separable(rows: int, seed: int = 0) -> CodeTable:
    """The label is a function of x: 0, 0, 1, 2."""
    x = np.random.default_rng(seed).integers(4, size=rows)
    return table(x, np.array([0, 0, 1, 2])[x], seed)


def relabelled(data: CodeTable, label: np.ndarray) -> CodeTable:
    return CodeTable(DOMAIN, (*data.columns[:2], np.ascontiguousarray(label, dtype=np.uint8)))


def test_majority_by_hand() -> None:
    """Most frequent in training: 2.  Of the tested labels 2 2 0 1, two differ."""
    train, test = table(np.zeros(5), np.array([2, 2, 2, 1, 0])), table(np.zeros(4), np.array([2, 2, 0, 1]))
    assert find_most_frequent(train, "label") == 2
    assert compute_majority_error(train, test, "label") == pytest.approx(0.5)
    assert find_most_frequent(table(np.zeros(2), np.array([2, 1])), "label") == 1


def test_without_a_hold_out_a_fifth_of_the_rows_is_tested() -> None:
    real = separable(600)
    found = compare_classifiers(real, real, None, "label")
    assert (found.error, found.non_private, found.test_rows, found.held_out) == (0, 0, 120, False)
    train, test = split(real, 0.2, 0)
    assert found.majority == compute_majority_error(train, test, "label")
    rows = [tuple(r) for t in (train, test) for r in np.stack(t.columns, axis=1).tolist()]
    assert sorted(rows) == sorted(tuple(r) for r in np.stack(real.columns, axis=1).tolist())


def test_caps_and_seeds_choose_the_rows() -> None:
    rng = np.random.default_rng(5)
    real = table(rng.integers(4, size=400), rng.integers(3, size=400))
    first = compare_classifiers(real, real, None, "label", max_rows=50, seed=1)
    assert first == compare_classifiers(real, real, None, "label", max_rows=50, seed=1)
    assert first.test_rows == 50
    assert len({compare_classifiers(real, real, None, "label", max_rows=50, seed=s).error for s in range(5)}) > 1


def test_awkward_tables() -> None:
    none, real = table(np.zeros(0), np.zeros(0)), separable(100)
    always_two = relabelled(real, np.full(100, 2))
    share_of = np.bincount(real.column("label"), minlength=3) / 100
    assert compute_svm_error(always_two, real, "label") == pytest.approx(1 - share_of[2])
    assert compute_svm_error(none, real, "label") == pytest.approx(1 - share_of[0])
    assert compute_svm_error(real, none, "label") == 0
    assert compare_classifiers(none, real, None, "label") == Classification(0.0, 0.0, 0.0, 0, False)
    assert compare_classifiers(separable(1), none, None, "label").test_rows == 1
    alone = CodeTable(Domain.of({"label": 2}), (np.array([0, 1, 1], np.uint8),))
    assert compute_svm_error(alone, alone, "label") == pytest.approx(1 / 3)
    with pytest.raises(KeyError):
        compute_svm_error(real, real, "nothing")


def test_one_hot_by_hand() -> None:
    """Rows (0, 0), (1, 0), (2, 1) over 3 + 2 codes."""
    few = take_rows(IDS, np.array([0, 1, 998]))
    assert few.column("a").tolist() == [0, 1, 2]
    expected = [[1, 0, 0, 1, 0], [0, 1, 0, 1, 0], [0, 0, 1, 0, 1]]
    np.testing.assert_array_equal(encode_one_hot(few, ("a", "b")).toarray(), expected)
    np.testing.assert_array_equal(encode_one_hot(few, ("b",)).toarray(), [[1, 0], [1, 0], [0, 1]])
    assert encode_one_hot(take_rows(IDS, np.array([], dtype=int)), ("a", "b")).shape == (0, 5)
    assert encode_one_hot(few, ()).shape == (3, 0)


WIDE = Domain.of({f"a{i}": 6 for i in range(8)})


def small_table(domain: Domain, *columns: object) -> CodeTable:
    return CodeTable(domain, tuple(np.ascontiguousarray(c, dtype=np.uint8) for c in columns))


def even(rows: int, seed: int) -> CodeTable:
    return small_table(WIDE, *np.random.default_rng(seed).integers(6, size=(8, rows)))


def found(real: CodeTable, synthetic: CodeTable, **settings: int) -> Propensity:
    result = measure_propensity(real, synthetic, **settings)
    assert result is not None
    return result


def test_pmse_by_hand() -> None:
    """Code 0: 60 real and 20 synthetic rows, p = 1/4; code 1: 20 real and 60 synthetic, p = 3/4.  So pMSE = 1/16.

    One free parameter over 80 rows each: the null is 1 / (8 x 80) x 1/2 = 1/1280.
    """
    domain = Domain.of({"x": 3})
    real, synthetic = small_table(domain, [0] * 60 + [1] * 20), small_table(domain, [0] * 20 + [1] * 60)
    result = found(real, synthetic)
    assert result.rows == 80
    assert result.pmse == pytest.approx(1 / 16, rel=1e-4)
    assert result.ratio == pytest.approx(80, rel=1e-4)
    assert result.auc == pytest.approx(0.75, abs=0.02)  # 9/16 + 1/2 x 6/16


@pytest.mark.slow
def test_the_null_expectation_by_simulation(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows redrawn from the real ones are rows of a right model fitted to them: ratio 1.  Fresh rows: 2.

    Also where only a quarter of the rows is compared.  One ratio has an sd of about 0.22 times its mean.
    """
    monkeypatch.setattr("privsyn.tasks.metrics.models.SMALLEST_AUC", 10**9)
    redrawn, fresh, part = [], [], []
    for seed in range(60):
        rng = np.random.default_rng([seed, 1])
        real, other = (small_table(WIDE, *rng.integers(6, size=(8, 2_000))) for _ in range(2))
        again = take_rows(real, rng.integers(2_000, size=2_000))
        redrawn.append(found(real, again).ratio)
        fresh.append(found(real, other).ratio)
        part.append(found(real, again, max_rows=500, seed=seed).ratio)
    assert np.mean(redrawn) == pytest.approx(1, abs=0.1)
    assert np.mean(fresh) == pytest.approx(2, abs=0.2)
    assert np.mean(part) == pytest.approx(1, abs=0.1)


def test_the_larger_table_is_sampled_and_seeds_decide() -> None:
    real, synthetic = even(700, 0), even(300, 1)
    assert found(real, synthetic, seed=3).rows == 300
    assert found(real, synthetic, seed=3) == found(real, synthetic, seed=3)
    assert found(real, synthetic, seed=3).pmse == pytest.approx(found(sample_rows(real, 300, 3), synthetic).pmse)
    assert found(real, synthetic, seed=3).pmse != pytest.approx(found(real, synthetic, seed=4).pmse)
    assert found(real, synthetic, max_rows=40).rows == 40


def test_awkward_tables_have_a_propensity() -> None:
    none, one = even(0, 0), even(1, 0)
    assert measure_propensity(none, one) is None
    assert measure_propensity(one, none) is None
    assert measure_propensity(none, none) is None
    assert found(one, even(1, 1)).auc is None
    constant = small_table(Domain.of({"x": 3}), np.zeros(30))
    assert found(constant, constant) == Propensity(30, 0.0, None, 0.5)
    with pytest.raises(ValueError, match="at least one row"):
        measure_propensity(one, one, max_rows=0)


def test_an_evaluation_with_a_hold_out() -> None:
    real, holdout = separable(600), separable(400, seed=1)
    backwards = relabelled(real, (real.column("label") + 1) % 3)
    found = compare_classifiers(real, backwards, holdout, "label")
    assert found.error == 1
    assert found.non_private == 0
    assert found.majority == pytest.approx((holdout.column("label") != 0).mean())
    assert (found.test_rows, found.held_out) == (400, True)
