"""Rules between columns: public statements about every possible row."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from graphlib import CycleError, TopologicalSorter
from typing import Annotated, Any, ClassVar

from pydantic import ConfigDict, Discriminator, Field, Tag, field_validator, model_validator

from privsyn.data_contracts.columns import (
    BooleanColumn,
    CategoricalColumn,
    CategoryValue,
    DateColumn,
    DatetimeColumn,
    IntegerColumn,
    NumberColumn,
    TimeColumn,
    holds,
    is_dummy,
    is_nullable,
    name_one_of_attribute,
)
from privsyn.data_contracts.frozen_model import FieldError, FrozenModel
from privsyn.data_contracts.rule_language import (
    COUNT,
    NEIGHBOURS,
    ONE_ROW,
    Node,
    RowWords,
    Type,
    names_neighbour,
    parse_condition,
    parse_expression,
)

MAX_RULES = 500

MAX_LOOKUP_ROWS = 200_000


class Statement(FrozenModel):
    """The field of every rule: the public source that states it."""

    OMITTED_AT_DEFAULT: ClassVar[frozenset[str]] = frozenset({"source"})

    source: str = Field(
        default="",
        max_length=500,
        description="Public source of the rule, never the private rows: a codebook, a law, arithmetic. The "
        "release's note prints it.",
    )


class Never(Statement):
    """A condition that no row may meet.  A row for which it is null (unknown) is allowed."""

    never: str = Field(
        description="Condition that no row may meet: `age < 15 and wage is not null`. With linked rows also "
        "`previous.age > age` and more (docs/panels.md)."
    )


class Derive(Statement):
    """Columns that follow from others of the same row: never measured, computed from the decoded row."""

    derive: dict[str, str] = Field(
        min_length=1,
        description="Column -> expression over other columns: `age - educ - 6`; with linked rows also "
        "`previous.balance + paid`.",
    )


class Lookup(FrozenModel):
    """Columns that a public table gives for others: ``to`` is never measured."""

    from_: tuple[str, ...] = Field(alias="from", min_length=1, description="Columns to look up.")
    to: tuple[str, ...] = Field(min_length=1, description="Columns that the table gives, at no cost.")
    table: str = Field(
        default="",
        description="Public CSV or Parquet file beside the spec with these columns, never made from the private rows.",
    )
    rows: tuple[tuple[CategoryValue | None, ...], ...] = Field(
        default=(),
        max_length=MAX_LOOKUP_ROWS,
        description="The table itself, one list a row: the values of `from`, then of `to`.",
    )

    model_config = ConfigDict(populate_by_name=True, serialize_by_alias=True)

    @field_validator("from_", "to", mode="before")
    @classmethod
    def _list_one_name(cls, value: Any) -> Any:
        return [value] if isinstance(value, str) else value

    @model_validator(mode="after")
    def _check_rows(self) -> Lookup:
        if bool(self.table) == bool(self.rows):
            raise FieldError("give either `table`, a CSV file, or `rows`")
        names = (*self.from_, *self.to)
        if len(set(names)) != len(names):
            raise FieldError("names a column twice in `from` and `to`")
        if any(len(row) != len(names) for row in self.rows):
            raise FieldError(f"every one of `rows` must hold {len(names)} values, of {', '.join(names)}")
        keys = [row[: len(self.from_)] for row in self.rows]
        if len(set(keys)) != len(keys):
            twice = next(k for i, k in enumerate(keys) if k in keys[:i])
            raise FieldError(f"the lookup has {', '.join(map(repr, twice))} twice", "Keep one row of each")
        return self


class OneOf(Statement):
    """Columns of 0 and 1, exactly one of them 1 in every row; they are counted as one attribute."""

    one_of: tuple[str, ...] = Field(
        min_length=2,
        max_length=1_000,
        description="Columns of 0 and 1 (or false and true); exactly one is 1 in each row.",
    )
    or_none: bool = Field(default=False, description="All of them may also be 0.")


class LookupRule(Statement):
    """A lookup as one of the rules."""

    lookup: Lookup = Field(description="A public table that gives some columns for others.")


def _name_kind(value: Any) -> str | None:
    """Return the kind of a rule, a mapping or a model, by the field that names it; None for an unknown kind."""
    for kind in ("derive", "lookup", "one_of", "never"):
        if (kind in value) if isinstance(value, Mapping) else hasattr(value, kind):
            return kind
    return None


Rule = Annotated[
    Annotated[Never, Tag("never")]
    | Annotated[Derive, Tag("derive")]
    | Annotated[LookupRule, Tag("lookup")]
    | Annotated[OneOf, Tag("one_of")],
    Discriminator(
        _name_kind,
        custom_error_type="no_rule",
        custom_error_message="is not a rule: write `never`, `derive`, `lookup` or `one_of`",
    ),
]

Columns = Mapping[str, Any]


def infer_type(column: Any) -> Type:
    """Return a column's type in expressions."""
    match column:
        case IntegerColumn() | NumberColumn():
            return "number"
        case DatetimeColumn() | DateColumn():
            return "moment"
        case TimeColumn(format=form):
            return "number" if form in ("hhmm", "seconds") else "moment"
        case BooleanColumn():
            return "truth"
        case CategoricalColumn():
            first = column.values[0]
            return "truth" if isinstance(first, bool) else "text" if isinstance(first, str) else "number"
    raise TypeError(f"{type(column).__name__} is not a released column")


def map_computed_columns(rule: Any) -> tuple[str, ...]:
    """Return the columns that a rule derives from the same row, or looks up."""
    if isinstance(rule, Derive):
        return tuple(name for name, text in rule.derive.items() if not names_neighbour(text))
    return rule.lookup.to if isinstance(rule, LookupRule) else ()


def map_continued_columns(rule: Any) -> tuple[str, ...]:
    """Return the columns that a rule derives from another row of the person."""
    if not isinstance(rule, Derive):
        return ()
    return tuple(name for name, text in rule.derive.items() if names_neighbour(text))


def list_computed_columns(rules: Sequence[Any]) -> tuple[str, ...]:
    """Return the columns that rules derive or look up, in rule order."""
    return tuple(name for rule in rules for name in map_computed_columns(rule))


def list_conditions(rules: Sequence[Any], columns: Columns, words: RowWords = ONE_ROW) -> dict[int, Node]:
    """Return the conditions of the ``never`` rules, by rule number from 0; ``columns``: the released columns.

    ``words``: the words for other rows of a person that they may use.

    Raises FieldError for a condition that is not an expression over the columns.
    """
    types = {name: infer_type(column) for name, column in columns.items()}
    return {i: parse_condition(rule.never, types, words) for i, rule in enumerate(rules) if isinstance(rule, Never)}


def list_expressions(rules: Sequence[Any], columns: Columns, words: RowWords = ONE_ROW) -> dict[str, Node]:
    """Return the expressions of the derived columns; ``columns``: the released columns.  Raises FieldError.

    Columns that follow from another row of a person are left out (:func:`list_continued_expressions`).
    """
    types = {name: infer_type(column) for name, column in columns.items()}
    return {
        name: parse_expression(text, types, words)
        for rule in rules
        if isinstance(rule, Derive)
        for name, text in rule.derive.items()
        if not names_neighbour(text)
    }


def list_continued_expressions(rules: Sequence[Any], columns: Columns, words: RowWords) -> dict[str, Node]:
    """Return the expressions of columns that follow from another row of a person.  Raises FieldError."""
    types = {name: infer_type(column) for name, column in columns.items()}
    return {n: parse_expression(r.derive[n], types, words) for r in rules for n in map_continued_columns(r)}


def order_computed_columns(rules: Sequence[Any], columns: Columns, words: RowWords = ONE_ROW) -> tuple[str, ...]:
    """Return the computed columns, each after the columns that it needs.  Raises FieldError for a circle.

    Columns that follow from another row are not among them, but their circles are refused.  A circle lies in one row,
    where a person's first row is its own ``first``, or goes through the row before and the row after.
    """
    continued = list_continued_expressions(rules, columns, words)
    expressions = {**list_expressions(rules, columns, words), **continued}
    needed_by = {n: {str(p.column) for p in node.walk() if _is_of_every_row(p)} for n, node in expressions.items()}
    looked_up = {name: {*r.lookup.from_} for r in rules if isinstance(r, LookupRule) for name in r.lookup.to}
    order = _sort_columns(needed_by | looked_up)
    rows = {name: {p.value.row for p in node.walk() if p.op == "of row"} for name, node in expressions.items()}
    if set().union(*rows.values()) >= _BOTH_WAYS:
        self_references = {name: set() if row >= _BOTH_WAYS else {name} for name, row in rows.items()}
        _sort_columns({name: {*node.columns} - self_references[name] for name, node in expressions.items()} | looked_up)
    return tuple(name for name in order if name not in continued)


_BOTH_WAYS = {"previous", "next"}
"""A column may follow from itself in the row before, but not in both directions."""


def _sort_columns(needs: Mapping[str, Collection[str]]) -> tuple[str, ...]:
    """Return the columns, each after the columns that it needs.  Raises FieldError for a circle."""
    sorter = TopologicalSorter({name: sorted(n for n in needs if n in needed) for name, needed in needs.items()})
    try:
        return tuple(sorter.static_order())
    except CycleError as error:
        names = ", ".join(error.args[1][:-1])
        problem = f"the columns {names} are computed from each other"
        raise FieldError(problem, "Leave one to be measured", ("rules",)) from None


def check_rules(rules: Sequence[Any], columns: Columns, words: RowWords = ONE_ROW) -> None:
    """Check rules by the columns' names and kinds, and by ``words`` for rows.  Raises FieldError at its place."""
    if len(rules) > MAX_RULES:
        raise FieldError(f"at most {MAX_RULES} rules", place=("rules",))
    taken: set[str] = set()
    for i, rule in enumerate(rules):
        try:
            _check_rule(rule, columns, words, taken)
        except FieldError as error:
            raise FieldError(error.problem, error.cure, ("rules", i, *error.place)) from None
    dummies = {name for rule in rules if isinstance(rule, OneOf) for name in rule.one_of}
    for name in list_computed_columns(rules):
        if name in dummies:
            raise FieldError(f"{name!r} is both computed and in `one_of`", place=("rules",))
    order_computed_columns(rules, columns, words)
    if len(set(list_computed_columns(rules))) == len(columns):
        raise FieldError("every column is computed from others", "Leave at least one to be measured", ("rules",))


def _names_member(part: Node) -> bool:
    """Return whether a part of an expression is a column of a role's member."""
    return part.op == "of row" and part.value.row not in NEIGHBOURS


def _is_of_every_row(part: Node) -> bool:
    """Return whether a part refers to a row that always exists: the row itself, or the person's first."""
    return part.op == "column" or (part.op == "of row" and part.value.row == "first")


def _check_rule(rule: Any, columns: Columns, words: RowWords, taken: set[str]) -> None:
    types = {name: infer_type(column) for name, column in columns.items()}
    match rule:
        case Never():
            condition = parse_condition(rule.never, types, words)
            if not condition.columns and not condition.across:
                raise FieldError("names no column", "A rule is about the columns of a row", ("never",))
            check_texts(condition, columns, ("never",))
        case Derive():
            for name, text in rule.derive.items():
                _claim_column([name], columns, taken)
                node = parse_expression(text, types, words)
                check_texts(node, columns, ("derive", name))
                if any(part.op == COUNT or _names_member(part) for part in node.walk()):
                    raise FieldError(
                        f"`{text}` follows from a member's role or a count, but a column is derived from its own row, "
                        "or from the previous, next or first one",
                        "Measure the column, and write the impossible cases in `never`",
                        ("derive", name),
                    )
                if not node.columns:
                    raise FieldError(
                        f"`{text}` names no column", "Let the column's own domain be this value", ("derive", name)
                    )
                if any(part.column == name and _is_of_every_row(part) for part in node.walk()):
                    raise FieldError(
                        f"{name!r} is derived from itself", "Compute it from other columns", ("derive", name)
                    )
                if node.type != types[name]:
                    raise FieldError(
                        f"{name!r} is a {types[name]}, `{text}` a {node.type}",
                        "Let the expression be of the column's kind",
                        ("derive", name),
                    )
        case LookupRule(lookup=lookup):
            missing = [name for name in lookup.from_ if name not in columns]
            if missing:
                raise FieldError(f"{missing[0]!r} is not a released column", place=("lookup", "from"))
            _claim_column(lookup.to, columns, taken)
            _check_lookup(lookup, columns)
        case OneOf():
            _claim_column(rule.one_of, columns, taken)
            attribute = name_one_of_attribute(rule.one_of)
            if attribute in columns:
                raise FieldError(
                    f"the column {attribute!r} has the name that the counts need", "Rename it", ("one_of",)
                )
            for name in rule.one_of:
                if not is_dummy(columns[name]):
                    raise FieldError(
                        f"{name!r} is not a column of 0 and 1",
                        "Let it be `kind: boolean`, an integer from 0 to 1, or a list of two such values, not nullable",
                        ("one_of",),
                    )


def _check_lookup(lookup: Lookup, columns: Columns) -> None:
    """Check that the values fit the columns, and that each value of a single key column has a row, or may give null."""
    names = (*lookup.from_, *lookup.to)
    for i, name in enumerate(names):
        odd = next((v for v in dict.fromkeys(row[i] for row in lookup.rows) if not holds(columns[name], v)), lookup)
        if odd is not lookup:
            raise FieldError(f"{odd!r} is not a value of the column {name!r}", "Correct the table", ("lookup",))
    first = columns[lookup.from_[0]]
    if not lookup.rows or len(lookup.from_) > 1 or not isinstance(first, CategoricalColumn):
        return
    listed = {row[0] for row in lookup.rows}
    wanted = [*first.values, *(["other"] if first.goes_to == "other" else []), *([None] if first.has_null else [])]
    missing = [value for value in wanted if value not in listed]
    if missing and not all(is_nullable(columns[name]) for name in lookup.to):
        raise FieldError(
            f"the table has no row for {lookup.from_[0]!r} = {missing[0]!r}",
            "Add a row for it, or make the looked-up columns nullable",
            ("lookup",),
        )


def _claim_column(names: Sequence[str], columns: Columns, taken: set[str]) -> None:
    for name in names:
        if name not in columns:
            raise FieldError(f"{name!r} is not a released column", "Name columns of the spec that are not dropped")
        if isinstance(columns[name], TimeColumn):
            raise FieldError(f"{name!r} is a time of day, which no rule computes", "Compute numbers from it instead")
        if name in taken:
            raise FieldError(f"{name!r} follows from two rules", "Keep one of them")
        taken.add(name)


def check_texts(node: Node, columns: Mapping[str, Any], place: tuple[str, ...]) -> None:
    """Raise FieldError at ``place`` for a text in ``node`` that is compared with a column but not among its values.

    A misspelling would forbid the wrong rows; `other` is always allowed.
    """
    for part in node.walk():
        named = [a.column for a in part.args if a.column is not None]
        if len(named) != 1 or part.op not in {"==", "!=", "in"}:
            continue
        column = columns[named[0]]
        compared = part.value if part.op == "in" else [a.value for a in part.args if a.op == "constant"]
        for text in compared if isinstance(column, CategoricalColumn) else ():
            if isinstance(text, str) and text not in (*column.values, "other"):
                cure = "Spell it as there, or add it to `values`"
                raise FieldError(f"{text!r} is not one of the values of {named[0]!r}", cure, place)
