"""Frequent values: single values that many rows share, found by counting each value inside heavy numeric cells.

Not in the paper.  A numeric column is counted in cells of many values each.  If most rows of a cell share a few values,
such as common amounts of money, drawing evenly inside the cell loses them.  So the values of cells with heavy noisy
one-way counts are counted one by one (tasks/steps/measure_marginals.py).  This is the last level of a tree of counts
that expands heavy nodes only.  It skips the levels between: cells of one histogram share no budget, so leaves with the
whole budget have less noise than leaves that share it with several levels.

This module only post-processes released counts.  A value becomes frequent only if its noisy count exceeds the mean of
its cell's values by more than noise alone reaches (FALSE_ALARM), and by at least LEAST_ROWS rows.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from fractions import Fraction
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from privsyn.data_contracts.receipts import Query
from privsyn.data_contracts.tables import COUNTED
from privsyn.tasks.codecs import EncodingPlan
from privsyn.tasks.codecs.numbers import FrequentValues, SteppedCodec
from privsyn.tasks.estimation.recode import AttributeRecode, Recode

Floats = NDArray[np.float64]
AnyStepped = SteppedCodec[Any]

FALSE_ALARM = 0.01
"""Largest probability that noise alone makes any of a column's counted values frequent."""

MOST_VALUES = 1 << 15
"""Largest number of counted values over all columns: noise takes 10 microseconds a value."""

LEAST_ROWS = 20.0
"""Least excess count of a frequent value, however little the noise."""

REST_STANDS_OUT = 2.0
"""Standard deviations of noise above which a cell has rows besides its frequent values."""


class CountedValues(NamedTuple):
    """The counted values of an attribute, ascending; arrays of shape (values,).

    ``cell``: fine code; ``number``: multiple of the column's step.
    """

    attribute: str
    cell: NDArray[np.int64]
    number: NDArray[np.int64]


def compute_least_count(sigma: float, values: int) -> float:
    """Return the count, at least LEAST_ROWS, that noise exceeds in any of ``values`` values with chance FALSE_ALARM."""
    from scipy.special import ndtri

    return max(sigma * float(-ndtri(FALSE_ALARM / max(values, 1))), LEAST_ROWS)


def list_values_to_count(
    codecs: Sequence[AnyStepped], noisy: Mapping[str, NDArray[Any]], rho: Fraction, records: int
) -> list[CountedValues]:
    """Return the values in heavy cells, to be counted, of as many columns as have heavy cells at their share of rho.

    noisy: fine counts by attribute; ``rho``: the budget that these columns share evenly.  A cell is heavy if its noisy
    count reaches the least count of a frequent value.  If there are more than MOST_VALUES values, only multiples of 10,
    100, ... steps are counted.
    """
    values = {codec.attribute: codec.cell_values for codec in codecs}
    heaviest = {
        a: max((float(noisy[a][i]) for i, inside in enumerate(cells) if inside), default=0.0)
        for a, cells in values.items()
    }
    ranked = sorted(heaviest, key=lambda a: -heaviest[a])
    least = [
        compute_least_count(records * math.sqrt(m / (2 * float(rho))), MOST_VALUES) for m in range(len(ranked) + 1)
    ]
    columns = max((m for m, a in enumerate(ranked, 1) if heaviest[a] >= least[m]), default=0)
    counted, chosen = [], set(ranked[:columns])
    most = max(MOST_VALUES // max(columns, 1), 1)
    for a in (a for a in values if a in chosen):
        heavy = {i: inside for i, inside in enumerate(values[a]) if inside and noisy[a][i] >= least[columns]}
        every = 1
        while sum(len(_thin(inside, every)) for inside in heavy.values()) > most:
            every *= 10
        parts = [(i, _thin(inside, every)) for i, inside in heavy.items()]
        cell = np.repeat([i for i, _ in parts], [len(inside) for _, inside in parts]).astype(np.int64)
        number = np.array([n for _, inside in parts for n in inside], dtype=np.int64)
        if len(number):
            counted.append(CountedValues(a, cell, number))
    return counted


def _thin(values: range, every: int) -> range:
    """Return the multiples of ``every`` in a range of consecutive integers."""
    return range(-(-values.start // every) * every, values.stop, every)


def tabulate_counted(counted: Sequence[CountedValues], codecs: Sequence[AnyStepped]) -> pa.Table:
    """Return the counted values as a table of the contract COUNTED."""
    grids = {codec.attribute: codec.value_grid for codec in codecs}
    parts = []
    for attribute, cell, number in counted:
        grid = grids[attribute]
        assert grid is not None  # noqa: S101 - only multiples of a step are listed
        values = np.asarray(grid.value(number.astype(np.float64)), dtype=np.float64)
        columns = [pa.array([attribute] * len(cell), pa.string()), cell.astype(np.int32), number, values]
        parts.append(pa.table(columns, schema=COUNTED.schema))
    return pa.concat_tables(parts) if parts else pa.Table.from_pylist([], schema=COUNTED.schema)


def read_counted(table: pa.Table) -> list[CountedValues]:
    """Return the counted values of a COUNTED table, in the table's attribute order."""
    cell, number = (table[name].to_numpy().astype(np.int64) for name in ("code", "number"))
    counted = []
    for attribute, rows in groupby(enumerate(table["attribute"].to_pylist()), key=lambda row: row[1]):
        places = [i for i, _ in rows]
        counted.append(CountedValues(attribute, cell[places], number[places]))
    return counted


def find_frequent_values(
    counted: Sequence[CountedValues],
    looks: Mapping[str, tuple[Query, NDArray[Any]]],
    recode: Recode,
    plan: EncodingPlan,
) -> dict[str, FrequentValues]:
    """Return the frequent values of each attribute that has some.

    looks: attribute -> query and noisy counts of its counted values; ``recode``: all one-ways pooled in.
    """
    by_attribute = {}
    for c in counted:
        query, counts = looks[c.attribute]
        codec = next(codec for codec in plan.wide_celled if codec.attribute == c.attribute)
        frequent = _find_of_column(c, counts[:-1], query.sigma, recode[c.attribute], codec)
        if frequent is not None:
            by_attribute[c.attribute] = frequent._replace(others=_share_others(frequent, codec, recode))
    return by_attribute


def _find_of_column(
    counted: CountedValues, counts: NDArray[Any], sigma: float, recode: AttributeRecode, codec: AnyStepped
) -> FrequentValues | None:
    cell, cell_counts = counted.cell, np.maximum(recode.estimate, 0.0)
    by_chance = cell_counts[cell] / np.array([max(len(inside), 1) for inside in codec.cell_values])[cell]
    out = counts - by_chance >= compute_least_count(sigma, len(counts))
    if not out.any():
        return None
    cell, number, mine = cell[out], counted.number[out], counts[out].astype(np.float64)
    together = np.bincount(cell, weights=mine, minlength=len(cell_counts))
    noise = np.sqrt(sigma**2 * np.bincount(cell, minlength=len(cell_counts)) + recode.variance)
    rest = np.where(cell_counts - together < REST_STANDS_OUT * noise, 0.0, cell_counts - together)
    return FrequentValues(cell, number, mine / (together + rest)[cell])


def _share_others(frequent: FrequentValues, codec: AnyStepped, recode: Recode) -> Floats | None:
    """Return the shares of rounding units among all but the frequent values; None if rounding is not counted."""
    if not codec.helpers:
        return None
    counted, cell_counts = recode[codec.helpers[0]].weight[:-1], np.maximum(recode[codec.attribute].estimate, 0.0)
    of_all = np.array([bool(inside) for inside in codec.cell_values])
    mass = cell_counts[: len(of_all)][of_all].sum()
    taken = np.bincount(
        codec.count_heaps(frequent.number),
        weights=frequent.share * cell_counts[frequent.cell] / max(mass, 1.0),
        minlength=len(counted),
    )
    other_shares = np.maximum(counted / max(counted.sum(), 1e-300) - taken, 0.0)
    return other_shares / other_shares.sum() if other_shares.sum() > 0 else None
