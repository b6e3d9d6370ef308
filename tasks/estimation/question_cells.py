"""The cells of measured questions: which codes of each attribute are one, by the question's columns and conditions.

Not in the paper.  ``sex, region where age < 30`` has a cell for each value of ``sex`` and ``region`` among rows below
30, and among the others.  So values that a question is by are codes of their own (numbers are split as rows allow), and
codes of an attribute in a condition are told apart where the condition holds for one and not for the other.  A
function of the spec and of released counts, so it costs no budget.
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
"""Cells of a question at most: of more, values that it is by are merged as those of any named set."""

_JOINS = ("and", "or", "not")


class Start(NamedTuple):
    """What the merged codes of an attribute begin with, and how they are split further (:class:`CoarseCounts`)."""

    begin: Merge
    grows: bool
    beside: NDArray[np.bool_] | None = None


Starts = Mapping[frozenset[str], Mapping[str, Start]]
"""Attributes of a measured set -> what each attribute begins with."""

NO_STARTS: Starts = {}

Grouping = tuple[NDArray[np.integer[Any]], int]
"""The group of every fine code, -1 of none, and how many groups there are: coarse codes, or public bins."""


def find_starts(spec: ReleaseSpec, encoding: EncodingPlan, groupings: Mapping[str, Grouping]) -> Starts:
    """Return what the attributes of the spec's measured questions begin with, in the codes of ``groupings``.

    Of compared columns it is what their difference begins with: below, at and above 0 are never one code.  Of a set of
    which nothing is asked null and values in order are never one code: how the values rise together is what it is for.
    Questions of the same attributes are one set: its codes tell apart what any of them does.
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
    """Return a start in which groups of codes in order are one part, and the others, such as null, another."""
    group, size = grouping
    in_order = np.zeros(size, bool)
    for start, end in bins.in_order:
        inside = (bins.groups >= start) & (bins.groups < end) & (group >= 0)
        in_order[group[inside]] = True
    beside = ~in_order if in_order.any() else None
    return Start(np.zeros(size, np.int64) if beside is None else beside.astype(np.int64), True, beside)


def find_idle_conditions(spec: ReleaseSpec, encoding: EncodingPlan) -> Iterator[tuple[int, str, bool]]:
    """Yield the parts of measured questions that no fine code fulfils, or every one: these make no cells.

    Each as the position in ``workload``, the attribute, and whether every code fulfils it.  Parts about one attribute.
    """
    for number, a, fulfilled in _tell_parts(spec, encoding):
        if fulfilled[0] != 0.5 and (fulfilled == fulfilled[0]).all():
            yield number, a, bool(fulfilled[0])


def find_cut_conditions(spec: ReleaseSpec, encoding: EncodingPlan) -> Iterator[tuple[int, str, int]]:
    """Yield the parts of measured questions that hold in a part of some intervals, so that no cells answer them.

    Each as the position in ``workload``, the attribute, and the number of such intervals.
    """
    in_order = {codec.attribute: ~codec.stands_alone for codec in encoding.codecs if isinstance(codec, OrderedCodec)}
    for number, a, fulfilled in _tell_parts(spec, encoding):
        if a in in_order and (cut := int(np.count_nonzero((fulfilled == 0.5) & in_order[a]))):
            yield number, a, cut


def _tell_parts(spec: ReleaseSpec, encoding: EncodingPlan) -> Iterator[tuple[int, str, NDArray[np.float64]]]:
    """Yield the parts of measured questions about one attribute: position in ``workload``, attribute, what codes say.

    As of :func:`tell_codes_apart`.
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
    """Yield (attribute, largest part of a condition about it alone), or (attribute, None) where none is of it alone."""
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
    """Return for each fine code 1 where the condition surely holds, 0 where it surely does not, and else one half."""
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
    """Return a number for each group; groups that no cut tells apart have one number."""
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
    """Return one start for each attribute: the common parts of all; merged where they are too many."""
    united = {}
    for a, attribute_starts in starts.items():
        begin = np.unique(np.stack([s.begin for s in attribute_starts], axis=1), axis=0, return_inverse=True)[1]
        united[a] = Start(begin.ravel().astype(np.int64), any(s.grows for s in attribute_starts))
    if prod(int(start.begin.max()) + 1 for start in united.values()) <= MOST_CELLS:
        return united
    return {a: Start(np.zeros_like(start.begin), True) for a, start in united.items()}
