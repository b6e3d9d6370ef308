"""The codes that rules across rows allow a new row, given another row of its person.

A code is left out if all its values break a rule for any value inside the other row's codes.  Rules that codes cannot
decide are enforced when rows are decoded.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from privsyn.data_contracts.rule_language import COUNT, Node
from privsyn.tasks.codecs import EncodingPlan
from privsyn.tasks.estimation.recode import AttributeRecode
from privsyn.tasks.panels.transitions import TransitionCodes
from privsyn.tasks.rules.compiled_rules import CompiledRules, list_row_words
from privsyn.tasks.rules.intervals import Interval, evaluate_condition, place_on_axis, read_cells

Floats: TypeAlias = NDArray[np.float64]
Integers: TypeAlias = NDArray[np.int64]
Bools: TypeAlias = NDArray[np.bool_]
Codes: TypeAlias = NDArray[Any]

CELLS = 1 << 22
"""The most codes for which a rule is evaluated at once."""


@dataclass(frozen=True, eq=False)
class RowsInCodes:
    """One row per person: codes of followed columns, and values of the other columns.

    ``codes``: the known attributes' codes, shape (rows,); ``carried``: returns the values of a column that is not
    followed, shape (rows,).
    """

    codes: Mapping[str, Codes]
    carried: Callable[[str], Interval]

    def take(self, chosen: NDArray[Any]) -> RowsInCodes:
        """Return some of the rows."""
        codes = {a: code[chosen] for a, code in self.codes.items()}
        return RowsInCodes(codes, lambda name: take_values(self.carried(name), chosen))


def take_values(values: Interval, chosen: NDArray[Any]) -> Interval:
    """Return some of the values."""
    return values.map(lambda each: each[chosen])


@dataclass(frozen=True)
class _PairRule:
    """A condition on a row and the other row ``word``; ``attributes``, ``other_attributes``: followed ones of each."""

    word: str
    node: Node
    attributes: frozenset[str]
    other_attributes: frozenset[str]


class AllowedCodes:
    """The rules across rows about a row and one other row of its person, in transition codes."""

    def __init__(self, plan: EncodingPlan, codes: Mapping[str, TransitionCodes]) -> None:
        rules = plan.rules if plan.rules is not None else CompiledRules({})
        self._rules, self._following = rules, plan.following
        self._of_column = {n: c.attribute for c in plan.codecs if c.attribute in codes for n in c.ranges()}
        self._bounds: dict[str, Interval] = {}
        for codec in plan.codecs if rules.across else ():
            if codec.attribute in codes:
                for name, cells in codec.value_bounds().items():
                    fine = read_cells(cells, rules.vocabulary)
                    self._bounds[name] = join_values(fine, codes[codec.attribute].recode, codes[codec.attribute].size)
        self._pair_rules = tuple(self._read_rules())
        carried = frozenset() if plan.panel is None else plan.panel.carried
        self.of_steps = tuple(
            (condition.node, word)
            for condition in (*rules.conditions, *rules.across)
            if {*condition.needs} <= carried and (word := _find_word(condition.node)) is not None
        )

    @property
    def words(self) -> tuple[str, ...]:
        """The words for the other row that rules use, such as "previous"."""
        return tuple(dict.fromkeys(rule.word for rule in self._pair_rules))

    def _read_rules(self) -> list[_PairRule]:
        pair_rules = []
        for condition in self._rules.across:
            parts = list(condition.node.walk())
            words = list_row_words(condition.node)
            if len(words) != 1 or words == [COUNT]:
                continue
            sides = []
            for op in ("column", "of row"):
                named = [part.column for part in parts if part.op == op and part.column is not None]
                behind = self._rules.find_measured_columns(named)
                sides.append(frozenset(self._of_column[n] for n in behind if n in self._of_column))
            pair_rules.append(_PairRule(words.pop(), condition.node, *sides))
        return pair_rules

    def allow_steps(
        self, new: Callable[[str], Interval], known: Callable[[str], Interval], rows: int, *, forward: bool
    ) -> Bools:
        """Return which places in the order new rows may have, shape (rows,), by rules about columns not followed.

        ``new`` and ``known``: values of these columns in the new rows and their known neighbours; ``forward``: whether
        the new rows come after the known ones.
        """
        allowed = np.ones(rows, bool)
        of_new, of_known = self._rules.resolve(new), self._rules.resolve(known)
        for node, word in self.of_steps:
            new_is_own = not word or (word == "previous") == forward
            of_row, other = (of_new, of_known) if new_is_own else (of_known, of_new)
            allowed &= ~_is_surely_true(node, of_row, other, self._rules.vocabulary)
        return allowed

    def find(
        self, attribute: str, new: RowsInCodes, known: RowsInCodes, word: str, *, new_is_own: bool
    ) -> Bools | None:
        """Return which codes of ``attribute`` each new row may have, shape (rows, codes); None if all are allowed.

        ``new``: the new rows, with the codes of the attributes drawn before.  ``known``: the other row.  ``word``: the
        rules' word for the row that is not their own.  ``new_is_own``: whether the new row is the rules' own row.
        """
        allowed: Bools | None = None
        for rule in self._pair_rules:
            sides = (rule.attributes, rule.other_attributes)
            sides = sides if new_is_own else sides[::-1]
            ready = attribute in sides[0] and sides[0] <= {attribute, *new.codes} and sides[1] <= {*known.codes}
            if rule.word != word or not ready:
                continue
            forbidden = self._evaluate(rule.node, attribute, new, known, new_is_own=new_is_own)
            if forbidden.any():
                allowed = ~forbidden if allowed is None else allowed & ~forbidden
        return allowed

    def _evaluate(self, node: Node, attribute: str, new: RowsInCodes, known: RowsInCodes, *, new_is_own: bool) -> Bools:
        """Return which codes of ``attribute`` certainly break the rule, shape (rows, codes)."""
        size = next(len(b.low) for n, b in self._bounds.items() if self._of_column[n] == attribute)
        rows = len(next(iter((*new.codes.values(), *known.codes.values()))))
        parts = []
        for first in range(0, rows, max(1, CELLS // size)):
            block = np.arange(first, min(first + max(1, CELLS // size), rows))
            of_new = self._rules.resolve(self._read(new.take(block), attribute))
            of_known = self._rules.resolve(self._read(known.take(block), ""))
            of_row, other = (of_new, of_known) if new_is_own else (of_known, of_new)
            surely = _is_surely_true(node, of_row, other, self._rules.vocabulary)
            parts.append(np.broadcast_to(surely, (len(block), size)))
        return np.concatenate(parts) if parts else np.zeros((0, size), bool)

    def _read(self, rows: RowsInCodes, attribute: str) -> Callable[[str], Interval]:
        """Return a function that gives a column's possible values, shape (rows, 1), or by code for ``attribute``."""

        def known(name: str) -> Interval:
            source = self._of_column.get(name)
            if source is None:
                return place_on_axis(rows.carried(name), 0, 2)
            bounds = self._bounds[name]
            if source == attribute:
                return place_on_axis(bounds, 1, 2)
            return place_on_axis(take_values(bounds, rows.codes[source]), 0, 2)

        return known


def _is_surely_true(
    node: Node,
    read_row: Callable[[str], Interval],
    read_other: Callable[[str], Interval],
    vocabulary: Mapping[str, int],
) -> Bools:
    """Return where a condition on a row's own and another row's columns is true for all possible values."""

    def resolve(term: str | Node) -> Interval:
        return read_row(term) if isinstance(term, str) else read_other(term.value.column)

    truth = evaluate_condition(node, resolve, vocabulary)
    return np.asarray(truth.true & ~truth.false & ~truth.unknown)


def _find_word(node: Node) -> str | None:
    """Return the neighbour that a condition names, an empty text for none, or None for any other rows."""
    words = list_row_words(node)
    if not words:
        return ""
    return words[0] if words in (["previous"], ["next"]) else None


def join_values(fine: Interval, recode: AttributeRecode, size: int) -> Interval:
    """Return the possible values of a column in each of ``size`` coarse codes, from the values of its fine codes."""
    low, high = np.full(size, np.inf), np.full(size, -np.inf)
    null, present = np.zeros(size, bool), np.zeros(size, bool)
    code, coded = recode.coarse, recode.kept
    valued = coded & fine.present
    np.minimum.at(low, code[valued], fine.low[valued])
    np.maximum.at(high, code[valued], fine.high[valued])
    np.logical_or.at(null, code[coded], fine.null[coded])
    np.logical_or.at(present, code[valued], True)
    return Interval(np.where(present, low, 0.0), np.where(present, high, 0.0), null, present)


def draw_allowed(
    draw: Callable[[Floats, Codes, np.random.Generator], Codes],
    probabilities: Floats,
    previous: Codes,
    allowed: Bools,
    rng: np.random.Generator,
) -> tuple[Codes, Floats]:
    """Draw each row's next code among its ``allowed`` codes, by the ``probabilities`` of its current code.

    Also returns the expected number of rows by current and next code, shaped like ``probabilities``.  If no allowed
    code has a positive probability, all codes are allowed.  ``draw``: draws by the row number of a probability table.
    """
    keys = np.concatenate([previous.astype(np.int64)[:, None].view(np.uint8), np.packbits(allowed, axis=1)], axis=1)
    _, first, group, rows = np.unique(keys, axis=0, return_index=True, return_inverse=True, return_counts=True)
    table = probabilities[previous[first]] * allowed[first]
    table = np.where(table.sum(axis=1, keepdims=True) > 0, table, probabilities[previous[first]])
    table = table / np.maximum(table.sum(axis=1, keepdims=True), 1e-300)
    expected = np.zeros_like(probabilities)
    np.add.at(expected, previous[first], table * rows[:, None])
    return draw(table, group.reshape(-1), rng).astype(previous.dtype), expected


def combine(parts: Sequence[Bools | None]) -> Bools | None:
    """Return the codes that all parts allow."""
    stated = [part for part in parts if part is not None]
    return np.logical_and.reduce(stated) if stated else None
