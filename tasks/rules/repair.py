"""Rows that keep all rules: whether there can be one, and the repair of rows that break a rule.

Rules without such a row are refused before a release, by the public spec alone.  The search only evaluates conditions.
A solver of integer constraints would need its own version of every operation of the rules' language: products, dates,
look-ups and nulls.

A row that breaks a rule is redrawn inside its codes; then few codes are changed.  Persons whose rows break a rule
across rows get few values of few rows changed, until all rules hold.  Post-processing of released codes and public
rules costs no budget.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from types import MappingProxyType
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from privsyn.data_contracts.frozen_model import FieldError
from privsyn.data_contracts.rule_language import COUNT
from privsyn.tasks.codecs.codec import Codec
from privsyn.tasks.codecs.encoding_plan import EncodingPlan
from privsyn.tasks.rules.compiled_rules import CompiledRules, ForbiddenCondition, PersonRows, list_row_words

SAMPLE = 2_048
"""Number of rows in each round; they begin at random."""

ROUNDS = 150
"""Rounds of the search; each changes the rows that break the fewest rules."""

MAX_CONTRADICTIONS = 20
"""Largest number of earlier rules that an infeasible rule is compared with, to name the one that it contradicts."""

_KEPT_ROWS = 128  # best rows of a round, which the next round begins with

REDRAWS = 48
"""How often a row is redrawn inside its codes: a partly forbidden code also has allowed values.

A draw that is not needed costs nothing, and a row repaired by a draw takes no value from another row."""

ATTEMPTS = 12
"""Attempts for each number of attributes taken from other rows."""

BATCH_DRAWS = 2_048
"""Rows drawn together if fewer are left: each is drawn several times, and its first valid draw is taken.

Drawing a few rows takes as long as drawing a thousand.
"""

MAX_CHANGED = 3
"""Largest number of attributes taken from another row at once; after that, all attributes in rules are replaced."""

Codes = dict[str, NDArray[Any]]
Columns = dict[str, pa.Array]


def find_valid_row(
    plan: EncodingPlan, fixed_codes: Mapping[str, int] = MappingProxyType({})
) -> dict[str, pa.Array] | None:
    """Return one row, of the columns that rules need, that keeps all rules, or None if none was found.

    A random search with a fixed seed: the same plan gives the same row.  ``fixed_codes``: fine codes that the row must
    have.
    """
    rules = plan.rules
    if rules is None:
        return None
    rng = np.random.default_rng(0x17)
    ruled = [c for c in plan.codecs if not rules.ruled_columns.isdisjoint(c.ranges())]
    helpers = {name for c in ruled for name in c.helpers}  # which decoding reads
    codecs = tuple(c for c in plan.codecs if c in ruled or c.attribute in helpers)
    computed = tuple(c for c in plan.computed if c.attribute in rules.order)
    part = replace(plan, codecs=codecs, computed=computed, unmeasured=())
    codes = {c.attribute: rng.integers(c.size, size=SAMPLE) for c in codecs}
    fixed = {a: np.full(SAMPLE, code) for a, code in fixed_codes.items()}
    for _ in range(ROUNDS):
        codes |= fixed
        columns = part.decode(codes, rng)
        wrong = rules.find_broken_rows(columns).sum(axis=0)
        best = int(wrong.argmin())
        if wrong[best] == 0:
            return {name: array.slice(best, 1) for name, array in columns.items()}
        best_rows = np.argsort(wrong, kind="stable")[:_KEPT_ROWS]
        codes = {a: np.resize(c[best_rows], SAMPLE) for a, c in codes.items()}
        for c in codecs:  # the best rows stay as they are
            changed = np.flatnonzero(rng.random(SAMPLE) < 1.0 / len(codecs))
            changed = changed[changed >= _KEPT_ROWS // 2]
            codes[c.attribute][changed] = rng.integers(c.size, size=changed.size)
    return None


def check_feasible(plan: EncodingPlan) -> None:
    """Raise FieldError, with the rule's place, if no row was found that keeps all rules."""
    rules = plan.rules
    if rules is None or not rules.conditions or find_valid_row(plan) is not None:
        return
    low, high = 0, len(rules.conditions) - 1  # bisect for the shortest infeasible prefix of the conditions
    while low < high:
        middle = (low + high) // 2
        if find_valid_row(_restrict_to(plan, rules, rules.conditions[: middle + 1])) is None:
            high = middle
        else:
            low = middle + 1
    condition = rules.conditions[low]
    place = ("rules", condition.rule)
    if find_valid_row(_restrict_to(plan, rules, (condition,))) is None:
        raise FieldError(
            f"no row was found that keeps it: {condition.words}",
            "Write a rule that rows can keep; derive a column that must equal an expression",
            place,
        )
    others = [c for c in rules.conditions[:low] if c.rule != condition.rule and set(c.needs) & set(condition.needs)]
    for before in others[:MAX_CONTRADICTIONS]:
        if find_valid_row(_restrict_to(plan, rules, (before, condition))) is None:
            raise FieldError(
                f"no row was found that keeps both it and rule {before.rule + 1} ({before.words})",
                "Drop one of the two, or widen a domain",
                place,
            )
    raise FieldError("no row was found that keeps it and the rules before it", "Drop one, or widen a domain", place)


def _restrict_to(plan: EncodingPlan, rules: CompiledRules, conditions: tuple[ForbiddenCondition, ...]) -> EncodingPlan:
    return replace(plan, rules=replace(rules, conditions=conditions))


@dataclass
class _Rows:
    """The rows of one batch during repair.

    ``wrong``: mask of the conditions that each row breaks, shape (conditions, rows); ``replacements``: places and new
    rows, which :meth:`settle` puts into ``columns`` all at once.
    """

    codes: Codes
    columns: Columns
    wrong: NDArray[np.bool_]
    replacements: list[tuple[NDArray[np.int64], Columns]] = field(default_factory=list)

    @property
    def broken(self) -> NDArray[np.int64]:
        """The rows that break a condition."""
        return np.flatnonzero(self.wrong.any(axis=0))

    def take(self, rows: NDArray[np.int64], codes: Codes, columns: Columns, wrong: NDArray[np.bool_]) -> None:
        """Put the valid ones of some new rows in the places ``rows``; the first of several for one place wins."""
        valid_rows = np.flatnonzero(~wrong.any(axis=0))
        places, first = np.unique(rows[valid_rows], return_index=True)
        valid_rows = valid_rows[first]
        if not places.size:
            return
        self.wrong[:, places] = False
        for a, new in codes.items():
            self.codes[a][places] = new[valid_rows]
        self.replacements.append((places, {name: array.take(pa.array(valid_rows)) for name, array in columns.items()}))

    def settle(self) -> Columns:
        """Return the columns with all new rows."""
        if self.replacements:
            source = np.arange(self.wrong.shape[1])
            end = source.size
            for places, _ in self.replacements:
                source[places] = np.arange(end, end + places.size)
                end += places.size
            chosen = pa.array(source)
            for name, array in self.columns.items():
                parts = [array, *(columns[name] for _, columns in self.replacements)]
                self.columns[name] = pa.concat_arrays(parts).take(chosen)
            self.replacements = []
        return self.columns


def repair_rows(
    codes: Codes,
    columns: Columns,
    make: Callable[[Codes], Columns],
    rules: CompiledRules,
    codecs: Sequence[Codec],
    make_valid_row: Callable[[Mapping[str, int]], Columns],
    rng: np.random.Generator,
    exact: Sequence[str] = (),
) -> Columns:
    """Return the rows of ``columns`` with few values changed in the rows that break a rule.

    codes: codes of every attribute, shape (rows,), from which ``make`` draws rows; changed in place.  make_valid_row:
    returns one row that keeps all rules and has the given codes of the attributes ``exact``, for a batch without such
    a row.  ``exact``: attributes with one value per code that do not change.
    """
    if not rules.conditions:
        return columns
    rows = _Rows(codes, columns, rules.find_broken_rows(columns))
    for places in _iterate_rounds(rows, REDRAWS):
        _redraw(rows, places, {a: c[places] for a, c in codes.items()}, make, rules)
    attributes = {name: codec.attribute for codec in codecs for name in codec.ranges()}
    needs = [tuple(dict.fromkeys(attributes[n] for n in c.needs)) for c in rules.conditions]
    needs = [tuple(a for a in names if a not in exact) for names in needs]
    for width in range(1, MAX_CHANGED + 1):
        for places in _iterate_rounds(rows, ATTEMPTS):
            _change(rows, places, width, needs, make, rules, rng)
    rows.settle()
    if rows.broken.size:
        _replace(rows, rules, make_valid_row, rng, exact)
    return rows.columns


def _iterate_rounds(rows: _Rows, draws: int) -> Iterator[NDArray[np.int64]]:
    """Yield the places of broken rows until each was yielded ``draws`` times, possibly several times in a round."""
    while draws and rows.broken.size:
        times = max(1, min(draws, BATCH_DRAWS // rows.broken.size))
        draws -= times
        yield np.tile(rows.broken, times)


def _redraw(
    rows: _Rows, places: NDArray[np.int64], codes: Codes, make: Callable[[Codes], Columns], rules: CompiledRules
) -> None:
    """Draw the rows at ``places`` from ``codes`` and keep the valid ones."""
    columns = make(codes)
    rows.take(places, codes, columns, rules.find_broken_rows(columns))


def _change(
    rows: _Rows,
    places: NDArray[np.int64],
    width: int,
    needs: Sequence[tuple[str, ...]],
    make: Callable[[Codes], Columns],
    rules: CompiledRules,
    rng: np.random.Generator,
) -> None:
    """Give each row at ``places`` a valid row's codes in ``width`` attributes of a condition that it breaks."""
    donors = np.flatnonzero(~rows.wrong.any(axis=0))
    if not donors.size:
        return
    codes = {a: c[places] for a, c in rows.codes.items()}
    first = rows.wrong[:, places].argmax(axis=0)
    for condition in np.unique(first):
        breaking_rows = np.flatnonzero(first == condition)
        donor_rows = donors[rng.integers(donors.size, size=breaking_rows.size)]
        names = needs[condition]
        for a in rng.permutation(len(names))[:width]:
            codes[names[a]][breaking_rows] = rows.codes[names[a]][donor_rows]
    _redraw(rows, places, codes, make, rules)


def _replace(
    rows: _Rows,
    rules: CompiledRules,
    make_valid_row: Callable[[Mapping[str, int]], Columns],
    rng: np.random.Generator,
    exact: Sequence[str],
) -> None:
    """Give every remaining row the ruled values of a valid row with the same ``exact`` codes."""
    wrong_rows, valid_rows = rows.broken, np.flatnonzero(~rows.wrong.any(axis=0))
    if not exact:
        _replace_by(rows, wrong_rows, valid_rows, rules, lambda: make_valid_row({}), rng)
        return
    codes = np.stack([rows.codes[a].astype(np.int64) for a in exact])
    for held_codes in np.unique(codes[:, wrong_rows], axis=1).T:
        same = (codes == held_codes[:, None]).all(axis=0)
        fixed_codes = {a: int(code) for a, code in zip(exact, held_codes, strict=True)}
        _replace_by(
            rows,
            wrong_rows[same[wrong_rows]],
            valid_rows[same[valid_rows]],
            rules,
            partial(make_valid_row, fixed_codes),
            rng,
        )


def _replace_by(
    rows: _Rows,
    wrong_rows: NDArray[np.int64],
    donors: NDArray[np.int64],
    rules: CompiledRules,
    make_valid_row: Callable[[], Columns],
    rng: np.random.Generator,
) -> None:
    """Give the rows ``wrong_rows`` the ruled values of random ``donors``, or of one valid row without donors."""
    names = rules.ruled_columns
    names |= {n for group in rules.groups if names & set(group) for n in group}
    places = np.arange(rows.wrong.shape[1])
    places[wrong_rows] = places.size + np.arange(wrong_rows.size)
    chosen = pa.array(places)
    source: Mapping[str, pa.Array] = rows.columns if donors.size else make_valid_row()
    donor_rows = pa.array(
        donors[rng.integers(donors.size, size=wrong_rows.size)] if donors.size else np.zeros(wrong_rows.size, int)
    )
    for name in names:
        rows.columns[name] = pa.concat_arrays([rows.columns[name], source[name].take(donor_rows)]).take(chosen)


Integers: TypeAlias = NDArray[np.int64]
Bools: TypeAlias = NDArray[np.bool_]


SCHEDULE = (("inside", 24), ("copy", 8), ("donor", 24), ("copy", 64), ("donor", 64))
"""Ways to change a row, and their numbers of tries: redraw inside its codes, copy a neighbour, take a donor's codes."""

SIDE_MOVE_CHANCE = 0.3
"""Probability of keeping a change that leaves as many rules broken as before."""

EXCHANGES = 24
"""Rounds in which rows that break a rule seek partners to exchange values with."""

ONE_ROW = 1_000
"""Weight of a broken rule about one row; a broken rule across rows has the weight 1."""


@dataclass(frozen=True, eq=False)
class Mending:
    """The changes that a repair may make.

    Attributes:
        make: Draws rows from codes.
        compute: Recomputes computed columns of whole persons, given where each person begins.
        columns: Attribute that may change -> its columns.
        donor_groups: The group of each row, shape (rows,), within which rows may take each other's codes.
        exchange_groups: The group of each row within which rows may exchange values, which keeps all counts by group.
            None: no exchange.
    """

    make: Callable[[Codes], Columns]
    compute: Callable[[Columns, Bools], Columns]
    columns: Mapping[str, Sequence[str]]
    donor_groups: Integers
    exchange_groups: Integers | None = None


def repair_persons(
    codes: Codes, columns: Columns, first: Bools, rules: CompiledRules, mending: Mending, rng: np.random.Generator
) -> Columns:
    """Return the rows of ``columns`` after repairing those that break a rule across rows, as far as repairs were found.

    codes: codes of the attributes that may change, shape (rows,), changed in place; ``first``: mask of the rows that
    begin a person.  A row that keeps the rules about one row still keeps them afterwards.
    """
    if rules.across and mending.exchange_groups is not None:
        columns = _exchange(codes, columns, first, rules, mending, rng)
    number, donors = np.cumsum(first) - 1, _Donors(codes, mending.donor_groups, rng)
    for way, times in SCHEDULE if rules.across else ():
        wrong = rules.find_broken_persons(columns, first).any(axis=0)
        if not wrong.any():
            break
        rows = np.flatnonzero(np.isin(number, number[wrong]))
        part_codes = {a: c[rows] for a, c in codes.items()}
        taken = {name: array.take(pa.array(rows)) for name, array in columns.items()}
        part = _BrokenPersons(part_codes, taken, first[rows], rules, mending, donors, mending.donor_groups[rows], rng)
        for _ in range(times):
            if not part.change(way):
                break
        places = np.arange(len(first))
        places[rows] = len(first) + np.arange(len(rows))
        back = pa.array(places)
        columns = {name: pa.concat_arrays([a, part.columns[name]]).take(back) for name, a in columns.items()}
        for a, code in part_codes.items():
            codes[a][rows] = code
    return columns


def _exchange(
    codes: Codes, columns: Columns, first: Bools, rules: CompiledRules, mending: Mending, rng: np.random.Generator
) -> Columns:
    """Return the rows after exchanges of values between persons that leave both persons without a broken rule.

    Redrawing would favour values that the rules allow more often; an exchange keeps every count by ``exchange_groups``.
    """
    number, partners = np.cumsum(first) - 1, _Donors(codes, np.asarray(mending.exchange_groups), rng)
    words, attributes = _list_rows_and_attributes(rules, mending)
    for _ in range(EXCHANGES):
        across = rules.find_broken_persons(columns, first)
        broken = _find_persons(number, np.asarray(across.any(axis=0)))
        if not broken.any():
            break
        person_rows = rules.find_person_rows(columns, first)
        rows, condition = _choose_rows(across, number, rng)
        target = _turn_to_others(rows, condition, person_rows, words, rng)
        partner = partners.draw(np.asarray(mending.exchange_groups)[target])
        once = np.bincount(number[partner], minlength=len(broken))[number[partner]] == 1
        free = once & ~broken[number[partner]]
        target, partner, condition = target[free], partner[free], condition[free]
        places = {}
        for a in mending.columns:
            concerned = np.array([a in named for named in attributes])[condition]
            places[a] = np.arange(len(first))
            places[a][target[concerned]], places[a][partner[concerned]] = partner[concerned], target[concerned]
        after = _find_persons(number, rules.find_broken(_move(columns, places, first, mending), first))
        worse = after[number[target]] | after[number[partner]]
        for a, source_rows in places.items():
            source_rows[target[worse]], source_rows[partner[worse]] = target[worse], partner[worse]
            codes[a] = codes[a][source_rows]
        columns = _move(columns, places, first, mending)
    return columns


def _move(columns: Columns, places: Mapping[str, Integers], first: Bools, mending: Mending) -> Columns:
    """Return the columns with each attribute's values taken from the rows ``places``, and recomputed columns."""
    moved = dict(columns)
    for a, source_rows in places.items():
        moved |= {name: columns[name].take(pa.array(source_rows)) for name in mending.columns[a]}
    return mending.compute(moved, first)


def _find_persons(number: Integers, rows: Bools) -> Bools:
    """Return the mask of the persons with any of ``rows``."""
    return np.bincount(number, weights=rows) > 0


class _Donors:
    """Draws donor rows, whose codes another row may take."""

    def __init__(self, codes: Codes, groups: Integers, rng: np.random.Generator) -> None:
        self.codes, self._rng = codes, rng
        self._order = np.argsort(groups, kind="stable")
        self._sorted = groups[self._order]

    def draw(self, groups: Integers) -> Integers:
        """Return the place of a random row in each of the groups ``groups``."""
        start, end = (np.searchsorted(self._sorted, groups, side) for side in ("left", "right"))
        return np.asarray(self._order[self._rng.integers(start, end)])


class _BrokenPersons:
    """The rows of the persons that break a rule, during repair."""

    def __init__(
        self,
        codes: Codes,
        columns: Columns,
        first: Bools,
        rules: CompiledRules,
        mending: Mending,
        donors: _Donors,
        donor_groups: Integers,
        rng: np.random.Generator,
    ) -> None:
        self._codes, self.columns, self._first, self._rules = codes, columns, first, rules
        self._mending, self._donors, self._donor_groups, self._rng = mending, donors, donor_groups, rng
        self._rows = rules.find_person_rows(columns, first)
        self._position = np.arange(len(first)) - self._rows.starts[self._rows.number]
        words = [list_row_words(c.node) for c in rules.across]
        self._words, self._attributes = _list_rows_and_attributes(rules, mending)
        # a column that continues from another row carries a change through the whole person
        self._near = not rules.continued and all({*each} <= {"previous", "next"} for each in words)

    def change(self, kind_of_change: str) -> bool:
        """Try one change of every group of rows that breaks a rule; return whether any group did."""
        across, weight = self._count(self.columns)
        if not across.any():
            return False
        group = self._group()
        bad = np.bincount(group, weights=weight, minlength=int(group.max()) + 1)
        target, condition = self._choose(across, group)
        if not len(target):
            return True
        changed, new = self._propose(kind_of_change, target, condition)
        proposed = self._put(self.columns, target, changed, new[1])
        after = np.bincount(group, weights=self._count(proposed)[1], minlength=len(bad))
        better = (after < bad) | ((after == bad) & (self._rng.random(len(bad)) < SIDE_MOVE_CHANCE))
        accepted = better[group[target]]
        self.columns = self._put(self.columns, target, {a: rows & accepted for a, rows in changed.items()}, new[1])
        for a, rows in changed.items():
            self._codes[a][target[rows & accepted]] = new[0][a][rows & accepted]
        return True

    def _count(self, columns: Columns) -> tuple[Bools, NDArray[np.float64]]:
        """Return the mask of the rules across rows that each row breaks, and each row's weight of broken rules."""
        across = self._rules.find_broken_persons(columns, self._first)
        weight = across.sum(axis=0).astype(np.float64)
        if self._rules.conditions:
            weight += ONE_ROW * self._rules.find_broken_rows(columns).sum(axis=0)
        return across, weight

    def _group(self) -> Integers:
        """Return the group of each row, such that simultaneous changes do not affect the rules of other groups.

        A group is a person.  If rules only involve neighbours, it is three neighbours, and only the middle one changes.
        """
        if not self._near:
            return self._rows.number
        self._middle = int(self._rng.integers(3))
        window = (self._position + 4 - self._middle) // 3
        starts = self._first | (np.diff(window, prepend=-1) != 0)
        return np.asarray(np.cumsum(starts) - 1)

    def _choose(self, across: Bools, group: Integers) -> tuple[Integers, Integers]:
        """Return one row to change in each group that breaks a rule, and the number of a rule that it breaks."""
        rows, condition = _choose_rows(across, group, self._rng)
        if self._near:
            middle = np.full(int(group.max()) + 1, -1, np.int64)
            own_third = np.flatnonzero(self._position % 3 == self._middle % 3)
            middle[group[own_third]] = own_third
            target = middle[group[rows]]
            return target[target >= 0], condition[target >= 0]
        return _turn_to_others(rows, condition, self._rows, self._words, self._rng), condition

    def _propose(
        self, kind_of_change: str, target: Integers, condition: Integers
    ) -> tuple[dict[str, Bools], tuple[Codes, Columns]]:
        """Return the mask of the rows ``target`` that change in each attribute, and their new codes and columns."""
        changed = {a: np.zeros(len(target), bool) for a in self._mending.columns}
        for number, attributes in enumerate(self._attributes):
            breaks_it = condition == number
            if kind_of_change == "donor" and len(attributes) > 1:  # change one attribute, or all
                pick = self._rng.integers(len(attributes) + 1, size=len(target))
                for i, a in enumerate(attributes):
                    changed[a] |= breaks_it & ((pick == i) | (pick == len(attributes)))
                continue
            for a in attributes:
                changed[a] |= breaks_it
        if kind_of_change == "copy":
            neighbour = np.where(self._rng.random(len(target)) < 0.5, target - 1, target + 1)
            inside = (neighbour >= 0) & (neighbour < len(self._first))
            neighbour = np.where(inside, neighbour, target)
            neighbour = np.where(self._rows.number[neighbour] == self._rows.number[target], neighbour, target)
            columns = {name: array.take(pa.array(neighbour)) for name, array in self.columns.items()}
            return changed, ({a: c[neighbour] for a, c in self._codes.items()}, columns)
        codes = {a: c[target] for a, c in self._codes.items()}
        if kind_of_change == "donor":
            donor_rows = self._donors.draw(self._donor_groups[target])
            for a, rows in changed.items():
                codes[a][rows] = self._donors.codes[a][donor_rows[rows]]
        return changed, (codes, self._mending.make(codes))

    def _put(self, columns: Columns, target: Integers, changed: Mapping[str, Bools], new: Columns) -> Columns:
        """Return the columns with the rows ``target`` replaced by ``new`` in the attributes that ``changed`` marks."""
        changed_columns = dict(columns)
        for a, rows in changed.items():
            if not rows.any():
                continue
            places = np.arange(len(self._first))
            places[target[rows]] = len(places) + np.flatnonzero(rows)
            for name in self._mending.columns[a]:
                changed_columns[name] = pa.concat_arrays([columns[name], new[name]]).take(pa.array(places))
        return self._mending.compute(changed_columns, self._first)


def _choose_rows(across: Bools, group: Integers, rng: np.random.Generator) -> tuple[Integers, Integers]:
    """Return one row in each group that breaks a rule across rows, and the number of a rule that it breaks."""
    rows = rng.permutation(np.flatnonzero(across.any(axis=0)))
    rows = rows[np.unique(group[rows], return_index=True)[1]]
    order = rng.permutation(len(across))
    return rows, order[across[order][:, rows].argmax(axis=0)]


def _turn_to_others(
    rows: Integers,
    condition: Integers,
    person_rows: PersonRows,
    words: Sequence[Sequence[str]],
    rng: np.random.Generator,
) -> Integers:
    """Return the rows, with some replaced at random by another row that their broken rule names."""
    target = rows.copy()
    for number, named in enumerate(words):
        for word in named:
            places, known = person_rows.find_rows(word)
            other = (condition == number) & known[rows] & (rng.random(len(rows)) < 1 / (1 + len(named)))
            target[other] = places[rows[other]]
    return target


def _list_rows_and_attributes(
    rules: CompiledRules, mending: Mending
) -> tuple[list[tuple[str, ...]], list[tuple[str, ...]]]:
    """Return the words of other rows in each rule across rows, and the attributes that may change for each rule."""
    words = [tuple(w for w in list_row_words(c.node) if w != COUNT) for c in rules.across]
    needed = [{*c.needs} for c in rules.across]
    return words, [tuple(a for a, names in mending.columns.items() if each & {*names}) for each in needed]
