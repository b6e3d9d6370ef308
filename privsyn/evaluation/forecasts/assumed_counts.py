"""The counts of the table that a forecast assumes, for any number of rows, computed without making rows.

Columns depend on one latent variable (``made_up_rows.assume_rows``) and are independent given it,
so a joint count is a mean over values of the latent variable.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri

from privsyn.data_contracts.domain import Clique, Domain
from privsyn.evaluation.forecasts.made_up_rows import assume_shares, draw_pulls
from privsyn.tasks.codecs import EncodingPlan
from privsyn.tasks.estimation.recode import Recode
from privsyn.tasks.kernels.counting import Countable

Floats = NDArray[np.float64]

PLACES = 24
"""Number of equally likely values of the latent variable, over which joint counts are averaged."""


def assume_chances(encoding: EncodingPlan, strength: float, seed: int) -> dict[str, Floats]:
    """Return attribute -> probability of each fine code given each latent value, shape (PLACES, codes).

    ``strength``: see :func:`privsyn.evaluation.forecasts.made_up_rows.assume_rows`, 0 to 1.
    """
    rng = np.random.default_rng([seed, 2])
    pulls = draw_pulls(len(encoding.codecs), strength, rng)
    hidden = ndtri((np.arange(PLACES) + 0.5) / PLACES)[:, None]
    chances = {}
    for codec, pull in zip(encoding.codecs, pulls, strict=True):
        bins, sizes = np.unique(codec.groups, return_counts=True)
        edges = ndtri(np.minimum(np.concatenate([[0.0], np.cumsum(assume_shares(codec, rng))]), 1.0))
        below = ndtr((edges[None, :] - pull * hidden) / np.sqrt(1 - pull**2))
        by_bin = np.diff(below, axis=1) / sizes
        chances[codec.attribute] = by_bin[:, np.searchsorted(bins, codec.groups)]
    return chances


@dataclass(frozen=True)
class AssumedRows:
    """Virtual rows of codes, with the counts that ``rows`` rows are expected to have.

    ``chances``: attribute -> probability of each code given each latent value; a ``padded`` table has a last code for
    filtered values.  ``seconds``: list with the CPU seconds spent so far.
    """

    domain: Domain
    padded: bool
    rows: int
    chances: Mapping[str, Floats]
    seconds: list[float] = field(default_factory=lambda: [0.0])

    @classmethod
    def of(cls, domain: Domain, rows: int, fine: Mapping[str, Floats], recode: Recode | None = None) -> AssumedRows:
        """Return the rows over fine codes, or, padded by filtered values, over the codes of ``recode``."""
        if recode is None:
            return cls(domain, padded=False, rows=rows, chances=fine)
        coarse = {}
        for attribute, r in recode.items():
            merge = np.zeros((len(r.coarse), r.size + 1))
            merge[np.arange(len(r.coarse)), np.where(r.kept, r.coarse, r.size)] = 1.0
            coarse[attribute] = fine[attribute] @ merge
        return cls(domain, padded=True, rows=rows, chances=coarse)

    def counts(
        self, cliques: Iterable[Clique], *, threads: int = 0, padded_result: bool = False
    ) -> Iterator[NDArray[np.int64]]:
        """Yield the rounded expected counts of each clique, like :func:`privsyn.tasks.kernels.counting.count`."""
        for clique in cliques:
            start = time.process_time()
            chances = [self._get_chances(a, filtered=padded_result) for a in clique]
            table = np.rint(self.rows * _average(chances)).astype(np.int64)
            self.seconds[0] += time.process_time() - start
            yield table

    def _get_chances(self, attribute: str, *, filtered: bool) -> Floats:
        chances = self.chances[attribute]
        return chances if filtered or not self.padded else chances[:, :-1]


@dataclass(frozen=True)
class ScaledRows:
    """Made-up rows of codes, whose counts are multiplied by ``times``, for codes without assumed probabilities.

    ``seconds``: see :class:`AssumedRows`.
    """

    made_up: Countable
    times: float
    seconds: list[float] = field(default_factory=lambda: [0.0])

    @property
    def domain(self) -> Domain:
        """The attributes and their numbers of codes."""
        return self.made_up.domain

    @property
    def padded(self) -> bool:
        """Whether attributes have one more code, for filtered values."""
        return self.made_up.padded

    def counts(
        self, cliques: Iterable[Clique], *, threads: int = 0, padded_result: bool = False
    ) -> Iterator[NDArray[np.int64]]:
        """Yield the counts of each clique, multiplied by ``times`` and rounded."""
        start = time.process_time()
        for counted in self.made_up.counts(cliques, threads=threads, padded_result=padded_result):
            self.seconds[0] += time.process_time() - start
            yield np.rint(self.times * counted).astype(np.int64)
            start = time.process_time()


def _average(chances: list[Floats]) -> Floats:
    """Return the mean over latent values of the outer product of the probabilities, with one axis per attribute."""
    if not chances:
        return np.ones(())
    if len(chances) == 1:
        return chances[0].mean(axis=0)
    table: Floats = np.zeros([c.shape[1] for c in chances])
    *first, last = chances
    for place in range(PLACES if len(first) > 1 else 0):
        product = first[0][place]
        for more in first[1:]:
            product = np.multiply.outer(product, more[place])
        table += np.multiply.outer(product, last[place])
    return table / PLACES if len(first) > 1 else first[0].T @ last / PLACES
