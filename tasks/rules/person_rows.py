"""Relations between rows of one person: the previous, next or first row of each row, or the row with a role."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from privsyn.data_contracts.rule_language import COUNT, Node, RowColumn
from privsyn.tasks.rules import evaluate
from privsyn.tasks.rules.intervals import Interval

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
                chosen = evaluate.evaluate_condition(node.args[0], resolve, vocabulary).true
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
