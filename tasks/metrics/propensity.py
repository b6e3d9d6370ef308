"""Propensity: how well a model tells synthetic rows from real ones.

Sources: Woo, Reiter, Oganian and Karr, Journal of Privacy and Confidentiality 1(1), 2009 (pMSE); Snoke, Raab, Nowok,
Dibben and Slavkovic, Journal of the Royal Statistical Society A 181(3), 2018 (its null expectation).
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import numpy as np
from scipy.sparse import vstack
from threadpoolctl import threadpool_limits

from privsyn.tasks.kernels.counting import CodeTable
from privsyn.tasks.metrics.features import encode_one_hot, sample_rows

_NEWTON_COLUMNS = 1_000  # above, second derivatives cost more than they save
_TREES = 50

SMALLEST_AUC = 10
"""The fewest rows of a table for growing trees."""


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
