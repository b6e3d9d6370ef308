"""The field ``levels`` of a column: that its columns are computed from it alone, by public rules."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from privsyn.data_contracts.columns.category_columns import name_level_attribute
from privsyn.data_contracts.field_error import FieldError
from privsyn.data_contracts.rules import LookupRule, list_expressions


def check_levels(columns: Mapping[str, Any], rules: Sequence[Any]) -> None:
    """Raise FieldError where a level is no column that ``rules`` compute from the column with levels alone.

    columns: the released ones, which the rules fit.
    """
    needs = {name: set(node.columns) for name, node in list_expressions(rules, columns).items()}
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
    """Return the measured columns behind ``column``."""
    return set().union(*(_list_measured(n, needs) for n in needs[column])) if column in needs else {column}
