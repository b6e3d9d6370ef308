"""What all one-ways together say of an attribute whose codes were decided by the first look at it alone.

Not in the paper.  Rows were recoded by the first look, so codes stay; but a value that was low in the noise of that
look may stand out once the one-way was measured again.  So bins are combined anew by the pooled counts, and what this
says of the fine counts takes the place of the pooled ones inside every code.  Where no larger marginal was measured,
nothing else speaks of the codes: their counts are those of the new decision, too, and the rows are those of
independent columns.  A function of released counts, so it costs no budget.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from privsyn.data_contracts.receipts import Query
from privsyn.data_contracts.step_options import Compression
from privsyn.tasks.codecs.binning import Binning, list_counted_alone
from privsyn.tasks.estimation.projection import apply_norm_sub
from privsyn.tasks.estimation.recode import (
    AttributeRecode,
    Floats,
    Recode,
    compress_attribute,
    estimate_total,
)


def recompress(
    pooled: Recode,
    queries: Sequence[Query],
    binning: Binning,
    settings: Compression,
) -> Recode:
    """Return recode with fine counts by a new decision on all one-ways, for attributes that ``queries`` asked again.

    pooled: codes of the first look with all one-ways pooled in (:func:`privsyn.tasks.estimation.recode.pool_one_ways`);
    queries: of all later looks.  Without ``settings.neighbours`` (the paper) nothing changes.
    """
    total = estimate_total(pooled)
    if not settings.enabled or not settings.neighbours or total <= 0:
        return pooled
    alone = all(len(q.attributes) == 1 for q in queries)
    found = dict(pooled)
    again = dict.fromkeys(q.attributes[0] for q in queries if len(q.attributes) == 1)
    counted_alone = set(list_counted_alone(binning))
    for a in (a for a in again if not pooled[a].by_prior and a not in counted_alone):
        own = compress_attribute(pooled[a].estimate, math.sqrt(pooled[a].noise), binning[a], settings)
        counts = _smooth_inside(own, pooled[a], total)
        estimate = counts if alone else pooled[a].estimate
        found[a] = replace(pooled[a], weight=_weigh_inside(pooled[a], counts), estimate=estimate)
    return found


def _smooth_inside(own: AttributeRecode, recode: AttributeRecode, total: float) -> Floats:
    """Return fine counts, not negative and of sum ``total``, smoothed inside the codes that the pooled counts make."""
    code, counts = own.coarse[own.kept], np.zeros(len(own.coarse))
    sums, cells = np.bincount(code, weights=recode.estimate[own.kept]), np.bincount(code)
    missing = (total - sums.sum()) * cells / cells.sum()  # by each code's noise variance, as consistency shares it
    counts[own.kept] = own.weight[own.kept] * apply_norm_sub(sums + missing, total)[code]
    return counts


def _weigh_inside(recode: AttributeRecode, counts: Floats) -> Floats:
    """Return the share of each fine code in its code by ``counts``; where a code has none, as it was."""
    kept = np.where(recode.kept, counts, 0.0)
    sums = np.bincount(recode.coarse, weights=kept, minlength=recode.size)[recode.coarse]
    return np.divide(kept, sums, out=recode.weight.copy(), where=sums > 0)
