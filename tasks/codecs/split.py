"""The codec of a column whose codes are split by the bins of a column that rules compute from it and others.

What depends on a computed column inside one code of the column, no pair of the columns behind it shows: a time of day
that is computed from hour and minute, in bins that end at half hours.  With the hour's codes split where the time's bin
changes, pairs of the hour are pairs of the time, too.
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
from privsyn.tasks.codecs.codec import Codec, Codes, Columns
from privsyn.tasks.codecs.one_of import OneOfCodec
from privsyn.tasks.rules.compiled_rules import MAX_GRID, CompiledRules

Bins = NDArray[np.int32]


class SplitCodec(Codec):
    """One code for each code of ``codec`` and each bin of the computed column that it goes with.

    codec: of one bin a code, without helpers; others: of the other columns behind the computed one; column: of that;
    bins: its bin by the codes of ``codec`` and of ``others``, of their shape, -1 where no row can be.
    A row's bin is the one that the rules compute, also where a private row has another value there.  ``code_alone`` and
    ``computed_bin``, both of shape (size,): which code of ``codec`` and which bin of ``column`` each code goes with.
    """

    def __init__(self, codec: Codec, others: Sequence[Codec], column: Codec, bins: Bins) -> None:
        self.codec, self.others, self.bins = codec, tuple(others), bins
        self.attribute, self.column, names = codec.attribute, column.attribute, column.bin_labels()
        self._names = tuple(names)
        self.sources = (*codec.sources, *(name for other in others for name in other.sources))
        pairs = find_possible_pairs(bins)
        self.code_alone, self.computed_bin = pairs[:, 0], pairs[:, 1]
        self.groups = np.arange(len(pairs), dtype=np.int32)
        self._first = np.searchsorted(self.code_alone, np.arange(codec.size))
        self._numbers = np.repeat(self._first[:, None], len(names), axis=1)  # a bin that no row has: the code's first
        self._numbers[self.code_alone, self.computed_bin] = self.groups
        starts = np.append(self._first, len(pairs))
        self.in_order = tuple((int(starts[a]), int(starts[b])) for a, b in codec.in_order)

    @property
    def digest(self) -> str:
        """A hash of which code goes with which bin; public."""
        return hashlib.sha256(np.ascontiguousarray(self.bins, np.int32).tobytes()).hexdigest()

    def forbidden(self) -> NDArray[np.bool_]:
        """Joint codes of this codec and the others that contradict the rules, of shape (size, sizes of the others)."""
        own = self.computed_bin.reshape(-1, *[1] * len(self.others))
        return np.asarray(self.bins[self.code_alone] != own)

    def codes_in(self, computed_bin: int) -> NDArray[np.int64]:
        """Return the codes that go with a bin of the computed column, ascending."""
        return np.flatnonzero(self.computed_bin == computed_bin)

    def encode(self, columns: Columns) -> tuple[Codes, Counter[str]]:
        """See :class:`Codec`; repairs are those of the column itself."""
        codes, repairs = self.codec.encode({name: columns[name] for name in self.codec.sources})
        at = [o.encode({name: columns[name] for name in o.sources})[0] for o in self.others]
        return self._numbers[codes, self.bins[(codes, *at)]].astype(choose_code_dtype(self.size)), repairs

    def decode(self, codes: Codes, rng: np.random.Generator) -> dict[str, pa.Array]:
        """Return the column alone."""
        return self.codec.decode(self.code_alone[codes], rng)

    def decode_at(self, codes: Codes, places: NDArray[np.float64]) -> dict[str, pa.Array]:
        """Return the column alone."""
        return self.codec.decode_at(self.code_alone[codes], places)

    def labels(self) -> list[str]:
        """Return the column's labels, with the bin of the computed column."""
        own = self.codec.labels()
        return [f"{own[c]} ({self._names[b]})" for c, b in zip(self.code_alone, self.computed_bin, strict=True)]

    def values(self, *, fine: bool) -> NDArray[np.float64] | None:
        """See :class:`Codec`."""
        found = self.codec.values(fine=fine)
        return None if found is None else found[self.code_alone]

    def ranges(self) -> dict[str, ValueRange]:
        """Return the value as the column's own codec does."""
        return self.codec.ranges()


def find_possible_pairs(bins: Bins, axis: int = 0) -> NDArray[np.intp]:
    """Return the codes along ``axis`` with the bins that they go with, of shape (pairs, 2), ascending.

    A code that no row can have goes with the bin of the one before it, or with the first.
    """
    flat = np.moveaxis(bins, axis, 0).reshape(bins.shape[axis], -1)
    found: list[tuple[int, int]] = []
    for code, row in enumerate(flat):
        inside = np.unique(row[row >= 0])
        found += [(code, int(b)) for b in inside] or [(code, found[-1][1] if found else 0)]
    return np.array(found, dtype=np.intp)


def split_by_computed(codecs: Mapping[str, Codec], computed: Sequence[Codec], rules: CompiledRules) -> dict[str, Codec]:
    """``codecs``, by attribute, with one of those behind each computed column split by its bins where that is small.

    A column that follows from two or more of one value a code is meant.  Of these the one with the fewest codes when
    split is, unless these are more than its own codes and the computed column's bins: then two columns would not have
    cost more.
    """
    found = dict(codecs)
    for column in computed:
        names = rules.find_measured_columns([column.attribute])
        behind = [found.get(name) for name in names]
        parents = [c for c in behind if c is not None and _is_plain(c)]
        if len(parents) != len(names) or len(names) < 2 or prod(c.size for c in parents) > MAX_GRID:
            continue
        bins = _compute_bins(column, parents, rules)
        if bins is None:
            continue
        sizes = [len(find_possible_pairs(bins, axis)) for axis in range(len(parents))]
        many = int(column.groups.max()) + 1
        more = [size - parent.size for size, parent in zip(sizes, parents, strict=True)]
        best = int(np.argmin(sizes))
        if 0 < more[best] <= many and min(more) > 0:
            others = [c for i, c in enumerate(parents) if i != best]
            split = SplitCodec(parents[best], others, column, np.moveaxis(bins, best, 0))
            found[split.attribute] = split
    return found


def _is_plain(codec: Codec) -> bool:
    """Return whether every code is a bin of its own, of one released column."""
    one_each = codec.size == int(codec.groups.max()) + 1
    return one_each and not codec.helpers and codec.added is None and not isinstance(codec, OneOfCodec | SplitCodec)


def _compute_bins(column: Codec, parents: Sequence[Codec], rules: CompiledRules) -> Bins | None:
    """Return the computed column's bin by the parents' codes, -1 where it may not be.

    None: a code has several values.
    """
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
    found, beyond = rules.compute_column(name, table, column.ranges()[name].type)
    codes, _ = column.encode({name: found})
    bins = np.where(beyond, -1, column.groups[codes]).astype(np.int32)
    return bins.reshape([c.size for c in parents])
