"""The cells of measured questions: which codes of each attribute are merged, by the question's columns and conditions.

Not in the paper.  ``sex, region where age < 30`` has a cell for each value of ``sex`` and ``region`` among rows below
30, and among the other rows.  So each value of a column that the question groups by is a code of its own; numbers are
split as rows allow.  Codes of a condition's attribute are separated if the condition holds for one and not the other.
A function of the spec and of released counts, so it costs no budget.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import prod
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from privsyn.data_contracts.domain import Merge
from privsyn.data_contracts.focus import parse_conditions
from privsyn.data_contracts.release_spec import ReleaseSpec
from privsyn.data_contracts.rule_language import Node
from privsyn.tasks.codecs.binning import AttributeBins
from privsyn.tasks.codecs.codec import Codec
from privsyn.tasks.codecs.encoding_plan import EncodingPlan
from privsyn.tasks.codecs.ordered import OrderedCodec
from privsyn.tasks.codecs.split import SplitCodec
from privsyn.tasks.rules import evaluate
from privsyn.tasks.rules.intervals import Interval, read_cells

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
    """Yield the one-attribute conditions of measured questions: position in ``workload``, attribute, truth by code.

    The truth by code is the result of :func:`tell_codes_apart`.
    """
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
        behind = [a for a in sorted(attributes) if set(node.columns) & set(_list_sources(codecs[a]))]
        if len(behind) == 1:
            yield behind[0], node
        elif node.op in _JOINS:
            yield from _split(node.args, attributes, codecs)
        else:
            yield from ((a, None) for a in behind)


def _list_sources(codec: Codec) -> tuple[str, ...]:
    return codec.codec.sources if isinstance(codec, SplitCodec) else codec.sources


def tell_codes_apart(codec: Codec, condition: Node) -> NDArray[np.float64]:
    """Return for each fine code 1 if the condition surely holds, 0 if it surely does not, and 0.5 otherwise."""
    cells = codec.counted_bounds()
    texts = [t for column in cells.values() if not isinstance(column, tuple) for t in column.to_pylist()]
    texts += [t for n in condition.walk() for t in (n.value if n.op == "in" else (n.value,)) if n.op != "column"]
    vocabulary = {t: i for i, t in enumerate(dict.fromkeys(t for t in texts if isinstance(t, str)))}

    def resolve(name: str) -> Interval:
        return read_cells(cells[name], vocabulary)

    truth = evaluate.evaluate_condition(condition, resolve, vocabulary)
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
