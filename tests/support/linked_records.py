"""The records that looks at linked rows are counted over: what one unit's leaving changes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

import numpy as np
import pyarrow as pa

from privsyn.engine.request import Request
from privsyn.tasks.codecs.encode_rows import Repairs
from privsyn.tasks.estimation.recode import AttributeRecode
from privsyn.tasks.panels.choose_rows import build_runs_domain, runs_to_batches
from privsyn.tasks.panels.transitions import TransitionCodes
from privsyn.tasks.steps import encode
from privsyn.tasks.steps.encode import (
    EncodedPersons,
    PersonEncoding,
    StoredRows,
    keep_rows,
    list_without_rows,
    pair_rows,
)

Counts = Counter[tuple[int, ...]]


def identity_recode(request: Request) -> dict[str, AttributeRecode]:
    """Every fine code is a code."""
    found = {}
    for a, size in zip(request.encoding.domain.attributes, request.encoding.domain.sizes, strict=True):
        codes = np.arange(size, dtype=np.int32)
        found[a] = AttributeRecode(codes, codes >= 0, np.ones(size), np.ones(size), np.ones(size))
    return found


def count_batches(made: Iterable[pa.RecordBatch]) -> Counts:
    """How often each row stands in the batches."""
    return Counter(row for batch in made for row in zip(*(c.to_pylist() for c in batch.columns), strict=True))


def choose_and_encode(table: pa.Table, request: Request) -> tuple[PersonEncoding, list[EncodedPersons]]:
    """What *encode* chooses of a table of linked rows, and what it stores of it."""

    def batches(repairs: object = None) -> list[pa.RecordBatch]:
        return table.to_batches(max_chunksize=17)

    persons = PersonEncoding.of(batches, request.encoding)
    return persons, list(persons.encode(batches, request.encoding, Repairs()))


def count_encoded(table: pa.Table, request: Request) -> Counts:
    """The records that one-ways, scores and marginals are counted over."""

    def batches(repairs: object = None) -> list[pa.RecordBatch]:
        return table.to_batches(max_chunksize=17)

    return count_batches(encode.encode(batches, request.encoding, request.spec.unit, Repairs()))


def count_kept(table: pa.Table, request: Request) -> Counts:
    """The kept rows that columns are counted over."""
    _, stored = choose_and_encode(table, request)
    return count_batches(keep_rows((made.kept for made in stored), request.encoding, identity_recode(request)))


def count_paired(table: pa.Table, request: Request, codes: Mapping[str, TransitionCodes]) -> Counts:
    """The records that transitions, or pairs of members, are counted over."""
    persons, stored = choose_and_encode(table, request)
    runs = list(runs_to_batches(persons.list_runs(), build_runs_domain(request.encoding)))
    rows = StoredRows(lambda: (m.kept for m in stored), lambda: (m.numbers_of_rows for m in stored), lambda: runs)
    return count_batches(pair_rows(rows, request.encoding, codes))


def count_without(table: pa.Table, request: Request) -> Counts:
    """The records that persons, or households, without rows are counted over."""
    _, stored = choose_and_encode(table, request)
    made = list_without_rows((m.without for m in stored), request.encoding, identity_recode(request))
    return count_batches(made)
