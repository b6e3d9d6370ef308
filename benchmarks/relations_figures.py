"""The figures of benchmarks/relations.py: how much of the relations between numeric columns a table made keeps.

All are of stored values, not of codes: ``real`` and ``made`` are tables of the same columns.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from scipy.stats import rankdata

from privsyn.tasks.metrics.sample_estimates import fit_regression

Floats = NDArray[np.float64]

STRONG = 0.2
"""A correlation above it, in absolute value, counts in the share that is kept."""
BINS = 32
"""Equal bins between the public bounds that L1 distances are taken over."""
MOST_PAIRS = 300
"""Pairs that the L1 distance is taken over at most, drawn by a fixed seed."""
OUTCOMES, REGRESSORS = 3, 3
CLEAR = 5.0
"""Standard errors, on the real rows, of a slope whose relative error counts."""
ZEROS, EQUAL, ORDERED = 0.01, 0.05, 0.95
"""Least share of zeros, of equal and of ordered values at which a column, or two, have a figure."""


@dataclass(frozen=True)
class Shape:
    """What is public of a table: the bounds of its numeric columns, and the values of its categories."""

    bounds: Mapping[str, tuple[float, float]]
    categories: Mapping[str, tuple[str, ...]]


def read_numbers(table: pa.Table, columns: Sequence[str]) -> dict[str, Floats]:
    """Return numeric columns as floats, shape (rows,), NaN for null."""
    return {c: np.asarray(pc.cast(table[c], pa.float64()).to_numpy(), dtype=np.float64) for c in columns}


def compute_figures(real: pa.Table, made: pa.Table, shape: Shape) -> dict[str, float]:
    """Return every figure; those that a table has no columns for are left out.

    spearman, pearson: mean absolute error over pairs of numeric columns; kept: mean of made over real Spearman
    correlations above STRONG; strong: how many these are.  regression.I.J: by how many of its standard errors on the
    real rows coefficient J of regression I differs (nan: not there).  slopes: median relative error of the coefficients
    that are more than CLEAR standard errors on the real rows.  zeros, order: mean absolute error of shares.
    l1_1way, l1_2way: over BINS equal bins.  mean, sd, q99: median relative error of the columns'.
    """
    first, second = (read_numbers(t, list(shape.bounds)) for t in (real, made))
    found = compute_correlation_figures(first, second)
    fits = list(fit_regressions(first, second))
    for i, fit in enumerate(fits):
        found |= {f"regression.{i}.{j}": score for j, score in enumerate(fit.scores.tolist())}
    if relative := [error for fit in fits for error in fit.relative_errors.tolist()]:
        found["slopes"] = float(np.median(relative))
    found |= compute_share_figures(first, second, shape)
    found |= compute_l1_figures(code_columns(real, first, shape), code_columns(made, second, shape))
    return found | compute_tail_figures(first, second)


def correlate(a: Floats, b: Floats) -> tuple[float, float]:
    """Return Pearson's and Spearman's correlation of the rows that have both values; 0 of a constant column."""
    both = np.isfinite(a) & np.isfinite(b)
    x, y = a[both], b[both]
    if len(x) < 2 or np.ptp(x) == 0 or np.ptp(y) == 0:
        return 0.0, 0.0
    return float(np.corrcoef(x, y)[0, 1]), float(np.corrcoef(rankdata(x), rankdata(y))[0, 1])


def compute_correlation_figures(real: Mapping[str, Floats], made: Mapping[str, Floats]) -> dict[str, float]:
    """Return the errors of correlations, and the share kept of the strong ones."""
    pairs = list(combinations(real, 2))
    if not pairs:
        return {}
    first = np.array([correlate(real[a], real[b]) for a, b in pairs])
    second = np.array([correlate(made[a], made[b]) for a, b in pairs])
    pearson, spearman = np.abs(first - second).mean(axis=0)
    found = {"spearman": float(spearman), "pearson": float(pearson)}
    strong = np.abs(first[:, 1]) > STRONG
    if strong.any():
        found |= {"kept": float((second[strong, 1] / first[strong, 1]).mean()), "strong": float(strong.sum())}
    return found


def choose_regressions(real: Mapping[str, Floats]) -> list[tuple[str, tuple[str, ...]]]:
    """Return outcome and regressors of each regression.

    Outcomes: the columns of most values.  Regressors: those columns most related to the outcome that less than half of
    the values are missing of.
    """
    usable = {c: v for c, v in real.items() if np.isfinite(v).mean() > 0.5 and len(np.unique(v[np.isfinite(v)])) > 1}
    ranked = sorted(usable, key=lambda c: -len(np.unique(usable[c])))
    found = []
    for outcome in ranked[:OUTCOMES]:
        strength = {c: abs(correlate(usable[outcome], v)[1]) for c, v in usable.items() if c != outcome}
        chosen = [c for c in sorted(strength, key=lambda c: -strength[c]) if strength[c] < 0.99][:REGRESSORS]
        if chosen:
            found.append((outcome, tuple(chosen)))
    return found


@dataclass(frozen=True, eq=False)
class FittedTwice:
    """One regression's slopes in the real rows, with their standard errors, and in the rows made, shape (slopes,)."""

    real: Floats
    errors: Floats
    made: Floats

    @property
    def scores(self) -> Floats:
        """By how many standard errors of the real fit each slope differs."""
        return np.clip((self.made - self.real) / self.errors, -1e6, 1e6)

    @property
    def relative_errors(self) -> Floats:
        """The relative errors of the slopes that are more than CLEAR standard errors."""
        clear = np.abs(self.real) > CLEAR * self.errors
        return np.abs(self.made[clear] / self.real[clear] - 1)


def fit_regressions(real: Mapping[str, Floats], made: Mapping[str, Floats]) -> Iterator[FittedTwice]:
    """Yield each regression in both tables; one that the rows made do not allow has slopes of 0."""
    for outcome, columns in choose_regressions(real):
        fits = []
        for table in (real, made):
            rows = np.stack([np.ones(len(table[outcome])), *(table[c] for c in columns), table[outcome]], axis=1)
            rows = rows[np.isfinite(rows).all(axis=1)]
            fits.append(fit_regression(rows[:, :-1], rows[:, -1], two_values=False) if len(rows) > 9 else None)
        if fits[0] is not None:
            slopes = np.zeros(len(columns) + 1) if fits[1] is None else fits[1].coefficients
            yield FittedTwice(fits[0].coefficients[1:], np.maximum(fits[0].errors[1:], 1e-300), slopes[1:])


def compute_share_figures(real: Mapping[str, Floats], made: Mapping[str, Floats], shape: Shape) -> dict[str, float]:
    """Return the errors of the shares of zeros, and of equal or ordered values of columns whose bounds overlap."""
    found = {}
    zeros = [(_mean(real[c] == 0), _mean(made[c] == 0)) for c in real if shape.bounds[c][1] - shape.bounds[c][0] > 1]
    zeros = [(a, b) for a, b in zeros if a >= ZEROS]
    if zeros:
        found["zeros"] = float(np.mean([abs(a - b) for a, b in zeros]))
    errors = []
    for a, b in combinations(real, 2):
        if shape.bounds[a][0] < shape.bounds[b][1] and shape.bounds[b][0] < shape.bounds[a][1]:
            shares, ours = (_compare(t[a], t[b]) for t in (real, made))
            if shares[1] >= EQUAL or max(shares[0], shares[2]) >= ORDERED:
                errors.append(float(np.abs(shares - ours).max()))
    return found | ({"order": float(np.mean(errors))} if errors else {})


def _compare(a: Floats, b: Floats) -> Floats:
    """Return the shares of a < b, a = b and a > b among the rows that have both."""
    both = np.isfinite(a) & np.isfinite(b)
    return np.array([_mean(a[both] < b[both]), _mean(a[both] == b[both]), _mean(a[both] > b[both])])


def _mean(values: NDArray[np.bool_]) -> float:
    return float(values.mean()) if len(values) else 0.0


def code_columns(
    table: pa.Table, numbers: Mapping[str, Floats], shape: Shape
) -> dict[str, tuple[NDArray[np.int64], int]]:
    """Return codes, shape (rows,), and their number by column: equal bins, listed values, null and others last."""
    found = {}
    for name, (low, high) in shape.bounds.items():
        place = np.clip(np.nan_to_num((numbers[name] - low) / (high - low), nan=2.0), 0, 2.0)
        code = np.where(np.isnan(numbers[name]), BINS, np.minimum((place * BINS).astype(np.int64), BINS - 1))
        found[name] = (code, BINS + 1)
    for name, values in shape.categories.items():
        at = pc.index_in(pc.cast(table[name], pa.string()), value_set=pa.array(values, pa.string()))
        code = np.asarray(pc.fill_null(at, len(values)).to_numpy(), dtype=np.int64)
        found[name] = (code, len(values) + 1)
    return found


def compute_l1_figures(
    real: Mapping[str, tuple[NDArray[np.int64], int]], made: Mapping[str, tuple[NDArray[np.int64], int]]
) -> dict[str, float]:
    """Return the mean L1 distance (0..2) of one-ways, and of at most MOST_PAIRS two-ways."""
    pairs = list(combinations(real, 2))
    if len(pairs) > MOST_PAIRS:
        pairs = random.Random(0).sample(pairs, MOST_PAIRS)  # noqa: S311 - no secret
    cliques = {"l1_1way": [(c,) for c in real], "l1_2way": pairs}
    return {
        name: float(np.mean([np.abs(_share(real, c) - _share(made, c)).sum() for c in sets]))
        for name, sets in cliques.items()
        if sets
    }


def _share(columns: Mapping[str, tuple[NDArray[np.int64], int]], clique: Sequence[str]) -> Floats:
    code, cells = np.zeros(len(columns[clique[0]][0]), dtype=np.int64), 1
    for name in clique:
        code, cells = code * columns[name][1] + columns[name][0], cells * columns[name][1]
    return np.bincount(code, minlength=cells) / max(len(code), 1)


def compute_tail_figures(real: Mapping[str, Floats], made: Mapping[str, Floats]) -> dict[str, float]:
    """Return the median over columns of the relative error of mean, standard deviation and 99 % quantile.

    A mean's is relative to the larger of its size and the standard deviation.
    """
    errors = []
    for name, values in real.items():
        x, y = values[np.isfinite(values)], made[name][np.isfinite(made[name])]
        if len(x) and np.ptp(x) > 0:
            y = y if len(y) else np.zeros(1)
            sd, top = float(x.std()), float(np.quantile(x, 0.99))
            errors.append(
                [
                    abs(y.mean() - x.mean()) / max(abs(x.mean()), sd),
                    abs(y.std() - sd) / sd,
                    abs(np.quantile(y, 0.99) - top) / max(abs(top), sd),
                ]
            )
    return dict(zip(("mean", "sd", "q99"), np.median(errors, axis=0).tolist(), strict=True)) if errors else {}
