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

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from privsyn.data_contracts.receipts import Query
from privsyn.data_contracts.tables import CUT_CELLS
from privsyn.tasks.codecs import EncodingPlan
from privsyn.tasks.codecs.cells import Bin, CutCell
from privsyn.tasks.codecs.ordered import OrderedCodec

STANDS, STANDS_APART = 3.0, 5.0
"""Least noisy count, in standard deviations of its noise, of a rung that is taken to have rows: near the clearest
rungs, and elsewhere, where there are many rungs and noise has many chances."""

GAP = 2
"""Consecutive rungs without rows that may lie between the clearest rungs and one near them."""

LONGEST_RUN = 6
"""Longest run of rungs whose counts are added up: rows may be spread over several rungs and stand out in none."""

PARTS = 48
"""About how many parts the rungs of a column are split into, where noise allows."""

LEAST_PARTS = 16
"""How many least widths rows must span for it to apply; with fewer, cells are narrower."""

NOISE_A_PART = 2.0
"""Least rows of a part, in standard deviations of the one-way's noise, if the rows of a rung were spread evenly."""

CROWDED, LONE = 0.1, 0.75
"""Largest shares of the rows that half of an equal bin, and a rung, may hold.  Above them, equal bins between the
bounds may be too wide for the data."""

CLEARLY_CROWDED = 8.0
"""Rows of half an equal bin, in standard deviations of its noise in the one-way, below which no finer bin says more."""

BEYOND = 1
"""Rungs beyond the outermost one with rows that are not in doubt: a rough look does not see the ends of tails."""


def list_looked_at(plan: EncodingPlan) -> tuple[OrderedCodec, ...]:
    """Return the codecs of the columns whose cells are on a ladder."""
    return plan.on_ladder


def count_most_cells(codec: OrderedCodec) -> int:
    """Return how many cells a column may have after the first look, at most: it follows from the spec alone.

    Each rung begins one; those with rows have twice PARTS in sum at most, as widths are powers of two; others have
    halves of equal bins.
    """
    low, high = codec.bounds
    return codec.size + 2 * PARTS + 2 * math.ceil((high - low) / codec.frame[1])


def choose_cells(
    codecs: Sequence[OrderedCodec], looks: Mapping[str, tuple[Query, NDArray[Any]]], sigmas: Mapping[str, float]
) -> list[CutCell]:
    """Return the cells of each column: narrow where rows stand, equal bins' halves elsewhere, rungs in doubt.

    looks: attribute -> the first look at its rungs; sigmas: attribute -> noise of its one-way, still to be asked.
    """
    return [cell for codec in codecs for cell in _make_cells(codec, *looks[codec.attribute], sigmas[codec.attribute])]


def _make_cells(codec: OrderedCodec, query: Query, noisy: NDArray[Any], sigma: float) -> Iterator[CutCell]:
    """Yield the cells of one column, ascending; the first one alone where equal bins between the bounds will do."""
    codes = [code for code, cell in enumerate(codec.cells.fine) if not cell.exact]
    rungs = [codec.cells.fine[code] for code in codes]
    counts = np.maximum(noisy[codes].astype(np.float64), 0.0)
    several = np.array([not codec.holds_one_value(rung) for rung in rungs])
    own = np.isin(codes, codec.cells.points)
    standing = _find_standing(noisy[codes] / query.sigma, ~own)
    total = max(float(counts[standing & several].sum()), 1.0)
    lone = counts[several & standing].max(initial=0.0) > LONE * total
    shared = np.where(standing & ~own, counts, 0.0)
    crowded = max(CROWDED * max(float(shared.sum()), 1.0), CLEARLY_CROWDED * sigma)
    hidden = standing.any() and not shared.any()  # most rows have a value of its own, and noise hides the others
    if not lone and not hidden and _estimate_fullest(codec, rungs, shared) <= crowded:
        yield CutCell(codec.attribute, rungs[0].low, doubtful=False)
        return
    body = np.ones(len(rungs), bool)
    if standing.any() and not hidden:
        first, last = int(np.argmax(standing)), len(rungs) - 1 - int(np.argmax(standing[::-1]))
        first, last = max(first - BEYOND, 0), min(last + BEYOND, len(rungs) - 1)
        while first > 0 and rungs[first - 1].low >= codec.ladder_origin:  # towards the origin rungs are narrow
            first -= 1
        while last < len(rungs) - 1 and rungs[last + 1].high <= codec.ladder_origin:
            last += 1
        body = (np.arange(len(rungs)) >= first) & (np.arange(len(rungs)) <= last)
    edges: dict[float, bool] = {}
    after_one_value = False
    origin, step = codec.frame
    span = sum(rung.high - rung.low for rung, stands in zip(rungs, standing, strict=True) if stands)
    least = codec.least_part if span >= LEAST_PARTS * codec.least_part else 0.0
    for rung, count, stands, inside, splits in zip(rungs, counts, standing, body, several, strict=True):
        if not inside or not splits:
            edges.setdefault(rung.low, not inside)
            after_one_value = not splits
            continue
        parts = min(PARTS * count / total, count / (NOISE_A_PART * sigma)) if stands else 1.0
        width = min((rung.high - rung.low) / max(parts, 1.0), step / 2) if stands else step / 2
        width = step * 2.0 ** math.floor(math.log2(width / step))
        width *= 2.0 ** max(math.ceil(math.log2(max(least, width) / width)), 0)
        begins_body = not edges or next(reversed(edges.values()))
        if begins_body or after_one_value or hidden:
            edges[rung.low] = False
        after_one_value = False
        for number in range(math.floor((rung.low - origin) / width) + 1, math.ceil((rung.high - origin) / width)):
            edges.setdefault(codec.settle_edge(origin + number * width), False)
    yield from (CutCell(codec.attribute, low, doubtful) for low, doubtful in sorted(edges.items()))


def _find_standing(counts: NDArray[np.float64], shared: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Return the rungs on which rows seem to stand, shape (rungs,).

    Those of the clearest run of rungs, clear ones near it, and very clear ones elsewhere.  ``counts``: noisy, in
    standard deviations of noise; ``shared``: which rungs are no value with a cell of its own: one that has most rows,
    such as 0, does not say where others are.
    """
    standing = counts >= STANDS_APART
    first, length, clearest = 0, 0, STANDS
    sums = np.append(0.0, np.cumsum(np.where(shared, counts, 0.0)))
    for rungs in range(1, min(LONGEST_RUN, len(counts)) + 1):
        clear = (sums[rungs:] - sums[:-rungs]) / np.sqrt(rungs)
        if clear.max() > clearest:
            first, length, clearest = int(np.argmax(clear)), rungs, float(clear.max())
    standing[first : first + length] = True
    for outwards in (range(first + length, len(counts)), range(first - 1, -1, -1)) if length else ():
        missed = 0
        for rung in outwards:
            missed = 0 if counts[rung] >= STANDS else missed + 1
            if missed > GAP:
                break
            standing[rung] |= counts[rung] >= STANDS
    return standing


def _estimate_fullest(codec: OrderedCodec, rungs: Sequence[Bin], counts: NDArray[np.float64]) -> float:
    """Return about how many rows the fullest half of an equal bin holds, those of one value left out.

    ``counts``: of the rungs, 0 for values with a cell of their own whatever the cells are.
    """
    (origin, step), held = codec.frame, defaultdict[int, float](float)
    for rung, count in zip(rungs, counts, strict=True):
        if count and not (codec.holds_one_value(rung) and step / 2 <= rung.high - rung.low):
            halves = max((rung.high - rung.low) / (step / 2), 1.0)
            held[math.floor(((rung.low + rung.high) / 2 - origin) / (step / 2))] += count / halves
    return max(held.values(), default=0.0)


def tabulate_cuts(cuts: Sequence[CutCell]) -> pa.Table:
    """Return the contract CUT_CELLS."""
    return pa.Table.from_pylist([cut._asdict() for cut in cuts], schema=CUT_CELLS.schema)


def read_cuts(table: pa.Table) -> tuple[CutCell, ...]:
    """Return the cut cells of a CUT_CELLS table."""
    return tuple(CutCell(**row) for row in table.to_pylist())
