"""Conditions on rows, such as ``age >= 65 and region in ["north", "east"]``, in the language of the spec's rules.

The text is parsed and typed by ``data_contracts.rule_language`` and never run.  Null is as in SQL: what is compared
with it is unknown, and a row whose condition is unknown is not selected; ``is null`` (or ``is None``) finds it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, reduce
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from privsyn.base.errors import RequestError
from privsyn.data_contracts.field_error import FieldError
from privsyn.data_contracts.rule_language import COMPARISONS, Node, Type, drop_table_names, parse_condition
from privsyn.data_contracts.spec_checks import NOT_MEASURED
from privsyn.tasks.codecs.codec import Codec
from privsyn.tasks.rules import evaluate
from privsyn.tasks.rules.compiled_rules import CompiledRules
from privsyn.tasks.rules.intervals import Interval, Truth, conjoin, read_rows

FIELD = "query.where"

Bools = NDArray[np.bool_]
Values = Mapping[str, pa.Array | pa.ChunkedArray]
"""Column -> its values, in the released types; columns that rules compute need not be there."""

ReadColumn = Callable[[str, Mapping[str, int]], Interval]
"""A column's intervals, by its name and the numbers of texts; of a row one value each."""


class Language(NamedTuple):
    """What a condition may name.

    ``types`` of the columns, the rules that compute some, and the attribute of each other column (its own name where
    none is given).  ``unmeasured``: columns that have a type, and of which nothing is known.  ``tables``: names that
    may stand before a point and a column.
    """

    types: Mapping[str, Type]
    book: CompiledRules
    attributes: Mapping[str, str]
    unmeasured: Collection[str] = ()
    tables: Collection[str] = ()

    def list_attributes(self, names: tuple[str, ...]) -> tuple[str, ...]:
        """Return the counted attributes of some columns, each once."""
        return tuple(dict.fromkeys(self.attributes.get(c, c) for c in self.book.find_measured_columns(names)))


class Condition:
    """Something that holds for a row or does not, by the values of its ``columns``."""

    columns: tuple[str, ...]

    def holds(self, values: Values) -> Bools:
        """Return whether it holds, row by row."""
        raise NotImplementedError

    def evaluate(self, read: ReadColumn) -> Truth:
        """Return whether it may be true, false or unknown where columns are in the intervals that ``read`` gives.

        It never denies what is possible.
        """
        raise NotImplementedError

    def parts(self) -> list[Condition]:
        """Return conditions on disjoint columns that all hold exactly where this one does."""
        return [self]

    @property
    def compares_with_constants_only(self) -> bool:
        """Whether it changes nowhere but at the numbers that it names."""
        return False

    @property
    def joined(self) -> tuple[Condition, ...]:
        """The conditions that it is made of; none where nothing is joined."""
        return ()

    @property
    def joined_by_and(self) -> bool:
        """Whether it holds where all of them do, rather than any."""
        return True

    def list_thresholds(self) -> list[float]:
        """Return the numbers that it names; moments are in seconds since 1970."""
        return []


@dataclass(frozen=True)
class AllOf(Condition):
    """Several conditions at once."""

    conditions: tuple[Condition, ...]

    @cached_property
    def columns(self) -> tuple[str, ...]:  # type: ignore[override]
        """The columns of all, once."""
        return tuple(dict.fromkeys(c for condition in self.conditions for c in condition.columns))

    def holds(self, values: Values) -> Bools:
        """Return whether every one holds."""
        return np.logical_and.reduce([condition.holds(values) for condition in self.conditions])

    def evaluate(self, read: ReadColumn) -> Truth:
        """See :class:`Condition`."""
        return reduce(conjoin, (condition.evaluate(read) for condition in self.conditions))

    @property
    def compares_with_constants_only(self) -> bool:
        """Whether all do."""
        return all(condition.compares_with_constants_only for condition in self.conditions)

    @property
    def joined(self) -> tuple[Condition, ...]:
        """The conditions."""
        return self.conditions

    def list_thresholds(self) -> list[float]:
        """Return the numbers that they name."""
        return [number for condition in self.conditions for number in condition.list_thresholds()]

    def parts(self) -> list[Condition]:
        """Return the parts of the condition; parts that share columns are one."""
        groups: list[tuple[set[str], list[Condition]]] = []
        for each in (part for c in self.conditions for part in c.parts()):
            columns = set(each.columns)
            touching = [g for g in groups if g[0] & columns]
            merged = (columns.union(*(g[0] for g in touching)), [c for g in touching for c in g[1]] + [each])
            groups = [g for g in groups if g not in touching] + [merged]
        return [
            conditions[0] if len(conditions) == 1 else TiedConditions(tuple(conditions)) for _, conditions in groups
        ]


class TiedConditions(AllOf):
    """Several conditions that cannot be told apart by their columns."""

    def parts(self) -> list[Condition]:
        """Return one part."""
        return [self]


def name_codes_attribute(attribute: str) -> str:
    """Return the name under which values may have an attribute's codes, where these say more than its columns do."""
    return f"\0{attribute}"


@dataclass(frozen=True)
class AtLevel(Condition):
    """The values of one level of a column: those whose code is among ``codes``."""

    codec: Codec
    codes: NDArray[np.int64]

    @property
    def columns(self) -> tuple[str, ...]:  # type: ignore[override]
        """The column."""
        return (self.codec.attribute,)

    def holds(self, values: Values) -> Bools:
        """Return whether a value is of the level."""
        codes_column = values.get(name_codes_attribute(self.codec.attribute))
        if codes_column is not None:
            return np.isin(match_all_rows(codes_column).to_numpy(), self.codes)
        return np.isin(
            self.codec.encode({name: match_all_rows(values[name]) for name in self.codec.sources})[0], self.codes
        )


@dataclass(frozen=True)
class Parsed(Condition):
    """A parsed condition.  ``columns``: the counted attributes behind the columns that it names."""

    node: Node
    language: Language

    @cached_property
    def columns(self) -> tuple[str, ...]:  # type: ignore[override]
        """Every attribute behind the condition, once."""
        return self.language.list_attributes(self.node.columns)

    @property
    def compares_with_constants_only(self) -> bool:
        """Whether every part that nothing joins is about one measured column and constants, and calculates nothing."""
        return all(
            len(node.columns) == 1
            and node.columns[0] not in self.language.book.order
            and all(_is_plain(argument) for argument in (node.args or (node,)))
            for node in _iterate_unjoined(self.node)
        )

    @property
    def joined(self) -> tuple[Condition, ...]:
        """What `and` or `or` joins, with a `not` before it moved inside: there null is as it is for each part."""
        node, negated = self._inner
        if node.op not in ("and", "or"):
            return ()
        return tuple(Parsed(Node("not", "truth", (n,)) if negated else n, self.language) for n in node.args)

    @property
    def joined_by_and(self) -> bool:
        """Whether it is an `and`, or no `or`."""
        node, negated = self._inner
        return (node.op == "or") == negated

    @property
    def _inner(self) -> tuple[Node, bool]:
        """The condition without the `not`s before it, and whether these turn it round."""
        node, negated = self.node, False
        while node.op == "not":
            node, negated = node.args[0], not negated
        return node, negated

    def list_thresholds(self) -> list[float]:
        """Return the numbers that it names; a minus before one is a part of its own, so those below 0 as well."""
        named = [n.value if n.op == "in" else (n.value,) for n in self.node.walk() if n.op in ("in", "constant")]
        numbers = [value for values in named for value in values if isinstance(value, float)]
        negative = [-n.args[0].value for n in self.node.walk() if n.op == "neg" and n.args[0].op == "constant"]
        return numbers + negative

    def compares_only(self, pair: tuple[str, str]) -> bool:
        """Return whether it only says which of two columns is larger, so that their difference decides it."""
        compared = list(_iterate_unjoined(self.node))
        return {*self.node.columns} == {*pair} and all(
            n.op in COMPARISONS.values() and len({*n.columns}) == 2 and (_names_columns(n) or _compares_with_zero(n))
            for n in compared
        )

    def holds(self, values: Values) -> Bools:
        """Return whether it is true, row by row; a row for which it is unknown, by a null, is none."""
        truth = self.evaluate(lambda name, vocabulary: read_rows(match_all_rows(values[name]), vocabulary))
        return np.broadcast_to(truth.true, len(next(iter(values.values()))))

    def evaluate(self, read: ReadColumn) -> Truth:
        """See :class:`Condition`."""
        book = self.language.book
        texts = (n.value if n.op == "in" else (n.value,) for n in self.node.walk() if n.op in ("in", "constant"))
        constants = dict.fromkeys([*book.vocabulary, *(t for each in texts for t in each if isinstance(t, str))])
        vocabulary = {text: number for number, text in enumerate(constants)}
        columns = book.resolve(lambda name: read(name, vocabulary))
        return evaluate.evaluate_condition(self.node, columns, vocabulary)

    def parts(self) -> list[Condition]:
        """Return what is joined by ``and``, where columns tell it apart."""
        nodes = _split_conjuncts(self.node)
        return [self] if len(nodes) == 1 else AllOf(tuple(Parsed(n, self.language) for n in nodes)).parts()


def match_all_rows(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Return the column as one array."""
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


def read_condition(text: str, language: Language) -> Parsed:
    """Parse a condition.  Raises RequestError if it is none, or names a column that is not there or none at all."""
    try:
        node = parse_condition(drop_table_names(" ".join(text.splitlines()).strip(), language.tables), language.types)
        if not node.columns:
            raise FieldError(f"`{text}` names no column", "Compare a column, as in `age < 15`")
    except FieldError as error:
        raise RequestError(error.problem, error.cure, FIELD) from None
    for name in node.columns:
        refuse_unmeasured(name, language, FIELD)
    return Parsed(node, language)


def refuse_unmeasured(name: str, language: Language, field: str) -> None:
    """Raise RequestError for a column that was not measured, so that no answer about it is known."""
    if name in language.unmeasured:
        raise RequestError(
            f"not known: the column {name!r} {NOT_MEASURED}", "Ask about columns that were measured", field
        )


def make_unknown_column_error(name: str, field: str) -> RequestError:
    """Return the error for a column that the release does not have."""
    return RequestError(
        f"the release has no column {name!r}", "Name one of its columns; its README.md lists them", field
    )


def _iterate_unjoined(node: Node) -> Iterator[Node]:
    """Yield the parts of a condition that no ``and``, ``or`` or ``not`` joins."""
    if node.op not in ("and", "or", "not"):
        yield node
        return
    for argument in node.args:
        yield from _iterate_unjoined(argument)


def _names_columns(node: Node) -> bool:
    return all(argument.op == "column" for argument in node.args)


def _compares_with_zero(node: Node) -> bool:
    """Return whether a comparison is one of a column less a column with 0."""
    difference, zero = sorted(node.args, key=lambda argument: argument.op == "constant")
    return difference.op in ("-", "days") and _names_columns(difference) and zero.op == "constant" and zero.value == 0


def _is_plain(node: Node) -> bool:
    """Return whether a side of a comparison is a column or a constant as it stands, perhaps with a minus before it."""
    return node.op in ("column", "constant") or (node.op == "neg" and node.args[0].op == "constant")


def _split_conjuncts(node: Node) -> list[Node]:
    if node.op == "and":
        return [each for arg in node.args for each in _split_conjuncts(arg)]
    return [node]
