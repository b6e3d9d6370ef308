"""Fields that columns of several kinds share."""

from __future__ import annotations

from itertools import pairwise
from math import inf

from pydantic import Field, model_validator

from privsyn.data_contracts.field_error import FieldError
from privsyn.data_contracts.frozen_model import FrozenModel

DEFAULT_BINS = 32
"""Bins of a numeric column whose spec names neither ``bins`` nor ``edges``."""


class Described(FrozenModel):
    """What every column has."""

    description: str = Field(default="", description="Free text for the data-release note.")


class Nullable(Described):
    """What every column of values has."""

    nullable: bool = Field(
        default=False,
        description="Whether null is a value of its own. A null in a column that is not nullable "
        "is repaired as this kind's documentation says, and counted in the private zone only.",
    )


class Binned(Nullable):
    """Shared by the kinds with an order: integer, number, datetime."""

    unit: str = Field(default="", description="Unit of measurement, for the data-release note.")
    bins: int | None = Field(
        default=None, ge=1, le=10_000, description="Number of equal-width bins used in joint marginals."
    )

    def edge_values(self) -> tuple[float, ...]:
        """Bin edges as numbers, ascending, length ``number of bins + 1`` (closed at the top)."""
        raise NotImplementedError

    @model_validator(mode="after")
    def _check_edges(self) -> Binned:
        edges = getattr(self, "edges", None)
        if edges is not None and self.bins is not None:
            raise FieldError("give either `bins` or `edges`, not both")
        values = self.edge_values()
        if edges is not None and len(values) < 2:
            raise FieldError("`edges` must name both ends, `min` first and `max` last")
        if not all(0 < b - a < inf for a, b in pairwise(values)):  # so that NaN, from bounds too far apart, is refused
            raise self._bad_edges(values)
        return self

    def _bad_edges(self, values: tuple[float, ...]) -> FieldError:
        return FieldError("`edges` must be strictly ascending, `min` less than `max`, and no bin empty or endless")
