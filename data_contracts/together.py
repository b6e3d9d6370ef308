"""The field ``together`` of a spec: columns whose values lie close together in every row, by a public statement."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from itertools import pairwise
from typing import Any

from privsyn.data_contracts.columns.shared_fields import Binned
from privsyn.data_contracts.field_error import FieldError

LEAST_OVERLAP = 0.5
"""What bins of the same number have in common at least, as a share of the wider one."""


def check_together(groups: Sequence[Sequence[str]], columns: Mapping[str, Any], made: Collection[str]) -> None:
    """Raise FieldError, with its place, for columns that cannot be placed together.

    columns: the released ones; made: those that rules compute or tie to others.  All of it follows from the spec.
    """
    seen: set[str] = set()
    for i, group in enumerate(groups):
        place = ("together", i)
        if len(group) < 2:
            raise FieldError("names fewer than two columns", "Name those that move together", place)
        for name in group:
            _check_column(name, columns, made, place)
            if name in seen:
                raise FieldError(f"names the column {name!r} twice", "Name it in one group, once", place)
            seen.add(name)
        for name in group[1:]:
            _check_alike(group[0], columns[group[0]], name, columns[name], place)


def _check_column(name: str, columns: Mapping[str, Any], made: Collection[str], place: tuple[str | int, ...]) -> None:
    if name not in columns:
        raise FieldError(f"the spec releases no column {name!r}", "Name one that it releases", place)
    if name in made:
        raise FieldError(
            f"the column {name!r} is made from others by a rule, so nothing is drawn for it",
            "Name the columns that it is made from",
            place,
        )
    if not isinstance(columns[name], Binned):
        raise FieldError(
            f"the values of {name!r} have no order: it is {columns[name].kind!r}", "Name numbers, days or times", place
        )
    if getattr(columns[name], "heaps", ()):
        raise FieldError(
            f"values of {name!r} are drawn where its `heaps` say, so they follow no other column",
            "Take out its `heaps`, or this column",
            place,
        )


def _check_alike(first: str, one: Binned, second: str, other: Binned, place: tuple[str | int, ...]) -> None:
    """Raise FieldError unless both columns have one kind, one unit, and bins at the same places, about."""
    kinds = [getattr(column, "kind", "") for column in (one, other)]
    if kinds[0] != kinds[1]:
        raise FieldError(
            f"{first!r} is {kinds[0]!r} and {second!r} is {kinds[1]!r}", "Name columns of the same kind", place
        )
    if one.unit and other.unit and one.unit != other.unit:
        raise FieldError(
            f"{first!r} is in {one.unit!r} and {second!r} in {other.unit!r}", "Name columns of the same unit", place
        )
    bins = [list(pairwise(column.edge_values())) for column in (one, other)]
    if len(bins[0]) != len(bins[1]) or any(
        _compute_common_scale(a, b) < LEAST_OVERLAP for a, b in zip(*bins, strict=True)
    ):
        raise FieldError(
            f"the bins of {first!r} and {second!r} do not lie at the same places",
            "Give both the same `edges`, or the same `bins` from about the same `min` to about the same `max`",
            place,
        )


def _compute_common_scale(one: tuple[float, float], other: tuple[float, float]) -> float:
    """Return how much two bins have in common, as a share of the wider one."""
    shared = min(one[1], other[1]) - max(one[0], other[0])
    return shared / max(one[1] - one[0], other[1] - other[0])
