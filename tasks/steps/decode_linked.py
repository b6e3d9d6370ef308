"""Step *decode* for linked rows (postprocess): turn fine codes into rows of persons with new identifiers, in order.

Not in the paper.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from privsyn.data_contracts.domain import Domain
from privsyn.data_contracts.frozen_model import FieldError
from privsyn.data_contracts.panels import MOST_PERSONS, Panel, name_stay
from privsyn.data_contracts.tables import BATCH_ROWS, ValueRange, build_code_schema
from privsyn.tasks.codecs import EncodingPlan
from privsyn.tasks.kernels.counting import build_code_batch
from privsyn.tasks.panels.gaps import open_order
from privsyn.tasks.rules.compiled_rules import CompiledRules
from privsyn.tasks.rules.repair import Mending, repair_persons, repair_rows
from privsyn.tasks.steps.decode import build_released_batch, seed_generator

if TYPE_CHECKING:
    from privsyn.tasks.panels.link_rows import LinkedRows  # its module loads compiled code

PLACE = "(place)"
"""Key of the codes that number a batch's rows; no attribute has this name."""


def build_linked_domain(plan: EncodingPlan) -> Domain:
    """Return the domain of linked rows: person, step from the first one, whether it is the drawn record, fine codes."""
    panel, _ = plan.get_order()
    low, high = open_order(plan).bounds
    sizes = {panel.person: MOST_PERSONS, panel.order: high - low + 1, panel.rows: 2}
    sizes |= {a: s for a, s in _list_sizes(plan).items() if a != panel.order}
    return Domain.of(sizes | {name_stay(a): 2 for a in plan.following})


def _list_sizes(plan: EncodingPlan) -> dict[str, int]:
    return dict(zip(plan.row_plan.domain.attributes, plan.row_plan.domain.sizes, strict=True))


def linked_to_arrow(linked: LinkedRows, plan: EncodingPlan, first_person: int) -> pa.RecordBatch:
    """Return linked rows as a batch of :func:`build_linked_domain`; persons are numbered from ``first_person``."""
    panel, _ = plan.get_order()
    schema = build_code_schema(build_linked_domain(plan))
    low, _ = open_order(plan).bounds
    columns: dict[str, NDArray[Any]] = {
        panel.person: linked.person.astype(np.int64) + first_person,
        panel.order: linked.step - low,
        panel.rows: linked.drawn,
    }
    return build_code_batch(schema, ((columns | linked.fine)[name] for name in schema.names))


def decode_linked(
    batches: Iterable[pa.RecordBatch],
    plan: EncodingPlan,
    column_order: Sequence[str],
    seed: int,
    parent_values: Mapping[str, pa.Array] = MappingProxyType({}),
) -> Iterator[pa.RecordBatch]:
    """Yield the synthetic table as batches of :func:`build_released_batch`, person by person, in order.

    ``batches``: linked rows; ``parent_values``: existing values of constant columns, shape (persons,), with which rows
    must keep the rules.  A value that stays repeats the row before.  Identifiers count from 1.  No row breaks a rule.
    Broken rows are mended in the columns that change between rows; a person who cannot be mended is replaced by another
    with as many rows, or dropped.
    """
    rng = seed_generator(seed)
    ranges = plan.list_table_ranges(column_order)
    for batch in _iterate_whole_persons(batches, plan.get_order()[0]):
        yield build_released_batch(_Decoder(plan, batch, rng, parent_values).decode(), ranges)


REDRAWS = 16
"""How often a person's constant values are redrawn inside their codes while they break a rule."""

DONORS = 16
"""How many donors are tried for a person whose rows cannot be mended with the given parent values."""

PERSONS = 500
"""How many random persons are searched for one that keeps the rules."""

SIZES = (2, 4, 8, 16, 64)
"""Numbers of rows per person with which rules are tried, each up to the spec's cap."""


def check_persons_feasible(plan: EncodingPlan) -> None:
    """Raise FieldError at the rule's place if no person of two or more rows is found that keeps the rules.

    A random search with a fixed seed, from the public spec alone.
    """
    rules = plan.rules
    if rules is None or not rules.across or _has_valid_person(plan):
        return
    for condition in rules.across:
        if not _has_valid_person(replace(plan, rules=replace(rules, across=(condition,)))):
            raise FieldError(
                f"no {'household' if plan.get_order()[0].household else 'person'} of two or more rows was found that "
                f"keeps it: {condition.words}",
                "Write a rule that rows can keep beside the others, or widen a domain",
                ("rules", condition.rule),
            )
    raise FieldError(
        "no person or household of two or more rows was found that keeps all rules across rows",
        "Drop one of these rules, or widen a domain",
        ("rules", rules.across[-1].rule),
    )


def _has_valid_person(plan: EncodingPlan) -> bool:
    panel, rng = plan.get_order()[0], np.random.default_rng(0x17)
    for size in dict.fromkeys(min(size, panel.most) for size in SIZES):
        decoder = _Decoder(plan, _make_random_persons(plan, size, rng), rng)
        if len(decoder.decode()[panel.person]):
            return True
    return False


def _make_random_persons(plan: EncodingPlan, rows: int, rng: np.random.Generator) -> dict[str, NDArray[Any]]:
    """Return PERSONS persons of ``rows`` rows, or fewer rows if the order has no room, coded as linked rows."""
    panel, _ = plan.get_order()
    low, high = open_order(plan).bounds
    if panel.household:
        members = plan.get_compositions().members
        members = members[members.sum(axis=1) == rows]
        compositions = members[rng.integers(len(members), size=PERSONS)]
        step = np.repeat(np.tile(np.arange(compositions.shape[1]), PERSONS), compositions.ravel())
    else:
        rows = min(rows, high - low + 1)
        step = np.sort(rng.integers(0, high - low + 2 - rows, size=(PERSONS, rows)), axis=1) + np.arange(rows)
    first = np.tile(np.arange(rows) == 0, PERSONS)
    codes = {panel.person: np.cumsum(first) - 1, panel.order: step.ravel(), panel.rows: first}
    for a, size in _list_sizes(plan).items():
        if a != panel.order:
            codes[a] = rng.integers(size, size=len(first))
    return codes | {name_stay(a): np.zeros(len(first), np.int64) for a in plan.following}


def _iterate_whole_persons(batches: Iterable[pa.RecordBatch], panel: Panel) -> Iterator[dict[str, NDArray[Any]]]:
    """Yield about BATCH_ROWS rows at a time, without splitting a person."""
    held: list[pa.RecordBatch] = []
    for batch in batches:
        held.append(batch)
        if sum(b.num_rows for b in held) < BATCH_ROWS:
            continue
        table = pa.Table.from_batches(held).combine_chunks()
        person = table[panel.person].to_numpy()
        cut = int(np.searchsorted(person, person[-1]))
        if cut:
            yield _to_arrays(table.slice(0, cut))
            held = table.slice(cut).to_batches()  # the last person may have more rows in the next batch
    if held:
        table = pa.Table.from_batches(held)
        if table.num_rows:
            yield _to_arrays(table)


def _to_arrays(table: pa.Table) -> dict[str, NDArray[Any]]:
    return {name: table[name].to_numpy() for name in table.column_names}


class _Decoder:
    """Decodes the linked rows of some persons."""

    def __init__(
        self,
        plan: EncodingPlan,
        codes: Mapping[str, NDArray[Any]],
        rng: np.random.Generator,
        parent_values: Mapping[str, pa.Array] = MappingProxyType({}),
    ) -> None:
        """Take the codes of linked rows; ``parent_values``: values of all persons, as in :func:`decode_linked`."""
        self._plan, self._rng, self._codes = plan, rng, dict(codes)
        self._panel, _ = plan.get_order()
        self._order = open_order(plan)
        person = self._codes.pop(self._panel.person).astype(np.int64)
        self._above = {name: values.take(pa.array(person)) for name, values in parent_values.items()}
        self._drawn = np.flatnonzero(self._codes.pop(self._panel.rows))
        self._first = np.diff(person, prepend=-1) != 0
        self._number = np.cumsum(self._first) - 1
        self._step = self._codes.pop(self._panel.order).astype(np.int64) + self._order.bounds[0]
        following = {*plan.following}
        stays = {name_stay(a) for a in following}
        of_person = {a: c[self._drawn] for a, c in self._codes.items() if a not in following | stays}
        carried = self._make_carried(of_person)
        for _ in range(REDRAWS):
            broken = self._find_broken_carried(carried)
            if not len(broken):
                break
            anew, rows = self._make_carried(of_person), np.arange(len(person))
            rows[np.isin(self._number, broken)] += len(person)
            carried = {name: pa.concat_arrays([a, anew[name]]).take(pa.array(rows)) for name, a in carried.items()}
        self._carried = {self._panel.person: pa.array(person + 1)} | carried

    def _find_broken_carried(self, carried: Mapping[str, pa.Array]) -> NDArray[np.int64]:
        """Return the persons that break a rule about columns that repairs of rows cannot change."""
        rules = self._plan.rules
        conditions = () if rules is None else rules.conditions
        carried_conditions = tuple(c for c in conditions if {*c.needs} <= self._panel.carried)
        if rules is None or not carried_conditions:
            return np.empty(0, np.int64)
        return np.unique(
            self._number[replace(rules, conditions=carried_conditions).find_broken_rows(carried).any(axis=0)]
        )

    def _make_carried(self, person_codes: Mapping[str, NDArray[Any]]) -> dict[str, pa.Array]:
        """Return the order, and the columns that are constant within a person or grow with the order.

        ``person_codes``: the codes of each person's drawn record.
        """
        panel, step, number = self._panel, self._step, pa.array(self._number)
        carried: dict[str, pa.Array] = {panel.order: self._order.release(step)}
        for codec in self._plan.row_plan.codecs:
            if codec.attribute in person_codes and codec.ranges():
                helped = {"helpers": {n: person_codes[n] for n in codec.helpers}} if codec.helpers else {}
                values = codec.decode(person_codes[codec.attribute], self._rng, **helped)
                carried |= {name: array.take(number) for name, array in values.items()}
        carried |= self._above
        moved = (step - step[self._drawn][self._number]) * self._plan.order_unit
        for name in panel.with_order:
            domain = self._plan.ranges()[name]
            grown = self._shift_inside(carried[name].cast(pa.float64()).to_numpy(zero_copy_only=False) + moved, domain)
            carried[name] = pa.array(np.clip(grown, domain.low, domain.high), from_pandas=True).cast(domain.type)
        return carried

    def _shift_inside(self, values: NDArray[np.float64], domain: ValueRange) -> NDArray[np.float64]:
        """Return the values; a person with values outside the bounds is shifted as a whole."""
        starts = np.flatnonzero(self._first)
        least, most = np.fmin.reduceat(values, starts), np.fmax.reduceat(values, starts)
        up, down = np.maximum(domain.low - least, 0.0), np.maximum(most - domain.high, 0.0)
        return values + np.where(up > 0, up, -down)[self._number]

    def decode(self) -> dict[str, pa.Array]:
        """Return all columns."""
        following = set(self._plan.following)
        codes = {a: self._codes[a] for a in (*self._plan.following, *self._plan.drawn_by_row)}
        codes[PLACE] = np.arange(len(self._number))
        columns = self._make(codes)
        for codec in self._plan.row_plan.codecs:
            if codec.attribute in following:
                chosen = pa.array(self._find_sources(self._codes[name_stay(codec.attribute)]))
                columns |= {name: columns[name].take(chosen) for name in codec.ranges()}
        columns, rules = self._compute_persons(columns, self._first), self._plan.rules
        if rules is None or not (rules.conditions or rules.across):
            return columns
        codes = {a: code.copy() for a, code in codes.items()}
        columns = self._repair_rows(codes, columns, rules)
        role = (self._panel.order,) if self._panel.household else ()
        mending = Mending(
            self._make,
            self._compute_persons,
            {c.attribute: tuple(c.ranges()) for c in self._plan.row_plan.codecs if c.attribute in following},
            self._number_donor_groups(columns, role),
            self._number_mates() if self._panel.household else None,
        )
        columns = repair_persons(
            codes, self._compute_persons(columns, self._first), self._first, rules, mending, self._rng
        )
        broken = rules.find_broken(columns, self._first)
        return self._replace_persons(columns, rules, np.unique(self._number[broken])) if broken.any() else columns

    def _replace_persons(
        self, columns: dict[str, pa.Array], rules: CompiledRules, broken: NDArray[np.int64]
    ) -> dict[str, pa.Array]:
        """Return the rows with each ``broken`` person replaced by another, or dropped.

        The donor has as many rows and breaks no rule, with the given parent values of this place too.
        """
        starts = np.flatnonzero(self._first)
        rows = np.diff(np.append(starts, len(self._first)))
        whole = np.ones(len(starts), bool)
        whole[broken] = False
        source = np.arange(len(starts))
        for _ in range(DONORS if self._above else 1):
            for size in np.unique(rows[broken]):
                places, others = broken[rows[broken] == size], np.flatnonzero(whole & (rows == size))
                source[places] = self._rng.choice(others, len(places)) if len(others) else -1
            replaced, remaining = self._take_persons(columns, source, starts)
            if not self._above:
                return replaced
            number = self._number[remaining]
            broken = np.unique(number[rules.find_broken(replaced, self._first[remaining])])
            if not len(broken):
                return replaced
        source[broken] = -1
        return self._take_persons(columns, source, starts)[0]

    def _take_persons(
        self, columns: dict[str, pa.Array], source: NDArray[np.int64], starts: NDArray[np.int64]
    ) -> tuple[dict[str, pa.Array], NDArray[np.int64]]:
        """Return the rows of person ``source[i]`` at person i's place, -1 to drop it, and the places that remain.

        Identifiers and given parent values stay with the place.  ``starts``: where persons begin.
        """
        remaining = np.flatnonzero(source[self._number] >= 0)
        place = starts[source[self._number[remaining]]] + remaining - starts[self._number[remaining]]
        taken = {name: array.take(pa.array(place)) for name, array in columns.items()}
        stay = {self._panel.person: columns[self._panel.person], **self._above}
        taken |= {name: array.take(pa.array(remaining)) for name, array in stay.items()}
        return self._compute_persons(taken, self._first[remaining]) if self._above else taken, remaining

    def _repair_rows(
        self, codes: dict[str, NDArray[Any]], columns: dict[str, pa.Array], rules: CompiledRules
    ) -> dict[str, pa.Array]:
        """Return the columns after mending rows that break a rule by themselves; updates ``codes``."""
        if not rules.conditions:
            return columns
        key, *others = sorted(self._panel.carried)
        donor_groups = self._number_donor_groups(columns, sorted(self._panel.carried))
        held = {key: donor_groups} | {name: np.zeros_like(donor_groups) for name in others}

        def take_own(held_codes: Mapping[str, int]) -> dict[str, pa.Array]:
            first = int(np.flatnonzero(donor_groups == held_codes[key])[0])
            return {name: array.slice(first, 1) for name, array in columns.items()}

        return repair_rows(
            codes | held, columns, self._make, rules, self._plan.codecs, take_own, self._rng, tuple(held)
        )

    def _number_donor_groups(self, columns: Mapping[str, pa.Array], names: Sequence[str]) -> NDArray[np.int64]:
        """Return a number per row; rows with equal values in the columns ``names`` share it."""
        number = np.zeros(len(self._number), np.int64)
        for name in names:
            encoded = pc.dictionary_encode(columns[name], null_encoding="encode")  # dictionary input keeps its nulls
            codes = np.asarray(encoded.indices.cast(pa.int64()).fill_null(len(encoded.dictionary)))
            number = np.unique(number * (int(codes.max(initial=0)) + 1) + codes, return_inverse=True)[1]
        return number

    def _number_mates(self) -> NDArray[np.int64]:
        """Return a number per household member; members of equal role and composition share it."""
        roles = int(self._step.max(initial=0)) + 1
        many = np.bincount(self._number * roles + self._step, minlength=(int(self._number.max(initial=-1)) + 1) * roles)
        composition = np.unique(many.reshape(-1, roles), axis=0, return_inverse=True)[1].reshape(-1)
        return np.asarray(composition[self._number] * roles + self._step)

    def _find_sources(self, stays: NDArray[Any]) -> NDArray[np.int64]:
        """Return, for every row, the person's row at which the current value began."""
        changed = self._first | (stays == 0)
        places = np.flatnonzero(changed)
        return places[np.cumsum(changed) - 1]

    def _make(self, codes: Mapping[str, NDArray[Any]]) -> dict[str, pa.Array]:
        """Return rows with these codes; ``codes[PLACE]`` is their place in the batch."""
        place = pa.array(codes[PLACE])
        columns = {name: array.take(place) for name, array in self._carried.items()}
        following = set(self._plan.following)
        for codec in self._plan.row_plan.codecs:
            if codec.attribute in following:
                helped = {"helpers": {n: codes[n] for n in codec.helpers}} if codec.helpers else {}
                columns |= codec.decode(codes[codec.attribute].astype(np.int64), self._rng, **helped)
        for drawn in self._plan.unmeasured:
            columns[drawn.column] = drawn.draw(len(place), self._rng)
        return self._compute(columns)

    def _compute_persons(self, columns: dict[str, pa.Array], first: NDArray[np.bool_]) -> dict[str, pa.Array]:
        """Return whole persons' columns with the columns that rules compute, from the same or another row."""
        columns, rules = self._compute(columns), self._plan.rules
        if rules is None or not rules.continued:
            return columns
        return columns | rules.continue_columns(columns, first, self._plan.ranges())

    def _compute(self, columns: dict[str, pa.Array]) -> dict[str, pa.Array]:
        """Return the columns with the columns that rules compute."""
        if self._plan.rules is None or not self._plan.computed:
            return columns
        types = {name: r.type for name, r in self._plan.ranges().items()}
        return columns | self._plan.rules.compute_columns(columns, types)
