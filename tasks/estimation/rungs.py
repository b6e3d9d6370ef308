"""The ladder: cells of ordered columns, split where a first look finds rows.

Not in the paper.  Public bounds are often wide, and one of the equal cells between them would hold nearly all rows.  So
the first look counts *rungs*: cells that double in width outwards from 0 (for dates, backwards from the last date).
Rungs follow from bounds and resolution alone.  Each rung with rows is split into parts of equal width, in number by its
share of the rows; codes, one-ways and pairs use these parts.  This is a tree of cells on a grid of relative precision,
with a second level only where rows are.  These are the first two levels of PrivTree (Zhang, Xiao and Xie, SIGMOD 2016).

This module only post-processes released counts.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from privsyn.data_contracts.domain import Domain
from privsyn.data_contracts.receipts import Query
from privsyn.data_contracts.tables import CUT_CELLS
from privsyn.tasks.codecs import EncodingPlan
from privsyn.tasks.codecs.cells import Bin, CutCell
from privsyn.tasks.codecs.ordered import OrderedCodec
from privsyn.tasks.estimation.fine_weights import CLEAR, find_clearest_run

RungCounts: TypeAlias = tuple[Query, NDArray[Any]]
"""The noisy counts of a column's rungs, and the query that asked for them."""

STANDS, STANDS_APART = 3.0, 5.0
"""Least noisy count of a rung with rows, in standard deviations of its noise: near the clearest rungs, and elsewhere,
where noise has many more rungs to stand out in.  The clearest rungs need STANDS if bounds may fit, and CLEAR if not."""

GAP = 2
"""Most consecutive rungs without rows between the clearest rungs and another rung near them."""

PARTS = 48
"""About how many parts the rungs of a column are split into, if noise allows."""

LEAST_PARTS = 16
"""The least width of a part applies only if the rows span this many of it; otherwise cells are narrower."""

NOISE_A_PART = 2.0
"""Least mean rows of a rung's parts, in standard deviations of the one-way's noise."""

CROWDED, LONE = 0.1, 0.75
"""Largest shares of the rows in half of an equal bin, and in a rung.  Above them, equal bins between the bounds may be
too wide for the data."""

NARROW = 0.125
"""Largest width of the rungs with rows, as a share of the bounds' width, at which bounds may be much too wide."""

SPREAD = 1.0
"""Noisy count of the widest rungs together, in standard deviations of its noise, above which bounds may fit."""

CLEARLY_CROWDED, CROWDED_IN_FITTING_BOUNDS = 8.0, 24.0
"""Rows of half an equal bin, in standard deviations of the one-way's noise, below which finer bins do not help: where
bounds may be much too wide, and elsewhere."""

BEYOND = 1
"""Rungs outside the outermost rung with rows that are not doubtful: a coarse look misses the ends of tails."""

EVENNESS = 2.0
"""How evenly the rows of a cell are taken to lie in it, as the concentration of a Dirichlet distribution."""


def list_looked_at(plan: EncodingPlan) -> tuple[OrderedCodec, ...]:
    """Return the codecs of the columns with a ladder."""
    return plan.on_ladder


def _count_added_cells(codec: OrderedCodec) -> int:
    """Return the most cells that a first look adds to a column's codes; it follows from the spec alone.

    Each rung begins a cell.  Rungs with rows have at most 2 PARTS cells in all, since widths are powers of two; other
    rungs have halves of equal bins.
    """
    low, high = codec.bounds
    return 2 * PARTS + 2 * math.ceil((high - low) / codec.frame[1])


def bound_domain(plan: EncodingPlan) -> Domain:
    """Return the fine domain with the most codes that a first look may give each attribute, from the spec alone."""
    most = {codec.attribute: codec.size + _count_added_cells(codec) for codec in plan.on_ladder}
    return Domain.of({a: most.get(a, n) for a, n in zip(plan.domain.attributes, plan.domain.sizes, strict=True)})


def expect_chosen_cells(domain: Domain, on_ladder: Iterable[OrderedCodec]) -> Domain:
    """Return the domain with about the cells that the columns on a ladder get, by which the one-ways share noise."""
    ladder = {codec.attribute for codec in on_ladder}
    return Domain.of({a: n + PARTS * (a in ladder) for a, n in zip(domain.attributes, domain.sizes, strict=True)})


def choose_cells(
    codecs: Sequence[OrderedCodec], looks: Mapping[str, tuple[Query, NDArray[Any]]], sigmas: Mapping[str, float]
) -> list[CutCell]:
    """Return the cells of each column: narrow where rows are, half an equal bin elsewhere, whole rungs if doubtful.

    If noise hides all rungs with rows, all but single values are doubtful.

    looks: attribute -> the first look at its rungs; sigmas: attribute -> noise of its later one-way.
    """
    return [cell for codec in codecs for cell in _make_cells(codec, *looks[codec.attribute], sigmas[codec.attribute])]


def _make_cells(codec: OrderedCodec, query: Query, noisy: NDArray[Any], sigma: float) -> Iterator[CutCell]:
    """Yield the cells of one column, ascending; only the first if equal bins between the bounds are good enough."""
    codes = [code for code, cell in enumerate(codec.cells.fine) if not cell.exact]
    rungs = [codec.cells.fine[code] for code in codes]
    counts = np.maximum(noisy[codes].astype(np.float64), 0.0)
    several = np.array([not codec.holds_one_value(rung) for rung in rungs])
    own = np.isin(codes, codec.cells.points)
    low, high = codec.bounds
    fits = _may_fit(rungs, noisy[codes] / query.sigma, high - low)
    standing = _find_standing(noisy[codes] / query.sigma, ~own, STANDS if fits else CLEAR)
    total = max(float(counts[standing & several].sum()), 1.0)
    possible = float(noisy[codes][several].sum()) - query.sigma * math.sqrt(several.sum())  # rows of faint rungs too
    span = sum(rung.high - rung.low for rung, stands in zip(rungs, standing, strict=True) if stands)
    narrow = span < NARROW * (high - low)
    lone = narrow and counts[several & standing].max(initial=0.0) > LONE * max(total, possible)
    shared = np.where(standing & ~own, counts, 0.0)
    clearly = sigma * (CLEARLY_CROWDED if narrow else CROWDED_IN_FITTING_BOUNDS)
    crowded = max(CROWDED * max(float(shared.sum()), 1.0), clearly)
    hidden = not shared.any() and (standing.any() or not fits)  # noise hides where most rows, or all but 0, are
    if not lone and not hidden and _estimate_fullest(codec, rungs, shared) <= crowded:
        yield CutCell(codec.attribute, rungs[0].low, doubtful=False)
        return
    body = standing.copy() if hidden else np.ones(len(rungs), bool)
    if standing.any() and not hidden:
        first, last = int(np.argmax(standing)), len(rungs) - 1 - int(np.argmax(standing[::-1]))
        first, last = max(first - BEYOND, 0), min(last + BEYOND, len(rungs) - 1)
        while first > 0 and rungs[first - 1].low >= codec.ladder_origin:  # rungs near the origin are narrow
            first -= 1
        while last < len(rungs) - 1 and rungs[last + 1].high <= codec.ladder_origin:
            last += 1
        body = (np.arange(len(rungs)) >= first) & (np.arange(len(rungs)) <= last)
    edges: dict[float, bool] = {}
    after_one_value = False
    origin, step = codec.frame
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
        if begins_body or after_one_value:
            edges[rung.low] = False
        after_one_value = False
        for number in range(math.floor((rung.low - origin) / width) + 1, math.ceil((rung.high - origin) / width)):
            edges.setdefault(codec.settle_edge(origin + number * width), False)
    yield from (CutCell(codec.attribute, low, doubtful) for low, doubtful in sorted(edges.items()))


def _may_fit(rungs: Sequence[Bin], counts: NDArray[np.float64], width: float) -> bool:
    """Return whether the widest rungs seem to have rows: then bounds of this ``width`` may fit the data.

    ``counts``: noisy, in standard deviations of noise, shape (rungs,).
    """
    sizes = np.array([rung.high - rung.low for rung in rungs])
    widest = sizes >= min(NARROW * width, sizes.max() / 2)  # far from 0, all rungs are narrow
    return bool(counts[widest].sum() > SPREAD * math.sqrt(widest.sum()))


def _find_standing(counts: NDArray[np.float64], shared: NDArray[np.bool_], least: float) -> NDArray[np.bool_]:
    """Return the mask of the rungs that seem to have rows, shape (rungs,).

    These are the clearest run of rungs, clear rungs near it, and very clear rungs elsewhere.  ``counts``: noisy, in
    standard deviations of noise; ``shared``: rungs that are not single values with a cell of their own.  Such a value,
    for example 0, may hold most rows and not show where the others are.  ``least``: of the clearest run, in the same
    unit.
    """
    standing = counts >= STANDS_APART
    clearest = find_clearest_run(np.where(shared, counts, 0.0), least)
    standing[clearest] = True
    for outwards in (range(clearest.stop, len(counts)), range(clearest.start - 1, -1, -1)) if clearest.stop else ():
        missed = 0
        for rung in outwards:
            missed = 0 if counts[rung] >= STANDS else missed + 1
            if missed > GAP:
                break
            standing[rung] |= counts[rung] >= STANDS
    return standing


def _estimate_fullest(codec: OrderedCodec, rungs: Sequence[Bin], counts: NDArray[np.float64]) -> float:
    """Return about how many rows the fullest half of an equal bin holds, without rungs of one value.

    ``counts``: counts of the rungs, 0 for values that always have a cell of their own.
    """
    (origin, step), held = codec.frame, defaultdict[int, float](float)
    for rung, count in zip(rungs, counts, strict=True):
        if count and not (codec.holds_one_value(rung) and step / 2 <= rung.high - rung.low):
            halves = max((rung.high - rung.low) / (step / 2), 1.0)
            held[math.floor(((rung.low + rung.high) / 2 - origin) / (step / 2))] += count / halves
    return max(held.values(), default=0.0)


def pool_looks(
    plan: EncodingPlan, looks: Mapping[str, RungCounts], one_ways: Sequence[tuple[str, float, NDArray[Any]]]
) -> list[NDArray[Any]]:
    """Return the one-ways with the rungs' counts of the first look pooled in.

    ``looks``: attribute -> the look at its rungs; ``one_ways``: attribute, sigma and noisy counts in ``plan``'s codes.
    """
    uncut, cut = ({c.attribute: c for c in p.codecs if isinstance(c, OrderedCodec)} for p in (plan.uncut or plan, plan))
    return [pool_rungs(y, sigma, cut[a], uncut[a], looks[a]) if a in looks else y for a, sigma, y in one_ways]


def share_rungs(codec: OrderedCodec, rungs: OrderedCodec) -> NDArray[np.float64]:
    """Return the share of each cell that lies in each rung, shape (fine size, rungs)."""
    low, high, exact = (np.array([getattr(c, n) for c in codec.cells.fine])[:, None] for n in ("low", "high", "exact"))
    other_low, other_high, other_exact = (
        np.array([getattr(r, n) for r in rungs.cells.fine]) for n in ("low", "high", "exact")
    )
    inside, width = np.minimum(high, other_high) - np.maximum(low, other_low), high - low
    point = (exact == other_exact) & (inside == 0) & (other_low <= low)
    part = np.maximum(inside, 0.0) / np.where(width > 0, width, 1.0)
    shares = np.zeros((codec.size, rungs.size))
    shares[-1, -1] = 1.0  # null, if there is a code for it
    shares[: len(low), : len(other_low)] = np.where(exact | other_exact | (width == 0), point, part)
    return shares / shares.sum(axis=1, keepdims=True)


def pool_rungs(
    noisy: NDArray[Any], sigma: float, codec: OrderedCodec, rungs: OrderedCodec, look: RungCounts
) -> NDArray[np.float64]:
    """Return the one-way of a column with the first look at its rungs pooled in, by least squares; shape (fine size,).

    A rung counts the cells inside it again, with less noise than their sum.  Where a cell lies in several rungs, its
    rows may lie anywhere in it: their shares vary as from a Dirichlet distribution of concentration EVENNESS.
    """
    query, counts = look
    shares = share_rungs(codec, rungs)
    mass = np.maximum(noisy, 0.0) ** 2 / (1 + EVENNESS)
    unsure = np.diag(mass @ shares) - (shares.T * mass) @ shares
    gain = (
        sigma**2 * shares @ np.linalg.inv(sigma**2 * shares.T @ shares + unsure + query.sigma**2 * np.eye(rungs.size))
    )
    return noisy + gain @ (counts - noisy @ shares)


def tabulate_cuts(cuts: Sequence[CutCell]) -> pa.Table:
    """Return the cut cells as a table of the contract CUT_CELLS."""
    return pa.Table.from_pylist([cut._asdict() for cut in cuts], schema=CUT_CELLS.schema)


def read_cuts(table: pa.Table) -> tuple[CutCell, ...]:
    """Return the cut cells of a CUT_CELLS table."""
    return tuple(CutCell(**row) for row in table.to_pylist())
