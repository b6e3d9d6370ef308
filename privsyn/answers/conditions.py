"""Conditions on rows, such as ``age >= 65 and region in ["north", "east"]``, in the language of the spec's rules.

``data_contracts.rule_language`` parses and types the text; the text is never run.  Null is as in SQL: a comparison with
null is unknown, and a row with an unknown condition is not selected; ``is null`` (or ``is None``) selects nulls.
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
from privsyn.data_contracts.frozen_model import FieldError
from privsyn.data_contracts.rule_language import COMPARISONS, Node, Type, drop_table_names, parse_condition
from privsyn.data_contracts.spec_checks import NOT_MEASURED
from privsyn.tasks.codecs.codec import Codec
from privsyn.tasks.rules.compiled_rules import CompiledRules
from privsyn.tasks.rules.intervals import Interval, Truth, conjoin, evaluate_condition, read_rows

FIELD = "query.where"

Bools = NDArray[np.bool_]
Values = Mapping[str, pa.Array | pa.ChunkedArray]
"""Column -> its values, in the released types; computed columns may be missing."""

ReadColumn = Callable[[str, Mapping[str, int]], Interval]
"""Return a column's intervals, from its name and the numbers of texts; for rows, intervals of one value."""


class Language(NamedTuple):
    """The names that a condition may use.

    ``types`` of the columns, the rules that compute some, and the attribute of each other column (by default its own
    name).  ``unmeasured``: columns with a type and no measurement.  ``tables``: table names that may prefix a column,
    with a point.
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
    """A predicate on the values of a row's ``columns``."""

    columns: tuple[str, ...]

    def holds(self, values: Values) -> Bools:
        """Return whether the condition holds, row by row."""
        raise NotImplementedError

    def evaluate(self, read: ReadColumn) -> Truth:
        """Return whether the condition may be true, false or unknown when columns are in the intervals from ``read``.

        It never denies what is possible.
        """
        raise NotImplementedError

    def parts(self) -> list[Condition]:
        """Return conditions on disjoint columns whose conjunction is this condition."""
        return [self]

    @property
    def compares_with_constants_only(self) -> bool:
        """Whether its truth changes only at the numbers that it names."""
        return False

    def split(self) -> tuple[bool, tuple[Condition, ...]]:
        """Return whether it needs all the conditions that it joins, not any, and these; none if it joins none."""
        return True, ()

    def list_thresholds(self) -> list[float]:
        """Return the numbers that the condition names; moments are in seconds since 1970."""
        return []


@dataclass(frozen=True)
class AllOf(Condition):
    """A conjunction of conditions; ``tied``: a single part, since they share columns."""

    conditions: tuple[Condition, ...]
    tied: bool = False

    @cached_property
    def columns(self) -> tuple[str, ...]:  # type: ignore[override]
        """The columns of all conditions, each once."""
        return tuple(dict.fromkeys(c for condition in self.conditions for c in condition.columns))

    def holds(self, values: Values) -> Bools:
        """Return whether every condition holds."""
        return np.logical_and.reduce([condition.holds(values) for condition in self.conditions])

    def evaluate(self, read: ReadColumn) -> Truth:
        """See :class:`Condition`."""
        return reduce(conjoin, (condition.evaluate(read) for condition in self.conditions))

    @property
    def compares_with_constants_only(self) -> bool:
        """Whether this is true of every condition."""
        return all(condition.compares_with_constants_only for condition in self.conditions)

    def split(self) -> tuple[bool, tuple[Condition, ...]]:
        """See :class:`Condition`."""
        return True, self.conditions

    def list_thresholds(self) -> list[float]:
        """Return the numbers that the conditions name."""
        return [number for condition in self.conditions for number in condition.list_thresholds()]

    def parts(self) -> list[Condition]:
        """Return the parts of the condition; parts that share columns are one."""
        if self.tied:
            return [self]
        groups: list[tuple[set[str], list[Condition]]] = []
        for each in (part for c in self.conditions for part in c.parts()):
            columns = set(each.columns)
            touching = [g for g in groups if g[0] & columns]
            merged = (columns.union(*(g[0] for g in touching)), [c for g in touching for c in g[1]] + [each])
            groups = [g for g in groups if g not in touching] + [merged]
        return [tied[0] if len(tied) == 1 else AllOf(tuple(tied), tied=True) for _, tied in groups]


def name_codes_attribute(attribute: str) -> str:
    """Return the name for an attribute's codes among values; codes may say more than the columns do."""
    return f"\0{attribute}"


@dataclass(frozen=True)
class AtLevel(Condition):
    """The values of one level of a column: values whose code is among ``codes``."""

    codec: Codec
    codes: NDArray[np.int64]

    @property
    def columns(self) -> tuple[str, ...]:  # type: ignore[override]
        """The column."""
        return (self.codec.attribute,)

    def holds(self, values: Values) -> Bools:
        """Return whether a value is in the level."""
        codes_column = values.get(name_codes_attribute(self.codec.attribute))
        if codes_column is not None:
            return np.isin(match_all_rows(codes_column).to_numpy(), self.codes)
        columns = {name: match_all_rows(values[name]) for name in self.codec.sources}
        return np.isin(self.codec.encode(columns)[0], self.codes)


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
        """Whether every part without a connective compares one measured column with constants, without arithmetic."""
        return all(
            len(node.columns) == 1
            and node.columns[0] not in self.language.book.order
            and all(_is_plain(argument) for argument in (node.args or (node,)))
            for node in _iterate_unjoined(self.node)
        )

    def split(self) -> tuple[bool, tuple[Condition, ...]]:
        """See :class:`Condition`; any `not` is moved inside, which treats null as it does for each part."""
        node, negated = self.node, False
        while node.op == "not":
            node, negated = node.args[0], not negated
        parts = node.args if node.op in ("and", "or") else ()
        joined = tuple(Parsed(Node("not", "truth", (n,)) if negated else n, self.language) for n in parts)
        return (node.op == "or") == negated, joined

    def list_thresholds(self) -> list[float]:
        """Return the numbers that the condition names, including negative ones (a minus sign is a separate node)."""
        named = [n.value if n.op == "in" else (n.value,) for n in self.node.walk() if n.op in ("in", "constant")]
        numbers = [value for values in named for value in values if isinstance(value, float)]
        negative = [-n.args[0].value for n in self.node.walk() if n.op == "neg" and n.args[0].op == "constant"]
        return numbers + negative

    def compares_only(self, pair: tuple[str, str]) -> bool:
        """Return whether it only compares two columns with each other, so that their difference decides it."""
        compared = list(_iterate_unjoined(self.node))
        return {*self.node.columns} == {*pair} and all(
            n.op in COMPARISONS.values() and len({*n.columns}) == 2 and (_names_columns(n) or _compares_with_zero(n))
            for n in compared
        )

    def holds(self, values: Values) -> Bools:
        """Return whether the condition is true, row by row; unknown (a null) counts as not true."""
        truth = self.evaluate(lambda name, vocabulary: read_rows(match_all_rows(values[name]), vocabulary))
        return np.broadcast_to(truth.true, len(next(iter(values.values()))))

    def evaluate(self, read: ReadColumn) -> Truth:
        """See :class:`Condition`."""
        book = self.language.book
        texts = (n.value if n.op == "in" else (n.value,) for n in self.node.walk() if n.op in ("in", "constant"))
        constants = dict.fromkeys([*book.vocabulary, *(t for each in texts for t in each if isinstance(t, str))])
        vocabulary = {text: number for number, text in enumerate(constants)}
        columns = book.resolve(lambda name: read(name, vocabulary))
        return evaluate_condition(self.node, columns, vocabulary)

    def parts(self) -> list[Condition]:
        """Return the operands of ``and``, grouped so that parts share no columns."""
        nodes = _split_conjuncts(self.node)
        return [self] if len(nodes) == 1 else AllOf(tuple(Parsed(n, self.language) for n in nodes)).parts()


def match_all_rows(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Return the column as one array."""
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


def read_condition(text: str, language: Language) -> Parsed:
    """Parse a condition.  Raises RequestError if it is invalid, names no column, or names an unknown one."""
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
    """Raise RequestError for an unmeasured column, since no answer about it is known."""
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
    if node.op not in ("and", "or", "not"):
        yield node
        return
    for argument in node.args:
        yield from _iterate_unjoined(argument)


def _names_columns(node: Node) -> bool:
    return all(argument.op == "column" for argument in node.args)


def _compares_with_zero(node: Node) -> bool:
    """Return whether a comparison is between a difference of two columns and 0."""
    difference, zero = sorted(node.args, key=lambda argument: argument.op == "constant")
    return difference.op in ("-", "days") and _names_columns(difference) and zero.op == "constant" and zero.value == 0


def _is_plain(node: Node) -> bool:
    """Return whether a side of a comparison is a column or a constant, perhaps a negative one."""
    return node.op in ("column", "constant") or (node.op == "neg" and node.args[0].op == "constant")


def _split_conjuncts(node: Node) -> list[Node]:
    if node.op == "and":
        return [each for arg in node.args for each in _split_conjuncts(arg)]
    return [node]
