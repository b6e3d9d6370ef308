"""Merged codes of a set of attributes that is counted jointly: few cells, of about equal noisy mass.

Not in the paper.  A joint table of three or more attributes has too many cells for the noise.  So codes are merged:
each attribute begins with one merged code, and the heaviest is split in two of about equal mass while the cells have
enough rows.  Finer merges of an attribute in one set refine its coarser merges in another.  A function of released
counts and public noise, so it costs no budget.

The cells of measured questions: which codes of each attribute are merged, by the question's columns and conditions.

Not in the paper.  ``sex, region where age < 30`` has a cell for each value of ``sex`` and ``region`` among rows below
30, and among the other rows.  So each value of a column that the question groups by is a code of its own; numbers are
split as rows allow.  Codes of a condition's attribute are separated if the condition holds for one and not the other.
A function of the spec and of released counts, so it costs no budget.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from privsyn.data_contracts.domain import Clique, Merge, Merges
from privsyn.data_contracts.focus import parse_conditions
from privsyn.data_contracts.release_spec import ReleaseSpec
from privsyn.data_contracts.rule_language import Node
from privsyn.tasks.codecs.cells import AttributeBins
from privsyn.tasks.codecs.codec import Codec
from privsyn.tasks.codecs.derived import SplitCodec
from privsyn.tasks.codecs.encoding_plan import EncodingPlan
from privsyn.tasks.codecs.ordered import OrderedCodec
from privsyn.tasks.rules.intervals import Interval, evaluate_condition, read_cells

Floats = NDArray[np.float64]

ROWS_A_CELL = 6.0
"""Mean rows of a cell, in standard deviations of its noise."""

LEAST_CODES = 2
"""Least merged codes of an attribute, whatever the noise: with one, the attribute would not be in the set."""


@dataclass(frozen=True, eq=False)
class CoarseCounts:
    """Noisy counts of an attribute's codes; ``in_order``: whether merging keeps the codes' order.

    ``variance``: noise variance of each count; None means no noise.  ``begin``: the initial merged code of each code;
    None means one for all.  ``grows``: whether merged codes may be split as cells allow.  ``beside``: codes without an
    order, such as null, that stay apart from the ordered ones; they count neither in the shares that decide splits nor
    towards LEAST_CODES.
    """

    counts: Floats
    in_order: bool
    variance: Floats | None = None
    begin: Merge | None = None
    grows: bool = True
    beside: NDArray[np.bool_] | None = None


def count_affordable_cells(total: float, sigma: float) -> int:
    """Return the number of cells, at least 1, with a mean of ROWS_A_CELL standard deviations ``sigma`` of rows each."""
    return max(1, int(max(total, 0.0) / (ROWS_A_CELL * sigma)))


def merge_codes(coarse: Mapping[str, CoarseCounts], clique: Clique, cells: int) -> list[Merge]:
    """Return the merged code of every code of each attribute of ``clique``, with at most ``cells`` cells in all.

    Every attribute that grows gets LEAST_CODES merged codes, not counting codes ``beside``, or one per code if it has
    fewer; these may exceed ``cells``.  Merged codes are numbered by the first code in each.
    """
    parts = [_SplitCodes(coarse[a]) for a in clique]
    for part in parts:
        while part.grows and len(part.members) < part.least and part.heaviest is not None:
            part.split()
    growing = [i for i, part in enumerate(parts) if part.grows]
    while growing:
        sizes = [len(part.members) for part in parts]
        more = {i: prod(sizes) // sizes[i] * (sizes[i] + 1) for i in growing}  # the cells with one more code
        growing = [i for i in growing if parts[i].heaviest is not None and more[i] <= cells]
        if growing:
            parts[max(growing, key=lambda i: (parts[i].heaviest or 0.0, -i))].split()
    return [part.number() for part in parts]


def merge_counts(counts: Floats, merges: Merges) -> Floats:
    """Return the sums of ``counts`` over merged codes.

    ``merges``: one per axis, None for an axis that keeps its codes; empty if all axes do.
    """
    for axis, merge in enumerate(merges):
        if merge is not None:
            parts = np.zeros((int(merge.max()) + 1, merge.size))
            parts[merge, np.arange(merge.size)] = 1.0
            counts = np.moveaxis(np.tensordot(parts, counts, axes=(1, axis)), 0, axis)
    return counts


class _SplitCodes:
    """A partition of an attribute's codes: ``members`` of each part, and the share of the ``heaviest`` one."""

    def __init__(self, coarse: CoarseCounts) -> None:
        self._mass = np.maximum(coarse.counts, 0.0) + 1e-9
        self._in_order = coarse.in_order
        self._variance = np.zeros_like(self._mass) if coarse.variance is None else coarse.variance
        self.grows = coarse.grows
        beside = np.zeros(len(self._mass), bool) if coarse.beside is None else coarse.beside
        begin = np.zeros(len(self._mass), np.int64) if coarse.begin is None else coarse.begin
        self.members = [np.flatnonzero(begin == part) for part in np.unique(begin)]
        self.least = LEAST_CODES + int(beside.any())
        self._whole = float(self._mass[~beside].sum())

    @property
    def heaviest(self) -> float | None:
        """The share of the heaviest part with several codes; None if every part is one code."""
        position = self._find_heaviest()
        return None if position is None else float(self._mass[self.members[position]].sum()) / self._whole

    def _find_heaviest(self) -> int | None:
        several = [i for i, codes in enumerate(self.members) if len(codes) > 1]
        return max(several, key=lambda i: float(self._mass[self.members[i]].sum()), default=None)

    def split(self) -> None:
        """Split the heaviest part with several codes in two of about equal mass."""
        position = self._find_heaviest()
        if position is None:
            raise ValueError("every part is one code")
        codes = self.members.pop(position)
        first = self._choose_first_half(codes)
        self.members += [codes[first], codes[~first]]

    def _choose_first_half(self, codes: NDArray[np.intp]) -> NDArray[np.bool_]:
        """Return which of several codes go into the first of two parts; neither part is empty.

        Ordered codes are cut nearest to the middle code, among the cuts that noise cannot tell apart.
        """
        mass = self._mass[codes]
        if self._in_order:
            off = np.abs(np.cumsum(mass)[:-1] - mass.sum() / 2)
            cuts = np.flatnonzero(off <= off.min() + np.sqrt(self._variance[codes].sum()))
            from_middle = np.abs(cuts + 1 - len(codes) / 2)
            best = cuts[from_middle == from_middle.min()]
            return np.arange(len(codes)) <= int(best[off[best].argmin()])
        first, first_mass, second_mass = np.zeros(len(codes), bool), 0.0, 0.0
        for i in np.argsort(-mass, kind="stable"):
            first[i] = first_mass <= second_mass
            first_mass, second_mass = (
                (first_mass + mass[i], second_mass) if first[i] else (first_mass, second_mass + mass[i])
            )
        return first

    def number(self) -> Merge:
        """Return the part number of each code."""
        part_numbers = np.empty(len(self._mass), dtype=np.int64)
        for number, codes in enumerate(sorted(self.members, key=lambda codes: int(codes[0]))):
            part_numbers[codes] = number
        return part_numbers


MOST_CELLS = 100_000
"""Largest number of cells of a question; a larger question's values are merged as in any named set."""

_JOINS = ("and", "or", "not")


class Start(NamedTuple):
    """The initial merged codes of an attribute, and how they may be split further (:class:`CoarseCounts`)."""

    begin: Merge
    grows: bool
    beside: NDArray[np.bool_] | None = None


Starts = Mapping[frozenset[str], Mapping[str, Start]]
"""Attributes of a measured set -> attribute -> its start."""

NO_STARTS: Starts = {}

Grouping = tuple[NDArray[np.integer[Any]], int]
"""The group of every fine code (-1 for none) and the number of groups: coarse codes, or public bins."""


def find_starts(spec: ReleaseSpec, encoding: EncodingPlan, groupings: Mapping[str, Grouping]) -> Starts:
    """Return the starts of the attributes of the spec's measured questions, in the codes of ``groupings``.

    For compared columns, the difference starts with separate codes below, at and above 0.  In a set without a question,
    null and ordered values are never merged: the set is for how values rise together.  Questions on the same attributes
    share one set, whose codes separate whatever any of them separates.
    """
    codecs = {codec.attribute: codec for codec in encoding.codecs}
    starts_by_set: dict[frozenset[str], dict[str, list[Start]]] = {}
    with_questions: set[frozenset[str]] = set()
    for marginal in spec.measured_sets:
        attributes = frozenset(encoding.attributes_of(marginal.columns))
        starts_of_set = starts_by_set.setdefault(attributes, {a: [] for a in attributes})
        question = marginal.asked if marginal.summary is None else None
        with_questions |= {attributes} if marginal.asked is not None else set()
        by = attributes if question is None else set(encoding.attributes_of(question.counted_by))
        leaves = list(_split(parse_conditions(marginal, spec.released_columns), attributes, codecs))
        for a in attributes:
            cuts = [tell_codes_apart(codecs[a], node) for about, node in leaves if about == a and node is not None]
            begin = _join_codes(cuts, groupings[a])
            ordered = bool(encoding.binning[a].in_order)
            every_code = marginal.asked is not None and a in by and not ordered
            grows = marginal.asked is None or (a in by and ordered) or (a, None) in leaves
            starts_of_set[a].append(Start(np.arange(len(begin)) if every_code else begin, grows))
    starts = {attributes: _unite(starts_of_set) for attributes, starts_of_set in starts_by_set.items()}
    for attributes in starts_by_set.keys() - with_questions:
        starts[attributes] = {a: _keep_order_apart(encoding.binning[a], groupings[a]) for a in attributes}
    for codec in encoding.differences:
        begin = _join_codes([codec.signs], groupings[codec.attribute])
        compared = frozenset((codec.first.attribute, codec.second.attribute, codec.attribute))
        starts[compared] = {codec.attribute: Start(begin, True)}
    return starts


def _keep_order_apart(bins: AttributeBins, grouping: Grouping) -> Start:
    """Return a start with one part for ordered groups of codes and another for the rest, such as null."""
    group, size = grouping
    in_order = np.zeros(size, bool)
    for start, end in bins.in_order:
        inside = (bins.groups >= start) & (bins.groups < end) & (group >= 0)
        in_order[group[inside]] = True
    beside = ~in_order if in_order.any() else None
    return Start(np.zeros(size, np.int64) if beside is None else beside.astype(np.int64), True, beside)


def find_idle_conditions(spec: ReleaseSpec, encoding: EncodingPlan) -> Iterator[tuple[int, str, bool]]:
    """Yield the one-attribute conditions of measured questions that no fine code or every fine code meets.

    Such conditions make no cells.  Each is the position in ``workload``, the attribute, and whether all codes meet it.
    """
    for number, a, fulfilled in _iterate_single_conditions(spec, encoding):
        if fulfilled[0] != 0.5 and (fulfilled == fulfilled[0]).all():
            yield number, a, bool(fulfilled[0])


def find_cut_conditions(spec: ReleaseSpec, encoding: EncodingPlan) -> Iterator[tuple[int, str, int]]:
    """Yield the one-attribute conditions of measured questions that cut intervals, so that no cells answer them.

    Each is the position in ``workload``, the attribute, and the number of cut intervals.
    """
    in_order = {codec.attribute: ~codec.stands_alone for codec in encoding.codecs if isinstance(codec, OrderedCodec)}
    for number, a, fulfilled in _iterate_single_conditions(spec, encoding):
        if a in in_order and (cut := int(np.count_nonzero((fulfilled == 0.5) & in_order[a]))):
            yield number, a, cut


def _iterate_single_conditions(
    spec: ReleaseSpec, encoding: EncodingPlan
) -> Iterator[tuple[int, str, NDArray[np.float64]]]:
    """Yield the one-attribute conditions of measured questions: position in ``workload``, attribute, truth by code."""
    codecs = {codec.attribute: codec for codec in encoding.codecs}
    for number, marginal in enumerate(spec.workload):
        attributes = frozenset(encoding.attributes_of(marginal.columns)) if marginal.measured else frozenset()
        for a, node in _split(parse_conditions(marginal, spec.released_columns), attributes, codecs):
            if node is not None:
                yield number, a, tell_codes_apart(codecs[a], node)


def _split(
    conditions: Sequence[Node], attributes: frozenset[str], codecs: Mapping[str, Codec]
) -> Iterator[tuple[str, Node | None]]:
    """Yield (attribute, largest part of a condition on it alone), or (attribute, None) for parts on several."""
    for node in conditions:
        sources = {a: c.codec.sources if isinstance(c := codecs[a], SplitCodec) else c.sources for a in attributes}
        behind = [a for a in sorted(attributes) if set(node.columns) & set(sources[a])]
        if len(behind) == 1:
            yield behind[0], node
        elif node.op in _JOINS:
            yield from _split(node.args, attributes, codecs)
        else:
            yield from ((a, None) for a in behind)


def tell_codes_apart(codec: Codec, condition: Node) -> NDArray[np.float64]:
    """Return for each fine code 1 if the condition surely holds, 0 if it surely does not, and 0.5 otherwise."""
    cells = codec.counted_bounds()
    texts = [t for column in cells.values() if not isinstance(column, tuple) for t in column.to_pylist()]
    texts += [t for n in condition.walk() for t in (n.value if n.op == "in" else (n.value,)) if n.op != "column"]
    vocabulary = {t: i for i, t in enumerate(dict.fromkeys(t for t in texts if isinstance(t, str)))}

    def resolve(name: str) -> Interval:
        return read_cells(cells[name], vocabulary)

    truth = evaluate_condition(condition, resolve, vocabulary)
    may, may_not = (np.broadcast_to(side, codec.size) for side in (truth.true, truth.false | truth.unknown))
    return np.where(may & may_not, 0.5, may.astype(np.float64))


def _join_codes(cuts: Sequence[NDArray[np.float64]], grouping: Grouping) -> Merge:
    """Return a number for each group; groups that no cut separates share a number."""
    group, size = grouping
    has_group = group >= 0
    ends = []
    for cut in cuts:
        least, most = np.ones(size), np.zeros(size)
        np.minimum.at(least, group[has_group], cut[has_group])
        np.maximum.at(most, group[has_group], cut[has_group])
        ends += [least, most]
    if not ends:
        return np.zeros(size, dtype=np.int64)
    return np.unique(np.stack(ends, axis=1), axis=0, return_inverse=True)[1].ravel().astype(np.int64)


def _unite(starts: Mapping[str, Sequence[Start]]) -> dict[str, Start]:
    """Return one start for each attribute: the common refinement of its starts, or one code if cells are too many."""
    united = {}
    for a, attribute_starts in starts.items():
        begin = np.unique(np.stack([s.begin for s in attribute_starts], axis=1), axis=0, return_inverse=True)[1]
        united[a] = Start(begin.ravel().astype(np.int64), any(s.grows for s in attribute_starts))
    if prod(int(start.begin.max()) + 1 for start in united.values()) <= MOST_CELLS:
        return united
    return {a: Start(np.zeros_like(start.begin), True) for a, start in united.items()}
