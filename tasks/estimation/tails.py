"""Tails: the shares of the cells inside wide bins and the slope inside each cell, for decode.

Post-processing of the recode: it reads noisy counts and public edges alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from privsyn.tasks.codecs import EncodingPlan
from privsyn.tasks.codecs.cells import Cells
from privsyn.tasks.codecs.numbers import Floats, fit_slopes, fit_tail_shares
from privsyn.tasks.codecs.ordered import OrderedCodec
from privsyn.tasks.estimation.recode import AttributeRecode, Recode


def with_tails(recode: Recode, plan: EncodingPlan) -> tuple[Recode, EncodingPlan]:
    """Return the recode with fitted shares inside wide bins, and the plan with a slope for each of their cells.

    Without wide bins, both come back unchanged.
    """
    shaped, fallen = dict(recode), dict[str, Floats]()
    for codec in plan.codecs:
        if isinstance(codec, OrderedCodec) and codec.cells.wide:
            a = codec.attribute
            shaped[a], fallen[a] = settle_tails(recode[a], codec.cells)
    return (shaped, plan.with_slopes(fallen)) if fallen else (recode, plan)


def settle_tails(recode: AttributeRecode, cells: Cells) -> tuple[AttributeRecode, Floats]:
    """Return one attribute's recode with fitted shares inside wide bins, and the slope of each cell.

    The slope is positive if the density falls upwards, negative if it falls downwards.  If a wide bin shares its code
    with neighbouring bins, the tail begins with that code.
    """
    weight, slope = recode.weight.copy(), np.zeros(len(recode.weight))
    widths = np.array([cell.high - cell.low for cell in cells.fine])
    for inside, tail, way in _iterate_tails(recode, cells, widths):
        before = tail[0] - way
        known = 0 <= before < len(widths) and widths[before] > 0
        count_before = (recode.estimate[before], np.sqrt(recode.variance[before])) if known else (0.0, 0.0)
        wide = widths[before] if known else 1.0
        usual = widths[np.append(tail[~np.isin(tail, inside)], inside[::way][0])].sum()
        shares = fit_tail_shares(
            recode.estimate[tail],
            recode.variance[tail],
            widths[tail],
            usual,
            (count_before[0] / wide, count_before[1] / wide),
        )
        tail_total = max(recode.estimate[tail].sum(), 1.0)
        falls = way * fit_slopes(shares, widths[tail], max(count_before[0] / wide / tail_total, 0.0))
        is_inside = np.isin(tail, inside)
        weight[tail], slope[tail[is_inside]] = weight[tail].sum() * shares / shares.sum(), falls[is_inside]
    return replace(recode, weight=weight), slope


def _iterate_tails(
    recode: AttributeRecode, cells: Cells, widths: Floats
) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64], int]]:
    """Yield, for each wide bin, its cells, the cells of its tail outwards, and the direction (1 upwards, -1 downwards).

    Skips a bin that lies inside the tail of another.
    """
    done = set[int]()
    for number, way in sorted(cells.wide, key=lambda wide: -wide[0] * wide[1]):
        inside = np.flatnonzero(cells.bin_of == number)
        if not recode.kept[inside[0]] or done & set(inside.tolist()):
            continue
        code = np.flatnonzero(recode.kept[: len(widths)] & (recode.coarse[: len(widths)] == recode.coarse[inside[0]]))
        is_row = len(code) == code[-1] - code[0] + 1 and (widths[code] > 0).all()
        at_end = code[-1] == inside[-1] if way > 0 else code[0] == inside[0]
        tail = code if is_row and at_end else inside
        done |= set(tail.tolist())
        yield inside, tail[::way], way
