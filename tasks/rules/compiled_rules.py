"""The rules of a spec, compiled for its columns: computed columns, conditions over rows, and impossible cells.

Rules name other rows of a person: the previous, next or first row of each row, or the row with a role.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from types import MappingProxyType
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from privsyn.data_contracts.columns import (
    CategoricalColumn,
    DateColumn,
    DatetimeColumn,
    IntegerColumn,
    NumberColumn,
    TimeColumn,
)
from privsyn.data_contracts.columns.shared_fields import find_next_value
from privsyn.data_contracts.release_spec import ReleaseSpec
from privsyn.data_contracts.rule_language import COUNT, Node, RowColumn
from privsyn.data_contracts.rules import (
    Lookup,
    LookupRule,
    OneOf,
    list_conditions,
    list_continued_expressions,
    list_expressions,
    map_computed_columns,
    map_continued_columns,
    order_computed_columns,
)
from privsyn.data_contracts.tables import ValueRange
from privsyn.tasks.rules.intervals import (
    DAY,
    Interval,
    apply_monotone,
    convert_to_array,
    evaluate_condition,
    evaluate_expression,
    place_on_axis,
    read_cells,
    read_rows,
)

Integers: TypeAlias = NDArray[np.int64]
Bools: TypeAlias = NDArray[np.bool_]
Floats: TypeAlias = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class PersonRows:
    """Rows sorted by person and in order.

    ``first``: mask of the rows that begin a person, shape (rows,); ``roles``: word of a role -> mask of its rows.
    """

    first: Bools
    roles: Mapping[str, Bools]

    @cached_property
    def number(self) -> Integers:
        """The number of each row's person, from 0."""
        return np.cumsum(self.first) - 1

    @cached_property
    def starts(self) -> Integers:
        """The first row of each person."""
        return np.flatnonzero(self.first)

    def find_rows(self, word: str) -> tuple[Integers, Bools]:
        """Return for each row the place of the row of its person that ``word`` names, and whether that row exists."""
        every = np.arange(len(self.first))
        if word == "previous":
            return np.maximum(every - 1, 0), ~self.first
        if word == "next":
            last = np.append(self.first[1:], np.ones(min(1, len(every)), bool))
            return np.minimum(every + 1, max(len(every) - 1, 0)), ~last
        if word == "first":
            return self.starts[self.number], np.ones(len(every), bool)
        place = np.full(len(self.starts), -1, np.int64)
        with_role = np.flatnonzero(self.roles[word])[::-1]  # reversed, so that the first of several wins
        place[self.number[with_role]] = with_role
        row_of_role = place[self.number]
        return np.maximum(row_of_role, 0), row_of_role >= 0

    def count(self, chosen: Bools) -> Floats:
        """Return for each row the number of its person's rows that are ``chosen``."""
        many = np.bincount(self.number[chosen], minlength=len(self.starts)).astype(np.float64)
        return np.asarray(many[self.number])

    def resolve(
        self, read_column: Callable[[str], Interval], vocabulary: Mapping[str, int]
    ) -> Callable[[str | Node], Interval]:
        """Return a function that returns the values of a column, of another row's column, or of a count of rows.

        ``read_column``: returns the values of a row's own columns.
        """
        intervals: dict[Node, Interval] = {}

        def take(node: Node) -> Interval:
            if node.op == COUNT:
                chosen = evaluate_condition(node.args[0], resolve, vocabulary).true
                many = self.count(np.broadcast_to(chosen, len(self.first)))
                return Interval(many, many, np.zeros(len(many), bool), np.ones(len(many), bool))
            assert isinstance(node.value, RowColumn)  # noqa: S101 - no other node is asked for
            source = read_column(node.value.column)
            places, known = self.find_rows(node.value.row)
            low: Floats = np.broadcast_to(source.low, len(self.first))[places]
            null: Bools = np.broadcast_to(source.null, len(self.first))[places]
            return Interval(low, low, null | ~known, ~null & known)

        def resolve(term: str | Node) -> Interval:
            if isinstance(term, str):
                return read_column(term)
            if term not in intervals:
                intervals[term] = take(term)
            return intervals[term]

        return resolve


def list_row_words(node: Node) -> list[str]:
    """Return the words of rows in a condition, and COUNT if it counts rows, each once."""
    words = [part.value.row if part.op == "of row" else COUNT for part in node.walk() if part.op in ("of row", COUNT)]
    return list(dict.fromkeys(words))


_NULL = -1e300  # stands for null among the keys


@dataclass(frozen=True, eq=False)
class LookupTable:
    """A public table with the key columns ``columns``.

    ``parts[i]``: sorted values of key column i; ``keys``: one number per row, sorted, shape (rows,); ``values`` and
    ``null``: the looked-up values and their null mask, shape (rows, to).
    """

    columns: tuple[str, ...]
    parts: tuple[NDArray[np.float64], ...]
    keys: NDArray[np.int64]
    values: NDArray[np.float64]
    null: NDArray[np.bool_]

    @classmethod
    def of(cls, lookup: Lookup, vocabulary: Mapping[str, int]) -> LookupTable:
        """Return the table of a rule with given rows."""
        width = len(lookup.from_)
        cells = np.array([[_to_number(c, vocabulary) for c in row] for row in lookup.rows], np.float64)
        cells = cells.reshape(len(lookup.rows), width + len(lookup.to))
        parts = tuple(np.unique(cells[:, i]) for i in range(width))
        keys = np.zeros(len(cells), np.int64)
        for i, part in enumerate(parts):
            keys = keys * part.size + np.searchsorted(part, cells[:, i])
        order = np.argsort(keys)
        values = cells[order, width:]
        return cls(tuple(lookup.from_), parts, keys[order], values, values == _NULL)

    def look_up(self, place: int, key_intervals: Sequence[Interval]) -> Interval:
        """Return the value of ``to[place]`` for the key columns' intervals; null if the table has no such row."""
        column_values = self.values[~self.null[:, place], place]
        if not all(s.exact for s in key_intervals) or not len(self.keys):
            low, high = (column_values.min(), column_values.max()) if column_values.size else (0.0, 0.0)
            return Interval(np.array(low), np.array(high + 0.0), np.array(True), np.array(bool(column_values.size)))
        key, is_key = np.array(0), np.array(True)
        for part, interval in zip(self.parts, key_intervals, strict=True):
            value = np.where(interval.null, _NULL, interval.low)
            nearest = np.minimum(np.searchsorted(part, value), part.size - 1)
            is_key = is_key & (part[nearest] == value)
            key = key * part.size + nearest
        row = np.minimum(np.searchsorted(self.keys, key), self.keys.size - 1)
        null = ~is_key | (self.keys[row] != key) | self.null[row, place]
        low = np.where(null, 0.0, self.values[row, place])
        return Interval(low, low, null, ~null)


def _get_value(value: Interval, _: Any) -> Interval:
    return value


def _to_number(value: Any, vocabulary: Mapping[str, int]) -> float:
    if value is None:
        return _NULL
    return float(vocabulary[value]) if isinstance(value, str) else float(value)


MAX_GRID = 4_000_000
"""Largest grid on which a condition is evaluated over codes; larger conditions are left to the repair of rows."""

_MIRRORED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "==": "==", "!=": "!="}

Table = Mapping[str, pa.Array]
Cells = Mapping[str, "pa.Array | tuple[NDArray[np.float64], NDArray[np.float64]]"]


@dataclass(frozen=True)
class ForbiddenCondition:
    """A condition that no row may meet.

    ``rule``: number of its rule, from 0; ``words``: its text for messages; ``needs``: the measured columns behind it.
    """

    rule: int
    words: str
    node: Node
    needs: tuple[str, ...]


@dataclass(frozen=True)
class CompiledRules:
    """The rules of one spec, compiled for evaluation over rows and over cells.

    Attributes:
        conditions: One condition for every ``never`` about one row, and one for every computed column's domain.
        across: One condition for every ``never`` about several rows of a person.
        derived: The definition of each column computed by an expression.
        looked_up: The definition of each column computed by a lookup table.
        order: The computed columns, each after the columns it needs.
        groups: The columns of each ``one_of``.
        roles: The column of roles and word -> role, if ``across`` may name rows by role.
        continued: The definition of each column that continues from another row of the person.
    """

    columns: Mapping[str, Any]
    conditions: tuple[ForbiddenCondition, ...] = ()
    derived: Mapping[str, Node] = field(default_factory=dict)
    looked_up: Mapping[str, tuple[LookupTable, int]] = field(default_factory=dict)
    order: tuple[str, ...] = ()
    vocabulary: Mapping[str, int] = field(default_factory=dict)
    groups: tuple[tuple[str, ...], ...] = ()
    across: tuple[ForbiddenCondition, ...] = ()
    roles: tuple[str, Mapping[str, Any]] = ("", MappingProxyType({}))
    continued: Mapping[str, Node] = field(default_factory=dict)

    @cached_property
    def thresholds(self) -> dict[str, tuple[float, ...]]:
        """Bin edges of ordered columns from rules: a bin across a threshold could not be forbidden."""
        return list_thresholds([c.node for c in (*self.conditions, *self.across)], self.columns)

    @property
    def role_conditions(self) -> tuple[ForbiddenCondition, ...]:
        """The conditions across rows that depend only on the roles of a household's members."""
        column, _ = self.roles
        return tuple(c for c in self.across if column and {*c.node.columns} <= {column})

    @classmethod
    def compile(cls, spec: ReleaseSpec) -> CompiledRules:
        """Return the checked rules of ``spec`` with their tables and conditions."""
        columns, words = spec.released_columns, spec.row_words
        vocabulary = _build_vocabulary(spec)
        derived = list_expressions(spec.rules, columns, words)
        tables: dict[str, tuple[LookupTable, int]] = {}
        for lookup in (rule.lookup for rule in spec.rules if isinstance(rule, LookupRule)):
            table = LookupTable.of(lookup, vocabulary)
            tables |= {name: (table, place) for place, name in enumerate(lookup.to)}
        rules = cls(columns, (), derived, tables, order_computed_columns(spec.rules, columns, words), vocabulary)
        groups = tuple(r.one_of for r in spec.rules if isinstance(r, OneOf))
        conditions = [
            ForbiddenCondition(
                i, f"never {getattr(spec.rules[i], 'never', '')}", node, rules.find_measured_columns(node.columns)
            )
            for i, node in list_conditions(spec.rules, columns, words).items()
        ]
        continued = list_continued_expressions(spec.rules, columns, words)
        across = (*(c for c in conditions if c.node.across), *rules._iterate_continued_conditions(spec, continued))
        conditions = [*(c for c in conditions if not c.node.across), *rules._iterate_domain_conditions(spec)]
        return replace(
            rules,
            conditions=tuple(conditions),
            groups=groups,
            across=across,
            roles=_list_roles(spec),
            continued=continued,
        )

    def find_measured_columns(self, columns: Sequence[str]) -> tuple[str, ...]:
        """Return the measured columns behind ``columns``, each once."""
        measured: dict[str, None] = {}
        for name in columns:
            if name in self.derived:
                measured |= dict.fromkeys(self.find_measured_columns(self.derived[name].columns))
            elif name in self.looked_up:
                measured |= dict.fromkeys(self.find_measured_columns(self.looked_up[name][0].columns))
            else:
                measured[name] = None
        return tuple(measured)

    def find_computed_columns(self, columns: Sequence[str]) -> tuple[str, ...]:
        """Return the computed columns among ``columns`` and behind them, each before the columns it needs."""
        needed, computed = {*columns}, []
        for name in reversed(self.order):
            if name in needed:
                computed.append(name)
                needed |= {*(self.derived[name] if name in self.derived else self.looked_up[name][0]).columns}
        return tuple(computed)

    @cached_property
    def ruled_columns(self) -> frozenset[str]:
        """The computed columns, and the measured columns that a condition or a computed column needs."""
        return frozenset((*self.order, *self.find_measured_columns(self.order))).union(
            *(c.needs for c in self.conditions)
        )

    def _iterate_domain_conditions(self, spec: ReleaseSpec) -> Iterator[ForbiddenCondition]:
        """Yield, for each computed column, the condition that its value lies outside the column's domain."""
        numbers = {name: i for i, r in enumerate(spec.rules) for name in map_computed_columns(r)}
        for name in self.order:
            node = _describe_outside(name, self.columns[name])
            yield ForbiddenCondition(
                numbers[name],
                f"{name!r} is computed outside its column's domain",
                node,
                self.find_measured_columns([name]),
            )

    def _iterate_continued_conditions(
        self, spec: ReleaseSpec, continued: Mapping[str, Node]
    ) -> Iterator[ForbiddenCondition]:
        """Yield, for each column that continues from another row, the condition that it lacks its computed value.

        If nothing can be computed, since the other row is missing or null there, any value is allowed.
        """
        numbers = {name: i for i, r in enumerate(spec.rules) for name in map_continued_columns(r)}
        for name, node in continued.items():
            column_node = Node("column", node.type, value=name)
            rounded = Node("as stored", node.type, (node,), value=partial(self._round_as_stored, name))
            words = f"{name!r} differs from the value computed from another row"
            needs = self.find_measured_columns([name, *node.columns])
            missing = Node("is null", "truth", (column_node,))
            computed = Node("not", "truth", (Node("is null", "truth", (rounded,)),))
            lacks = Node("and", "truth", (missing, computed))
            yield ForbiddenCondition(
                numbers[name], words, Node("or", "truth", (Node("!=", "truth", (column_node, rounded)), lacks)), needs
            )

    def continue_columns(
        self, table: Table, first: NDArray[np.bool_], domains: Mapping[str, ValueRange]
    ) -> dict[str, pa.Array]:
        """Return the columns that continue from another row, and the columns computed from their own row.

        ``table``: all columns of rows sorted by person and in order; ``first``: mask of the rows that begin a person;
        ``domains``: domains of the columns.  A value stays unchanged if nothing can be computed, or if the result is
        outside its domain; in the second case it breaks its rule.
        """
        completed = dict(table)
        texts = pa.array(list(self.vocabulary), pa.string())
        types = {name: domains[name].type for name in self.order}
        longest = int(np.diff(np.append(np.flatnonzero(first), len(first))).max(initial=0))
        for _ in range(longest * len(self.continued) + 1):  # each pass carries values one row, or one column, further
            rows, before = self.find_person_rows(completed, first), dict(completed)
            resolve = rows.resolve(self.read_table(completed), self.vocabulary)
            for name, node in self.continued.items():
                value = self._round_as_stored(name, evaluate_expression(node, resolve, self.vocabulary))
                following = convert_to_array(value, domains[name].type, texts, len(first))
                beyond = _describe_outside(name, self.columns[name])
                outside = evaluate_condition(beyond, partial(_get_value, value), self.vocabulary).true
                chosen = np.asarray(following.is_valid()) & ~np.broadcast_to(outside, len(first))
                completed[name] = pc.if_else(pa.array(chosen), following, completed[name])
            completed |= self.compute_columns(completed, types)
            if all(completed[name].equals(before[name]) for name in self.continued):
                break
        return {name: completed[name] for name in (*self.continued, *self.order)}

    def resolve(self, known: Callable[[str], Interval]) -> Callable[[str], Interval]:
        """Return a function from a column to its interval; ``known``: the same function for measured columns."""
        intervals: dict[str, Interval] = {}

        def resolve(name: str) -> Interval:
            if name not in intervals:
                if name in self.derived:
                    intervals[name] = self._round_as_stored(
                        name, evaluate_expression(self.derived[name], resolve, self.vocabulary)
                    )
                elif name in self.looked_up:
                    table, place = self.looked_up[name]
                    intervals[name] = table.look_up(place, [resolve(column) for column in table.columns])
                else:
                    intervals[name] = known(name)
            return intervals[name]

        return resolve

    def _round_as_stored(self, name: str, interval: Interval) -> Interval:
        """Return a derived value as its column stores it: rounded down to its step, or rounded to its decimals."""
        match self.columns[name]:
            case NumberColumn(decimals=int() as decimals, step=None):
                return apply_monotone(lambda x: np.round(x, decimals), interval)
            case DateColumn():
                return apply_monotone(lambda x: np.floor(x / DAY) * DAY, interval)
            case IntegerColumn() | NumberColumn() as column if (grid := column.grid()) is not None:
                return apply_monotone(grid.below, interval)
        return interval

    def read_table(self, table: Table) -> Callable[[str], Interval]:
        """Return a function that returns each column's values in ``table``, which holds the measured columns."""
        return self.resolve(lambda name: read_rows(table[name], self.vocabulary))

    def find_broken_rows(self, table: Table) -> NDArray[np.bool_]:
        """Return the mask of rows that meet each condition, shape (conditions, rows)."""
        rows = len(next(iter(table.values())))
        resolve = self.read_table(table)
        broken = np.zeros((len(self.conditions), rows), dtype=bool)
        for i, condition in enumerate(self.conditions):
            broken[i] = evaluate_condition(condition.node, resolve, self.vocabulary).true
        return broken

    def find_person_rows(self, table: Table, first: NDArray[np.bool_]) -> PersonRows:
        """Return the relations of the rows of ``table``, sorted by person; ``first``: mask of rows that begin one."""
        column, words = self.roles
        if not words:
            return PersonRows(first, {})
        role = self.read_table(table)(column)
        is_role = {w: role.present & (role.low == _to_number(value, self.vocabulary)) for w, value in words.items()}
        return PersonRows(first, is_role)

    def find_broken_persons(self, table: Table, first: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Return the mask of rows that meet each condition across rows, shape (conditions, rows).

        ``table``: rows sorted by person and in order; ``first``: mask of the rows that begin a person.
        """
        broken = np.zeros((len(self.across), len(first)), dtype=bool)
        if not len(first):
            return broken
        resolve = self.find_person_rows(table, first).resolve(self.read_table(table), self.vocabulary)
        for i, condition in enumerate(self.across):
            broken[i] = evaluate_condition(condition.node, resolve, self.vocabulary).true
        return broken

    def find_broken(self, table: Table, first: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Return the mask of rows that break a rule about one row or across rows; see :meth:`find_broken_persons`."""
        across = self.find_broken_persons(table, first).any(axis=0)
        return np.asarray(across | self.find_broken_rows(table).any(axis=0))

    def find_differing_rows(self, table: Table) -> dict[str, NDArray[np.bool_]]:
        """Return, for each computed column, the mask of rows whose value differs from the computed one."""
        resolve, differing = self.read_table(table), {}
        for name in self.order:
            rule, stored = resolve(name), read_rows(table[name], self.vocabulary)
            differing[name] = np.asarray(
                (rule.null != stored.null) | (rule.present & stored.present & (rule.low != stored.low))
            )
        return differing

    def compute_columns(self, table: Table, types: Mapping[str, pa.DataType]) -> dict[str, pa.Array]:
        """Return the computed columns for the rows of ``table``; ``types``: type of each."""
        resolve, rows = self.read_table(table), len(next(iter(table.values())))
        texts = pa.array(list(self.vocabulary), pa.string())
        return {name: convert_to_array(resolve(name), types[name], texts, rows) for name in self.order}

    def compute_column(self, name: str, table: Table, kind: pa.DataType) -> tuple[pa.Array, NDArray[np.bool_]]:
        """Return one computed column of type ``kind`` for the rows of ``table``, and where it is outside its domain."""
        resolve, rows = self.read_table(table), len(next(iter(table.values())))
        texts = pa.array(list(self.vocabulary), pa.string())
        beyond = evaluate_condition(_describe_outside(name, self.columns[name]), resolve, self.vocabulary).true
        return convert_to_array(resolve(name), kind, texts, rows), np.broadcast_to(beyond, rows)

    def find_impossible_cells(
        self, condition: ForbiddenCondition, cells: Cells, attributes: Sequence[Sequence[str]]
    ) -> NDArray[np.bool_]:
        """Return the mask of grid cells whose rows all meet the condition; one axis per entry of ``attributes``."""
        axes = {name: axis for axis, columns in enumerate(attributes) for name in columns}

        def known(name: str) -> Interval:
            return place_on_axis(read_cells(cells[name], self.vocabulary), axes[name], len(attributes))

        truth = evaluate_condition(condition.node, self.resolve(known), self.vocabulary)
        return np.asarray(truth.true & ~truth.false & ~truth.unknown)


def _list_roles(spec: ReleaseSpec) -> tuple[str, Mapping[str, Any]]:
    """Return the column of roles, and the role that each word in rules names."""
    panel = spec.panel
    if panel is None or not panel.household:
        return "", {}
    values: Sequence[Any] = getattr(spec.columns[panel.order], "values", ())
    return panel.order, {str(values[i]): values[i] for i in panel.once}


def list_thresholds(
    conditions: Iterable[Node], columns: Mapping[str, Any], *, after_reals: bool = False
) -> dict[str, tuple[float, ...]]:
    """Return ordered column -> the bin edges at which ``conditions`` change, ascending; ``columns``: released columns.

    ``after_reals``: whether ``x > 0.6`` on reals or moments gets its edge right after 0.6, so that it cuts no cell.
    """
    thresholds: dict[str, set[float]] = {}
    for node in (part for condition in conditions for part in condition.walk()):
        for name, sign, value in _iterate_comparisons(node):
            if edges := _find_edges(columns[name], sign, value, after_reals):
                thresholds.setdefault(name, set()).update(edges)
    return {name: tuple(sorted(edges)) for name, edges in thresholds.items()}


def _build_vocabulary(spec: ReleaseSpec) -> dict[str, int]:
    """Return a number for every text that a column or a looked-up value may have."""
    texts: dict[str, None] = {}
    for column in spec.released_columns.values():
        if isinstance(column, CategoricalColumn):
            texts |= dict.fromkeys(t for t in (*column.values, "other") if isinstance(t, str))
    for rule in spec.rules:
        if isinstance(rule, LookupRule):
            texts |= dict.fromkeys(t for row in rule.lookup.rows for t in row if isinstance(t, str))
    return {text: i for i, text in enumerate(texts)}


def _iterate_comparisons(node: Node) -> Iterator[tuple[str, str, float]]:
    """Yield (column, sign, constant) for comparisons of a column with a constant, or with each constant of a list."""
    if node.op == "in" and node.args[0].column is not None:
        yield from ((node.args[0].column, "==", value) for value in node.value)
    if node.op in _MIRRORED:
        first, second = node.args
        for column, constant, sign in ((first, second, node.op), (second, first, _MIRRORED[node.op])):
            if column.column is None:
                continue
            if constant.op == "neg" and constant.args[0].op == "constant":
                yield column.column, sign, -constant.args[0].value
            elif constant.op == "constant":
                yield column.column, sign, constant.value


def _convert_times(column: TimeColumn, value: float) -> tuple[float, float]:
    """Return the first time of day at or after ``value``, and the first one after it, in the codec's units."""
    if column.format == "hhmm":
        minutes = value // 100 * 60 + min(value % 100, 60.0)
    else:
        minutes = value if column.format == "seconds" else value * column.per_day / 86_400
    return float(np.ceil(minutes)), float(np.floor(minutes) + 1)


def _find_edges(column: Any, sign: str, value: float, after_reals: bool) -> tuple[float, ...]:
    """Return the bin edges at which the comparison of a column with ``value`` changes; none for an unordered column.

    A column of integer steps has edges before and after ``value``.  A column of reals has no next value, since private
    values may have more decimals than released ones; ``after_reals`` takes the next value of its step or type.
    """
    match column:
        case IntegerColumn():
            below, above = float(np.ceil(value)), float(np.floor(value) + 1)
        case NumberColumn() | DatetimeColumn() if after_reals:
            below, above = value, find_next_value(value, column.grid())
        case NumberColumn(decimals=int() as decimals):
            step = 10.0**-decimals
            below, above = value, round(value + step, decimals)
        case NumberColumn() | DatetimeColumn():
            below = above = value
        case DateColumn():
            below, above = float(np.ceil(value / 86_400)), float(np.floor(value / 86_400) + 1)
        case TimeColumn() as column:
            below, above = _convert_times(column, value)
        case _:
            return ()
    return {"<": (below,), ">=": (below,), "<=": (above,), ">": (above,)}.get(sign, (below, above))


def _describe_outside(name: str, column: Any) -> Node:
    """Return the condition that the value of ``column`` is outside its domain."""
    column_node = Node("column", "number", value=name)
    match column:
        case IntegerColumn() | NumberColumn():
            low, high = float(column.min), float(column.max)
        case DatetimeColumn():
            low, high = column.edge_values()[0], column.edge_values()[-1]
        case DateColumn():
            low, high = column.edge_values()[0] * 86_400, (column.edge_values()[-1] - 1) * 86_400
        case CategoricalColumn(values=values):
            listed = (*values, "other") if column.goes_to == "other" else values
            among = Node("in", "truth", (column_node,), tuple(listed))
            return _allow_null(Node("not", "truth", (among,)), column_node, column.has_null)
        case _:
            return _allow_null(Node("constant", "truth", value=False), column_node, column.nullable)
    below = Node("<", "truth", (column_node, Node("constant", "number", value=low)))
    above = Node(">", "truth", (column_node, Node("constant", "number", value=high)))
    beyond = Node("or", "truth", (below, above))
    if column.exact:
        spikes = Node(
            "in",
            "truth",
            (column_node,),
            tuple(v * (86_400 if isinstance(column, DateColumn) else 1) for v in column.exact_values()),
        )
        beyond = Node("and", "truth", (beyond, Node("not", "truth", (spikes,))))
    return _allow_null(beyond, column_node, column.nullable)


def _allow_null(condition: Node, column_node: Node, nullable: bool) -> Node:
    return condition if nullable else Node("or", "truth", (Node("is null", "truth", (column_node,)), condition))
