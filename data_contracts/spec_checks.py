"""Checks of a spec's fields against each other: ``measured: false``, ``levels``, ``together`` and ``compare``."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from privsyn.data_contracts.columns import name_level_attribute
from privsyn.data_contracts.columns.ordered_columns import (
    RESOLUTION_SECONDS,
    DatetimeColumn,
    IntegerColumn,
    NumberColumn,
)
from privsyn.data_contracts.columns.shared_fields import Binned
from privsyn.data_contracts.frozen_model import FieldError
from privsyn.data_contracts.rule_language import RowWords
from privsyn.data_contracts.rules import (
    Derive,
    LookupRule,
    OneOf,
    list_conditions,
    list_continued_expressions,
    list_expressions,
)

if TYPE_CHECKING:
    from privsyn.data_contracts.release_spec import ReleaseSpec

COUNTING = ("exact", "heaps", "levels")
"""Fields of a column about how it is counted."""

NOT_MEASURED = "was not measured: its values were drawn at random and tell nothing of the private table"
"""Warning next to such a column wherever it could be mistaken for a measured one."""

MIN_OVERLAP = 0.5
"""Least overlap of equally numbered bins of two ``together`` columns, as a share of the wider bin."""

Place = tuple[str | int, ...]


def check_unmeasured(spec: ReleaseSpec) -> None:
    """Raise FieldError, with its place, if no column is measured, or something depends on an unmeasured column.

    The spec's rules must fit its columns.
    """
    unmeasured = spec.unmeasured_columns
    if not unmeasured:
        return
    if len(unmeasured) == len(spec.released_columns):
        raise FieldError("no column is measured, so there is nothing to release", "Measure at least one", ("columns",))
    for name, column in unmeasured.items():
        field = next((field for field in COUNTING if getattr(column, field, ())), None)
        if field is not None:
            raise FieldError(
                f"`{field}` chooses how the column is counted, but {name!r} is not measured",
                f"Take out `{field}`, or `measured: false`",
                ("columns", name, field),
            )
    for place, names in list_named_columns(spec, spec.released_columns, spec.row_words):
        first = next((name for name in names if name in unmeasured), None)
        if first is not None:
            raise FieldError(
                f"names {first!r}, which is not measured: its values are drawn at random, whatever else is known",
                f"Take {first!r} out, or measure it",
                place,
            )


def list_named_columns(
    spec: ReleaseSpec, columns: Mapping[str, Any], words: RowWords
) -> Iterator[tuple[Place, Sequence[str]]]:
    """Yield every part of a spec that names columns, by its place; rules may use ``columns`` and ``words``.

    Raises FieldError, with its place, for a rule that names others.
    """
    for i, rule in enumerate(spec.rules):
        try:
            yield ("rules", i), _list_rule_columns(rule, columns, words)
        except FieldError as error:
            raise FieldError(error.problem, error.cure, error.place or ("rules", i)) from None
    if spec.focus is not None:
        yield ("focus", "columns"), spec.focus.columns
    for i, marginal in enumerate(spec.workload):
        yield ("workload", i, "columns" if marginal.question is None else "question"), marginal.columns
    for i, total in enumerate(spec.totals):
        yield ("totals", i, "columns"), total.columns
    for i, group in enumerate(spec.together):
        yield ("together", i), group
    for field in ("group", "large"):
        yield ("mechanism", field), getattr(spec.mechanism, field, ())


def _list_rule_columns(rule: Any, columns: Mapping[str, Any], words: RowWords) -> tuple[str, ...]:
    match rule:
        case Derive():
            nodes = list_expressions([rule], columns, words) | list_continued_expressions([rule], columns, words)
            return (*rule.derive, *(name for node in nodes.values() for name in node.columns))
        case LookupRule(lookup=lookup):
            return (*lookup.from_, *lookup.to)
        case OneOf():
            return tuple(rule.one_of)
    return tuple(list_conditions([rule], columns, words)[0].columns)


def check_levels(columns: Mapping[str, Any], rules: Sequence[Any], words: RowWords) -> None:
    """Raise FieldError if a level is not computed by ``rules`` from the column with levels alone.

    columns: the released columns, which the rules and their ``words`` for rows fit.
    """
    needs = {name: set(node.columns) for name, node in list_expressions(rules, columns, words).items()}
    for rule in rules:
        if isinstance(rule, LookupRule):
            needs |= {name: set(rule.lookup.from_) for name in rule.lookup.to}
    for name, column in columns.items():
        levels, place = getattr(column, "levels", ()), ("columns", name, "levels")
        if levels and name in needs:
            raise FieldError(f"{name!r} is computed by a rule, so its values are not counted", "Take it out", place)
        if len(set(levels)) < len(levels):
            raise FieldError("`levels` names a column twice", "Remove one", place)
        for level in levels:
            if level not in columns:
                raise FieldError(f"there is no released column {level!r}", "Name columns of the spec", place)
            if _list_measured(level, needs) != {name}:
                raise FieldError(
                    f"{level!r} does not follow from {name!r} alone",
                    f"Add a rule that does: `lookup: {{from: {name}, to: {level}, table: FILE}}`, of a public table",
                    place,
                )
            if name_level_attribute(name, level) in columns:
                raise FieldError(
                    f"the column {name_level_attribute(name, level)!r} has the name that counts of `levels` need",
                    "Rename it",
                    place,
                )


def _list_measured(column: str, needs: Mapping[str, set[str]]) -> set[str]:
    return set().union(*(_list_measured(n, needs) for n in needs[column])) if column in needs else {column}


def check_together(groups: Sequence[Sequence[str]], columns: Mapping[str, Any], computed: Collection[str]) -> None:
    """Raise FieldError, with its place, for ``together`` columns whose values cannot be drawn at the same place.

    columns: the released columns; computed: the columns that rules compute or tie to others.
    """
    seen: set[str] = set()
    for i, group in enumerate(groups):
        place = ("together", i)
        if len(group) < 2:
            raise FieldError("names fewer than two columns", "Name those that move together", place)
        for name in group:
            check_drawn_column(name, columns, computed, place)
            if getattr(columns[name], "heaps", ()):
                raise FieldError(
                    f"values of {name!r} are drawn where its `heaps` say, so they follow no other column",
                    "Take out its `heaps`, or this column",
                    place,
                )
            if name in seen:
                raise FieldError(f"names the column {name!r} twice", "Name it in one group, once", place)
            seen.add(name)
        for name in group[1:]:
            _check_alike(group[0], columns[group[0]], name, columns[name], place)


def check_drawn_column(
    name: str, columns: Mapping[str, Any], computed: Collection[str], place: Place, use: str = "releases"
) -> None:
    """Raise FieldError, at ``place``, for a column whose values are not drawn, or are unordered.

    columns: the allowed columns; ``use``: what the spec does with them; computed: the columns that rules compute or
    tie to others.
    """
    if name not in columns:
        raise FieldError(f"the spec {use} no column {name!r}", f"Name one that it {use}", place)
    if name in computed:
        raise FieldError(
            f"the column {name!r} is made from others by a rule, so nothing is drawn for it",
            "Name the columns that it is made from",
            place,
        )
    if not isinstance(columns[name], Binned):
        raise FieldError(
            f"the values of {name!r} have no order: it is {columns[name].kind!r}", "Name numbers, days or times", place
        )


def check_same_kind(first: str, one: Any, second: str, other: Any, place: Place, *, numbers: bool = False) -> None:
    """Raise FieldError, at ``place``, for columns of different kinds (unless both are ``numbers``) or units."""
    if not numbers and one.kind != other.kind:
        raise FieldError(
            f"{first!r} is {one.kind!r} and {second!r} is {other.kind!r}", "Name columns of the same kind", place
        )
    if one.unit and other.unit and one.unit != other.unit:
        raise FieldError(
            f"{first!r} is in {one.unit!r} and {second!r} in {other.unit!r}", "Name columns of the same unit", place
        )


def _check_alike(first: str, one: Binned, second: str, other: Binned, place: tuple[str | int, ...]) -> None:
    """Raise FieldError unless both columns have one kind, one unit, and bins at roughly the same places."""
    check_same_kind(first, one, second, other, place)
    bins = [list(pairwise(column.edge_values())) for column in (one, other)]
    if len(bins[0]) != len(bins[1]) or any(_compute_overlap(a, b) < MIN_OVERLAP for a, b in zip(*bins, strict=True)):
        raise FieldError(
            f"the bins of {first!r} and {second!r} are not at the same places",
            "Give both the same `edges`, or the same `bins` from about the same `min` to about the same `max`",
            place,
        )


def _compute_overlap(one: tuple[float, float], other: tuple[float, float]) -> float:
    """Return the overlap of two bins, as a share of the wider one; negative if they are apart."""
    shared = min(one[1], other[1]) - max(one[0], other[0])
    return shared / max(one[1] - one[0], other[1] - other[0])


NUMBERS = (IntegerColumn, NumberColumn)


def name_difference_attribute(first: str, second: str) -> str:
    """Return the attribute name of the difference of two columns; the released table has no such column."""
    return f"{first} minus {second}"


def get_step(column: Binned) -> float | None:
    """Return the smallest difference between values of a column, in the numbers of its edges; None if there is none."""
    match column:
        case IntegerColumn():
            return float(column.step or 1)
        case NumberColumn():
            return column.step or (None if column.decimals is None else 10.0**-column.decimals)
        case DatetimeColumn():
            return 86_400.0 if column.type == "date" else float(RESOLUTION_SECONDS[column.resolution])
    return 1.0


def check_compared(pairs: Sequence[Sequence[str]], columns: Mapping[str, Any], computed: Collection[str]) -> None:
    """Raise FieldError, with its place, for a pair in ``compare`` whose values cannot be subtracted.

    columns: the measured released columns; computed: the columns that rules compute or tie to others.
    """
    seen: set[str] = set()
    for i, pair in enumerate(pairs):
        place = ("compare", i)
        if len(pair) != 2 or pair[0] == pair[1]:
            raise FieldError("must name two different columns", "Name the two columns to compare", place)
        for name in pair:
            check_drawn_column(name, columns, computed, place, use="measures")
            if name in seen:
                raise FieldError(f"names the column {name!r} a second time", "Compare it with one column", place)
            seen.add(name)
        _check_comparable(pair[0], columns[pair[0]], pair[1], columns[pair[1]], place)
        attribute = name_difference_attribute(*pair)
        if attribute in columns:
            raise FieldError(
                f"the column {attribute!r} has the name that the comparison needs", "Rename that column", place
            )


def _check_comparable(first: str, column: Any, second: str, other: Any, place: tuple[str | int, ...]) -> None:
    """Raise FieldError unless the columns' values can be subtracted and have equal steps."""
    numbers = isinstance(column, NUMBERS) and isinstance(other, NUMBERS)
    check_same_kind(first, column, second, other, place, numbers=numbers)
    if get_step(column) != get_step(other) or getattr(column, "per_day", 0) != getattr(other, "per_day", 0):
        raise FieldError(
            f"values of {first!r} and {second!r} have different steps",
            "Give both the same `step`, `decimals`, `resolution` or `format`",
            place,
        )
