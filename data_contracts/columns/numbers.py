"""Columns of numbers: whole ones and real ones."""

from __future__ import annotations

from math import inf
from typing import Literal

import numpy as np
from pydantic import Field, model_validator

from privsyn.data_contracts.columns.shared_fields import DEFAULT_BINS, Binned
from privsyn.data_contracts.field_error import FieldError

MAX_EXACT_INTEGERS = 64
"""An integer column with at most this many values gets one bin per value unless the spec says more."""

INTEGER_TYPES = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")


class IntegerColumn(Binned):
    """Whole numbers in [min, max].  Outside: clamped.  Null where not nullable: set to ``min``."""

    kind: Literal["integer"]
    min: int = Field(description="Smallest possible value, from a public source.", ge=-(2**53), le=2**53)
    max: int = Field(description="Largest possible value, from a public source.", ge=-(2**53), le=2**53)
    edges: tuple[int, ...] | None = Field(
        default=None,
        description="Bin edges: first = min, last = max, each bin closed below and open above, the last closed.",
    )
    type: Literal["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"] = Field(
        default="int64", description="Storage type of the released column."
    )

    @model_validator(mode="after")
    def _check_bounds(self) -> IntegerColumn:
        if self.min > self.max:
            raise FieldError(f"`min` ({self.min}) is greater than `max` ({self.max})", "Swap them")
        if self.edges is not None and (self.edges[:1] != (self.min,) or self.edges[-1:] != (self.max,)):
            raise FieldError("`edges` must start at `min` and end at `max`")
        bits = int(self.type.lstrip("uint"))
        low, high = (0, 2**bits - 1) if self.type.startswith("u") else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
        if self.min < low or self.max > high:
            raise FieldError(f"`type: {self.type}` cannot hold every value from {self.min} to {self.max}")
        return self

    def _bad_edges(self, values: tuple[float, ...]) -> FieldError:
        """Above 2^53 a float is no longer every integer: a top bin of this one integer would have no end."""
        if self.max == 2**53 and values[-2] == values[-1]:
            return FieldError(
                f"`max` ({self.max}) is too large for a bin of its own", f"Write at most {2**53 - 1}, or fewer bins"
            )
        return super()._bad_edges(values)

    def edge_values(self) -> tuple[float, ...]:
        """Edges such that bin i holds the integers in [edge_i, edge_{i+1}); the last edge is max + 1."""
        if self.edges is not None:
            return tuple(float(e) for e in (*self.edges[:-1], self.max + 1))
        span = self.max - self.min + 1
        if span < 1:
            return ()  # refused for its bounds
        bins = self.bins or (span if span <= MAX_EXACT_INTEGERS else DEFAULT_BINS)
        bins = min(bins, span)
        return tuple(float(self.min + (span * i) // bins) for i in range(bins + 1))


class NumberColumn(Binned):
    """Real numbers in [min, max].  Outside: clamped.  Null or NaN where not nullable: set to ``min``."""

    kind: Literal["number"]
    min: float = Field(description="Smallest possible value, from a public source.")
    max: float = Field(description="Largest possible value, from a public source.")
    edges: tuple[float, ...] | None = Field(
        default=None,
        description="Bin edges: first = min, last = max, each bin closed below and open above, the last closed.",
    )
    decimals: int | None = Field(
        default=None, ge=0, le=15, description="Released values are rounded to this many decimals; null: not rounded."
    )
    type: Literal["float32", "float64"] = Field(default="float64", description="Storage type of the released column.")

    @model_validator(mode="after")
    def _check_bounds(self) -> NumberColumn:
        if not self.min < self.max:
            raise FieldError(f"`min` ({self.min}) must be less than `max` ({self.max})")
        if self.edges is not None and (self.edges[:1] != (self.min,) or self.edges[-1:] != (self.max,)):
            raise FieldError("`edges` must start at `min` and end at `max`")
        low, high = self.storable_bounds()
        if not -inf < low < high < inf:
            raise FieldError(
                f"`type: {self.type}` cannot hold the numbers from {self.min} to {self.max}",
                "Correct the bounds or write `type: float64`",
            )
        return self

    def storable_bounds(self) -> tuple[float, float]:
        """The bounds, moved inwards to values that ``type`` holds exactly; infinite beyond what it holds."""
        if self.type == "float64":
            return self.min, self.max
        with np.errstate(over="ignore"):
            low, high = np.float32(self.min), np.float32(self.max)
        if np.isfinite(low) and float(low) < self.min:  # as float64: numpy would compare them as float32
            low = np.nextafter(low, np.float32(inf))
        if np.isfinite(high) and float(high) > self.max:
            high = np.nextafter(high, np.float32(-inf))
        return float(low), float(high)

    def edge_values(self) -> tuple[float, ...]:
        """Bin edges, ascending; bins are closed below and open above, the last closed."""
        if self.edges is not None:
            return self.edges
        bins = self.bins or DEFAULT_BINS
        step = (self.max - self.min) / bins
        return (*(self.min + step * i for i in range(bins)), self.max)
