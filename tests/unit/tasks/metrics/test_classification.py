"""Classification errors on tables whose best rule is known."""

from __future__ import annotations

import numpy as np
import pytest

from privsyn.data_contracts.domain import Domain
from privsyn.tasks.kernels.counting import CodeTable
from privsyn.tasks.metrics.models import (
    Classification,
    compare_classifiers,
    compute_majority_error,
    compute_svm_error,
    find_most_frequent,
    split,
)

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


def test_an_evaluation_with_a_hold_out() -> None:
    real, holdout = separable(600), separable(400, seed=1)
    backwards = relabelled(real, (real.column("label") + 1) % 3)
    found = compare_classifiers(real, backwards, holdout, "label")
    assert found.error == 1
    assert found.non_private == 0
    assert found.majority == pytest.approx((holdout.column("label") != 0).mean())
    assert (found.test_rows, found.held_out, found.label) == (400, True, "label")


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
    assert compare_classifiers(none, real, None, "label") == Classification("label", 0.0, 0.0, 0.0, 0, False)
    assert compare_classifiers(separable(1), none, None, "label").test_rows == 1
    alone = CodeTable(Domain.of({"label": 2}), (np.array([0, 1, 1], np.uint8),))
    assert compute_svm_error(alone, alone, "label") == pytest.approx(1 / 3)
    with pytest.raises(KeyError):
        compute_svm_error(real, real, "nothing")
