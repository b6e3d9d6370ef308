"""Link synthetic records into households: members in the order of roles, each drawn from a neighbour.

A record is one member of a household, with the number of members of each role.  So all members' roles are known, and
the record's own position among them is drawn.  The first member is made from the record's member, then the members
after it step by step, and the members before it by reversed transitions.  Codes are drawn by the measured neighbour
pairs of that kind.  They are then moved until the measured pairs with the first member hold too, and so do the measured
relations among a member's columns, role, composition and household columns.  Post-processing of released counts.

Transitions between neighbouring members of a household, for each kind of pair, from released counts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from privsyn.data_contracts.domain import choose_code_dtype
from privsyn.data_contracts.panels import name_stay
from privsyn.tasks.codecs import EncodingPlan
from privsyn.tasks.codecs.codec import Codec
from privsyn.tasks.codecs.ordered import OrderedCodec
from privsyn.tasks.codecs.person_figures import CompositionCodec, find_kinds
from privsyn.tasks.estimation.known_zeros import KnownZeros, find_forbidden_compositions
from privsyn.tasks.estimation.marginals import Marginal, list_one_ways
from privsyn.tasks.estimation.recode import AttributeRecode, Recode
from privsyn.tasks.kernels.counting import CodeTable, choose_thread_count
from privsyn.tasks.panels.allowed_codes import take_values
from privsyn.tasks.panels.choose_persons import choose_persons
from privsyn.tasks.panels.choose_rows import list_groups, summarize_linked
from privsyn.tasks.panels.link_rows import (
    KIND,
    KIND_BESIDE_FIRST,
    KIND_OF_NEXT,
    Beside,
    LinkedRows,
    Places,
    draw_next,
    find_fine_codes,
    fit_relations,
    narrow_codes,
    recode_relation,
    redraw_forbidden,
    repeat_persons,
)
from privsyn.tasks.panels.transitions import Transition, TransitionCodes, estimate_pairs
from privsyn.tasks.rules.intervals import Interval, read_cells
from privsyn.tasks.synthesis.fine_codes import FineCodes, PlacedRecords, RelatedPlaces

Floats: TypeAlias = NDArray[np.float64]
Integers: TypeAlias = NDArray[np.int64]
Codes: TypeAlias = NDArray[Any]

KindsOfPairs: TypeAlias = Mapping[str, Sequence[Transition]]
"""Attribute -> its transitions, one for each kind of pair."""


@dataclass(frozen=True, eq=False)
class PairsOfMembers:
    """Released counts about pairs of household members.

    Attributes:
        neighbours: The transitions from each member to the next.
        with_first: The transitions from the first member to each member after the second; empty if there are none.
        ahead: The members by KIND_OF_NEXT and each followed attribute.
        by_role: Attribute -> the shares of its codes by role, shape (roles, codes).  It holds the attributes with codes
            that rules forbid to a role; these codes have the share 0.
    """

    neighbours: KindsOfPairs
    with_first: KindsOfPairs
    ahead: list[Marginal]
    by_role: Mapping[str, Floats]


MATCHES = 10
"""How often records whose role is not in their composition exchange compositions."""


def _leave_out(recode: AttributeRecode, forbidden: NDArray[np.bool_]) -> AttributeRecode:
    """Return the recode without the ``forbidden`` fine codes, unless a coarse code has no others."""
    coded = recode.kept
    weight = np.where(coded & ~forbidden, recode.weight, 0.0)
    sums = np.bincount(recode.coarse[coded], weights=weight[coded], minlength=recode.size)
    coarse = np.minimum(recode.coarse, recode.size - 1)
    shares = weight / np.maximum(sums[coarse], 1e-300)
    return replace(recode, weight=np.where(sums[coarse] > 0, shares, recode.weight))


@dataclass(frozen=True, eq=False)
class _Members:
    """One member per household; every array has shape (households,)."""

    household: Integers
    position: Integers
    codes: dict[str, Codes]
    places: dict[str, Floats]

    def take(self, chosen: NDArray[Any]) -> _Members:
        """Return some of the members."""
        codes, places = ({a: v[chosen] for a, v in each.items()} for each in (self.codes, self.places))
        return _Members(self.household[chosen], self.position[chosen], codes, places)

    def replace(self, others: _Members) -> _Members:
        """Return the members, with ``others`` in their households' places, numbered from 0."""

        def put(values: Any, replacement: Any) -> Any:
            replaced = values.copy()
            replaced[others.household] = replacement
            return replaced

        codes = {a: put(code, others.codes[a]) for a, code in self.codes.items()}
        places = {a: put(place, others.places[a]) for a, place in self.places.items()}
        return _Members(self.household, put(self.position, others.position), codes, places)


@dataclass(frozen=True, eq=False)
class _Origin:
    """Members to draw new ones from; ``kind``: which of the ``transitions`` applies; ``name``: the kinds' attribute."""

    members: _Members
    kind: Integers
    transitions: KindsOfPairs
    name: str

    @cached_property
    def chosen(self) -> list[tuple[int, NDArray[np.bool_]]]:
        """Each kind that occurs, and which members have it."""
        return [(int(k), self.kind == k) for k in np.unique(self.kind)]


def _reverse(transitions: KindsOfPairs) -> KindsOfPairs:
    return {a: [t.reverse() for t in ts] for a, ts in transitions.items()}


class MemberLinker:
    """Links records into households from released counts alone; arguments as for ``Linker``."""

    def __init__(
        self,
        plan: EncodingPlan,
        recode: Recode,
        marginals: Sequence[Marginal],
        codes: Mapping[str, TransitionCodes],
        pairs: PairsOfMembers,
        threads: int = 0,
    ) -> None:
        """Take the released counts; see the class."""
        self._plan, self._recode, self._threads = plan, recode, choose_thread_count(threads)
        self._panel, self._members = plan.get_order()[0], plan.get_compositions()
        self._following = plan.following
        self._neighbours = {True: pairs.neighbours, False: _reverse(pairs.neighbours)}
        beside_first = {a: (*pairs.with_first.get(a, ts), *ts) for a, ts in pairs.neighbours.items()}
        self._beside_first = {True: beside_first, False: _reverse(beside_first)}
        self._by_role = pairs.by_role
        self._draws = {c.attribute: FineCodes(recode[c.attribute]) for c in plan.codecs}
        forbidden = find_forbidden_compositions(plan)
        if forbidden is not None:
            compositions = self._members.attribute
            self._draws[compositions] = FineCodes(_leave_out(recode[compositions], forbidden))
        self._followed = {a: FineCodes(c.recode) for a, c in codes.items()}
        self._sizes = {a: r.size for a, r in recode.items()} | {a: c.size for a, c in codes.items()}
        kinds = self._members.kinds
        self._sizes |= {KIND: kinds, KIND_BESIDE_FIRST: 2 * kinds, KIND_OF_NEXT: kinds + 1}
        related = [m for m in marginals if len(m.attributes) > 1 and not {*m.attributes}.isdisjoint(self._following)]
        self._relations = [*(recode_relation(m, codes) for m in related), *pairs.ahead]

    def link(self, records: CodeTable, seed: int, model: RelatedPlaces | None = None) -> LinkedRows:
        """Return the members of these records' households, households in random order; ``model``: as for ``Linker``.

        If questions about households are measured, households are dropped or duplicated to match their measured shares.
        """
        rng = np.random.default_rng([seed, 0x0405])
        order = rng.permutation(records.rows)
        coarse = {a: records.column(a)[order] for a in records.domain.attributes}
        linked = self._link(coarse, model, rng)
        if not self._plan.person_groups:
            return linked
        groups = list_groups(self._plan, self._recode, coarse, self._summarize(linked))
        times = choose_persons(linked.person, {}, {}, seed, groups)
        return repeat_persons(linked, times, coarse, lambda again: self._link(again, model, rng))

    def _summarize(self, linked: LinkedRows) -> dict[str, Codes]:
        """Return the coarse codes of household summaries, from their members' codes."""
        codecs = {name: codec for codec in self._plan.row_plan.codecs for name in codec.ranges()}

        def read(name: str) -> Interval:
            cells = read_cells(codecs[name].value_bounds()[name], self._plan.vocabulary)
            codes = linked.step if name == self._panel.order else linked.fine[codecs[name].attribute]
            return take_values(cells, codes)

        return summarize_linked(self._plan, self._recode, read, np.diff(linked.person, prepend=-1) != 0)

    def _link(self, coarse: dict[str, Codes], model: RelatedPlaces | None, rng: np.random.Generator) -> LinkedRows:
        """Return a household's members for each record."""
        rows = len(next(iter(coarse.values())))
        households = _Households(self._panel.order, self._members, self._draws, coarse, self._recode, rng)
        placed = PlacedRecords(self._draws, coarse, model, rng)
        codes, places = {}, {}
        for a in self._following:
            code, places[a] = self._followed[a].locate(*placed.place(a))
            codes[a] = code.astype(choose_code_dtype(self._sizes[a]))
        fixed_codes = self._hold(households, np.arange(rows), households.drawn_position)
        own_seed = int(rng.integers(1 << 62))
        fit_relations(codes, [], fixed_codes, self._sizes, self._relations, own_seed, self._threads)
        role = households.roles[np.arange(rows), households.drawn_position]
        for a, shares in self._by_role.items():
            redraw_forbidden(codes[a], shares, role, shares[role] > 0, rng)
        drawn_members = _Members(np.arange(rows), households.drawn_position, codes, places)
        members, first = [drawn_members], drawn_members
        if (later := drawn_members.take(drawn_members.position > 0)).household.size:
            kind = self._find_kinds_beside_first(households, later)
            origin = _Origin(later, kind, self._beside_first[False], KIND_BESIDE_FIRST)
            of_later = self._make(households, later.household, np.zeros_like(later.position), [origin], rng)
            members.append(of_later)
            first = drawn_members.replace(of_later)
        for forward in (True, False):
            now = drawn_members
            while True:
                on = now.position + (1 if forward else -1)
                now = now.take((on > 0) & (on < households.members[now.household]))
                if not now.household.size:
                    break
                now = self._make_next(households, now, first, rng, forward=forward)
                members.append(now)
        return self._join(households, members, placed, rng)

    def _make_next(
        self, households: _Households, now: _Members, first: _Members, rng: np.random.Generator, *, forward: bool
    ) -> _Members:
        """Return the members after ``now``, or before; ``first``: the first member of each household."""
        position = now.position + (1 if forward else -1)
        role, next_role = (households.roles[now.household, p] for p in (now.position, position))
        kind = find_kinds(role, next_role) if forward else find_kinds(next_role, role)
        origins = [_Origin(now, kind, self._neighbours[forward], KIND)]
        kind = self._find_kinds_beside_first(households, replace(now, position=position))
        origins.append(_Origin(first.take(now.household), kind, self._beside_first[True], KIND_BESIDE_FIRST))
        return self._make(households, now.household, position, origins, rng)

    def _find_kinds_beside_first(self, households: _Households, members: _Members) -> Integers:
        """Return each member's kind of pair with the first member; the second member is its neighbour."""
        role, first = (households.roles[members.household, p] for p in (members.position, 0))
        return find_kinds(first, role) + self._members.kinds * (members.position == 1)

    def _make(
        self,
        households: _Households,
        household: Integers,
        position: Integers,
        origins: Sequence[_Origin],
        rng: np.random.Generator,
    ) -> _Members:
        """Draw the members at these positions of these households, given their origins."""
        codes: dict[str, Codes] = {}
        beside_rows, fixed_codes = [], self._hold(households, household, position)
        role = households.roles[household, position]
        allowed = {a: shares[role] > 0 for a, shares in self._by_role.items()}
        for origin in origins:
            joints = {}
            for a in self._following:
                size, sigma = self._sizes[a], 0.0
                joint, drawn = np.zeros((self._sizes[origin.name], size, size)), np.empty_like(origin.members.codes[a])
                for k, rows in origin.chosen:
                    t = origin.transitions[a][k]
                    may = allowed[a][rows] if a in allowed else None
                    drawn[rows], joint[k] = draw_next(t.next_codes, origin.members.codes[a][rows], may, rng)
                    sigma = max(sigma, t.sigma * int(rows.sum()))
                joints[a] = joint, sigma
                codes.setdefault(a, drawn)
            beside_rows.append(Beside(origin.members.codes, joints, origin.name))
            fixed_codes[origin.name] = origin.kind.astype(choose_code_dtype(self._sizes[origin.name]))
        seed = int(rng.integers(1 << 62))
        fit_relations(codes, beside_rows, fixed_codes, self._sizes, self._relations, seed, self._threads)
        places = {}
        first_origin = origins[0]
        for a, may in allowed.items():
            for k, rows in first_origin.chosen:
                drawn = codes[a][rows]
                redraw_forbidden(
                    drawn,
                    first_origin.transitions[a][k].next_codes,
                    first_origin.members.codes[a][rows],
                    may[rows],
                    rng,
                )
                codes[a][rows] = drawn
        for a in self._following:
            ordered, places[a] = isinstance(self._plan.get_codec(a), OrderedCodec), np.empty(len(position))
            for k, rows in first_origin.chosen:
                drawing = Places(first_origin.transitions[a][k], ordered)
                at = (first_origin.members.codes[a][rows], first_origin.members.places[a][rows], codes[a][rows])
                places[a][rows] = drawing.draw(*at, rng)[0]
        return _Members(household, position, codes, places)

    def _hold(self, households: _Households, household: Integers, position: Integers) -> dict[str, Codes]:
        """Return the codes that members at these positions already have: of their role and household."""
        related = {a for m in self._relations for a in m.attributes} - {*self._following}
        fixed_codes = {a: households.coarse[a][household] for a in sorted(related - {self._panel.order, KIND_OF_NEXT})}
        role = households.roles[household, position]
        following = households.roles[household, np.minimum(position + 1, households.roles.shape[1] - 1)]
        ahead = following * 2 + (following == role)
        last = position + 1 >= households.members[household]
        fixed_codes[KIND_OF_NEXT] = np.where(last, self._members.kinds, ahead).astype(
            choose_code_dtype(self._sizes[KIND_OF_NEXT])
        )
        fixed_codes[self._panel.order] = households.recode_roles(role)
        return fixed_codes

    def _join(
        self, households: _Households, members: Sequence[_Members], placed: PlacedRecords, rng: np.random.Generator
    ) -> LinkedRows:
        """Return all members, household by household."""
        household, position = (np.concatenate([getattr(m, n) for m in members]) for n in ("household", "position"))
        order = np.lexsort((position, household))
        drawn = (np.arange(len(household)) < len(members[0].household))[order]
        household, fine = household[order], {}
        for codec in self._plan.row_plan.codecs:
            a = codec.attribute
            if a in self._following:
                code, place = (np.concatenate([getattr(m, n)[a] for m in members])[order] for n in ("codes", "places"))
                fine[a] = find_fine_codes(self._followed[a], code, place, codec.size)
                fine[name_stay(a)] = np.zeros(len(code), bool)
            elif a in self._plan.drawn_by_row:
                fine[a] = narrow_codes(self._draws[a](np.zeros(len(household), np.uint8), rng), codec.size)
            elif a != self._panel.order:
                fine[a] = narrow_codes(placed.refine(a), codec.size)[household]
        return LinkedRows(household, households.roles[household, position[order]].astype(np.int64), drawn, fine)


class _Households:
    """The households of some records: their members' roles, and the position of the record's own member."""

    def __init__(
        self,
        order: str,
        compositions: CompositionCodec,
        draws: Mapping[str, FineCodes],
        coarse: dict[str, Codes],
        recode: Recode,
        rng: np.random.Generator,
    ) -> None:
        role = draws[order](coarse[order], rng)
        composition = draws[compositions.attribute](coarse[compositions.attribute], rng)
        composition, role = _match(composition, role, compositions.members, rng)
        code = recode[compositions.attribute]
        composition_code = np.minimum(code.coarse[composition], code.size - 1).astype(
            coarse[compositions.attribute].dtype
        )
        self.coarse, self._role = {**coarse, compositions.attribute: composition_code}, recode[order]
        members = compositions.members[composition]
        self.members = members.sum(axis=1)
        ends = np.cumsum(members, axis=1)
        places = np.arange(compositions.members.sum(axis=1).max())
        self.roles = np.zeros((len(composition), len(places)), np.int16)
        for end in ends.T:
            self.roles += places >= end[:, None]
        every = np.arange(len(composition))
        self.drawn_position = (
            ends[every, role] - 1 - (rng.random(len(composition)) * members[every, role]).astype(np.int64)
        )

    def recode_roles(self, role: Codes) -> Codes:
        """Return the coarse codes of roles."""
        coarse = np.minimum(self._role.coarse[role], self._role.size - 1)
        return coarse.astype(choose_code_dtype(self._role.size))


def _match(
    composition: Integers, role: Integers, members: Integers, rng: np.random.Generator
) -> tuple[Integers, Integers]:
    """Return the records' compositions and roles, such that each role is in its composition.

    Records whose role is missing exchange compositions at random.  Any that remain get the composition of a record of
    the same role, or else a role of their own composition.
    """
    composition, role = composition.copy(), role.copy()
    for _ in range(MATCHES):
        bad = np.flatnonzero(members[composition, role] == 0)
        if not len(bad):
            return composition, role
        composition[bad] = composition[rng.permutation(bad)]
    bad = members[composition, role] == 0
    for r in np.unique(role[bad]):
        like, wanted = composition[(role == r) & ~bad], bad & (role == r)
        if len(like):
            composition[wanted] = rng.choice(like, int(wanted.sum()))
        else:
            role[wanted] = np.argmax(members[composition[wanted]] > 0, axis=1)
    return composition, role


UNMEASURED, FIRST, SECOND = 1.0, 0.3, 0.3
"""Relative errors of the expected shares of codes in a kind of pair: without role shares; by role, first and second.

The first member's error is larger, because heads with children, for example, differ from all heads.
"""


NoisyPairs: TypeAlias = Mapping[str, tuple[Floats, float]]
"""Attribute -> its noisy counts by kind of pair and both codes, shape (kinds, k, k), and their noise."""


def estimate_kinds(
    plan: EncodingPlan,
    recode: Recode,
    marginals: Sequence[Marginal],
    codes: Mapping[str, TransitionCodes],
    neighbours: NoisyPairs,
    with_first: NoisyPairs,
    zeros: KnownZeros | None,
) -> PairsOfMembers:
    """Return the transitions of every followed attribute; ``zeros``: joint ``codes`` that rules forbid.

    The number of pairs of each kind follows from the compositions.  The expected shares of codes follow from the
    relation with the role, if it was measured.
    """
    compositions, roles = plan.get_compositions(), plan.get_order()[1]
    one_ways = list_one_ways(marginals)
    r = recode[compositions.attribute]
    households = np.where(r.kept, r.weight, 0.0) * one_ways[compositions.attribute][np.minimum(r.coarse, r.size - 1)]
    members = households @ compositions.members
    by_role = {a: _share_by_role(a, roles, recode, marginals, c, zeros) for a, c in codes.items()}

    def estimate(counted: NoisyPairs, pairs: Integers, first_kinds: Floats) -> KindsOfPairs:
        drawn = households[:, None] * pairs / np.maximum(pairs.sum(axis=1, keepdims=True), 1)
        number = drawn.sum(axis=0)
        by_attribute = {}
        for a, (counts, sigma) in counted.items():
            shares, measured = by_role[a]
            like = _compare_by_kind(a, compositions, drawn, recode, marginals, codes[a])
            first = _scale(first_kinds @ shares * like)
            second = _scale(shares[np.arange(compositions.kinds) // 2] * like)
            relative = (FIRST, SECOND) if measured else (UNMEASURED, UNMEASURED)
            by_attribute[a] = [
                estimate_pairs(counts[k], sigma, number[k], first[k], second[k], relative, codes[a].ordered)
                for k in range(compositions.kinds)
            ]
        return by_attribute

    transitions = estimate(neighbours, compositions.pairs, _share_roles_before(compositions, households))
    every, ahead = households @ compositions.pairs, []
    number = float((households * (compositions.members.sum(axis=1) > 1)).sum())
    for a, (_, sigma) in neighbours.items():
        counted = every[:, None] * [t.shares for t in transitions[a]]
        last = np.maximum(members @ by_role[a][0] - counted.sum(axis=0), 1e-3 * members @ by_role[a][0])
        noise = sigma * float(every.sum()) / max(number, 1e-9) * np.sqrt(codes[a].size)
        ahead.append(Marginal((KIND_OF_NEXT, a), np.vstack([counted, last]), noise))
    beside_first = estimate(with_first, compositions.pairs_with_first, _share_first_roles(compositions, households))
    limited = {a: shares for a, (shares, _) in by_role.items() if not shares.all()}
    return PairsOfMembers(transitions, beside_first, ahead, limited)


def _share_roles_before(compositions: CompositionCodec, households: Floats) -> Floats:
    """Return, for each kind of pair, the shares of roles among its first members, shape (kinds, roles)."""
    drawn = households / np.maximum(compositions.members.sum(axis=1) - 1, 1)
    roles = compositions.members.shape[1]
    before = np.zeros((compositions.kinds, roles))
    for role in range(roles):
        others = compositions.members[:, :role] > 0
        have_others = (compositions.members[:, role] > 0) & others.any(axis=1)
        if role:
            last = role - 1 - np.argmax(others[:, ::-1], axis=1)
            before[role * 2] = np.bincount(last[have_others], weights=drawn[have_others], minlength=roles)
        before[role * 2 + 1, role] = 1.0
    return before / np.maximum(before.sum(axis=1, keepdims=True), 1e-9)


def _share_first_roles(compositions: CompositionCodec, households: Floats) -> Floats:
    """Return the shares of roles among first members that have a later member of each kind, shape (kinds, roles)."""
    later = compositions.pairs_with_first
    drawn = households[:, None] * later / np.maximum(later.sum(axis=1, keepdims=True), 1)
    return np.asarray(_scale(drawn.T @ np.eye(compositions.members.shape[1])[compositions.find_first(0)]))


def _scale(shares: Floats) -> Floats:
    return shares / np.maximum(shares.sum(axis=1, keepdims=True), 1e-300)


def _compare_by_kind(
    a: str,
    compositions: CompositionCodec,
    pairs: Floats,
    recode: Recode,
    marginals: Sequence[Marginal],
    codes: TransitionCodes,
) -> Floats:
    """Return how much more frequent each code is in households with each kind of pair, 1 if unmeasured.

    ``pairs``: the number of pairs by composition and kind.
    """
    counts = _find_pair(marginals, compositions.attribute, a, codes)
    if counts is None:
        return np.ones((compositions.kinds, codes.size))
    overall = counts.sum(axis=0) / max(float(counts.sum()), 1e-9)
    shares = _scale(counts + counts.sum(axis=1, keepdims=True) * 1e-2 * overall + 1e-9)
    coarse = np.minimum(recode[compositions.attribute].coarse, recode[compositions.attribute].size - 1)
    of_kind = _scale(pairs.T) @ shares[coarse]
    return np.where(of_kind > 0, of_kind, 1.0) / np.maximum(overall, 1e-9)


def _find_pair(marginals: Sequence[Marginal], first: str, a: str, codes: TransitionCodes) -> Floats | None:
    """Return the counts of ``first`` by the followed codes of ``a``, nonnegative; None if no marginal has both."""
    for m in marginals:
        if {*m.attributes} == {a, first}:
            counts = m.counts if m.attributes[0] == first else m.counts.T
            return np.asarray(np.maximum(counts, 0.0) @ codes.split)
    return None


def _share_by_role(
    a: str,
    role_codec: Codec,
    recode: Recode,
    marginals: Sequence[Marginal],
    codes: TransitionCodes,
    zeros: KnownZeros | None,
) -> tuple[Floats, bool]:
    """Return the shares of the codes of ``a`` by role, 0 for codes that rules forbid, and whether they are measured."""
    role, roles = role_codec.attribute, role_codec.size
    coarse = np.minimum(recode[role].coarse, recode[role].size - 1)[:roles]
    forbidden = None if zeros is None else zeros.on((role, a), (recode[role].size, codes.size))
    allowed = np.ones((roles, codes.size)) if forbidden is None else (~forbidden[coarse]).astype(np.float64)
    allowed[allowed.sum(axis=1) == 0] = 1.0
    counts = _find_pair(marginals, role, a, codes)
    if counts is not None:
        overall = counts.sum(axis=0) / max(float(counts.sum()), 1e-9)
        return _scale((counts[coarse] + 1e-3 * overall + 1e-9) * allowed), True
    one_way = list_one_ways(marginals)[a] @ codes.split
    one_way = np.maximum(one_way, 0.0) / max(float(one_way.sum()), 1e-9)
    return _scale((one_way + 1e-9) * allowed), False
