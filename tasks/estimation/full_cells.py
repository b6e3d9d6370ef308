"""The ladder: cells of ordered columns that a first look splits where rows are.

Not in the paper.  Bounds are public knowledge, and wide: equal cells between them would hold nearly all rows in one.
So the first look counts *rungs*, cells that double in width outwards from 0 (of dates backwards from the last one),
which follow from bounds and resolution alone.  Each rung on which rows stand is split into parts of equal width, as
many as its share of the rows says; codes, one-ways and pairs are of these.  It is a tree of cells whose second level is
there where rows are (the first two levels of PrivTree: Zhang, Xiao and Xie, SIGMOD 2016), on a grid of relative
precision.

All here is post-processing of released counts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from privsyn.data_contracts.receipts import Query
from privsyn.data_contracts.tables import CUT_CELLS
from privsyn.tasks.codecs import EncodingPlan
from privsyn.tasks.codecs.cells import CutCell, compute_width
from privsyn.tasks.codecs.ordered import OrderedCodec

STANDS = 3.0
"""Noisy count of a rung, in standard deviations of its noise, from which on rows seem to stand there."""

PARTS = 48
"""Parts of a column's rungs together, about."""

NOISE_A_PART = 2.0
"""Rows of a part at least, in standard deviations of its noise in the one-way, if all parts of a rung had as many."""


def list_looked_at(plan: EncodingPlan) -> tuple[OrderedCodec, ...]:
    """Return the codecs of the columns whose cells are on a ladder."""
    return plan.on_ladder


def find_full_cells(
    codecs: Sequence[OrderedCodec], looks: Mapping[str, tuple[Query, NDArray[Any]]], sigmas: Mapping[str, float]
) -> list[CutCell]:
    """Return the rungs on which rows stand, each with its parts.

    looks: attribute -> the first look at its rungs; sigmas: attribute -> noise of its one-way, still to be asked.
    """
    cuts = []
    for codec in codecs:
        query, noisy = looks[codec.attribute]
        counts = np.maximum(noisy[: len(codec.cells.fine)].astype(np.float64), 0.0)
        standing = counts >= STANDS * query.sigma
        total = max(float(counts[standing].sum()), 1.0)
        for code in np.flatnonzero(standing & ~codec.stands_alone[: len(counts)]):
            cell, grid = codec.cells.fine[code], codec.value_lattice
            values = PARTS if grid is None else compute_width(cell, grid)
            by_noise = counts[code] / (NOISE_A_PART * sigmas[codec.attribute])
            parts = int(max(1, min(values, PARTS * counts[code] / total, by_noise)))
            cuts.append(CutCell(codec.attribute, int(code), parts))
    return cuts


def tabulate_cuts(cuts: Sequence[CutCell]) -> pa.Table:
    """Return the contract CUT_CELLS."""
    return pa.Table.from_pylist([cut._asdict() for cut in cuts], schema=CUT_CELLS.schema)


def read_cuts(table: pa.Table) -> tuple[CutCell, ...]:
    """Return the cut cells of a CUT_CELLS table."""
    return tuple(CutCell(**row) for row in table.to_pylist())
