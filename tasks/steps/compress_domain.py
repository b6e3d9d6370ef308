"""Step *compress domain* (postprocess): filter and combine low counts, from the noisy one-ways alone.

Paper: Algorithm 3 line 2 and section 5.3, "Filter and Combine Low-count Values".  With a public prior (not in the
paper), noisy counts are first drawn towards those of the prior's rows, where Stein's estimate of the risk says that
this is better than the noisy counts alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from functools import partial

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from privsyn.data_contracts.receipts import Query
from privsyn.data_contracts.step_options import Compression
from privsyn.data_contracts.tables import build_code_schema
from privsyn.tasks.codecs.cells import Points
from privsyn.tasks.codecs.level_codecs import NO_LEVELS, Levels, list_level_attributes
from privsyn.tasks.estimation.fine_weights import weigh_inside
from privsyn.tasks.estimation.level_counts import with_levels
from privsyn.tasks.estimation.recode import (
    NO_CHANCES,
    NOWHERE,
    AttributeRecode,
    Floats,
    Recode,
    Sections,
    are_worth_joining,
    as_one_code,
    build_coarse_domain,
    compress_attribute,
    count_codes,
    weigh_by_chance,
)
from privsyn.tasks.estimation.towards_prior import shrink_towards_prior
from privsyn.tasks.kernels.counting import CodeTable


def compress_domain(
    answers: Sequence[NDArray[np.int64]],
    queries: Sequence[Query],
    groups: Mapping[str, NDArray[np.int32]],
    settings: Compression,
    in_order: Mapping[str, Sections] | None = None,
    added: Mapping[str, int] | None = None,
    levels: Levels = NO_LEVELS,
    open_bins: AbstractSet[str] | None = None,
    points: Mapping[str, Points] = NOWHERE,
    chances: Mapping[str, Floats] = NO_CHANCES,
) -> Recode:
    """Recode every attribute by its noisy one-way and its public bins.

    ``groups``: fine code -> public bin, by attribute; ``in_order``: its sections of intervals, by attribute, none for
    attributes that it does not name; ``added``: the bin of what its spec does not list, by attribute; ``levels``: of
    attributes with very many values, whose counts are those of all levels, and the levels' own attributes one code.
    With ``settings.equal_mass``, attributes in order whose bins are open have as many codes of equal noisy mass as
    :func:`privsyn.tasks.estimation.recode.count_codes` says, where these are enough fewer than otherwise;
    ``open_bins``: their names, None for all.  ``points``: the cells of one value, by attribute.
    ``chances``: of attributes counted alone, the share of each code by chance: they have one code.
    """
    intervals, unlisted = in_order or {}, added or {}
    sigma = {q.attributes[0]: q.sigma for q in queries}
    noisy = {q.attributes[0]: y.astype(np.float64) for q, y in zip(queries, answers, strict=True)}
    related = [q for q in queries if q.attributes[0] not in chances]
    counted = {q.attributes[0]: noisy[q.attributes[0]] for q in related}
    codes = count_codes(counted, related) if settings.enabled and settings.equal_mass else None
    found: Recode = {}
    for a, y in with_levels(noisy, sigma, levels).items():
        compress = partial(
            compress_attribute,
            y,
            sigma[a],
            groups[a],
            settings,
            in_order=intervals.get(a, ()),
            added=unlisted.get(a),
            levels=[level.of for level in levels.get(a, ())],
            points=points.get(a),
        )
        found[a] = compress()
        if codes is not None and a in intervals and _is_open(a, open_bins) and are_worth_joining(found[a].size, codes):
            found[a] = compress(codes=codes)
    found |= {a: as_one_code(found[a]) for a in list_level_attributes(levels)}
    return found | {a: weigh_by_chance(found[a], chances[a]) for a in chances.keys() & found.keys()}


def _is_open(attribute: str, open_bins: AbstractSet[str] | None) -> bool:
    return open_bins is None or attribute in open_bins


def recode_rows(batches: Iterable[pa.RecordBatch], recode: Recode) -> Iterator[pa.RecordBatch]:
    """Yield fine code batches -> coarse code batches (contract RECODED_ROWS): a row-by-row look-up (transform).

    A filtered value gets the code ``size``; counting leaves it out of the marginals.
    """
    schema = build_code_schema(build_coarse_domain(recode), padded=True)
    for batch in batches:
        arrays = [
            pa.array(recode[f.name].coarse[np.asarray(batch.column(f.name))].astype(f.type.to_pandas_dtype()))
            for f in schema
        ]
        yield pa.RecordBatch.from_arrays(arrays, schema=schema)


def compress_towards(
    public: CodeTable,
    answers: Sequence[NDArray[np.int64]],
    queries: Sequence[Query],
    groups: Mapping[str, NDArray[np.int32]],
    settings: Compression,
    in_order: Mapping[str, Sections] | None = None,
    added: Mapping[str, int] | None = None,
    levels: Levels = NO_LEVELS,
    open_bins: AbstractSet[str] | None = None,
    points: Mapping[str, Points] = NOWHERE,
    chances: Mapping[str, Floats] = NO_CHANCES,
) -> Recode:
    """Compress by noisy counts drawn towards those of the ``public`` table's rows in fine codes.

    Attributes with ``levels`` are not drawn.
    """
    beside = {*levels, *list_level_attributes(levels), *chances}
    looks = [(q.attributes[0], y) for q, y in zip(queries, answers, strict=True)]
    noisy = {a: y.astype(np.float64) for a, y in looks if a not in beside}
    sigma = {q.attributes[0]: q.sigma for q in queries if q.attributes[0] in noisy}
    found = compress_domain(answers, queries, groups, settings, in_order, added, levels, open_bins, points, chances)
    if not noisy:
        return found
    for a, drawn in shrink_towards_prior(noisy, sigma, {a: public.column(a) for a in noisy}).items():
        if _estimate_risk(drawn.mean, noisy[a], sigma[a], drawn.follows) >= _estimate_risk_of_codes(
            found[a], noisy[a], sigma[a]
        ):
            continue
        noise = float(np.sqrt(drawn.variance.mean()))
        sections, unlisted = (in_order or {}).get(a, ()), (added or {}).get(a)
        codes = found[a].size if settings.equal_mass and sections and _is_open(a, open_bins) else None
        r = compress_attribute(
            drawn.mean, noise, groups[a], settings, sections, unlisted, codes=codes, points=points.get(a)
        )
        weight = np.zeros(len(r.coarse))
        weight[r.kept] = weigh_inside(drawn.mean[r.kept], 0.0, groups[a][r.kept], r.coarse[r.kept])
        found[a] = replace(r, variance=drawn.variance, weight=weight)
    return found


def _estimate_risk(estimate: Floats, noisy: Floats, sigma: float, follows: float) -> float:
    """Return Stein's unbiased estimate of a squared error, in units of the noise's variance and less a constant.

    ``follows``: the sum of how much each count follows its own noise.
    """
    return float(((estimate - noisy) ** 2).sum()) / sigma**2 + 2 * follows


def _estimate_risk_of_codes(recode: AttributeRecode, noisy: Floats, sigma: float) -> float:
    """Return the same of the fine counts that the recode stands for: a code's count, spread inside it."""
    target = np.where(recode.kept, recode.coarse, recode.size)
    cells = np.bincount(target, minlength=recode.size + 1)
    sums = np.bincount(target, weights=noisy, minlength=recode.size + 1)
    estimate, even = sums[target] * recode.weight, sums[target] / cells[target]
    left = np.bincount(target, weights=(estimate - even) ** 2, minlength=recode.size + 1)
    before = np.bincount(target, weights=(noisy - even) ** 2, minlength=recode.size + 1)
    kept = np.sqrt(np.divide(left, before, out=np.zeros_like(left), where=before > 0)).clip(max=1.0)
    follows = (1 + kept * (cells - 1))[: recode.size].sum()
    return _estimate_risk(estimate, noisy, sigma, float(follows))
