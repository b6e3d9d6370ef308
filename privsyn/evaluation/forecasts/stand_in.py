"""The stand-in table of a forecast: an earlier release's rows, a public table, made-up rows, or only their counts.

Only this module makes assumptions about the private table.  Columns depend on one latent variable (:func:`assume_rows`)
and are independent given it, so a joint count is a mean over values of the latent variable.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri

from privsyn.base.errors import RequestError
from privsyn.base.places import expand_path, is_url
from privsyn.base.settings import load_settings
from privsyn.data_contracts.domain import Clique, Domain, choose_code_dtype
from privsyn.data_contracts.release_spec import ReleaseSpec
from privsyn.engine.request import Request
from privsyn.evaluation.coded_tables import open_table
from privsyn.storage.released_files import (
    check_measured,
    check_released_file,
    find_release,
    list_synthetic_names,
    read_manifest,
    read_public_spec,
    read_table_pair,
)
from privsyn.tasks.codecs import EncodingPlan
from privsyn.tasks.codecs.codec import Codec
from privsyn.tasks.estimation.recode import Recode
from privsyn.tasks.kernels.counting import CodeTable, Countable
from privsyn.tasks.metrics.samples import take_rows

DEFAULT_STRENGTH = 0.9
"""Largest correlation of made-up columns."""

CATEGORY_SKEW = 2.0
"""The i-th largest made-up category has a share proportional to 1 / i^CATEGORY_SKEW."""

Floats = NDArray[np.float64]
Rows = tuple[CodeTable, pa.Table]
"""Public rows, in fine codes and as stored."""

PLACES = 24
"""Number of equally likely values of the latent variable, over which joint counts are averaged."""


class MadeUpTable(NamedTuple):
    """The stand-in for the private table.

    ``draw``: takes the seed of a simulated release.  It returns the stand-in's rows in fine codes, rows that replace
    the spec's prior (None: keep the prior), and the same rows with their values (None: only codes).
    ``words``: the stand-in's description.  ``made_up``: whether the rows are made up.
    """

    draw: Callable[[int], tuple[CodeTable, CodeTable | None, pa.Table | None]]
    words: str
    made_up: bool = False

    @classmethod
    def of(
        cls,
        request: Request,
        rows: int,
        earlier: str | Path | None,
        public: str | Path | None,
        strength: float | None,
        table: str,
    ) -> MadeUpTable:
        """Return ``rows`` rows drawn from an earlier release, a public table or the spec's prior, or made-up rows.

        ``table``: further table of the earlier release to take rows from.
        With the spec's prior, private rows and prior are both drawn from it, so they differ only by chance.
        Raises RequestError for more than one assumption, or one that cannot be read.
        """
        if sum(given is not None for given in (earlier, public, strength)) > 1:
            problem = "an earlier release, a public table and a strength are three assumptions"
            raise RequestError(problem, "Choose one of them", "forecast.earlier")
        encoding, prior = request.encoding, request.prior
        if earlier is not None or public is not None:
            if earlier is not None:
                codes, stored = read_release_rows(earlier, encoding, request.spec, table)
            else:
                codes, stored = read_public_rows(public or "", encoding, request.spec)
            words = f"rows like the {'earlier release' if earlier is not None else 'public table'}"
            places = lambda seed: _draw_places(codes, rows, seed)  # noqa: E731
            return cls(lambda seed: (take_rows(codes, places(seed)), None, stored.take(places(seed))), words)
        if prior is not None:
            if strength is not None:
                problem = "made-up rows are not like the spec's prior, so they cannot show its benefit"
                cure = "Leave it out to use rows like the prior's, or name a public table or an earlier release"
                raise RequestError(problem, cure, "forecast.strength")
            words = "rows like the spec's prior, which cannot fit better: it helps at most this much"
            again = lambda seed: resample_rows(prior, prior.rows, seed, 3)  # noqa: E731
            return cls(lambda seed: (resample_rows(prior, rows, seed), again(seed), None), words)
        most = DEFAULT_STRENGTH if strength is None else strength
        if not 0 <= most <= 1:
            raise RequestError(f"{most:g} is not a strength", "Choose a correlation from 0 to 1", "forecast.strength")
        words = f"typical columns, with pairs correlated by 0 to {most:g}, most of them weakly"
        return cls(lambda seed: (assume_rows(encoding, rows, most, seed), None, None), words, made_up=True)


def resample_rows(table: CodeTable, rows: int, seed: int, stream: int = 1) -> CodeTable:
    """Return ``rows`` rows drawn from the table with replacement."""
    return take_rows(table, _draw_places(table, rows, seed, stream))


def _draw_places(table: CodeTable, rows: int, seed: int, stream: int = 1) -> NDArray[np.int64]:
    return np.random.default_rng([seed, stream]).integers(0, table.rows, rows)


def read_release_rows(release: str | Path, encoding: EncodingPlan, spec: ReleaseSpec, table: str) -> Rows:
    """Return the synthetic rows of a released folder; rows of a further ``table`` come with the rows above.

    Raises RequestError if it is not a release or has other columns.
    """
    field = "forecast.earlier"
    try:
        folder = find_release(str(release), load_settings(None), field)
        manifest = read_manifest(folder)
        read_public_spec(manifest, field)
        check_measured(manifest, spec, field)
        read = lambda name: pq.read_table(check_released_file(folder, manifest, name, field))  # noqa: E731
        if table:
            released = read_public_spec(manifest, field)
            if table not in released.further_tables:
                raise RequestError(
                    f"{manifest.run} has no further table {table!r}", "Name a release that has it", field
                )
            rows = read_table_pair(released, table, read)
        else:
            rows = pa.concat_tables(map(read, list_synthetic_names(manifest)))
    except (RequestError, OSError, pa.ArrowException) as error:
        if isinstance(error, RequestError):
            raise error.about(field) from None
        raise RequestError(f"{release} cannot be read", "Name a released folder", field) from None
    return _read_rows(rows, encoding, spec, field)


def read_public_rows(table: str | Path, encoding: EncodingPlan, spec: ReleaseSpec) -> Rows:
    """Return the rows of a public table.

    Raises RequestError if it does not fit the spec, and for the spec's own table, which is private.
    """
    path = expand_path(table, "forecast.public")
    private = [Path(place) for place in spec.private_places if not is_url(place)]
    if path.exists() and any(place.exists() and path.samefile(place) for place in private):
        raise RequestError(
            "is the spec's own table, which is private", "Name a public table of the same columns", "forecast.public"
        )
    return _read_rows(str(path), encoding, spec, "forecast.public")


def _read_rows(table: str | pa.Table, encoding: EncodingPlan, spec: ReleaseSpec, field: str) -> Rows:
    opened = open_table(table, encoding, spec, field)
    codes = opened.read().fine
    if not codes.rows:
        raise RequestError("has no rows", "Name a table with rows", field)
    return codes, pa.Table.from_batches(opened.batches())


def list_nullable(spec: ReleaseSpec) -> tuple[str, ...]:
    """Return nullable columns: made-up rows have no nulls, which decide the error of their means."""
    return tuple(name for name, column in spec.columns.items() if getattr(column, "nullable", False))


def assume_rows(encoding: EncodingPlan, rows: int, strength: float, seed: int) -> CodeTable:
    """Return made-up rows in fine codes: columns of a usual shape, which depend on one latent variable.

    Shares of numbers and dates rise to a hump at a seventh of their range and fall; the i-th largest category has a
    share proportional to 1 / i^CATEGORY_SKEW.  Column c has the correlation sqrt(``strength``) u_c^2 with the latent
    variable, with u_c evenly spaced from 0 to 1 in random order.  Two columns (the normal variables behind their bins)
    have the correlation ``strength`` (u_a u_b)^2, from 0 to ``strength``, mostly weak.
    """
    rng = np.random.default_rng([seed, 2])
    codecs = encoding.codecs
    pulls = draw_pulls(len(codecs), strength, rng)
    hidden = ndtri(rng.random(rows))
    columns = []
    for codec, weight in zip(codecs, pulls, strict=True):
        moved = weight * hidden + np.sqrt(1 - weight**2) * ndtri(rng.random(rows))
        place = np.empty(rows)
        place[np.argsort(moved, kind="stable")] = (np.arange(rows) + 0.5) / rows
        columns.append(_draw_codes(codec, place, rng))
    return CodeTable(encoding.domain, tuple(columns))


def draw_pulls(columns: int, strength: float, rng: np.random.Generator) -> Floats:
    """Return each column's correlation with the latent variable of :func:`assume_rows`, shape (columns,)."""
    return np.sqrt(strength) * np.linspace(0, 1, columns + 1)[1:][rng.permutation(columns)] ** 2


def assume_shares(codec: Codec, rng: np.random.Generator) -> Floats:
    """Return the shares of a column's bins in :func:`assume_rows`, shape (bins,), summing to 1."""
    shares = 1.0 / (1.0 + rng.permutation(int(codec.groups.max()) + 1)) ** CATEGORY_SKEW
    for start, end in codec.in_order:
        middles = (np.arange(end - start) + 0.5) / max(end - start, 1)
        shares[start:end] = middles * (1 - middles) ** 6
    return np.asarray(shares / shares.sum())


def _draw_codes(codec: Codec, place: Floats, rng: np.random.Generator) -> NDArray[np.uint32]:
    """Return a fine code for each quantile ``place``, 0 to 1: its bin, then a uniformly drawn code of the bin."""
    groups = codec.groups
    bins, first, sizes = np.unique(groups, return_index=True, return_counts=True)
    chosen = np.minimum(np.searchsorted(np.cumsum(assume_shares(codec, rng)), place), len(bins) - 1)
    inside = (rng.random(len(place)) * sizes[chosen]).astype(np.int64)
    codes: NDArray[np.uint32] = (first[chosen] + inside).astype(choose_code_dtype(codec.size))
    return codes


def assume_chances(encoding: EncodingPlan, strength: float, seed: int) -> dict[str, Floats]:
    """Return attribute -> probability of each fine code given each latent value, shape (PLACES, codes).

    ``strength``: see :func:`privsyn.evaluation.forecasts.stand_in.assume_rows`, 0 to 1.
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
            shown = slice(None) if padded_result or not self.padded else slice(-1)
            chances = [self.chances[attribute][:, shown] for attribute in clique]
            table = np.rint(self.rows * _average(chances)).astype(np.int64)
            self.seconds[0] += time.process_time() - start
            yield table


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
