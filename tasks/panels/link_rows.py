"""Link synthetic records into persons, adding rows before and after each record by the measured transitions.

A record is one row of a person, with its position among the person's rows.  Rows after it are made step by step, rows
before it by reversed transitions.  Each step draws the codes of all persons that have such a row by each column's
transitions.  It then moves them, value by value, until the measured relations between the columns of the new rows hold
too.  Post-processing of released counts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri
from scipy.stats import rankdata

from privsyn.data_contracts.domain import Merge, choose_code_dtype
from privsyn.data_contracts.panels import name_stay
from privsyn.tasks.codecs import EncodingPlan
from privsyn.tasks.codecs.ordered import OrderedCodec
from privsyn.tasks.codecs.person_figures import PersonFigureCodec
from privsyn.tasks.estimation.marginals import Marginal
from privsyn.tasks.estimation.recode import Recode
from privsyn.tasks.kernels.counting import CodeTable, choose_thread_count
from privsyn.tasks.kernels.gum_update import TargetMarginal
from privsyn.tasks.panels.allowed_codes import AllowedCodes, RowsInCodes, combine, draw_allowed, take_values
from privsyn.tasks.panels.choose_persons import NoisyCounts, choose_persons
from privsyn.tasks.panels.choose_rows import list_groups, summarize_linked
from privsyn.tasks.panels.gaps import Gaps, OrderSteps
from privsyn.tasks.panels.transitions import CORRELATIONS, Transition, TransitionCodes, Transitions
from privsyn.tasks.rules.intervals import Interval, read_cells, read_rows
from privsyn.tasks.synthesis.fine_codes import FineCodes, PlacedRecords, RelatedPlaces
from privsyn.tasks.synthesis.shards import Shard

Floats: TypeAlias = NDArray[np.float64]
Integers: TypeAlias = NDArray[np.int64]
Codes: TypeAlias = NDArray[Any]


@dataclass(frozen=True, eq=False)
class _Rows:
    """One row per person; every array has shape (persons,).

    Attributes:
        position: The row's position among the person's rows, from 0.
        step: The row's step in the order.
        codes: The code of every followed attribute.
        places: The place of every followed attribute's value inside its code.
        stays: Whether the value equals the value of the neighbour from which the row was made.
    """

    person: Codes
    position: Codes
    step: Integers
    codes: dict[str, Codes]
    places: dict[str, Floats]
    stays: dict[str, NDArray[np.bool_]]

    def take(self, chosen: NDArray[np.bool_]) -> _Rows:
        """Return some of the rows."""
        return _Rows(
            self.person[chosen],
            self.position[chosen],
            self.step[chosen],
            {a: code[chosen] for a, code in self.codes.items()},
            {a: place[chosen] for a, place in self.places.items()},
            {a: stays[chosen] for a, stays in self.stays.items()},
        )


class Linker:
    """Links persons' records into rows, from released counts alone.

    ``marginals``: consistent, over the records' attributes in coarse codes; ``codes`` and ``transitions``: of the
    followed attributes; ``noisy_rows``: column -> counts of all rows.  The same seed gives the same rows.
    """

    def __init__(
        self,
        plan: EncodingPlan,
        recode: Recode,
        marginals: Sequence[Marginal],
        codes: Mapping[str, TransitionCodes],
        transitions: Transitions,
        noisy_rows: NoisyCounts,
        threads: int = 0,
    ) -> None:
        """Take the released counts; see the class."""
        self._plan, self._recode, self._threads = plan, recode, choose_thread_count(threads)
        self._noisy_rows = noisy_rows
        self._panel, codec = plan.get_order()
        assert isinstance(codec, OrderedCodec)  # noqa: S101 - the spec has checked its kind
        self._order = OrderSteps(codec, plan.order_unit)
        self._following = plan.following
        ordered = {a: isinstance(plan.get_codec(a), OrderedCodec) for a in plan.following}
        self._places = {
            forward: {a: Places(t if forward else t.reverse(), ordered[a]) for a, t in transitions.items()}
            for forward in (True, False)
        }
        self._draws = {c.attribute: FineCodes(recode[c.attribute]) for c in plan.codecs}
        self._followed = {a: FineCodes(c.recode) for a, c in codes.items()}
        self._sizes = {a: r.size for a, r in recode.items()} | {a: c.size for a, c in codes.items()}
        without_gap = [m.project(set(m.attributes) - {self._panel.gap}) for m in marginals]
        related = [m for m in without_gap if len(m.attributes) > 1]
        related = [m for m in related if not set(m.attributes).isdisjoint(self._following)]
        self._relations = [recode_relation(m, codes) for m in related]
        self._allowed = AllowedCodes(plan, codes)

    def link(self, records: CodeTable, seed: int, model: RelatedPlaces | None = None) -> LinkedRows:
        """Return the linked rows of these records, given as coarse codes; persons in random order.

        ``model``: draws places of records' values inside codes; None for uniform places.  Persons are dropped or
        duplicated so that rows have the measured shares of codes.
        """
        rng = np.random.default_rng([seed, 0x11D3])
        order = rng.permutation(records.rows)
        coarse = {a: records.column(a)[order] for a in records.domain.attributes}
        linked, codes, figures = self._link(coarse, model, rng)
        groups = list_groups(self._plan, self._recode, coarse, figures)
        times = choose_persons(linked.person, codes, self._noisy_rows, seed, groups)
        return repeat_persons(linked, times, coarse, lambda again: self._link(again, model, rng)[0])

    def link_each(self, records: CodeTable, seed: int, model: RelatedPlaces | None = None) -> LinkedRows:
        """Return the linked rows of these records, each once, in the records' order."""
        rng = np.random.default_rng([seed, 0x11D3])
        coarse = {a: records.column(a) for a in records.domain.attributes}
        return self._link(coarse, model, rng)[0]

    def _link(
        self, coarse: dict[str, Codes], model: RelatedPlaces | None, rng: np.random.Generator
    ) -> tuple[LinkedRows, dict[str, Codes], dict[str, Codes]]:
        """Return the rows of a person per record, their coarse codes in counted columns, and the summaries' codes.

        The summaries are computed from the linked rows.
        """
        persons = _Persons(self, coarse, PlacedRecords(self._draws, coarse, model, rng), rng)
        row_sets = [persons.drawn_rows]
        for forward in (True, False):
            remaining = persons.rows - 1 - persons.before if forward else persons.before
            now, done = persons.drawn_rows, 0
            while (now := now.take(remaining[now.person] > done)).person.size:
                done += 1
                now = self._make_next(persons, now, remaining[now.person] - done, rng, forward=forward)
                row_sets.append(now)
        return self._join(persons, row_sets, rng)

    def draw_figure(self, name: str, coarse: Mapping[str, Codes], rng: np.random.Generator) -> Integers:
        """Return a figure of each person."""
        codec = self._plan.get_codec(name)
        if not isinstance(codec, PersonFigureCodec):
            raise TypeError(f"{name!r} is not a figure of a person")
        return codec.draw(self._draws[name](coarse[name], rng), rng)

    def _make_next(
        self, persons: _Persons, now: _Rows, remaining: Integers, rng: np.random.Generator, *, forward: bool
    ) -> _Rows:
        """Return the rows after ``now``, or before; ``remaining``: how many more rows each person has beyond them."""
        by_attribute = self._places[forward]
        allows = partial(self._allow_steps, persons, now, forward=forward) if self._allowed.of_steps else None
        step = persons.gaps.move(now.step, remaining, rng, forward=forward, allows=allows)
        position = now.position + (1 if forward else -1)
        find_allowed = partial(self._find_allowed, persons, now, step, forward=forward)
        codes: dict[str, Codes] = {}
        joints = {}
        for a in self._following:
            transition, ranks = by_attribute[a].transition, by_attribute[a].rank(now.codes[a], now.places[a], rng)
            codes[a], joint = draw_next(transition.next_codes, now.codes[a], find_allowed(a, codes), rng, ranks)
            joints[a] = joint, transition.sigma * len(step)
        fixed_codes = self._hold(persons, now.person, position, step)
        seed = int(rng.integers(1 << 62))
        fit_relations(
            codes, [Beside(now.codes, joints)], fixed_codes, self._sizes, self._relations, seed, self._threads
        )
        for number, a in enumerate(self._following):
            before = {b: codes[b] for b in self._following[:number]}
            next_codes = by_attribute[a].transition.next_codes
            redraw_forbidden(codes[a], next_codes, now.codes[a], find_allowed(a, before), rng)
        places, stays = {}, {}
        for a in self._following:
            places[a], stays[a] = by_attribute[a].draw(now.codes[a], now.places[a], codes[a], rng)
        return _Rows(now.person, position, step, codes, places, stays)

    def _allow_steps(
        self, persons: _Persons, now: _Rows, rows: Integers, step: Integers, *, forward: bool
    ) -> NDArray[np.bool_]:
        """Return which places ``step`` the rules allow the rows after some of ``now``, or before them."""
        new, known = (partial(persons.read_carried, person=now.person[rows], step=at) for at in (step, now.step[rows]))
        return self._allowed.allow_steps(new, known, len(rows), forward=forward)

    def _find_allowed(
        self, persons: _Persons, now: _Rows, step: Integers, attribute: str, codes: dict[str, Codes], *, forward: bool
    ) -> NDArray[np.bool_] | None:
        """Return the codes of ``attribute`` that rules allow the rows after ``now``, or before them; None for all.

        ``codes``: the rows' codes so far.
        """
        if not self._allowed.words:
            return None
        new = RowsInCodes(codes, partial(persons.read_carried, person=now.person, step=step))
        known = RowsInCodes(now.codes, partial(persons.read_carried, person=now.person, step=now.step))
        words = (("previous", forward), ("next", not forward))
        return combine(
            [self._allowed.find(attribute, new, known, word, new_is_own=new_is_own) for word, new_is_own in words]
        )

    def _hold(self, persons: _Persons, person: Integers, position: Integers, step: Integers) -> dict[str, Codes]:
        """Return the coarse codes that new rows already have: constants, figures, order and columns growing with it."""
        panel, fixed_codes = self._panel, {}
        related = {a for m in self._relations for a in m.attributes}
        for a in sorted(related - set(self._following)):
            if a == panel.order:
                fixed_codes[a] = self._encode(a, self._order.release(step))
            elif a in panel.with_order:
                fixed_codes[a] = self._encode(a, persons.grow(a, person, step))
            elif a == panel.before:
                most = np.maximum(persons.rows[person] - 2, 0)
                fixed_codes[a] = self._encode(a, pa.array(np.minimum(position, most)))
            else:
                fixed_codes[a] = persons.coarse[a][person]
        return fixed_codes

    def _encode_rows(self, attribute: str, persons: _Persons, person: Codes, step: Integers) -> Codes:
        """Return the coarse codes of the order, or of a column growing with it, at these steps, block by block."""
        encoded = np.empty(len(step), choose_code_dtype(self._recode[attribute].size))
        for first in range(0, len(step), BLOCK):
            block = slice(first, first + BLOCK)
            if attribute == self._panel.order:
                values = self._order.release(step[block])
            else:
                values = persons.grow(attribute, person[block], step[block])
            encoded[block] = self._encode(attribute, values)
        return encoded

    def _encode(self, attribute: str, values: pa.Array) -> Codes:
        return self._to_coarse(attribute, self._plan.get_codec(attribute).encode({attribute: values})[0])

    def _to_coarse(self, attribute: str, fine: Integers) -> Codes:
        recode = self._recode[attribute]
        return np.minimum(recode.coarse[fine], recode.size - 1).astype(choose_code_dtype(recode.size))

    def _summarize(
        self, persons: _Persons, person: Integers, step: Integers, fine: Mapping[str, Integers]
    ) -> dict[str, Codes]:
        """Return the coarse codes of each person's summaries, from the codes of linked rows, person by person."""
        followed = [c for c in self._plan.row_plan.codecs if c.attribute in self._following]
        of_column = {name: codec for codec in followed for name in codec.ranges()}

        def read(name: str) -> Interval:
            codec = of_column.get(name)
            if codec is None:
                return persons.read_carried(name, person, step)
            return take_values(read_cells(codec.value_bounds()[name], self._plan.vocabulary), fine[codec.attribute])

        return summarize_linked(self._plan, self._recode, read, np.diff(person, prepend=-1) != 0)

    def _join(
        self, persons: _Persons, row_sets: list[_Rows], rng: np.random.Generator
    ) -> tuple[LinkedRows, dict[str, Codes], dict[str, Codes]]:
        """Return all rows, person by person, and their codes as in :meth:`_link`.

        ``row_sets`` is emptied to hold all rows about once in memory.
        """
        person, position, step = (
            np.concatenate([getattr(r, n) for r in row_sets]) for n in ("person", "position", "step")
        )
        parts = [(r.codes, r.places, r.stays) for r in row_sets]
        row_sets.clear()
        order = np.lexsort((position, person))
        drawn = order < len(persons.drawn_rows.person)
        person, position, step, fine = person[order], position[order], step[order], {}
        rank = np.empty_like(order)
        rank[order] = np.arange(len(order))
        del order
        drawn_position = persons.before.astype(position.dtype)[person]
        before, after = position < drawn_position, position > drawn_position
        del drawn_position, position
        for codec in self._plan.row_plan.codecs:
            a = codec.attribute
            if a in self._following:
                code, place, stays = (
                    _put_at(rank, [values_of.pop(a) for values_of in each]) for each in zip(*parts, strict=True)
                )
                fine[a] = find_fine_codes(self._followed[a], code, place, codec.size)
                as_before = stays & after
                as_before[1:] |= (stays & before)[:-1]  # made from the next row, so that one stays
                fine[name_stay(a)] = as_before
            elif a in self._plan.drawn_by_row:
                fine[a] = narrow_codes(self._draws[a](np.zeros(len(person), np.uint8), rng), codec.size)
            elif a != self._panel.order:
                fine[a] = narrow_codes(persons.fine[a], codec.size)[person]
        codes = {}
        for a in self._noisy_rows:
            if a == self._panel.order or a in self._panel.with_order:
                codes[a] = self._encode_rows(a, persons, person, step)
            else:
                codes[a] = self._to_coarse(a, fine[a])
        return LinkedRows(person, step, drawn, fine), codes, self._summarize(persons, person, step, fine)


class _Persons:
    """The persons of some records: their figures, their records' rows, and the constant columns."""

    def __init__(
        self, linker: Linker, coarse: dict[str, Codes], placed: PlacedRecords, rng: np.random.Generator
    ) -> None:
        plan, panel = linker._plan, linker._panel
        self.coarse, self._plan, self._panel, self._order = coarse, plan, panel, linker._order
        self.rows, before, gap = (linker.draw_figure(name, coarse, rng) for name in panel.figures)
        self.before = np.minimum(before, np.maximum(self.rows - 2, 0))
        following = {*plan.following}
        self.fine = {a: placed.refine(a) for a in plan.row_plan.domain.attributes if a not in following}
        values = plan.get_codec(panel.order).decode(self.fine[panel.order], rng)[panel.order]
        places_in_order = linker._order.read_values(values)
        after = self.rows - 1 - self.before
        self.gaps = Gaps(places_in_order, gap, self.before, after, linker._order.bounds)
        self._step = self.gaps.fit(places_in_order, self.before, after)
        self._grown = {}
        for a in panel.with_order:
            codec = plan.get_codec(a)
            self._grown[a] = codec.decode(self.fine[a], rng)[a].cast(pa.float64()).to_numpy(zero_copy_only=False)
        codes, places = {}, {}
        for a in plan.following:
            code, places[a] = linker._followed[a].locate(*placed.place(a))
            codes[a] = code.astype(choose_code_dtype(linker._sizes[a]))
        none = {a: np.zeros(len(places_in_order), bool) for a in codes}
        number, position = (numbers.astype(np.int32) for numbers in (np.arange(len(places_in_order)), self.before))
        self.drawn_rows = _Rows(number, position, self._step, codes, places, none)

    def read_carried(self, name: str, person: Integers, step: Integers) -> Interval:
        """Return the possible values of a column that is not followed, in rows of these persons at these steps."""
        plan, panel = self._plan, self._panel
        vocabulary = plan.vocabulary
        if name == panel.order:
            return read_rows(self._order.release(step), vocabulary)
        if name in panel.with_order:
            return read_rows(self.grow(name, person, step), vocabulary)
        codec = next(c for c in plan.codecs if name in c.ranges())
        return take_values(read_cells(codec.value_bounds()[name], vocabulary), self.fine[codec.attribute][person])

    def grow(self, attribute: str, person: Integers, step: Integers) -> pa.Array:
        """Return the values of a column that grows with the order, at these steps of these persons."""
        values = self._grown[attribute][person] + (step - self._step[person]) * self._plan.order_unit
        return pa.array(values, from_pandas=True)


def narrow_codes(codes: Codes, size: int) -> Codes:
    """Return codes below ``size`` in the smallest type, because there is one per row of every person."""
    return codes.astype(choose_code_dtype(size))


def _put_at(rank: Integers, parts: list[Codes]) -> Codes:
    """Return the values of all parts, each at its rank; empties ``parts`` on the way."""
    joined, start = np.empty(len(rank), parts[0].dtype), 0
    while parts:
        part = parts.pop(0)
        joined[rank[start : start + len(part)]] = part
        start += len(part)
    return joined


BLOCK = 1 << 18
"""Rows whose fine codes are found at once."""


def find_fine_codes(codes: FineCodes, coarse: Codes, places: Floats, size: int) -> Codes:
    """Return the fine code at each place of a coarse code, in the smallest type for codes below ``size``."""
    fine = np.empty(len(coarse), choose_code_dtype(size))
    for first in range(0, len(coarse), BLOCK):
        block = slice(first, first + BLOCK)
        fine[block] = codes.find_at(coarse[block], places[block])[0]
    return fine


def recode_relation(marginal: Marginal, codes: Mapping[str, TransitionCodes]) -> Marginal:
    """Return the counts by transition codes; inside a coarse code, all transition codes have equal relations."""
    counts = marginal.counts
    for axis, a in enumerate(marginal.attributes):
        if a in codes:
            counts = np.moveaxis(np.tensordot(counts, codes[a].split, axes=(axis, 0)), -1, axis)
    return Marginal(marginal.attributes, counts, marginal.sigma)


def draw_codes(probabilities: Floats, codes: Codes, rng: np.random.Generator, ranks: Floats | None = None) -> Codes:
    """Return one code per row, drawn systematically by the ``probabilities`` of the row's code.

    ``ranks``: in one code, rows with a higher rank get the higher codes; None: at random.
    """
    drawn_codes = np.empty_like(codes)
    order = np.argsort(codes, kind="stable")
    counts = np.bincount(codes, minlength=len(probabilities))
    ends = np.cumsum(counts)
    for code in np.flatnonzero(counts):
        n = int(counts[code])
        rows = order[ends[code] - n : ends[code]]
        marks = ((rng.permutation(n) if ranks is None else rankdata(ranks[rows]) - 1) + rng.random(n)) / n
        marks = marks * probabilities[code].sum() * (1 - 1e-12)
        drawn = np.searchsorted(np.cumsum(probabilities[code]), marks, side="right")
        drawn_codes[rows] = np.minimum(drawn, probabilities.shape[1] - 1)
    return drawn_codes


def repeat_persons(
    linked: LinkedRows, times: Integers, coarse: Mapping[str, Codes], link: Callable[[dict[str, Codes]], LinkedRows]
) -> LinkedRows:
    """Return the rows of each person ``times`` times; repetitions are linked anew by ``link``.

    ``coarse``: the codes of the persons' records.
    """
    again = np.repeat(np.arange(len(times)), np.maximum(times - 1, 0))
    taken = linked.take(times > 0)
    return taken.join(link({a: code[again] for a, code in coarse.items()})) if len(again) else taken


def draw_next(
    probabilities: Floats,
    previous: Codes,
    allowed: NDArray[np.bool_] | None,
    rng: np.random.Generator,
    ranks: Floats | None = None,
) -> tuple[Codes, Floats]:
    """Return one code per row, drawn like ``draw_codes`` among ``allowed``, and the expected counts by current code.

    ``allowed``: shape (rows, codes); None for all.  ``ranks``: see ``draw_codes``; unused where some are not allowed.
    """
    if allowed is not None:
        return draw_allowed(draw_codes, probabilities, previous, allowed, rng)
    counts = np.bincount(previous, minlength=len(probabilities))
    return draw_codes(probabilities, previous, rng, ranks), counts[:, None] * probabilities


def redraw_forbidden(
    codes: Codes, probabilities: Floats, previous: Codes, allowed: NDArray[np.bool_] | None, rng: np.random.Generator
) -> None:
    """Redraw the codes that are not ``allowed``, in place."""
    if allowed is None:
        return
    wrong = np.flatnonzero(~allowed[np.arange(len(codes)), codes])
    if len(wrong):
        codes[wrong] = draw_next(probabilities, previous[wrong], allowed[wrong], rng)[0]


_LEAST, _MOST = 1e-9, 1 - 1e-9

_MIDDLES = (np.arange(16) + 0.5) / 16
"""Places in a code from which its chances to move are computed."""


@dataclass(frozen=True, eq=False)
class Places:
    """Draws the places of one attribute's next values inside their coarse codes.

    ``transition``: to the new rows; ``ordered``: whether the attribute's codes are intervals.
    """

    transition: Transition
    ordered: bool

    def draw(
        self, previous: Codes, old: Floats, code: Codes, rng: np.random.Generator
    ) -> tuple[Floats, NDArray[np.bool_]]:
        """Return the place of each new value in ``code``, and whether the value stays the same.

        ``old``: the place of the value before, in the code ``previous``.  A value that stays keeps its place.  In an
        ordered column, a changed value lies near its old place, by a normal copula; otherwise it lies anywhere in its
        code.  Changed values lie evenly in each code.
        """
        t = self.transition
        stays = t.same / np.maximum(t.same + np.diag(t.moves), 1e-12)
        same = (code == previous) & (rng.random(len(code)) < stays[previous])
        new, changed = rng.random(len(code)), np.flatnonzero(~same)
        if self.ordered:
            near = self._draw_near(previous[changed], old[changed], code[changed], rng)
            new[changed] = _spread_evenly(code[changed], near, new[changed])
        return np.where(same, old, new), same

    def rank(self, previous: Codes, old: Floats, rng: np.random.Generator) -> Floats | None:
        """Return a random number per row that follows the old place as the next value does; None without an order."""
        if not self.ordered:
            return None
        expected, spread, *_ = self._reach(self._draw_correlations(previous, rng), previous, old, previous)
        return expected + spread * ndtri(np.clip(rng.random(len(old)), _LEAST, _MOST))

    def _draw_near(self, previous: Codes, old: Floats, code: Codes, rng: np.random.Generator) -> Floats:
        expected, spread, bottom, top = self._reach(self._draw_correlations(previous, rng), previous, old, code)
        draws = rng.random(len(code))
        rank = ndtr(expected + spread * ndtri(np.clip(bottom + draws * (top - bottom), _LEAST, _MOST)))
        return np.where(top - bottom > 1e-6, rank, draws)

    def _draw_correlations(self, previous: Codes, rng: np.random.Generator) -> Floats:
        """Return each row's correlation with the old value: 0 for the rows whose next value does not follow from it."""
        correlation, follows = self._correlate_inside
        return np.where(rng.random(len(previous)) < follows[previous], correlation[previous], 0.0)

    def _reach(self, correlation: Any, previous: Codes, old: Floats, code: Codes) -> tuple[Floats, Floats, Any, Any]:
        """Return the mean and spread of the next score, and the chances that it is below each end of ``code``."""
        spread = np.sqrt(1 - correlation**2)
        low, width = _rank(self.transition.shares)
        low_next, width_next = _rank(self.transition.shares @ self.transition.next_codes)
        expected = correlation * ndtri(np.clip(low[previous] + old * width[previous], _LEAST, _MOST))
        ends = [ndtri(np.clip(end[code], _LEAST, _MOST)) for end in (low_next, low_next + width_next)]
        return expected, spread, *(ndtr((end - expected) / spread) for end in ends)

    @cached_property
    def _correlate_inside(self) -> tuple[Floats, Floats]:
        """The correlation, and the share of rows that follow it, that explain the moves from each code, shape (codes,).

        Both are by code, since high values may persist more than others.
        """
        t, size = self.transition, len(self.transition.shares)
        code, old, new = (part.ravel() for part in np.meshgrid(range(size), _MIDDLES, range(size), indexing="ij"))
        tried = np.array((0.0, *CORRELATIONS))
        reached = [self._reach(r, code, old, new) for r in tried]
        expected = np.array([(top - bottom).reshape(size, -1, size).mean(axis=1) for *_, bottom, top in reached])
        expected *= np.where(np.eye(size, dtype=bool), t.apart, t.moves > 0)
        expected *= t.moves.sum(axis=1, keepdims=True) / np.maximum(expected.sum(axis=2, keepdims=True), 1e-12)
        away, moves = expected - expected[0], t.moves - expected[0]
        follows = np.clip((away * moves).sum(axis=2) / np.maximum((away**2).sum(axis=2), 1e-300), 0.0, 1.0)
        off = ((follows[..., None] * away - moves) ** 2).sum(axis=2)
        # a code in the middle does not show the sign, so all codes have the same
        ways = [np.where((tried * way >= 0)[:, None], off, np.inf) for way in (1, -1)]
        best = min(ways, key=lambda way: float(way.min(axis=0) @ t.shares)).argmin(axis=0)
        return tried[best], follows[best, np.arange(size)]


def _spread_evenly(code: Codes, near: Floats, draws: Floats) -> Floats:
    """Return even places inside each code, in the order of ``near``; ``draws``: uniform, for the rest of a place."""
    order = np.lexsort((near, code))
    counts = np.bincount(code)
    first = np.cumsum(counts) - counts
    places = np.empty(len(code))
    places[order] = np.arange(len(code)) - first[code[order]]
    return np.minimum((places + draws) / counts[code], _MOST)


def _rank(shares: Floats) -> tuple[Floats, Floats]:
    """Return the share of rows below each code, and the share in it."""
    return np.cumsum(shares) - shares, shares


KIND = "(kind of pair)"
"""Key of new household members' kind of pair with the member before; no attribute has this name."""

KIND_BESIDE_FIRST = "(kind beside the first)"
"""Key of their kind of pair with the first member; no attribute has this name."""

KIND_OF_NEXT = "(kind of pair ahead)"
"""Key of household members' kind of pair with the next member, last code for none; no attribute has this name."""

SWEEPS = 6
"""The most sweeps."""

KEPT = 256
"""Weight of transitions, where a relation of median noise weighs 4: persons' continuity comes first."""

ROUNDS = 20
"""Rounds of fitting a measured relation to the new rows' shares."""


@dataclass(frozen=True, eq=False)
class Beside:
    """One existing row per person, and how the new rows follow from it.

    ``codes``: of the followed attributes; ``joints``: attribute -> the wanted number of new rows by existing and new
    code, and its noise; if ``kind`` is given, first by that fixed attribute.
    """

    codes: Mapping[str, Codes]
    joints: Mapping[str, tuple[Floats, float]]
    kind: str | None = None


def fit_relations(
    new: dict[str, Codes],
    beside_rows: Sequence[Beside],
    fixed_codes: Mapping[str, Codes],
    sizes: Mapping[str, int],
    relations: Sequence[Marginal],
    seed: int,
    threads: int,
) -> None:
    """Move the codes ``new`` of some rows, in place, towards transitions and relations at once.

    Args:
        new: Attribute -> codes, shape (rows,), of the new rows.
        beside_rows: The rows that the new rows follow from; the first one gives the shares of single codes.
        fixed_codes: Attribute -> codes that the new rows already have.
        sizes: The number of codes of each attribute.
        relations: Measured counts over new and fixed attributes, possibly in merged codes.  Only their association is
            used; the shares of single codes are the rows'.
        seed: Seed of the random streams.
        threads: How many threads work on blocks of rows.
    """
    from privsyn.tasks.kernels.sweep_moves import Sweeper  # these here: compiled code loads slowly
    from privsyn.tasks.synthesis.sweep import compute_residuals, cool, weigh_marginals

    moved = [a for a in new if any(a in m.attributes for m in relations)]
    if not moved:
        return
    rows = len(new[moved[0]])
    places = {a: i for i, a in enumerate(moved)}
    place = places | {a: i + (1 + len(beside_rows)) * len(moved) for i, a in enumerate(fixed_codes)}
    codes_beside = [row.codes[a] for row in beside_rows for a in moved]
    columns = [np.ascontiguousarray(c) for c in (*(new[a] for a in moved), *codes_beside, *fixed_codes.values())]
    shares = {a: np.bincount(c, minlength=sizes[a]).astype(np.float64) for a, c in fixed_codes.items()}
    targets: list[TargetMarginal] = []
    transition_targets: list[int] = []
    for a in moved:
        first_shares = beside_rows[0].joints[a][0].reshape(-1, sizes[a]).sum(axis=0) if beside_rows else None
        shares[a] = np.bincount(new[a], minlength=sizes[a]).astype(np.float64) if first_shares is None else first_shares
        targets.append(TargetMarginal((place[a],), shares[a].shape, shares[a]))
        for number, row in enumerate(beside_rows):
            joint, sigma = row.joints[a]
            by = () if row.kind is None else (place[row.kind],)
            transition_targets.append(len(targets))
            at = (*by, places[a] + (1 + number) * len(moved), places[a])
            targets.append(TargetMarginal(at, joint.shape, joint.ravel(), sigma))
    for m in relations:
        fitted = fit_to_shares(m.counts, [_sum_merged(shares[a], m.get_merge(a)) for a in m.attributes])
        scale = rows / max(float(m.counts.sum()), 1.0)
        at = tuple(place[a] for a in m.attributes)
        targets.append(TargetMarginal(at, fitted.shape, fitted.ravel(), m.sigma * scale, merges=m.merges))
    all_sizes = [sizes[a] for a in (*moved * (1 + len(beside_rows)), *fixed_codes)]
    residuals = compute_residuals(columns, all_sizes, targets, 0, threads, Shard(seed))
    cliques = [target.attributes for target in targets]
    weights = weigh_marginals(targets)
    for number in transition_targets:
        weights[number] = KEPT
    merges = [target.merges for target in targets]
    with Sweeper(columns, all_sizes, cliques, weights, residuals, threads, merges=merges) as sweeper:
        cool(sweeper, np.arange(len(moved)), SWEEPS, (seed, 0))
    for a, column in zip(moved, columns, strict=False):
        new[a] = column


def _sum_merged(shares: Floats, merge: Merge | None) -> Floats:
    """Return shares by merged codes; unchanged without a merge."""
    return shares if merge is None else np.bincount(merge, weights=shares).astype(np.float64)


def fit_to_shares(counts: Floats, shares: Sequence[Floats]) -> Floats:
    """Return counts with the same association, whose sums along each axis are ``shares``, by proportional fitting."""
    total = float(shares[0].sum())
    fitted = counts + 1e-6 * max(float(counts.mean()), 1e-9)
    for _ in range(ROUNDS):
        for axis, wanted in enumerate(shares):
            others = tuple(i for i in range(fitted.ndim) if i != axis)
            sums = fitted.sum(axis=others)
            ratio = np.where(sums > 0, wanted / np.maximum(sums, 1e-300), 0.0)
            fitted = fitted * ratio.reshape([-1 if i == axis else 1 for i in range(fitted.ndim)])
    return np.asarray(fitted * (total / max(float(fitted.sum()), 1e-300)))


@dataclass(frozen=True, eq=False)
class LinkedRows:
    """Linked rows, person by person and in order; every array has shape (rows,).

    Attributes:
        person: The person's number from 0.
        step: The row's place in the order, in steps of the order's unit.
        drawn: Whether the row is the person's record.
        fine: The fine codes of all row attributes except the order's.  For followed attributes, also whether the value
            equals the value in the row before (:func:`privsyn.data_contracts.panels.name_stay`).
    """

    person: Codes
    step: Integers
    drawn: NDArray[np.bool_]
    fine: dict[str, Codes]

    def take(self, persons: NDArray[np.bool_]) -> LinkedRows:
        """Return the rows of some persons, with numbers from 0."""
        rows, number = persons[self.person], (np.cumsum(persons) - 1).astype(self.person.dtype)
        fine = {a: code[rows] for a, code in self.fine.items()}
        return LinkedRows(number[self.person[rows]], self.step[rows], self.drawn[rows], fine)

    def join(self, others: LinkedRows) -> LinkedRows:
        """Return these rows followed by the rows of other persons."""
        first = int(self.person.max(initial=-1)) + 1
        return LinkedRows(
            np.concatenate([self.person, others.person + first]),
            np.concatenate([self.step, others.step]),
            np.concatenate([self.drawn, others.drawn]),
            {a: np.concatenate([code, others.fine[a]]) for a, code in self.fine.items()},
        )
