"""Cells that rules forbid: known zeros of every marginal, for consistency and synthesis."""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations
from math import prod
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from privsyn.data_contracts.domain import Clique, Domain
from privsyn.tasks.codecs.encoding_plan import EncodingPlan
from privsyn.tasks.codecs.split import SplitCodec
from privsyn.tasks.estimation.recode import AttributeRecode, Recode, build_coarse_domain
from privsyn.tasks.rules.compiled_rules import MAX_GRID, CompiledRules

Bools = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class KnownZeros:
    """Joint codes that rules forbid: ``tables`` holds (attributes, mask of their shape), one per set of attributes.

    ``implied``: the same for every pair with forbidden joint codes, directly or through other attributes.
    """

    tables: tuple[tuple[Clique, Bools], ...] = ()
    implied: tuple[tuple[Clique, Bools], ...] = ()

    @property
    def tied(self) -> frozenset[str]:
        """The attributes with forbidden joint codes."""
        return frozenset(a for clique, _ in self.tables if len(clique) > 1 for a in clique)

    @property
    def cliques(self) -> list[Clique]:
        """The sets of two or more attributes that are synthesized together."""
        return [clique for clique, _ in self.tables if len(clique) > 1]

    def on(self, attributes: Sequence[str], shape: Sequence[int]) -> Bools | None:
        """Return the mask of a marginal's cells that no row can be in, whatever its other attributes are.

        None if it has no such cells, or only such cells.
        """
        zeros = np.zeros(shape, dtype=bool)
        numbers = {n for a in attributes for n in self._holding.get(a, ())}
        numbers |= {n for pair in combinations(attributes, 2) for n in self._of_pairs.get(frozenset(pair), ())}
        for number in sorted(numbers):
            clique = self._every[number][0]
            inside = [a for a in attributes if a in clique]
            mask = self._project_known(number, frozenset(inside))
            if mask is not None:
                axes = [a for a in clique if a in inside]
                mask = mask.transpose([axes.index(a) for a in inside])
                zeros |= mask.reshape([n if a in clique else 1 for a, n in zip(attributes, shape, strict=True)])
        return zeros if zeros.any() and not zeros.all() else None

    def _project_known(self, number: int, inside: frozenset[str]) -> Bools | None:
        """Return the mask of ``inside`` codes that table ``number`` of ``tables`` and ``implied`` forbids, or None.

        Cached, since every marginal asks for it.
        """
        key = number, inside
        if key not in self._projections:
            clique, forbidden = self._every[number]
            mask = np.asarray(forbidden.all(axis=tuple(i for i, a in enumerate(clique) if a not in inside)))
            self._projections[key] = mask if mask.any() else None
        return self._projections[key]

    @cached_property
    def _every(self) -> tuple[tuple[Clique, Bools], ...]:
        return (*self.tables, *self.implied)

    @cached_property
    def _of_pairs(self) -> dict[frozenset[str], list[int]]:
        """The numbers of each pair's tables."""
        numbers_by_pair: dict[frozenset[str], list[int]] = {}
        for number, (clique, _) in enumerate(self._every):
            if len(clique) == 2:
                numbers_by_pair.setdefault(frozenset(clique), []).append(number)
        return numbers_by_pair

    @cached_property
    def _holding(self) -> dict[str, list[int]]:
        """The numbers of the tables that may restrict an attribute without all of their other attributes.

        A pair's table restricts one of its attributes only if it forbids a code of it entirely.
        """
        numbers_by_attribute: dict[str, list[int]] = {}
        for number, (clique, _) in enumerate(self._every):
            for a in clique:
                if len(clique) != 2 or self._project_known(number, frozenset((a,))) is not None:
                    numbers_by_attribute.setdefault(a, []).append(number)
        return numbers_by_attribute

    @cached_property
    def _projections(self) -> dict[tuple[int, frozenset[str]], Bools | None]:
        return {}


_last: tuple[weakref.ref[EncodingPlan], dict[str, tuple[bytes, bytes]], KnownZeros] | None = None
"""The last plan, its coarse codes and the answer; the weak reference never matches a deleted plan."""


def build_known_zeros(plan: EncodingPlan, recode: Recode) -> KnownZeros:
    """Return the joint codes of ``recode`` that the plan's rules forbid.

    A coarse cell is forbidden if every row of every fine cell in it meets a condition.  Conditions over more than
    MAX_GRID cells are left to the repair of rows.  The last answer is cached: three steps of a run ask for it.
    """
    global _last
    if plan.rules is None:
        return KnownZeros()
    codes = {a: (r.coarse.tobytes(), r.kept.tobytes()) for a, r in recode.items()}
    if _last is None or _last[0]() is not plan or _last[1] != codes:
        _last = weakref.ref(plan), codes, _build_known_zeros(plan, plan.rules, recode)
    return _last[2]


def _build_known_zeros(plan: EncodingPlan, rules: CompiledRules, recode: Recode) -> KnownZeros:
    zeros: dict[Clique, Bools] = {}
    domain = build_coarse_domain(recode)
    for clique, surely in _find_contradictions(plan):
        for axis, attribute in enumerate(clique):
            surely = _coarsen(surely, axis, recode[attribute])
        if surely.any():
            zeros[clique] = surely
    cells = {name: c for codec in plan.codecs for name, c in codec.value_bounds().items()}
    for condition in rules.conditions:
        codecs = [c for c in plan.codecs if set(c.ranges()) & set(condition.needs)]
        if not codecs or prod(c.size for c in codecs) > MAX_GRID:
            continue
        surely = rules.find_impossible_cells(condition, cells, [tuple(c.ranges()) for c in codecs])
        surely = np.broadcast_to(surely, [c.size for c in codecs])
        for axis, codec in enumerate(codecs):
            surely = _coarsen(surely, axis, recode[codec.attribute])
        clique = tuple(c.attribute for c in codecs)
        if surely.any():
            zeros[clique] = surely | zeros.get(clique, False)
    compositions = find_forbidden_compositions(plan)
    if compositions is not None:
        attribute = plan.get_compositions().attribute
        zeros[attribute,] = _coarsen(compositions, 0, recode[attribute])
    tables = tuple((c, mask) for c, mask in zeros.items() if mask.shape == domain.shape(c))
    return KnownZeros(tables, imply_zeros(tables))


def find_forbidden_compositions(plan: EncodingPlan) -> Bools | None:
    """Return which household compositions the rules about roles alone forbid; None if there are no such rules."""
    rules = plan.rules
    if rules is None or not rules.role_conditions:
        return None
    panel, order = plan.get_order()
    members = plan.get_compositions().members
    size = members.sum(axis=1)
    roles = np.repeat(np.tile(np.arange(members.shape[1]), len(members)), members.ravel())
    first = np.zeros(len(roles), bool)
    first[np.cumsum(size) - size] = True
    table = {panel.order: order.decode(roles, np.random.default_rng(0))[panel.order]}
    broken = replace(rules, across=rules.role_conditions).find_broken_persons(table, first).any(axis=0)
    return np.asarray(np.logical_or.reduceat(broken, np.cumsum(size) - size))


def _find_contradictions(plan: EncodingPlan) -> Iterator[tuple[Clique, Bools]]:
    """Yield, for each codec split by a computed column, the joint codes whose computed value lies in another bin."""
    for codec in plan.codecs:
        if isinstance(codec, SplitCodec):
            names = [codec.attribute, *(other.attribute for other in codec.others)]
            clique = plan.domain.ordered(names)
            yield clique, codec.forbidden().transpose([names.index(a) for a in clique])


def _coarsen(surely: Bools, axis: int, recode: AttributeRecode) -> Bools:
    """Coarsen one axis of a mask: a coarse code is forbidden if all of its fine codes are."""
    members = np.flatnonzero(recode.kept)
    order = members[np.argsort(recode.coarse[members], kind="stable")]
    starts = np.searchsorted(recode.coarse[order], np.arange(recode.size))
    return np.asarray(np.logical_and.reduceat(surely.take(order, axis=axis), starts, axis=axis))


def restrict_to_domain(zeros: KnownZeros, domain: Domain) -> KnownZeros:
    """Return the tables of ``zeros`` with all attributes in ``domain``."""
    attributes = set(domain.attributes)
    if all(attributes.issuperset(clique) for clique, _ in (*zeros.tables, *zeros.implied)):
        return zeros
    tables, implied = (
        tuple((c, mask) for c, mask in t if attributes.issuperset(c)) for t in (zeros.tables, zeros.implied)
    )
    return KnownZeros(tables, implied)


def imply_zeros(tables: Sequence[tuple[Clique, Bools]]) -> tuple[tuple[Clique, Bools], ...]:
    """Return (pair, mask) for each pair whose joint codes ``tables`` forbid, directly or through other attributes.

    For example, if `MSP` and `PINCP` are both null exactly below 15 years, no row has one of them without the other.

    tables: (attributes, mask of their shape).  One pass over the intermediate attributes (Mackworth, "Consistency in
    networks of relations", Artificial Intelligence 8, 1977), so it may miss some implied pairs.
    """
    allowed: dict[Clique, Bools] = {}
    order: dict[str, None] = {}
    for clique, forbidden in tables:
        order |= dict.fromkeys(clique)
        for first, second in combinations(range(len(clique)), 2):
            others = tuple(i for i in range(len(clique)) if i not in (first, second))
            possible = ~np.asarray(forbidden.all(axis=others))
            a, b = clique[first], clique[second]
            allowed[a, b] = possible & allowed.get((a, b), True)
            allowed[b, a] = allowed[a, b].T
    for between in order:
        neighbours = [a for a in order if (a, between) in allowed]
        for a, b in combinations(neighbours, 2):
            way = (allowed[a, between].astype(np.float32) @ allowed[between, b].astype(np.float32)) > 0
            if not way.all():
                allowed[a, b] = way & allowed.get((a, b), True)
                allowed[b, a] = allowed[a, b].T
    return tuple(((a, b), ~allowed[a, b]) for a, b in combinations(order, 2) if not allowed.get((a, b), np.True_).all())


Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


class NoisyOneWay(Protocol):
    """An attribute's one-way while it is being adjusted; ``variance``: noise variance of each count."""

    attributes: Clique
    counts: Floats
    variance: Floats


class BlockMember:
    """One of two one-ways that must have equal counts in each block.

    labels: the block of each code; ``precision``: 1 / noise variance of each block's count.
    """

    def __init__(self, estimate: NoisyOneWay, labels: Ints, number: int) -> None:
        self.estimate, self.labels, self.number = estimate, labels, number
        total = np.bincount(labels, estimate.variance, number)
        self.precision = 1.0 / np.maximum(total, 1e-6 * estimate.variance.min())  # a block without codes is empty
        self.share = estimate.variance / total[labels]

    def project(self) -> Floats:
        """Return the counts of the blocks."""
        sums: Floats = np.bincount(self.labels, self.estimate.counts, self.number).astype(np.float64)
        return sums

    def shift(self, change: Floats) -> None:
        """Spread ``change``, one number a block, over the codes in proportion to their variances."""
        self.estimate.counts += change[self.labels] * self.share


def list_tied_blocks(one_ways: Sequence[NoisyOneWay], zeros: KnownZeros | None) -> list[list[BlockMember]]:
    """Return the two members of every pair of attributes whose blocks ``zeros`` tie."""
    groups, estimate_of = [], {o.attributes[0]: o for o in one_ways}
    for (a, b), forbidden in zeros.implied if zeros is not None else ():
        labels = label_blocks(forbidden)
        if labels is not None and a in estimate_of and b in estimate_of:
            number = 1 + max(int(side.max()) for side in labels)
            groups.append([BlockMember(estimate_of[x], side, number) for x, side in zip((a, b), labels, strict=True)])
    return groups


def label_blocks(forbidden: NDArray[np.bool_]) -> tuple[Ints, Ints] | None:
    """Return the block of every code of the first and the second attribute, from 0; None if there is one block.

    forbidden: mask of the pair's shape.  Blocks are the connected components of the graph of allowed joint codes.
    """
    allowed = ~forbidden
    met = allowed.any(axis=1).all() and allowed.any(axis=0).all()
    if met and (allowed.all(axis=1).any() or allowed.all(axis=0).any()):
        return None  # one code is allowed with all others, which makes one block
    from scipy.sparse import csr_array  # here: most releases have no such pair, and it loads slowly
    from scipy.sparse.csgraph import connected_components

    first, second = forbidden.shape
    links = np.zeros((first + second, first + second), dtype=bool)
    links[:first, first:] = allowed
    number, labels = connected_components(csr_array(links), directed=False)
    return None if number < 2 else (labels[:first].astype(np.int64), labels[first:].astype(np.int64))
