"""Fields shared by columns of several kinds."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import inf
from typing import Any, ClassVar

from pydantic import Field, model_validator

from privsyn.data_contracts.columns.grid import Grid
from privsyn.data_contracts.field_error import FieldError
from privsyn.data_contracts.frozen_model import FrozenModel

DEFAULT_BINS = 32
"""Bins of a numeric column with neither ``bins`` nor ``edges`` in the spec."""


MOST_EXACT = 100
"""The most values of a column with their own bin."""

EXACT = "Values with their own bin, such as 0 or 99999, inside the bounds or not."


class Described(FrozenModel):
    """What every column has."""

    description: str = Field(default="", description="Free text for the release's note.")


class Nullable(Described):
    """What every column of values has."""

    OMITTED_AT_DEFAULT: ClassVar[frozenset[str]] = frozenset({"measured"})

    nullable: bool = Field(
        default=False,
        description="Null is a value. Otherwise nulls are repaired as the kind says.",
    )
    measured: bool = Field(
        default=True,
        description="`false`: the private column is never read; values are drawn evenly from the domain.",
    )


class Binned(Nullable):
    """Shared by the kinds with an order: numbers, dates and times."""

    OMITTED_AT_DEFAULT: ClassVar[frozenset[str]] = Nullable.OMITTED_AT_DEFAULT | {"exact"}

    unit: str = Field(default="", description="Unit of measurement, for the release's note.")
    bins: int | None = Field(default=None, ge=1, le=10_000, description="Number of equal-width bins in joint counts.")

    @property
    def leaves_bins_open(self) -> bool:
        """Whether the spec gives neither bins nor edges: joint counts may use the codes that the noise allows."""
        return self.bins is None and getattr(self, "edges", None) is None

    def edge_values(self) -> tuple[float, ...]:
        """Return the bin edges as numbers, ascending, length ``number of bins + 1`` (closed at the top)."""
        raise NotImplementedError

    def exact_values(self) -> tuple[float, ...]:
        """Return the values with their own bin, in the numbers of :meth:`edge_values`, ascending."""
        return ()

    def grid(self) -> Grid | None:
        """Return the grid of all released values except exact ones; None if there is none."""
        return None

    @property
    def closed(self) -> bool:
        """Whether the last bin includes its upper edge."""
        return True

    @model_validator(mode="after")
    def _check_edges(self) -> Binned:
        edges = getattr(self, "edges", None)
        if edges is not None and self.bins is not None:
            raise FieldError("give either `bins` or `edges`, not both")
        values = self.edge_values()
        if edges is not None and len(values) < 2:
            raise FieldError("`edges` must name both ends, `min` first and `max` last")
        if not all(0 < b - a < inf for a, b in pairwise(values)):  # written so that NaN, from far bounds, is refused
            raise self._describe_bad_edges(values)
        self._check_exact(getattr(self, "exact", ()))
        return self

    def _check_exact(self, exact: Sequence[Any]) -> None:
        if len(exact) > MOST_EXACT:
            raise FieldError(f"`exact` has at most {MOST_EXACT} values", "Use `edges` for the others")
        twice = next((value for i, value in enumerate(exact) if value in exact[:i]), None)
        if twice is not None:
            raise FieldError(f"`exact` names {twice} twice", "Remove one")

    def _describe_bad_edges(self, values: tuple[float, ...]) -> FieldError:
        low, high = getattr(self, "min", None), getattr(self, "max", None)
        if low is not None and low == high:
            return FieldError(
                f"`min` and `max` are both {_format_bound(low)}",
                "Widen them; a column that has one value only is `kind: categorical` with that value",
            )
        if low is not None and high is not None and low > high:
            return FieldError(
                f"`min` ({_format_bound(low)}) is greater than `max` ({_format_bound(high)})", "Swap them"
            )
        return FieldError("`edges` must be strictly ascending, `min` less than `max`, and no bin empty or endless")


def _format_bound(value: Any) -> str:
    """Return a bound as people write it: whole floats without the point."""
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)
