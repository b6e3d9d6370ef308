"""Step *pair rows* (transform): of each person with two rows and more one row and the next one, in codes.

Not in the paper.  The pair is drawn by a public rule from the person's own rows (tasks/panels/choose_rows.py), so one
person is one record of the result, however many rows it has.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from privsyn.data_contracts.domain import Domain
from privsyn.data_contracts.panels import name_next
from privsyn.data_contracts.tables import build_code_schema
from privsyn.tasks.codecs import EncodingPlan
from privsyn.tasks.panels.choose_rows import KeptRuns, Passes
from privsyn.tasks.panels.transition_codes import TransitionCodes
from privsyn.tasks.steps.encode import Repairs, encode_batch, iterate_persons


def build_pair_domain(codes: Mapping[str, TransitionCodes]) -> Domain:
    """Return the domain of the pairs: a row's codes, and those of the next one, the last for "as before"."""
    sizes: dict[str, int] = {}
    for a, c in codes.items():
        sizes |= {a: c.size, name_next(a): c.size + 1}
    return Domain.of(sizes)


def pair_rows(passes: Passes, plan: EncodingPlan, codes: Mapping[str, TransitionCodes]) -> Iterator[pa.RecordBatch]:
    """Yield the pairs as codes of :func:`build_pair_domain`, padded: a filtered value has the code ``size``.

    "As before" is said of a next row whose fine code is that of the row.  Adding or removing one person adds or removes
    at most one record.
    """
    schema = build_code_schema(build_pair_domain(codes), padded=True)
    for runs in iterate_persons(passes, plan):
        first, after = _read_pairs(passes, plan, runs)
        arrays = []
        for a, c in codes.items():
            size, of = c.size, c.recode.coarse
            row, moved = of[first[a]], of[after[a]]
            moved = np.where(moved == size, size + 1, moved)
            arrays += [row, np.where((first[a] == after[a]) & (row < size), size, moved)]
        columns = [pa.array(v.astype(f.type.to_pandas_dtype())) for v, f in zip(arrays, schema, strict=True)]
        yield pa.RecordBatch.from_arrays(columns, schema=schema)


Fine = dict[str, NDArray[np.int64]]


def _read_pairs(passes: Passes, plan: EncodingPlan, runs: KeptRuns) -> tuple[Fine, Fine]:
    """Return the fine codes of the drawn rows and of the rows after them, person by person."""
    places = runs.list_pairs()
    wanted = np.concatenate(places)
    order = np.argsort(wanted, kind="stable")
    wanted, start = wanted[order], 0
    parts: dict[str, list[NDArray[np.int64]]] = {a: [np.empty(0, np.int64)] for a in plan.following}
    of_rows = plan.of_rows
    for batch in passes():
        low, high = np.searchsorted(wanted, [start, start + batch.num_rows])
        if high > low:
            codes = encode_batch(batch.take(pa.array(wanted[low:high] - start)), of_rows, Repairs())
            for a, found in parts.items():
                found.append(np.asarray(codes.column(a)).astype(np.int64))
        start += batch.num_rows
    both: Fine = {}
    for a, found in parts.items():
        both[a] = np.empty(len(order), np.int64)
        both[a][order] = np.concatenate(found)
    middle = len(places[0])
    return {a: v[:middle] for a, v in both.items()}, {a: v[middle:] for a, v in both.items()}
