"""Lookup tables: public tables that give some columns of a row for others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privsyn.data_contracts.rules import Lookup
from privsyn.tasks.rules.intervals import Interval

_NULL = -1e300  # the number that stands for null among the keys


@dataclass(frozen=True, eq=False)
class LookupTable:
    """A public table by its key columns ``columns``.

    ``parts[i]``: the sorted values of key column i; ``keys``: one number a row, sorted, shape (rows,); ``values`` and
    ``null``: the looked-up values, shape (rows, to).
    """

    columns: tuple[str, ...]
    parts: tuple[NDArray[np.float64], ...]
    keys: NDArray[np.int64]
    values: NDArray[np.float64]
    null: NDArray[np.bool_]

    @classmethod
    def of(cls, lookup: Lookup, vocabulary: Mapping[str, int]) -> LookupTable:
        """Return the table of a rule whose rows are given."""
        width = len(lookup.from_)
        cells = np.array([[_to_number(c, vocabulary) for c in row] for row in lookup.rows], np.float64)
        cells = cells.reshape(len(lookup.rows), width + len(lookup.to))
        parts = tuple(np.unique(cells[:, i]) for i in range(width))
        keys = np.zeros(len(cells), np.int64)
        for i, part in enumerate(parts):
            keys = keys * part.size + np.searchsorted(part, cells[:, i])
        order = np.argsort(keys)
        values = cells[order, width:]
        return cls(tuple(lookup.from_), parts, keys[order], values, values == _NULL)

    def look_up(self, place: int, given: Sequence[Interval]) -> Interval:
        """Return the value of ``to[place]`` by the key columns' intervals; null where the table has no such row."""
        own = self.values[~self.null[:, place], place]
        if not all(s.exact for s in given) or not len(self.keys):
            low, high = (own.min(), own.max()) if own.size else (0.0, 0.0)
            return Interval(np.array(low), np.array(high + 0.0), np.array(True), np.array(bool(own.size)))
        key, is_key = np.array(0), np.array(True)
        for part, interval in zip(self.parts, given, strict=True):
            value = np.where(interval.null, _NULL, interval.low)
            at = np.minimum(np.searchsorted(part, value), part.size - 1)
            is_key = is_key & (part[at] == value)
            key = key * part.size + at
        row = np.minimum(np.searchsorted(self.keys, key), self.keys.size - 1)
        null = ~is_key | (self.keys[row] != key) | self.null[row, place]
        low = np.where(null, 0.0, self.values[row, place])
        return Interval(low, low, null, ~null)


def _to_number(value: Any, vocabulary: Mapping[str, int]) -> float:
    if value is None:
        return _NULL
    return float(vocabulary[value]) if isinstance(value, str) else float(value)
