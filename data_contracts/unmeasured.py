"""The field ``measured: false`` of a column: it is never read, and nothing else may depend on its values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

from privsyn.data_contracts.field_error import FieldError
from privsyn.data_contracts.rules import Derive, LookupRule, OneOf, list_conditions, list_expressions

COUNTING = ("exact", "heaps", "levels")
"""Fields of a column that say what is counted of it."""

NOT_MEASURED = "was not measured: its values were drawn at random and tell nothing of the private table"
"""What is said of such a column wherever somebody could take it for one of the others."""

Place = tuple[str | int, ...]


class Named(Protocol):
    """The parts of a spec that name columns."""

    rules: Any
    focus: Any
    workload: Any
    totals: Any
    together: Any
    mechanism: Any

    @property
    def released_columns(self) -> dict[str, Any]:
        """The columns that are synthesized."""

    @property
    def unmeasured_columns(self) -> dict[str, Any]:
        """Those that are not measured."""


def check_unmeasured(spec: Named) -> None:
    """Raise FieldError, with its place, where no column is measured, or where something depends on one that is not.

    The rules of the spec fit its columns.
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
                f"`{field}` says what is counted of the column, and {name!r} is not measured",
                f"Take out `{field}`, or `measured: false`",
                ("columns", name, field),
            )
    for place, names in _list_named_columns(spec):
        found = next((name for name in names if name in unmeasured), None)
        if found is not None:
            raise FieldError(
                f"names {found!r}, which is not measured: its values are drawn at random, whatever else is known",
                f"Take {found!r} out, or measure it",
                place,
            )


def _list_named_columns(spec: Named) -> Iterator[tuple[Place, Sequence[str]]]:
    """Yield every part of a spec that names columns, by its place."""
    for i, rule in enumerate(spec.rules):
        yield ("rules", i), _list_rule_columns(rule, spec.released_columns)
    if spec.focus is not None:
        yield ("focus", "columns"), spec.focus.columns
    for i, marginal in enumerate(spec.workload):
        yield ("workload", i, "columns"), marginal.columns
    for i, total in enumerate(spec.totals):
        yield ("totals", i, "columns"), total.columns
    for i, group in enumerate(spec.together):
        yield ("together", i), group
    for field in ("group", "large"):
        yield ("mechanism", field), getattr(spec.mechanism, field, ())


def _list_rule_columns(rule: Any, columns: Mapping[str, Any]) -> tuple[str, ...]:
    match rule:
        case Derive():
            needed = (name for node in list_expressions([rule], columns).values() for name in node.columns)
            return (*rule.derive, *needed)
        case LookupRule(lookup=lookup):
            return (*lookup.from_, *lookup.to)
        case OneOf():
            return tuple(rule.one_of)
    return tuple(list_conditions([rule], columns)[0].columns)
