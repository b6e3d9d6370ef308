"""Step *decode* (postprocess): synthetic codes to rows with the source's names, types and values.

Belongs here: drawing the fine code inside a coarse one, values inside a fine cell, and the random row
order.  Does not belong here: the codecs (tasks/codecs/), files.
Paper: section 5.3 (a combined value is replaced by the values it represents, by the noisy one-way);
bins as in DPSyn, section 5.4.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tasks.codecs import EncodingPlan
from tasks.compress_domain import AttributeRecode, Recode
from tasks.kernels.counting import CodeTable


def decode(codes: CodeTable, recode: Recode, plan: EncodingPlan, column_order: Sequence[str], seed: int) -> pa.Table:
    """The synthetic table: columns in ``column_order``, types of the spec, rows in random order.

    Postprocessing of noisy tables only; the same ``seed`` gives the same rows.
    """
    rng = np.random.default_rng([seed, 0xDEC0DE])
    order = rng.permutation(codes.rows)
    fine = {a: _fine_codes(codes.column(a)[order], recode[a], rng) for a in codes.domain.attributes}
    columns = plan.decode(fine, rng)
    ranges = plan.ranges()
    schema = pa.schema([pa.field(name, ranges[name].type, nullable=ranges[name].nullable) for name in column_order])
    return pa.table([columns[name] for name in column_order], schema=schema)


def _fine_codes(
    coarse: NDArray[np.unsignedinteger], recode: AttributeRecode, rng: np.random.Generator
) -> NDArray[np.int64]:
    """One fine code a row, drawn inside its coarse code by the recode's weights (inverse transform)."""
    members = np.flatnonzero(recode.kept)
    members = members[np.argsort(recode.coarse[members], kind="stable")]
    code = recode.coarse[members]
    cumulative = np.cumsum(recode.weight[members])
    # Each coarse code's weights sum to 1, so its members' share of the cumulative sum is [code, code + 1).
    draws = coarse + rng.random(len(coarse)) * (1 - 1e-9)
    position = np.searchsorted(cumulative, draws, side="right")
    first = np.searchsorted(code, np.arange(recode.size))
    last = np.append(first[1:], len(code)) - 1
    return members[np.clip(position, first[coarse], last[coarse])]
