"""Step *compress domain* (postprocess): filter and combine low counts, from the noisy one-ways alone.

Paper: Algorithm 3 line 2 and section 5.3, "Filter and Combine Low-count Values".  Not in the paper: with a public
prior, noisy counts are first shrunk towards the prior's counts, if Stein's risk estimate is lower that way.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from privsyn.data_contracts.mechanism_options import Compression
from privsyn.data_contracts.receipts import Query
from privsyn.data_contracts.tables import build_code_schema
from privsyn.tasks.codecs.cells import Binning, list_counted_alone, list_level_attributes
from privsyn.tasks.estimation.fine_weights import empty_doubtful, weigh_inside
from privsyn.tasks.estimation.recode import (
    AttributeRecode,
    Floats,
    Recode,
    are_worth_joining,
    as_one_code,
    build_coarse_domain,
    compress_attribute,
    count_codes,
    weigh_by_chance,
    with_levels,
)
from privsyn.tasks.estimation.towards_prior import shrink_towards_prior
from privsyn.tasks.kernels.counting import CodeTable, build_code_batch

LeastCodes = Mapping[str, Sequence[int]]
"""Attribute -> the least number of codes in each section of its ordered bins; 1 for attributes it lacks."""

NO_LEAST: LeastCodes = {}
"""No attribute has a minimum above one code."""


def compress_domain(
    answers: Sequence[NDArray[np.int64]],
    queries: Sequence[Query],
    binning: Binning,
    settings: Compression,
    least: LeastCodes = NO_LEAST,
) -> Recode:
    """Recode every attribute by its noisy one-way and its public bins.

    An attribute with levels gets the counts of all levels; the levels' own attributes, and attributes with ``chances``,
    get one code.  With ``settings.equal_mass``, ordered attributes with open bins get
    :func:`privsyn.tasks.estimation.recode.count_codes` codes of equal noisy mass, or ``least`` if that is more.
    """
    sigma = {q.attributes[0]: q.sigma for q in queries}
    noisy = {q.attributes[0]: y.astype(np.float64) for q, y in zip(queries, answers, strict=True)}
    related = [q for q in queries if binning[q.attributes[0]].chances is None]
    counted = {q.attributes[0]: noisy[q.attributes[0]] for q in related}
    codes = count_codes(counted, related) if settings.enabled and settings.equal_mass else None
    recode: Recode = {}
    for a, y in with_levels(noisy, sigma, binning).items():
        bins = binning[a]
        recode[a] = compress_attribute(y, sigma[a], bins, settings)
        if bins.chances is not None:
            recode[a] = weigh_by_chance(recode[a], bins.chances)
        elif codes is not None and bins.in_order and bins.is_open:
            fewest = least.get(a, ())
            if are_worth_joining(recode[a].size, max(codes, sum(fewest))):
                recode[a] = compress_attribute(y, sigma[a], bins, settings, codes, fewest)
    return recode | {a: as_one_code(recode[a]) for a in list_level_attributes(binning)}


def recode_rows(batches: Iterable[pa.RecordBatch], recode: Recode) -> Iterator[pa.RecordBatch]:
    """Yield coarse code batches (contract RECODED_ROWS) for fine ones: a row-by-row look-up (transform).

    A filtered value gets the code ``size``; counting leaves it out of the marginals.
    """
    schema = build_code_schema(build_coarse_domain(recode), padded=True)
    for batch in batches:
        yield build_code_batch(schema, (recode[a].coarse[np.asarray(batch.column(a))] for a in schema.names))


def compress_towards(
    public: CodeTable,
    answers: Sequence[NDArray[np.int64]],
    queries: Sequence[Query],
    binning: Binning,
    settings: Compression,
    least: LeastCodes = NO_LEAST,
) -> Recode:
    """Compress by noisy counts shrunk towards the counts of the ``public`` table's rows in fine codes.

    Attributes with levels are not shrunk.
    """
    not_drawn = {*list_counted_alone(binning), *(a for a, bins in binning.items() if bins.levels)}
    looks = [(q.attributes[0], y) for q, y in zip(queries, answers, strict=True)]
    noisy = {a: y.astype(np.float64) for a, y in looks if a not in not_drawn}
    sigma = {q.attributes[0]: q.sigma for q in queries if q.attributes[0] in noisy}
    recode = compress_domain(answers, queries, binning, settings, least)
    if not noisy:
        return recode
    for a, drawn in shrink_towards_prior(noisy, sigma, {a: public.column(a) for a in noisy}).items():
        nobody = np.bincount(public.column(a), minlength=len(drawn.mean)) == 0
        empty = np.where(nobody, empty_doubtful(drawn.mean, sigma[a], binning[a]), drawn.mean)
        drawn = drawn._replace(mean=empty)
        if _estimate_risk(drawn.mean, noisy[a], sigma[a], drawn.follows) >= _estimate_risk_of_codes(
            recode[a], noisy[a], sigma[a]
        ):
            continue
        noise, bins = float(np.sqrt(drawn.variance.mean())), binning[a]
        codes = recode[a].size if settings.equal_mass and bins.in_order and bins.is_open else None
        r = compress_attribute(drawn.mean, noise, bins, settings, codes, least.get(a, ()))
        weight = np.zeros(len(r.coarse))
        weight[r.kept] = weigh_inside(drawn.mean[r.kept], 0.0, bins.groups[r.kept], r.coarse[r.kept])
        recode[a] = replace(r, variance=drawn.variance, weight=weight)
    return recode


def _estimate_risk(estimate: Floats, noisy: Floats, sigma: float, follows: float) -> float:
    """Return Stein's unbiased estimate of a squared error, in units of the noise variance and up to a constant.

    ``follows``: the sum over counts of the derivative of each estimate by its own noisy count.
    """
    return float(((estimate - noisy) ** 2).sum()) / sigma**2 + 2 * follows


def _estimate_risk_of_codes(recode: AttributeRecode, noisy: Floats, sigma: float) -> float:
    """Return the same risk for the fine counts that a recode implies: each code's count spread over its cells."""
    target = np.where(recode.kept, recode.coarse, recode.size)
    cells = np.bincount(target, minlength=recode.size + 1)
    sums = np.bincount(target, weights=noisy, minlength=recode.size + 1)
    estimate, even = sums[target] * recode.weight, sums[target] / cells[target]
    departure_after = np.bincount(target, weights=(estimate - even) ** 2, minlength=recode.size + 1)
    departure_before = np.bincount(target, weights=(noisy - even) ** 2, minlength=recode.size + 1)
    share_followed = np.sqrt(
        np.divide(departure_after, departure_before, out=np.zeros_like(departure_after), where=departure_before > 0)
    ).clip(max=1.0)
    follows = (1 + share_followed * (cells - 1))[: recode.size].sum()
    return _estimate_risk(estimate, noisy, sigma, float(follows))
