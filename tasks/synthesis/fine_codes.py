"""Fine codes inside coarse ones: drawn by the recode's weights, or found at a value's place in the coarse code.

Places are chosen so that relations between codes continue inside them.

Not in the paper, which draws values inside a code independently of the rest of the row; with three codes of equal mass
that loses a tenth of every correlation.  The model treats a row's ordered attributes as one binned normal vector
(Pearson's polychoric model: Olsson, "Maximum Likelihood Estimation of the Polychoric Correlation Coefficient",
Psychometrika 44, 1979).  Its correlations reproduce the mean products of scores of the synthetic codes.  Given its
codes, a row's vector is drawn by a Gibbs sampler of truncated normals.  An entry's rank within its code is the value's
place there, so values inside a code keep their shares.  Post-processing: it reads synthetic codes and the public order
only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from privsyn.data_contracts.domain import Clique
from privsyn.data_contracts.presets import ALL_PAIRS_COLUMNS
from privsyn.tasks.codecs.cells import Binning
from privsyn.tasks.estimation.recode import AttributeRecode, Recode, mark_ordered_codes
from privsyn.tasks.kernels.counting import CodeTable

Floats = NDArray[np.float64]

LEAST_CORRELATION = 0.1
"""Least absolute correlation of an attribute with another one that its places follow."""

MOST_CORRELATION = 0.98
"""Larger absolute correlations are cut to this: no place determines another."""

MOST_KEPT_VARIANCE = 0.99
"""Share of an attribute's variance between its codes above which nothing is lost inside them."""

LEAST_KEPT_VARIANCE = 0.4
"""The same share below which an attribute is left out: one code has nearly all rows, and others show little of them."""

MODEL_ROWS = 50_000
"""Largest number of rows used to estimate correlations; it falls in wide tables with the number of columns."""

MOST_FOLLOWED = 16
"""Largest number of attributes that one attribute's places follow in a wide table."""

_TERMS = 96  # terms of the power series in a correlation: enough for MOST_CORRELATION
_CORRELATIONS = MOST_CORRELATION * np.linspace(-1, 1, 197)
_POWERS = _CORRELATIONS[:, None] ** np.arange(1, _TERMS + 1)
_GIBBS_SWEEPS = 4
_LEAST_EIGENVALUE = 0.02
_RESOLUTION = 2.0**-12  # resolution of regression weights: last bits of linear algebra differ between CPUs
_TAIL = 1e-12


class FineCodes:
    """Draws the fine code inside a coarse one by the recode's weights (inverse transform)."""

    def __init__(self, recode: AttributeRecode) -> None:
        members = np.flatnonzero(recode.kept)
        self._members = members[np.argsort(recode.coarse[members], kind="stable")]
        code = recode.coarse[self._members]
        self._code, self._size = code.astype(np.int64), len(recode.coarse)
        # Each coarse code's weights sum to 1, so its members span [code, code + 1) of the cumulative sum.
        self._cumulative = np.cumsum(recode.weight[self._members])
        self._first = np.searchsorted(code, np.arange(recode.size))
        self._last = np.append(self._first[1:], len(code)) - 1
        self._several = self._first < self._last

    def __call__(self, coarse: NDArray[np.unsignedinteger], rng: np.random.Generator) -> NDArray[np.int64]:
        """Return one fine code per row; every row takes a random draw, even if its code has one fine code."""
        return self.find_at(coarse, rng.random(len(coarse)))[0]

    def locate(
        self, fine: NDArray[np.integer], inside: NDArray[np.float64]
    ) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Return the coarse code of each fine code, and the place in it for the place ``inside`` the fine code."""
        position = np.empty(self._size, np.int64)
        position[self._members] = np.arange(len(self._members))
        edge = position[fine]
        start = np.where(edge > 0, self._cumulative[edge - 1], 0.0)
        place = start + inside * (self._cumulative[edge] - start)
        coarse = self._code[edge]
        return coarse, np.clip(place - coarse, 0.0, 1 - 1e-9)

    def find_at(
        self, coarse: NDArray[np.unsignedinteger], places: NDArray[np.float64]
    ) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Return the fine code at a place in each coarse code, and the place in that; both rise with the place.

        ``places``: shares of the coarse code's weight, in [0, 1).  Uniform places give the weights' shares.
        """
        position, inside = self._first[coarse], places.copy()
        several = np.flatnonzero(self._several[coarse])
        if several.size:
            among = coarse[several]
            wanted = among + places[several] * (1 - 1e-9)
            drawn = np.searchsorted(self._cumulative, wanted, side="right")
            drawn = np.clip(drawn, self._first[among], self._last[among])
            before = np.where(drawn > 0, self._cumulative[drawn - 1], 0.0)
            width = np.maximum(self._cumulative[drawn] - before, 1e-12)
            position[several], inside[several] = drawn, np.clip((wanted - before) / width, 0.0, 1 - 1e-9)
        return self._members[position], inside


@dataclass(frozen=True, eq=False)
class _NormalIntervals:
    """Each code's interval of a standard normal and its mean there, shape (codes,); (-inf, inf) and 0 if unordered.

    ``hermite``: coefficients of the score in normalized Hermite polynomials from the first on, shape (_TERMS,).
    """

    low: Floats
    high: Floats
    score: Floats
    hermite: Floats

    @property
    def kept_variance(self) -> float:
        """Share of the variance between the codes: the first coefficient, since scores are means of their codes."""
        return float(self.hermite[0])


@dataclass(frozen=True, eq=False)
class RelatedPlaces:
    """The normal model of the ordered attributes of a table of codes.

    ``moved``: positions, in ``attributes``, of the attributes whose places follow others; ``followed``: positions of
    their regressors, or all; ``weights``: regression weights, 0 on itself; ``spread``: residual standard deviation,
    shape (attributes,).
    """

    attributes: tuple[str, ...]
    cuts: tuple[_NormalIntervals, ...]
    moved: tuple[int, ...]
    followed: Mapping[int, slice | NDArray[np.intp]]
    weights: Mapping[int, Floats]
    spread: Floats

    def draw(self, codes: Mapping[str, NDArray[np.unsignedinteger]], rng: np.random.Generator) -> dict[str, Floats]:
        """Return each moved attribute's places of the rows' values in their codes, shape (rows,), in [0, 1)."""
        from scipy.special import ndtr, ndtri

        if not self.moved:
            return {}
        columns = [codes[a] for a in self.attributes]
        vector = np.stack([cut.score[code] for cut, code in zip(self.cuts, columns, strict=True)], axis=1)
        if any(isinstance(followed, np.ndarray) for followed in self.followed.values()):
            vector = np.asfortranarray(vector)  # few of many columns are read at a time
        for _ in range(_GIBBS_SWEEPS):
            for j in self.moved:
                low, high, spread = self.cuts[j].low[columns[j]], self.cuts[j].high[columns[j]], self.spread[j]
                centre = vector.T[self.followed[j]].T @ self.weights[j]
                first, last = ndtr((low - centre) / spread), ndtr((high - centre) / spread)
                drawn = first + rng.random(len(centre)) * (last - first)
                vector[:, j] = np.clip(centre + spread * ndtri(drawn.clip(_TAIL, 1 - _TAIL)), low, high)
        return {self.attributes[j]: _rank_inside(columns[j], vector[:, j], rng) for j in self.moved}


class PlacedRecords:
    """Fine codes of records, placed by a model of the relations inside codes, or at random.

    ``draws``: attribute -> its fine codes; ``coarse``: codes of the records, shape (records,); ``model``: model of the
    places in codes, None for random places.  All draws come from ``rng``.
    """

    def __init__(
        self,
        draws: Mapping[str, FineCodes],
        coarse: Mapping[str, NDArray[np.unsignedinteger]],
        model: RelatedPlaces | None,
        rng: np.random.Generator,
    ) -> None:
        """Draw the places of the model's moved attributes."""
        self._draws, self._coarse, self._rng = draws, coarse, rng
        self._places = {} if model is None else model.draw(coarse, rng)

    def refine(self, attribute: str) -> NDArray[np.int64]:
        """Return the fine code of each record, shape (records,)."""
        coarse, draw = self._coarse[attribute], self._draws[attribute]
        places = self._places.get(attribute)
        return draw(coarse, self._rng) if places is None else draw.find_at(coarse, places)[0]

    def place(self, attribute: str) -> tuple[NDArray[np.int64], Floats]:
        """Return the fine code of each record and the value's place in it, both of shape (records,)."""
        coarse, draw = self._coarse[attribute], self._draws[attribute]
        places = self._places.get(attribute)
        if places is None:
            return draw(coarse, self._rng), self._rng.random(len(coarse))
        return draw.find_at(coarse, places)


def fit_related_places(
    codes: CodeTable, recode: Recode, binning: Binning, asked_pairs: Sequence[Clique] | None = None
) -> RelatedPlaces:
    """Return the model of a table of codes.

    ``asked_pairs``: the pairs of a wide table that may follow each other; None: all.
    """
    names = [a for a in codes.domain.attributes if binning[a].in_order]
    rows = MODEL_ROWS if asked_pairs is None else MODEL_ROWS * ALL_PAIRS_COLUMNS // max(len(names), ALL_PAIRS_COLUMNS)
    every = max(1, codes.rows // rows)
    sample = {a: codes.column(a)[::every] for a in names}
    ordered = {a: mark_ordered_codes(recode[a], binning[a]) for a in names}
    cuts = {a: _cut(np.bincount(sample[a], minlength=recode[a].size), ordered[a]) for a in names}
    names = [a for a in names if cuts[a].kept_variance > LEAST_KEPT_VARIANCE]
    scores = np.stack([cuts[a].score[sample[a]] for a in names], axis=1) if names else np.zeros((0, 0))
    has_order = np.stack([ordered[a][sample[a]] for a in names], axis=1).astype(np.float64) if names else scores
    kept_variance = np.array([cuts[a].kept_variance for a in names])
    movable = kept_variance < MOST_KEPT_VARIANCE
    several = np.array([_has_several(recode[a], ordered[a]) for a in names], dtype=bool)
    if asked_pairs is not None:
        return _follow_near(names, cuts, scores, has_order, asked_pairs, np.flatnonzero(movable & several))
    product, correlation = scores.T @ scores / np.maximum(has_order.T @ has_order, 1.0), np.eye(len(names))
    for (i, a), (j, b) in combinations(enumerate(names), 2):
        correlation[i, j] = correlation[j, i] = _find_correlation(product[i, j], cuts[a].hermite * cuts[b].hermite)
    follows: NDArray[np.bool_] = np.any(np.abs(correlation - np.eye(len(names))) >= LEAST_CORRELATION, axis=0)
    moved = tuple(np.flatnonzero(follows & movable & several).tolist())
    if not moved:
        return RelatedPlaces((), (), (), {}, {}, np.zeros(0))
    weights, spread = _regress(correlation)
    followed = dict.fromkeys(moved, slice(None))
    by_place = {j: weights[j] for j in moved}
    return RelatedPlaces(tuple(names), tuple(cuts[a] for a in names), moved, followed, by_place, spread)


def _regress(correlation: Floats) -> tuple[Floats, Floats]:
    """Return the regression weights of each attribute on all others, 0 on the diagonal, and residual deviations."""
    values, vectors = np.linalg.eigh(correlation)
    positive = (vectors * np.maximum(values, _LEAST_EIGENVALUE)) @ vectors.T
    scale = np.sqrt(np.diag(positive))
    precision = np.linalg.inv(positive / np.multiply.outer(scale, scale))
    weights = -precision / np.diag(precision)[:, None]
    np.fill_diagonal(weights, 0.0)
    return np.rint(weights / _RESOLUTION) * _RESOLUTION, 1 / np.sqrt(np.diag(precision))


def _follow_near(
    names: Sequence[str],
    cuts: Mapping[str, _NormalIntervals],
    scores: Floats,
    has_order: Floats,
    asked_pairs: Sequence[Clique],
    movable: NDArray[np.intp],
) -> RelatedPlaces:
    """Return the model with each ``movable`` attribute following its most correlated partners in ``asked_pairs``.

    Each is regressed on at most MOST_FOLLOWED others, so time grows with the asked pairs and not with all pairs.
    """
    number, hermite = {a: i for i, a in enumerate(names)}, [cuts[a].hermite for a in names]
    scores, has_order = np.asfortranarray(scores), np.asfortranarray(has_order)  # columns are read
    near_of: dict[int, list[int]] = {i: [] for i in range(len(names))}
    for i, j in ((number[a], number[b]) for a, b in asked_pairs if a in number and b in number):
        near_of[i].append(j)
        near_of[j].append(i)

    @cache
    def correlate(i: int, j: int) -> float:
        product = float(scores[:, i] @ scores[:, j]) / max(float(has_order[:, i] @ has_order[:, j]), 1.0)
        return _find_correlation(product, hermite[i] * hermite[j])

    followed: dict[int, slice | NDArray[np.intp]] = {}
    weights, spread = {}, np.ones(len(names))
    for j in movable.tolist():
        strength = {i: abs(correlate(*sorted((i, j)))) for i in near_of[j]}
        strong = [i for i in sorted(near_of[j], key=lambda i: (-strength[i], i)) if strength[i] >= LEAST_CORRELATION]
        if not strong:
            continue
        group = [j, *strong[:MOST_FOLLOWED]]
        correlation = np.eye(len(group))
        for (x, i), (y, k) in combinations(enumerate(group), 2):
            correlation[x, y] = correlation[y, x] = correlate(*sorted((i, k)))
        of_all, residual_spread = _regress(correlation)
        followed[j], weights[j], spread[j] = np.array(group[1:], dtype=np.intp), of_all[0, 1:], residual_spread[0]
    if not followed:
        return RelatedPlaces((), (), (), {}, {}, np.zeros(0))
    return RelatedPlaces(tuple(names), tuple(cuts[a] for a in names), tuple(followed), followed, weights, spread)


def _find_correlation(product: float, terms: Floats) -> float:
    """Return the correlation that gives two scores this mean product.

    ``terms``: products of their Hermite coefficients, which are the coefficients of the mean product as a power series
    in the correlation (Mehler's formula).
    """
    return float(np.interp(product, np.maximum.accumulate(_POWERS @ terms), _CORRELATIONS))


def _has_several(recode: AttributeRecode, ordered: NDArray[np.bool_]) -> bool:
    """Return whether any ordered code has several fine codes."""
    return bool((np.bincount(recode.coarse[recode.kept], minlength=recode.size)[ordered] > 1).any())


def _cut(counts: NDArray[np.int64], ordered: NDArray[np.bool_]) -> _NormalIntervals:
    """Cut a standard normal into intervals by the counts of the ordered codes."""
    from scipy.special import ndtri

    mass = np.where(ordered, counts, 0).astype(np.float64)
    total = mass.sum()
    if total <= 0:
        free = np.full(len(counts), np.inf)
        return _NormalIntervals(-free, free, np.zeros(len(counts)), np.zeros(_TERMS))
    share = mass / total
    upper = np.cumsum(share).clip(max=1.0)
    low, high = ndtri((upper - share).clip(0.0, 1.0)), ndtri(upper)
    density = lambda z: np.exp(-np.minimum(z**2, 1400.0) / 2) / np.sqrt(2 * np.pi)  # noqa: E731
    score = np.divide(density(low) - density(high), share, out=np.zeros(len(share)), where=share > 0)
    hermite = _expand(ndtri(upper[ordered][:-1]), np.diff(score[ordered]))
    low, high = np.where(ordered, low, -np.inf), np.where(ordered, high, np.inf)
    return _NormalIntervals(low, high, score, hermite)


def _expand(cuts: Floats, rises: Floats) -> Floats:
    """Return the Hermite coefficients, shape (_TERMS,), of a step function that ``rises`` at the ``cuts``."""
    inside = np.isfinite(cuts)
    points, rise = cuts[inside], rises[inside]
    last, this = np.zeros(len(points)), np.exp(-(points**2) / 2) / np.sqrt(2 * np.pi)
    coefficients = np.empty(_TERMS)
    for k in range(_TERMS):  # the integral of a Hermite polynomial times the density above a cut is the one before it
        coefficients[k] = rise @ this / np.sqrt(k + 1)
        last, this = this, (points * this - np.sqrt(k) * last) / np.sqrt(k + 1)
    return coefficients


def _rank_inside(code: NDArray[np.unsignedinteger], value: Floats, rng: np.random.Generator) -> Floats:
    """Return each row's rank within its code as a share in [0, 1), uniform between two ranks."""
    order = np.lexsort((value, code))
    counts = np.bincount(code)
    first = np.cumsum(counts) - counts
    places = np.empty(len(code))
    sorted_codes = code[order]
    places[order] = (np.arange(len(code)) - first[sorted_codes] + rng.random(len(code))) / counts[sorted_codes]
    return np.minimum(places, 1 - 1e-9)
