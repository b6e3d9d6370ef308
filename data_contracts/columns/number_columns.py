"""Columns of numbers: integers and reals."""

from __future__ import annotations

from itertools import pairwise
from math import inf
from typing import Any, ClassVar, Literal

import numpy as np
from pydantic import Field, model_validator

from privsyn.data_contracts.columns.shared_fields import DEFAULT_BINS, EXACT, Binned, Grid
from privsyn.data_contracts.frozen_model import FieldError

MAX_EXACT_INTEGERS = 64
"""An integer column with at most this many values gets one bin per value by default."""

INTEGER_TYPES = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")


STEP = "Values are rounded down to a multiple of it."

HEAPS = "Numbers that people round to, such as 100 and 1000: the share of their multiples is kept."


ROUND_NUMBERS = (10, 100, 1000)
"""Round numbers that are tried without being named, in steps of the column."""

LEAST_MULTIPLES = 128
"""The least number of a round number's multiples between the bounds, so that every cell has some (public constant)."""


def name_heap_attribute(column: str) -> str:
    """Return the attribute name for what a column's values are rounded to; the released table has no such column."""
    return f"{column} (rounded to)"


class Stepped(Binned):
    """Shared by the kinds of numbers."""

    OMITTED_AT_DEFAULT: ClassVar[frozenset[str]] = Binned.OMITTED_AT_DEFAULT | {"step", "heaps"}

    def exact_values(self) -> tuple[float, ...]:
        """Return the values with their own bin, ascending."""
        values: Any = self.exact  # type: ignore[attr-defined]
        return tuple(sorted(float(value) for value in values))

    def heap_values(self) -> tuple[float, ...]:
        """Return the named numbers that people round to, ascending."""
        heaps: Any = self.heaps  # type: ignore[attr-defined]
        return tuple(sorted(float(value) for value in heaps))

    def round_numbers(self) -> tuple[float, ...]:
        """Return the possible round numbers, ascending: ROUND_NUMBERS with at least LEAST_MULTIPLES."""
        low, high = float(self.min), float(self.max)  # type: ignore[attr-defined]
        grid, decimals = self.grid(), getattr(self, "decimals", None)
        step = grid.step if grid is not None else None if decimals is None else Grid.of(10.0**-decimals).step
        heaps = () if step is None or self.heap_values() else tuple(float(step * n) for n in ROUND_NUMBERS)
        many = [Grid.of(h).first(high, above=True) - Grid.of(h).first(low) for h in heaps]
        return tuple(heap for heap, multiples in zip(heaps, many, strict=True) if multiples >= LEAST_MULTIPLES)

    def point_values(self) -> tuple[float, ...]:
        """Return 0 and the bounds, ascending, if they are possible and not exact, and the column has many values."""
        low, high = float(self.min), float(self.max)  # type: ignore[attr-defined]
        grid, decimals = self.grid(), getattr(self, "decimals", None)
        if grid is not None and grid.first(high, above=True) - grid.first(low) <= MAX_EXACT_INTEGERS:
            return ()
        if grid is None and decimals is not None:
            grid = Grid.of(10.0**-decimals)
        free = {0.0, low, high} - set(self.exact_values())
        return tuple(sorted(v for v in free if low <= v <= high and (grid is None or grid.divides(np.array([v]))[0])))

    @model_validator(mode="after")
    def _check_grid(self) -> Stepped:
        grid, edges, heaps = self.grid(), self.edge_values(), self.heap_values()
        for place, (low, high) in enumerate(pairwise(edges)):
            last = self.closed and place == len(edges) - 2
            if grid is not None and grid.first(low) >= grid.first(high, above=last):
                raise FieldError(
                    f"the bin from {low:g} to {high:g} holds no multiple of `step`", "Move its edges or change the step"
                )
        stepped = self.step is not None  # type: ignore[attr-defined]
        if grid and stepped and edges and grid.first(edges[-1], above=self.closed) - grid.first(edges[0]) < 2:
            raise FieldError(f"only one value from {edges[0]:g} on is a multiple of `step`", "Choose a smaller step")
        if any(low <= 0 for low in heaps) or len(set(heaps)) < len(heaps):
            raise FieldError("`heaps` must be different numbers above 0")
        if any(not Grid.of(low).divides(np.array([high]))[0] for low, high in pairwise(heaps)):
            raise FieldError("each of `heaps` must divide the next larger one", "Write some such as [10, 100, 1000]")
        for heap in heaps if edges else ():
            first, end = Grid.of(heap).first(edges[0]), Grid.of(heap).first(edges[-1], above=self.closed)
            if not set(range(first, min(end, first + 2))) - {0}:
                raise FieldError(f"no value but 0 is a multiple of {heap:g}, one of `heaps`", "Leave it out")
        if grid is not None and heaps and not grid.divides(np.array(heaps)).all():
            raise FieldError("each of `heaps` must be a multiple of `step`, or of 1 for integers")
        return self


class IntegerColumn(Stepped):
    """Whole numbers in [min, max].  Values outside are clamped; nulls become ``min`` unless ``nullable``."""

    kind: Literal["integer"]
    min: int = Field(description="Smallest possible value, from a public source.", ge=-(2**53), le=2**53)
    max: int = Field(description="Largest possible value, from a public source.", ge=-(2**53), le=2**53)
    edges: tuple[int, ...] | None = Field(
        default=None,
        description="Bin edges from `min` to `max`. A bin includes its lower edge; the last one includes both.",
    )
    exact: tuple[int, ...] = Field(default=(), description=EXACT)
    step: int | None = Field(default=None, ge=1, le=2**53, description=STEP)
    heaps: tuple[int, ...] = Field(default=(), description=HEAPS)
    type: Literal["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"] = Field(
        default="int64", description="Storage type of the released column."
    )

    @model_validator(mode="after")
    def _check_bounds(self) -> IntegerColumn:
        bits = int(self.type.lstrip("uint"))
        low, high = (0, 2**bits - 1) if self.type.startswith("u") else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
        if self.min < low or self.max > high:
            raise FieldError(f"`type: {self.type}` cannot hold every value from {self.min} to {self.max}")
        for value in self.exact:
            if not max(low, -(2**53)) <= value <= min(high, 2**53):
                raise FieldError(f"`type: {self.type}` cannot hold {value} of `exact` (at most 2^53 in size)")
        if self.max - self.min < len(self.exact) and set(range(self.min, self.max + 1)) <= set(self.exact):
            raise FieldError("`exact` leaves no other value from `min` to `max`", "Use `kind: categorical`")
        return self

    def _describe_bad_edges(self, values: tuple[float, ...]) -> FieldError:
        """Return the error about 2^53: floats skip integers above it, so a single-value top bin would have no end."""
        if self.max == 2**53 and values[-2] == values[-1]:
            return FieldError(
                f"`max` ({self.max}) is too large for a bin of its own", f"Write at most {2**53 - 1}, or fewer bins"
            )
        return super()._describe_bad_edges(values)

    def edge_values(self) -> tuple[float, ...]:
        """Return edges such that bin i has the integers in [edge_i, edge_{i+1}); the last edge is max + 1."""
        if self.edges is not None:
            return tuple(float(e) for e in (*self.edges[:-1], self.max + 1))
        span = self.max - self.min + 1
        if span < 1:
            return ()  # the bounds are refused later
        if self.step is not None:
            return (*_on_grid(Grid.of(self.step), self.min, self.max, self.bins), float(self.max + 1))
        bins = self.bins or (span if span <= MAX_EXACT_INTEGERS else DEFAULT_BINS)
        bins = min(bins, span)
        return tuple(float(self.min + (span * i) // bins) for i in range(bins + 1))

    def grid(self) -> Grid:
        """Return the grid of ``step``, else of whole numbers."""
        return Grid.of(self.step or 1)

    @property
    def closed(self) -> bool:
        """The last edge is the integer after ``max``."""
        return False


def _on_grid(grid: Grid, low: float, high: float, bins: int | None) -> tuple[float, ...]:
    """Return the lower edges of bins with equally many multiples, the first at ``low``; single-value bins if few."""
    first, end = grid.first(low), grid.first(high, above=True)
    span = max(end - first, 1)
    bins = min(bins or (span if span <= MAX_EXACT_INTEGERS else DEFAULT_BINS), span)
    return (float(low), *(grid.value(first + (span * i) // bins) for i in range(1, bins)))


class NumberColumn(Stepped):
    """Real numbers in [min, max].  Values outside are clamped; null and NaN become ``min`` unless ``nullable``."""

    kind: Literal["number"]
    min: float = Field(description="Smallest possible value, from a public source.")
    max: float = Field(description="Largest possible value, from a public source.")
    edges: tuple[float, ...] | None = Field(
        default=None,
        description="Bin edges from `min` to `max`. A bin includes its lower edge; the last one includes both.",
    )
    exact: tuple[float, ...] = Field(default=(), description=EXACT)
    step: float | None = Field(default=None, gt=0, description=STEP)
    heaps: tuple[float, ...] = Field(default=(), description=HEAPS)
    decimals: int | None = Field(
        default=None, ge=0, le=15, description="Decimals of released values; null: values are not rounded."
    )
    type: Literal["float32", "float64"] = Field(default="float64", description="Storage type of the released column.")

    @model_validator(mode="after")
    def _check_bounds(self) -> NumberColumn:
        if self.step is not None and self.decimals is not None and round(self.step, self.decimals) != self.step:
            raise FieldError(f"`step` ({self.step:g}) has more decimals than `decimals`", "Leave `decimals` out")
        if self.type == "float32" and any(abs(value) > float(np.finfo(np.float32).max) for value in self.exact):
            raise FieldError(f"`type: {self.type}` cannot hold every value of `exact`")
        low, high = self.storable_bounds()
        if not -inf < low < high < inf:
            raise FieldError(
                f"`type: {self.type}` cannot hold the numbers from {self.min} to {self.max}",
                "Correct the bounds or write `type: float64`",
            )
        return self

    def storable_bounds(self) -> tuple[float, float]:
        """Return the bounds, moved inwards to values that ``type`` holds exactly; infinite if outside its range."""
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
        """Return the bin edges, ascending; bins are closed below, open above, the last closed unless stepped."""
        if self.step is not None:
            grid = Grid.of(self.step)
            lower = self.edges[:-1] if self.edges else _on_grid(grid, self.min, self.max, self.bins)
            return (*lower, float(grid.value(grid.first(self.max, above=True))))
        if self.edges is not None:
            return self.edges
        bins = self.bins or DEFAULT_BINS
        step = (self.max - self.min) / bins
        return (*(self.min + step * i for i in range(bins)), self.max)

    def list_value_edges(self) -> tuple[float, ...]:
        """Return edges at the possible released values, one bin each; empty if they are many or have a step."""
        if self.decimals is None or self.step is not None:
            return ()
        grid = Grid.of(10.0**-self.decimals)
        first, end = grid.first(self.min), grid.first(self.max, above=True)
        if not 2 <= end - first <= MAX_EXACT_INTEGERS:
            return ()
        inside = (grid.value(step) for step in range(first + 1, end))
        return (self.min, *(value for value in inside if value < self.max), self.max)

    def grid(self) -> Grid | None:
        """Return the grid of ``step``, None without one."""
        return None if self.step is None else Grid.of(self.step)

    @property
    def closed(self) -> bool:
        """With a step, the last edge is the first multiple above ``max``."""
        return self.step is None
