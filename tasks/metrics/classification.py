"""Classification: how well a support vector machine trained on synthetic rows labels real ones.

Paper: PrivSyn, section 6.1, which names an SVM and the misclassification rate; the rest is described below.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from privsyn.tasks.kernels.counting import CodeTable, count
from privsyn.tasks.metrics.features import encode_one_hot, sample_rows, take_rows

TEST_SHARE = 0.2
"""Share of the real rows used as test rows without a hold-out."""

_PENALTY = 0.1


@dataclass(frozen=True)
class Classification:
    """Misclassification rates on the same real test rows, each 0 (none wrong) to 1.

    ``error``: trained on the synthetic rows.  ``non_private``: trained on the real training rows.  ``majority``: always
    guesses the most frequent label of the real training rows.  A useful model stays below it; if the label hardly
    depends on the other columns, even ``non_private`` can be above it.  ``held_out``: whether the test rows are a
    hold-out; otherwise the release has seen them, which flatters ``error``.
    """

    label: str
    error: float
    non_private: float
    majority: float
    test_rows: int
    held_out: bool


def compute_svm_error(train: CodeTable, test: CodeTable, label: str, max_rows: int = 50_000, seed: int = 0) -> float:
    """Return the share of test rows that a linear SVM trained on ``train`` labels wrongly; 0 (none) to 1.

    Features: one-hot codes of all other attributes, including ordered ones.  On UCI Adult (80/20) they had the lowest
    non-private error: 0.136; with ordered codes scaled to 0..1 in addition, the same; with scaled codes instead, 0.146.
    The model is scikit-learn's LinearSVC (squared hinge loss, L2 penalty, C = 0.1; one against the rest for more than
    two labels).  At most ``max_rows`` rows of each table are used, drawn by ``seed``.  A training table with one label
    predicts that label; an empty one predicts code 0.  Without test rows the error is 0.  Raises KeyError for an
    unknown label, ValueError for ``max_rows`` below 1.
    """
    train, test = sample_rows(train, max_rows, seed), sample_rows(test, max_rows, seed)
    if not test.rows:
        return 0.0
    return float((_predict(train, test, label) != test.column(label)).mean())


def _predict(train: CodeTable, test: CodeTable, label: str) -> NDArray[np.integer]:
    features = [a for a in train.domain.attributes if a != label]
    labels = train.column(label)
    if not features or not train.rows or labels.min() == labels.max():
        return np.full(test.rows, find_most_frequent(train, label))
    from sklearn.svm import LinearSVC

    machine = LinearSVC(C=_PENALTY, dual=False)  # solved in the primal: no random numbers
    machine.fit(encode_one_hot(train, features), labels)
    return machine.predict(encode_one_hot(test, features))


def find_most_frequent(table: CodeTable, label: str) -> int:
    """Return the most frequent code; the smallest of ties, 0 without rows."""
    return int(np.argmax(count(table, (label,), padded_result=True)))


def compute_majority_error(train: CodeTable, test: CodeTable, label: str) -> float:
    """Return the share of test rows whose label is not the most frequent of ``train``; 0..1, 0 without test rows."""
    if not test.rows:
        return 0.0
    return float((test.column(label) != find_most_frequent(train, label)).mean())


def compare_classifiers(
    real: CodeTable, synthetic: CodeTable, holdout: CodeTable | None, label: str, max_rows: int = 50_000, seed: int = 0
) -> Classification:
    """Return the error of training on synthetic rows, NonPriv and Majority (PrivSyn, section 6.1), on the same test.

    With a hold-out, the real table trains NonPriv and Majority and the hold-out tests.  Without one, a fifth of the
    real rows, drawn by ``seed``, tests and the rest trains; the release has then also seen the test rows.  For the
    model, caps, and tables with one label or no rows, see :func:`compute_svm_error`.
    """
    train, test = (real, holdout) if holdout is not None else split(real, TEST_SHARE, seed)
    train, test = sample_rows(train, max_rows, seed), sample_rows(test, max_rows, seed)
    return Classification(
        label=label,
        error=compute_svm_error(synthetic, test, label, max_rows, seed),
        non_private=compute_svm_error(train, test, label, max_rows, seed),
        majority=compute_majority_error(train, test, label),
        test_rows=test.rows,
        held_out=holdout is not None,
    )


def split(table: CodeTable, share: float, seed: int) -> tuple[CodeTable, CodeTable]:
    """Split all rows into about 1 - ``share`` and ``share`` (rounded up) of them, drawn by ``seed``."""
    order = np.random.default_rng(seed).permutation(table.rows)
    tested = int(np.ceil(share * table.rows))
    return take_rows(table, np.sort(order[tested:])), take_rows(table, np.sort(order[:tested]))
