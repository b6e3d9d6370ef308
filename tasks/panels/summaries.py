"""Figures of all kept rows of a person, such as whether a condition ever holds: of private rows, and of linked ones.

Which rows are kept follows from the person's own rows (choose_rows.py), so each figure does.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from privsyn.tasks.codecs import EncodingPlan
from privsyn.tasks.codecs.person_figures import SummaryCodec
from privsyn.tasks.panels.choose_rows import KeptRuns, Passes

Integers = NDArray[np.int64]


def summarize_runs(passes: Passes, plan: EncodingPlan, runs: KeptRuns) -> list[Integers]:
    """Return the code of each summary of the plan for every person of ``runs``, -1 for null; it reads the rows once."""
    book = plan.summaries[0].book
    behind = book.find_measured_columns([name for codec in plan.summaries for name in codec.node.columns])
    codecs = [c for c in plan.of_rows.codecs if not {*behind}.isdisjoint(c.ranges())]
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
    table = {name: pa.chunked_array(of).combine_chunks().take(pa.array(back)) for name, of in parts.items()}
    return compute_summaries(plan.summaries, table, runs.first)


def compute_summaries(
    summaries: tuple[SummaryCodec, ...], table: Mapping[str, pa.Array], first: NDArray[np.bool_]
) -> list[Integers]:
    """Return the code of each summary for every person, -1 for null.

    ``table``: the kept rows, person by person and in order; ``first``: where a person begins.
    """
    return [codec.compute(codec.book.read_table(table), first) for codec in summaries]
