"""The step *compress domain* with a public prior: bins by noisy counts drawn towards those of the prior's rows.

Not in the paper.  An attribute is drawn only where Stein's estimate of the risk says that this is better than what its
noisy counts alone would become.  Post-processing with a public table costs no budget.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from privsyn.data_contracts.receipts import Query
from privsyn.data_contracts.step_options import Compression
from privsyn.tasks.codecs.level_codecs import NO_LEVELS, Levels, level_attributes
from privsyn.tasks.compress_domain import (
    AttributeRecode,
    Floats,
    Recode,
    Sections,
    compress_attribute,
    compress_domain,
)
from privsyn.tasks.estimation.fine_weights import weights_inside
from privsyn.tasks.estimation.towards_prior import towards_prior
from privsyn.tasks.kernels.counting import CodeTable


def compress_towards(
    public: CodeTable,
    answers: Sequence[NDArray[np.int64]],
    queries: Sequence[Query],
    groups: Mapping[str, NDArray[np.int32]],
    settings: Compression,
    in_order: Mapping[str, Sections] | None = None,
    added: Mapping[str, int] | None = None,
    levels: Levels = NO_LEVELS,
) -> Recode:
    """As :func:`compress_domain`, by noisy counts drawn towards those of the ``public`` table's rows in fine codes.

    Attributes with ``levels`` are not drawn.
    """
    beside = {*levels, *level_attributes(levels)}
    looks = [(q.attributes[0], y) for q, y in zip(queries, answers, strict=True)]
    noisy = {a: y.astype(np.float64) for a, y in looks if a not in beside}
    sigma = {q.attributes[0]: q.sigma for q in queries if q.attributes[0] in noisy}
    found = compress_domain(answers, queries, groups, settings, in_order, added, levels)
    if not noisy:
        return found
    for a, drawn in towards_prior(noisy, sigma, {a: public.column(a) for a in noisy}).items():
        if _risk(drawn.mean, noisy[a], sigma[a], drawn.follows) >= _risk_of_codes(found[a], noisy[a], sigma[a]):
            continue
        noise = float(np.sqrt(drawn.variance.mean()))
        sections, unlisted = (in_order or {}).get(a, ()), (added or {}).get(a)
        r = compress_attribute(drawn.mean, noise, groups[a], settings, sections, unlisted)
        weight = np.zeros(len(r.coarse))
        weight[r.kept] = weights_inside(drawn.mean[r.kept], 0.0, groups[a][r.kept], r.coarse[r.kept])
        found[a] = replace(r, variance=drawn.variance, weight=weight)
    return found


def _risk(estimate: Floats, noisy: Floats, sigma: float, follows: float) -> float:
    """Stein's unbiased estimate of a squared error, in units of the noise's variance and less a constant; ``follows``:
    the sum of how much each count follows its own noise."""
    return float(((estimate - noisy) ** 2).sum()) / sigma**2 + 2 * follows


def _risk_of_codes(recode: AttributeRecode, noisy: Floats, sigma: float) -> float:
    """The same of the fine counts that the recode stands for: a code's count, spread inside it."""
    target = np.where(recode.kept, recode.coarse, recode.size)
    cells = np.bincount(target, minlength=recode.size + 1)
    sums = np.bincount(target, weights=noisy, minlength=recode.size + 1)
    estimate, even = sums[target] * recode.weight, sums[target] / cells[target]
    left = np.bincount(target, weights=(estimate - even) ** 2, minlength=recode.size + 1)
    before = np.bincount(target, weights=(noisy - even) ** 2, minlength=recode.size + 1)
    kept = np.sqrt(np.divide(left, before, out=np.zeros_like(left), where=before > 0)).clip(max=1.0)
    follows = (1 + kept * (cells - 1))[: recode.size].sum()
    return _risk(estimate, noisy, sigma, float(follows))
