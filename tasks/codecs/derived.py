"""Codecs of attributes that are derived from columns: heaps, differences of two columns, and split codes.

**Heaping** is the round number that a value was rounded to, such as 1000.  It is a part of a column's values, counted
apart.  A part is a separate attribute, so that the share of each heap is measured like any one-way marginal; the
column's codec reads it to draw values inside bins.

**The difference** of two columns of a row has 0 alone, and cells whose widths double away from 0.
It writes a separate, unreleased attribute.  So whether one value is below, equal to or above the other, and by how
much, is measured like any column; :mod:`privsyn.tasks.steps.decode` keeps it in the rows.

**Split codes**: a column's codes, split by the bins of a column that is computed from it and others.
If a computed column changes inside a code, no pair of its source columns holds its relations.  An example is a time of
day, computed from hour and minute, with bins that end at half hours.  If the hour's codes are split where the time's
bin changes, pairs with the hour hold the relations with the time too.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from math import prod
from typing import TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from privsyn.data_contracts.columns.ordered_columns import name_heap_attribute
from privsyn.data_contracts.columns.shared_fields import Grid
from privsyn.data_contracts.domain import choose_code_dtype
from privsyn.data_contracts.spec_checks import name_difference_attribute
from privsyn.data_contracts.tables import ValueRange
from privsyn.tasks.codecs.categories import OneHotCodec
from privsyn.tasks.codecs.cells import Floats
from privsyn.tasks.codecs.codec import Codec, Codes, Columns, UnreleasedCodec
from privsyn.tasks.codecs.ordered import OrderedCodec
from privsyn.tasks.rules.compiled_rules import MAX_GRID, CompiledRules

Draw: TypeAlias = Callable[[NDArray[np.int64], np.random.Generator], Floats]

Steps: TypeAlias = tuple[Grid, Floats, Floats]

MAX_DRAWS = 40
"""The most draws in search of a value that is not a multiple of a larger heap."""

STEPS_WITHOUT_GRID = 4_096
"""Steps in the range of a difference if the values have no grid."""

Bins = NDArray[np.int32]


class PartCodec(UnreleasedCodec):
    """A part of each number of a column, such as what it was rounded to.

    ``find``: returns the code of each number; ``alone``: the code of null and exact values.
    """

    def __init__(
        self,
        codec: OrderedCodec,
        attribute: str,
        kind: str,
        names: Sequence[str],
        find: Callable[[Floats], NDArray[np.int64]],
        alone: int,
        chances: Floats | None = None,
    ) -> None:
        super().__init__(attribute, codec.sources, names)
        self.kind, self.chances = kind, chances
        self._codec, self._find, self._alone = codec, find, alone

    def derive(self, columns: Columns) -> NDArray[np.int64]:
        """See :class:`UnreleasedCodec`."""
        numbers, stands_alone = self._codec.clamp(columns[self.sources[0]])
        return np.where(stands_alone, self._alone, self._find(numbers))


def count_rounded(codec: OrderedCodec, heaps: Sequence[float], step: float | None = None) -> PartCodec:
    """Return the codec of heaps: 0 for a multiple of no heap, i for the i-th smallest heap and no larger one, last.

    ``step``: the step of the column's values if the spec names no heaps; then the attribute is counted alone, with each
    code's share by chance.
    """
    names = ["none", *(f"{heap:g}" for heap in heaps), "(no number)"]
    chances = None if step is None else np.append(share_by_chance(step, heaps), 0.0)
    find = partial(count_heaps, heaps=heaps)
    return PartCodec(codec, name_heap_attribute(codec.attribute), "heaps", names, find, len(names) - 1, chances)


def share_by_chance(step: float, heaps: Sequence[float]) -> Floats:
    """Return the share of each heap among all multiples of ``step``, first of none, shape (heaps + 1,)."""
    shares_of_multiples = np.array([1.0, *(step / heap for heap in heaps), 0.0])
    return shares_of_multiples[:-1] - shares_of_multiples[1:]


def count_heaps(numbers: Floats, heaps: Sequence[float]) -> NDArray[np.int64]:
    """Return how many heaps divide each number, shape (numbers,); each heap divides the next larger one."""
    return np.sum([Grid.of(heap).divides(numbers) for heap in heaps], axis=0, dtype=np.int64)


class HeapSampler:
    """Samples values that are multiples of the heap that they were counted with.

    ``by_cell``: every value stays in its fine cell, not only in its bin.  Single-value cells are left alone.
    """

    def __init__(self, codec: OrderedCodec, heaps: Sequence[float], *, by_cell: bool = False) -> None:
        self.heaps = heaps
        self._alone = np.isin(np.arange(len(codec.cells.fine)), codec.cells.points)
        wide = {*codec.cells.bin_of.tolist()} if by_cell else {number for number, _ in codec.cells.wide}
        parts = zip(codec.cells.bin_of.tolist(), codec.cells.fine, strict=True)
        bins = [cell if b in wide else codec.cells.bins[b] for b, cell in parts]
        steps = [[range(0) if b.exact else b.steps(Grid.of(heap)) for b in bins] for heap in heaps]
        self._first = np.array([[s.start for s in row] for row in steps], dtype=np.float64)
        self._many = np.array([[len(s) for s in row] for row in steps], dtype=np.float64)

    def move_to_heaps(
        self,
        numbers: Floats,
        cells: NDArray[np.int64],
        wanted: Codes,
        draw: Draw,
        parts: Draw,
        rng: np.random.Generator,
    ) -> Floats:
        """Return ``numbers`` redrawn as multiples of their wanted heap and no larger one, shape (rows,).

        Each is redrawn from its bin (from its cell, if the bin is wide) until it fits.  A bin without a multiple of the
        heap uses the next smaller heap that has one; ``draw``: draws values in cells; ``parts``: draws positions in
        cells, in [0, 1].
        """
        values, heap = numbers.copy(), self._lower_to_possible(cells, self._fill_unknown(wanted, rng))
        open_rows = np.flatnonzero(~self._alone[cells])
        for attempt in range(MAX_DRAWS):
            inside = cells[open_rows]
            for level in range(len(self.heaps) + 1):
                mine = heap[open_rows] == level
                rows = open_rows[mine]
                if level:
                    i = level - 1
                    steps = self._first[i][inside[mine]] + np.floor(
                        parts(inside[mine], rng) * self._many[i][inside[mine]]
                    )
                    values[rows] = Grid.of(self.heaps[i]).value(steps)
                elif attempt and rows.size:
                    values[rows] = draw(inside[mine], rng)
            open_rows = open_rows[count_heaps(values[open_rows], self.heaps) != heap[open_rows]]
            if not open_rows.size:
                break
        return values

    def find_on_heaps(
        self, places: Floats, cells: NDArray[np.int64], wanted: Codes, steps: Steps, rng: np.random.Generator
    ) -> Floats:
        """Return the multiple of the wanted heap, and of no larger one, at a place of each cell, shape (rows,).

        A cell's multiples are equally likely at uniform places, and ascend with them.  A cell without such a multiple
        gives one of the next smaller heap that it has, or of the next larger one.  ``places``: in [0, 1); ``steps``:
        the column's grid, and each cell's first multiple and number of multiples.
        """
        values, heap = np.empty(len(places)), self._lower_to_possible(cells, self._fill_unknown(wanted, rng))
        levels = [steps, *zip(map(Grid.of, self.heaps), self._first, self._many, strict=True)]
        for level, (grid, first, many) in enumerate(levels):
            rows = np.flatnonzero(heap == level)
            start, counts = first[cells[rows]], many[cells[rows]]
            multiples = start + np.floor(places[rows] * counts)
            every = float(levels[level + 1][0].step / grid.step) if level < len(self.heaps) else 1.0
            if every > 1:  # leave out multiples of the next larger heap
                before = start - np.ceil(start / every)  # non-multiples before the cell
                count_only = start + counts - np.ceil((start + counts) / every) - before
                nth = before + np.floor(places[rows] * count_only)
                multiples = np.where(count_only > 0, nth + 1 + np.floor(nth / (every - 1)), multiples)
            values[rows] = grid.value(multiples)
        return values

    def _fill_unknown(self, wanted: Codes, rng: np.random.Generator) -> NDArray[np.int64]:
        """Return the wanted heaps; a null or exact heap becomes the heap of another random row."""
        heap = np.asarray(wanted).astype(np.int64)
        unknown = heap > len(self.heaps)
        known_heaps = heap[~unknown]
        if unknown.any():
            heap[unknown] = rng.choice(known_heaps, int(unknown.sum())) if known_heaps.size else 0
        return heap

    def _lower_to_possible(self, cells: NDArray[np.int64], heap: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the largest heap up to the wanted one with a multiple in the row's bin."""
        for level in range(len(self.heaps), 0, -1):
            heap = np.where((heap == level) & (self._many[level - 1][cells] == 0), level - 1, heap)
        return heap


class DifferenceCodec(UnreleasedCodec):
    """Codes of ``first`` minus ``second``: negative differences, largest first, then 0, positive ones, and missing.

    ``step``: of the values, None without a grid.  A cell holds the sizes from 2^i to below 2^(i+1) steps.
    """

    kind = "difference"

    def __init__(self, first: OrderedCodec, second: OrderedCodec, step: float | None) -> None:
        self.first, self.second = first, second
        (low, high), (least, most) = first.bounds, second.bounds
        span = max(high - least, most - low, 0.0)
        self._rounds = step is not None
        self.step = step if step is not None else max(span, 1e-300) / STEPS_WITHOUT_GRID
        self._widths = int(np.floor(np.log2(max(span / self.step, 1.0)))) + 1
        self.zero = self._widths
        self.missing = 2 * self._widths + 1
        ends = [(2.0**i * self.step, 2.0 ** (i + 1) * self.step) for i in range(self._widths)]
        above = [f"{low:g} to below {high:g}" for low, high in ends]
        below = [f"above -{high:g} to -{low:g}" for low, high in reversed(ends)]
        attribute = name_difference_attribute(first.attribute, second.attribute)
        super().__init__(attribute, (*first.sources, *second.sources), [*below, "0", *above, "(missing)"])
        self.in_order = ((0, self.zero), (self.zero + 1, self.missing))

    @property
    def signs(self) -> Floats:
        """Each code's sign, shape (size,); 2 for the missing code."""
        return np.append(np.sign(np.arange(self.missing) - self.zero), 2).astype(np.float64)

    def find_codes(self, first: Floats, second: Floats) -> NDArray[np.int64]:
        """Return the code of each difference, shape (rows,); NaN is missing."""
        steps = (first - second) / self.step
        steps = np.round(steps) if self._rounds else steps
        with np.errstate(divide="ignore", invalid="ignore"):
            place = np.clip(np.floor(np.log2(np.abs(steps))), 0, self._widths - 1)
        codes = np.where(steps < 0, self.zero - 1 - place, np.where(steps > 0, self.zero + 1 + place, self.zero))
        return np.where(np.isnan(steps), self.missing, codes).astype(np.int64)

    def derive(self, columns: Columns) -> NDArray[np.int64]:
        """See :class:`UnreleasedCodec`."""
        return self.find_codes(*(codec.count_numbers(columns[codec.attribute]) for codec in (self.first, self.second)))

    def round(self, numbers: Floats) -> Floats:
        """Return numbers rounded to the values' grid, if there is one."""
        if not self._rounds:
            return numbers
        return np.asarray(Grid.of(self.step).value(np.round(numbers / self.step)))

    def draw(self, codes: NDArray[np.int64], rng: np.random.Generator) -> Floats:
        """Return a difference for each code, shape (rows,), drawn uniformly from its cell; no code may be missing."""
        place = np.where(codes < self.zero, self.zero - 1 - codes, codes - self.zero - 1)
        steps = 2.0 ** np.maximum(place, 0) * (1 + rng.random(len(codes)))
        steps = np.floor(steps) if self._rounds else steps
        return np.sign(codes - self.zero) * steps * self.step

    def decode_at(self, codes: Codes, places: Floats) -> dict[str, pa.Array]:
        """Return nothing: no column is released."""
        return {}


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
