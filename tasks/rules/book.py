"""The rules of a spec, bound to its columns: computed columns, conditions over rows, and cells that cannot be."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from privsyn.data_contracts.columns import CategoricalColumn, DateColumn, IntegerColumn, NumberColumn
from privsyn.data_contracts.release_spec import ReleaseSpec
from privsyn.data_contracts.rule_nodes import Node
from privsyn.data_contracts.rules import (
    LookupRule,
    OneOf,
    list_conditions,
    list_expressions,
    map_computed_columns,
    order_computed_columns,
)
from privsyn.tasks.rules import evaluate
from privsyn.tasks.rules import values as v
from privsyn.tasks.rules.domains import find_outside
from privsyn.tasks.rules.lookup import LookupTable
from privsyn.tasks.rules.spans import span_cells, span_rows, to_array
from privsyn.tasks.rules.thresholds import iterate_edges
from privsyn.tasks.rules.values import Span

MAX_GRID = 4_000_000
"""Most cells over which a condition is asked of codes; a condition over more is kept by the repair of rows alone."""

Table = Mapping[str, pa.Array]
Cells = Mapping[str, "pa.Array | tuple[NDArray[np.float64], NDArray[np.float64]]"]


@dataclass(frozen=True)
class Condition:
    """What no row may meet: the rule's number from 0, its words, the expression, and the measured columns it needs."""

    rule: int
    words: str
    node: Node
    needs: tuple[str, ...]


@dataclass(frozen=True)
class RuleBook:
    """The rules of one spec.

    ``conditions``: of every ``never``, and that no computed value lies outside its column's domain; ``derived`` and
    ``looked_up``: how each computed column is made; ``order``: computed columns, each after those it needs; ``groups``:
    the columns of each ``one_of``.
    """

    columns: Mapping[str, Any]
    conditions: tuple[Condition, ...] = ()
    derived: Mapping[str, Node] = field(default_factory=dict)
    looked_up: Mapping[str, tuple[LookupTable, int]] = field(default_factory=dict)
    order: tuple[str, ...] = ()
    vocabulary: Mapping[str, int] = field(default_factory=dict)
    groups: tuple[tuple[str, ...], ...] = ()

    @cached_property
    def thresholds(self) -> dict[str, tuple[float, ...]]:
        """Bin edges that rules give to ordered columns: a bin on both sides of a threshold could not be forbidden."""
        found: dict[str, set[float]] = {}
        for condition in self.conditions:
            for node in condition.node.walk():
                for name, edges in iterate_edges(node, self.columns):
                    found.setdefault(name, set()).update(edges)
        return {name: tuple(sorted(edges)) for name, edges in found.items()}

    @classmethod
    def of(cls, spec: ReleaseSpec) -> RuleBook:
        """Return the book of ``spec``, whose rules were checked."""
        columns = spec.released_columns
        vocabulary = _build_vocabulary(spec)
        derived = list_expressions(spec.rules, columns)
        tables = {
            name: found
            for r in spec.rules
            if isinstance(r, LookupRule)
            for name, found in _iterate_tables(r, vocabulary)
        }
        book = cls(columns, (), derived, tables, order_computed_columns(spec.rules, columns), vocabulary)
        groups = tuple(r.one_of for r in spec.rules if isinstance(r, OneOf))
        found = [
            Condition(i, f"never {getattr(spec.rules[i], 'never', '')}", node, book.needed(node.columns))
            for i, node in list_conditions(spec.rules, columns).items()
        ]
        found += book._domain_conditions(spec)
        return replace(book, conditions=tuple(found), groups=groups)

    def needed(self, columns: Sequence[str]) -> tuple[str, ...]:
        """Return the measured columns behind ``columns``, each once."""
        found: dict[str, None] = {}
        for name in columns:
            if name in self.derived:
                found |= dict.fromkeys(self.needed(self.derived[name].columns))
            elif name in self.looked_up:
                found |= dict.fromkeys(self.needed(self.looked_up[name][0].columns))
            else:
                found[name] = None
        return tuple(found)

    @cached_property
    def spoken_of(self) -> frozenset[str]:
        """The columns that are computed, and those that a condition or one of these needs."""
        return frozenset((*self.order, *self.needed(self.order))).union(*(c.needs for c in self.conditions))

    def _domain_conditions(self, spec: ReleaseSpec) -> Iterator[Condition]:
        """Check that a computed value is one of its column's domain."""
        numbers = {name: i for i, r in enumerate(spec.rules) for name in map_computed_columns(r)}
        for name in self.order:
            node = find_outside(name, self.columns[name])
            yield Condition(
                numbers[name], f"{name!r} computed, and outside its column's domain", node, self.needed([name])
            )

    def env(self, known: Callable[[str], Span]) -> Callable[[str], Span]:
        """Spans of every column, from those of the measured ones."""
        made: dict[str, Span] = {}

        def of(name: str) -> Span:
            if name not in made:
                if name in self.derived:
                    made[name] = self._stored(
                        name, evaluate.evaluate_expression(self.derived[name], of, self.vocabulary)
                    )
                elif name in self.looked_up:
                    table, place = self.looked_up[name]
                    made[name] = table.span(place, [of(column) for column in table.columns])
                else:
                    made[name] = known(name)
            return made[name]

        return of

    def _stored(self, name: str, span: Span) -> Span:
        """Return a derived value as its column holds it: the last step at or below it, or rounded to its decimals."""
        match self.columns[name]:
            case NumberColumn(decimals=int() as decimals, step=None):
                return v.apply_monotone(lambda x: np.round(x, decimals), span)
            case DateColumn():
                return v.apply_monotone(lambda x: np.floor(x / evaluate.DAY) * evaluate.DAY, span)
            case IntegerColumn() | NumberColumn() as column if (grid := column.grid()) is not None:
                return v.apply_monotone(grid.below, span)
        return span

    def spans(self, table: Table) -> Callable[[str], Span]:
        """Spans of the rows of ``table``, which holds the measured columns."""
        return self.env(lambda name: span_rows(table[name], self.vocabulary))

    def broken(self, table: Table) -> NDArray[np.bool_]:
        """Return which rows meet which condition: shape (conditions, rows)."""
        rows = len(next(iter(table.values())))
        env = self.spans(table)
        found = np.zeros((len(self.conditions), rows), dtype=bool)
        for i, condition in enumerate(self.conditions):
            found[i] = evaluate.evaluate_condition(condition.node, env, self.vocabulary).true
        return found

    def differing(self, table: Table) -> dict[str, NDArray[np.bool_]]:
        """Return which rows of ``table`` have another value in a computed column than the rules say."""
        env, found = self.spans(table), {}
        for name in self.order:
            rule, own = env(name), span_rows(table[name], self.vocabulary)
            found[name] = np.asarray((rule.null != own.null) | (rule.some & own.some & (rule.low != own.low)))
        return found

    def compute(self, table: Table, types: Mapping[str, pa.DataType]) -> dict[str, pa.Array]:
        """Return the computed columns of the rows of ``table``; ``types``: of each."""
        env, rows = self.spans(table), len(next(iter(table.values())))
        texts = pa.array(list(self.vocabulary), pa.string())
        return {name: to_array(env(name), types[name], texts, rows) for name in self.order}

    def computed(self, name: str, table: Table, kind: pa.DataType) -> tuple[pa.Array, NDArray[np.bool_]]:
        """Compute one column, of type ``kind``, for the rows of ``table``, and where it lies outside its domain."""
        env, rows = self.spans(table), len(next(iter(table.values())))
        texts = pa.array(list(self.vocabulary), pa.string())
        beyond = evaluate.evaluate_condition(find_outside(name, self.columns[name]), env, self.vocabulary).true
        return to_array(env(name), kind, texts, rows), np.broadcast_to(beyond, rows)

    def surely_broken(
        self, condition: Condition, cells: Cells, attributes: Sequence[Sequence[str]]
    ) -> NDArray[np.bool_]:
        """Return where on the grid every row meets the condition; one axis for each attribute, named by its columns."""
        axes = {name: axis for axis, columns in enumerate(attributes) for name in columns}

        def known(name: str) -> Span:
            span = span_cells(cells[name], self.vocabulary)
            shape = [1] * len(attributes)
            shape[axes[name]] = -1
            low = span.low.reshape(shape)
            high = low if span.exact else span.high.reshape(shape)
            return Span(low, high, span.null.reshape(shape), span.some.reshape(shape))

        found = evaluate.evaluate_condition(condition.node, self.env(known), self.vocabulary)
        return np.asarray(found.true & ~found.false & ~found.unknown)


def _iterate_tables(rule: LookupRule, vocabulary: Mapping[str, int]) -> Iterator[tuple[str, tuple[LookupTable, int]]]:
    table = LookupTable.of(rule.lookup, vocabulary)
    for place, name in enumerate(rule.lookup.to):
        yield name, (table, place)


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
