"""Codec of a column whose codes are split by the bins of a column computed from it and others.

If a computed column changes inside a code, no pair of its source columns holds its relations.  An example is a time of
day, computed from hour and minute, with bins that end at half hours.  If the hour's codes are split where the time's
bin changes, pairs with the hour hold the relations with the time too.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from math import prod

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from privsyn.data_contracts.domain import choose_code_dtype
from privsyn.data_contracts.tables import ValueRange
from privsyn.tasks.codecs.categories import OneHotCodec
from privsyn.tasks.codecs.codec import Codec, Codes, Columns
from privsyn.tasks.rules.compiled_rules import MAX_GRID, CompiledRules

Bins = NDArray[np.int32]


class SplitCodec(Codec):
    """Codec with one code for each combination of a code of ``codec`` and a bin of the computed column.

    A row's bin is the one that the rules compute, even if a private row has another value.

    Args:
        codec: One bin per code, without helpers.
        others: The codecs of the computed column's other sources.
        column: The computed column's codec.
        bins: The computed column's bin by the codes of ``codec`` and ``others``, -1 where no row can be.

    Attributes:
        code_alone: Each code's code of ``codec``, shape (size,).
        computed_bin: Each code's bin of ``column``, shape (size,).
    """

    def __init__(self, codec: Codec, others: Sequence[Codec], column: Codec, bins: Bins) -> None:
        self.codec, self.others, self.bins = codec, tuple(others), bins
        self.attribute, self.column, names = codec.attribute, column.attribute, column.bin_labels()
        self._names = tuple(names)
        self.sources = (*codec.sources, *(name for other in others for name in other.sources))
        pairs = find_code_bin_pairs(bins)
        self.code_alone, self.computed_bin = pairs[:, 0], pairs[:, 1]
        self.groups = np.arange(len(pairs), dtype=np.int32)
        self._first = np.searchsorted(self.code_alone, np.arange(codec.size))
        self._numbers = np.repeat(self._first[:, None], len(names), axis=1)  # impossible bins: the code's first
        self._numbers[self.code_alone, self.computed_bin] = self.groups
        starts = np.append(self._first, len(pairs))
        self.in_order = tuple((int(starts[a]), int(starts[b])) for a, b in codec.in_order)
        self.widths = None if codec.widths is None else np.zeros(len(pairs))  # neighbours may share a code

    @property
    def digest(self) -> str:
        """Hash of the code-bin combinations; public."""
        return hashlib.sha256(np.ascontiguousarray(self.bins, np.int32).tobytes()).hexdigest()

    def forbidden(self) -> NDArray[np.bool_]:
        """Return the joint codes with the others that contradict the rules: bool, shape (size, sizes of the others)."""
        expected_bin = self.computed_bin.reshape(-1, *[1] * len(self.others))
        return np.asarray(self.bins[self.code_alone] != expected_bin)

    def list_codes_in(self, computed_bin: int) -> NDArray[np.int64]:
        """Return the codes combined with a bin of the computed column, ascending."""
        return np.flatnonzero(self.computed_bin == computed_bin)

    def encode(self, columns: Columns) -> tuple[Codes, Counter[str]]:
        """See :class:`Codec`; repairs are the column's own."""
        codes, repairs = self.codec.encode({name: columns[name] for name in self.codec.sources})
        codes_of_others = [o.encode({name: columns[name] for name in o.sources})[0] for o in self.others]
        return self._numbers[codes, self.bins[(codes, *codes_of_others)]].astype(choose_code_dtype(self.size)), repairs

    def decode(self, codes: Codes, rng: np.random.Generator) -> dict[str, pa.Array]:
        """Return the column alone."""
        return self.codec.decode(self.code_alone[codes], rng)

    def decode_at(self, codes: Codes, places: NDArray[np.float64]) -> dict[str, pa.Array]:
        """Return the column alone."""
        return self.codec.decode_at(self.code_alone[codes], places)

    def labels(self) -> list[str]:
        """Return the column's labels with the computed column's bin."""
        column_labels = self.codec.labels()
        return [
            f"{column_labels[c]} ({self._names[b]})" for c, b in zip(self.code_alone, self.computed_bin, strict=True)
        ]

    def values(self, *, fine: bool) -> NDArray[np.float64] | None:
        """See :class:`Codec`."""
        values = self.codec.values(fine=fine)
        return None if values is None else values[self.code_alone]

    def ranges(self) -> dict[str, ValueRange]:
        """Return the domain of the column."""
        return self.codec.ranges()


def find_code_bin_pairs(bins: Bins, axis: int = 0) -> NDArray[np.intp]:
    """Return the codes along ``axis`` with their bins, shape (pairs, 2), ascending.

    A code that no row can have gets the bin of the code before it, or bin 0.
    """
    flat = np.moveaxis(bins, axis, 0).reshape(bins.shape[axis], -1)
    pairs: list[tuple[int, int]] = []
    for code, row in enumerate(flat):
        inside = np.unique(row[row >= 0])
        pairs += [(code, int(b)) for b in inside] or [(code, pairs[-1][1] if pairs else 0)]
    return np.array(pairs, dtype=np.intp)


def split_by_computed(codecs: Mapping[str, Codec], computed: Sequence[Codec], rules: CompiledRules) -> dict[str, Codec]:
    """Return ``codecs``, by attribute, with one source of each computed column split by the computed column's bins.

    Only if the computed column has two or more source columns with one value per code.  The source with the fewest
    codes after the split is split, unless the split adds more codes than the computed column has bins: then separate
    columns cost no more.
    """
    result = dict(codecs)
    for column in computed:
        names = rules.find_measured_columns([column.attribute])
        behind = [result.get(name) for name in names]
        parents = [c for c in behind if c is not None and _is_plain(c)]
        if len(parents) != len(names) or len(names) < 2 or prod(c.size for c in parents) > MAX_GRID:
            continue
        bins = _compute_bins(column, parents, rules)
        if bins is None:
            continue
        sizes = [len(find_code_bin_pairs(bins, axis)) for axis in range(len(parents))]
        many = int(column.groups.max()) + 1
        more = [size - parent.size for size, parent in zip(sizes, parents, strict=True)]
        best = int(np.argmin(sizes))
        if 0 < more[best] <= many and min(more) > 0:
            others = [c for i, c in enumerate(parents) if i != best]
            split = SplitCodec(parents[best], others, column, np.moveaxis(bins, best, 0))
            result[split.attribute] = split
    return result


def _is_plain(codec: Codec) -> bool:
    """Return whether every code is a bin of its own, in a single released column."""
    one_each = codec.size == int(codec.groups.max()) + 1
    return one_each and not codec.helpers and codec.added is None and not isinstance(codec, OneHotCodec | SplitCodec)


def _compute_bins(column: Codec, parents: Sequence[Codec], rules: CompiledRules) -> Bins | None:
    """Return the computed column's bin by parent codes, -1 outside its domain; None if a code has several values."""
    cells = {name: c for codec in parents for name, c in codec.value_bounds().items()}
    if any(isinstance(c, tuple) and not np.array_equal(c[0], c[1], equal_nan=True) for c in cells.values()):
        return None
    grid = np.meshgrid(*(np.arange(c.size) for c in parents), indexing="ij")
    drawn = np.random.default_rng(0)
    table = {
        name: array
        for c, codes in zip(parents, grid, strict=True)
        for name, array in c.decode(codes.ravel(), drawn).items()
    }
    name = column.attribute
    values, beyond = rules.compute_column(name, table, column.ranges()[name].type)
    codes, _ = column.encode({name: values})
    bins = np.where(beyond, -1, column.groups[codes]).astype(np.int32)
    return bins.reshape([c.size for c in parents])
