"""Figures of all kept rows of a person, such as whether a condition ever holds, for private and linked rows.

A person's own rows decide which rows are kept (choose_rows.py), so they decide each figure too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from privsyn.tasks.codecs import EncodingPlan
from privsyn.tasks.estimation.recode import Recode
from privsyn.tasks.panels.choose_rows import KeptRuns, Passes
from privsyn.tasks.rules.intervals import Interval

Integers: TypeAlias = NDArray[np.int64]
Codes: TypeAlias = NDArray[Any]


def summarize_runs(passes: Passes, plan: EncodingPlan, runs: KeptRuns) -> list[Integers]:
    """Return the code of each summary for every person of ``runs``, -1 for null; reads the rows once."""
    book = plan.summaries[0].book
    behind = book.find_measured_columns([name for codec in plan.summaries for name in codec.node.columns])
    codecs = [c for c in plan.row_plan.codecs if not {*behind}.isdisjoint(c.ranges())]
    order = np.argsort(runs.place, kind="stable")
    wanted, start = runs.place[order], 0
    parts: dict[str, list[pa.Array]] = {}
    for batch in passes():
        low, high = np.searchsorted(wanted, [start, start + batch.num_rows])
        rows = batch.take(pa.array(wanted[low:high] - start))
        start += batch.num_rows
        for codec in codecs:
            for name, values in codec.read({source: rows.column(source) for source in codec.sources}).items():
                parts.setdefault(name, []).append(values)
    back = np.empty(len(order), np.int64)
    back[order] = np.arange(len(order))
    table = {name: pa.chunked_array(arrays).combine_chunks().take(pa.array(back)) for name, arrays in parts.items()}
    return [codec.compute(codec.book.read_table(table), runs.first) for codec in plan.summaries]


def summarize_linked(
    plan: EncodingPlan, recode: Recode, read: Callable[[str], Interval], first: NDArray[np.bool_]
) -> dict[str, Codes]:
    """Return the coarse codes of each summary for the persons of linked rows.

    ``read``: returns a column's possible values in each row, person by person and in order; ``first``: where a person
    begins.
    """
    codes_by_summary = {}
    for summary in plan.summaries:
        codes = summary.compute(summary.book.resolve(read), first)
        fine = summary.encode({summary.attribute: pa.array(codes, mask=codes < 0)})[0]
        summary_recode = recode[summary.attribute]
        codes_by_summary[summary.attribute] = np.minimum(summary_recode.coarse[fine], summary_recode.size - 1)
    return codes_by_summary


def list_groups(
    plan: EncodingPlan, recode: Recode, coarse: Mapping[str, Codes], figures: Mapping[str, Codes]
) -> list[tuple[Codes, Codes]]:
    """Return the groups of persons that questions use: by the linked rows, and by the records.

    ``coarse``: codes of records; ``figures``: summary -> codes from the linked rows.
    """
    groups = []
    for attributes in plan.person_groups:
        shape = [recode[a].size for a in attributes]
        by_rows, wanted = (
            [np.minimum(codes_by_attribute.get(a, coarse[a]), recode[a].size - 1) for a in attributes]
            for codes_by_attribute in (figures, coarse)
        )
        groups.append((np.ravel_multi_index(by_rows, shape), np.ravel_multi_index(wanted, shape)))
    return groups
