"""The records that looks at linked rows are counted over: what one unit's leaving changes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from privsyn.engine.request import Request
from privsyn.tasks.estimation.recode import AttributeRecode
from privsyn.tasks.panels.transition_codes import TransitionCodes
from privsyn.tasks.steps import encode
from privsyn.tasks.steps.keep_rows import keep_rows
from privsyn.tasks.steps.pair_rows import pair_rows


def identity_recode(request: Request) -> dict[str, AttributeRecode]:
    """Every fine code is a code."""
    found = {}
    for a, size in zip(request.encoding.domain.attributes, request.encoding.domain.sizes, strict=True):
        codes = np.arange(size, dtype=np.int32)
        found[a] = AttributeRecode(codes, codes >= 0, np.ones(size), np.ones(size), np.ones(size))
    return found


def count_encoded(table: pa.Table, request: Request) -> Counter[tuple[int, ...]]:
    """The records that one-ways, scores and marginals are counted over."""

    def batches(repairs: object = None) -> list[pa.RecordBatch]:
        return table.to_batches(max_chunksize=17)

    made = encode.encode(batches, request.encoding, request.spec.unit, encode.Repairs())
    return Counter(row for batch in made for row in zip(*(c.to_pylist() for c in batch.columns), strict=True))


def count_kept(table: pa.Table, request: Request) -> Counter[tuple[int, ...]]:
    """The kept rows that columns are counted over."""

    def batches(repairs: object = None) -> list[pa.RecordBatch]:
        return table.to_batches(max_chunksize=17)

    made = keep_rows(batches, request.encoding, request.spec.unit, identity_recode(request))
    return Counter(row for batch in made for row in zip(*(c.to_pylist() for c in batch.columns), strict=True))


def count_paired(table: pa.Table, request: Request, codes: Mapping[str, TransitionCodes]) -> Counter[tuple[int, ...]]:
    """The records that transitions, or pairs of members, are counted over."""
    made = pair_rows(lambda: table.to_batches(max_chunksize=17), request.encoding, codes)
    return Counter(row for batch in made for row in zip(*(c.to_pylist() for c in batch.columns), strict=True))
