"""Models: how well one trained on synthetic rows labels real ones, and how well one tells the two apart."""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import vstack
from threadpoolctl import threadpool_limits

from privsyn.tasks.kernels.counting import CodeTable, count
from privsyn.tasks.metrics.samples import encode_one_hot, sample_rows, take_rows

TEST_SHARE = 0.2
"""Share of the real rows used as test rows without a hold-out."""

_PENALTY = 0.1

_NEWTON_COLUMNS = 1_000  # above, second derivatives cost more than they save
_TREES = 50

SMALLEST_AUC = 10
"""The fewest rows of a table for growing trees."""


@dataclass(frozen=True)
class Classification:
    """Misclassification rates on the same real test rows, each 0 (none wrong) to 1.

    ``error``: trained on the synthetic rows.  ``non_private``: trained on the real training rows.  ``majority``: always
    guesses the most frequent label of the real training rows.  A useful model stays below it; if the label hardly
    depends on the other columns, even ``non_private`` can be above it.  ``held_out``: whether the test rows are a
    hold-out; otherwise the release has seen them, which flatters ``error``.
    """

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


@dataclass(frozen=True)
class Propensity:
    """How well ``rows`` rows of each table could be told apart.

    Attributes:
        pmse: 0 (cannot be told apart) to 0.25 (always told apart).
        ratio: pmse over its null expectation, from 0 without upper bound.  It is about 1 for rows drawn from a correct
            model fitted to the real rows, and None if the model has nothing to fit.
        auc: The area under the curve of trees on unseen rows, 0 to 1 (always told apart).  It is about 0.5 for a guess,
            and less if synthetic rows repeat real ones (each was seen with the other label).  None below 10 rows.
    """

    rows: int
    pmse: float
    ratio: float | None
    auc: float | None


def measure_propensity(
    real: CodeTable, synthetic: CodeTable, max_rows: int = 50_000, seed: int = 0
) -> Propensity | None:
    """Return pMSE of main effects, its ratio to the null, and the AUC of a model that sees relations too.

    n rows of each table are compared, with n the smaller of both sizes and ``max_rows``, drawn by ``seed``.  With equal
    parts, pMSE = mean over the 2n rows of (p - 1/2)^2 (Woo et al., section 2), where p is the fitted probability of
    being synthetic.  The model is a logistic regression on the one-hot codes, main effects only, fitted to the same
    rows.  It is practically unpenalised: C = 1e4 only keeps the coefficients finite for codes that occur in one table.
    The model compares the one-way marginals jointly and **sees no relation between columns**: independent columns with
    the right shares have a pMSE of 0.

    Null expectation, for k - 1 free parameters (the codes present, minus one per attribute): (k - 1) / (8n) (1 - f /
    2), where f is the share of real rows compared.  With f = 1 this is Snoke et al.'s (k - 1) (1 - c)^2 c / N for c =
    1/2 and N = 2n: rows from a correct model fitted to the same real rows.  Fresh rows of the same population have a
    ratio of about 1 / (1 - f / 2), 2 for f = 1.

    The AUC is of gradient-boosted trees on the codes; each half of the rows is scored by trees grown on the other half.
    Returns None if either table has no rows.  Raises ValueError for ``max_rows`` below 1.
    """
    if max_rows < 1:
        raise ValueError(f"a sample needs at least one row, not {max_rows}")
    rows = min(real.rows, synthetic.rows, max_rows)
    if rows == 0:
        return None
    real_sample, synthetic_sample = sample_rows(real, rows, seed), sample_rows(synthetic, rows, seed)
    with threadpool_limits(1):  # the same order of sums on any number of cores
        pmse, free = compute_pmse(real_sample, synthetic_sample)
        enough = rows >= SMALLEST_AUC
        auc = compute_discriminator_auc(real_sample, synthetic_sample, seed) if enough else None
    null = free / (8 * rows) * (1 - rows / real.rows / 2)
    return Propensity(rows=rows, pmse=pmse, ratio=pmse / null if free else None, auc=auc)


def compute_pmse(real: CodeTable, synthetic: CodeTable) -> tuple[float, int]:
    """Return pMSE of tables of equally many rows (>= 1) and the free parameters; see :func:`measure_propensity`."""
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression

    attributes = real.domain.attributes
    features = vstack([encode_one_hot(real, attributes), encode_one_hot(synthetic, attributes)], format="csr")
    present = np.flatnonzero(np.asarray(features.sum(axis=0)).ravel())
    features, is_synthetic = features[:, present], np.repeat([0, 1], real.rows)
    solver = "newton-cholesky" if len(present) <= _NEWTON_COLUMNS else "lbfgs"
    model = LogisticRegression(C=1e4, solver=solver, max_iter=1_000)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # Newton's method falls back to lbfgs
        guesses = model.fit(features, is_synthetic).predict_proba(features)[:, 1]
    return float(((guesses - 0.5) ** 2).mean()), len(present) - len(attributes)


def compute_discriminator_auc(real: CodeTable, synthetic: CodeTable, seed: int = 0) -> float:
    """Return the AUC of the trees for tables of equally many rows, 10 or more; :func:`measure_propensity`."""
    from sklearn.ensemble import HistGradientBoostingClassifier
    from sklearn.metrics import roc_auc_score
    from sklearn.model_selection import StratifiedKFold, cross_val_predict

    codes = np.concatenate([np.stack(table.columns, axis=1) for table in (real, synthetic)]).astype(np.float32)
    is_synthetic = np.repeat([0, 1], real.rows)
    folds = StratifiedKFold(2, shuffle=True, random_state=seed % 2**32)
    model = HistGradientBoostingClassifier(max_iter=_TREES, early_stopping=False, random_state=0)
    guesses = cross_val_predict(model, codes, is_synthetic, cv=folds, method="predict_proba")[:, 1]
    return float(roc_auc_score(is_synthetic, guesses))
