"""Codecs of moments."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from privsyn.data_contracts.columns import DatetimeColumn, seconds_since_epoch
from privsyn.data_contracts.tables import ValueRange
from privsyn.tasks.codecs import parsing
from privsyn.tasks.codecs.cells import Floats
from privsyn.tasks.codecs.ordered import OrderedCodec, steps_inside

RESOLUTION_SECONDS = {"day": 86_400, "hour": 3_600, "minute": 60, "second": 1}


class DatetimeCodec(OrderedCodec):
    """Moments; inside the codec they are seconds since 1970."""

    def __init__(self, name: str, column: DatetimeColumn, barriers: Collection[float] = ()) -> None:
        self._column = column
        super().__init__(name, column, barriers)

    def numbers(self, array: pa.Array) -> tuple[Floats, NDArray[np.bool_]]:
        """Seconds since 1970."""
        return parsing.to_seconds(array)

    def _bounds(self) -> tuple[float, float]:
        return seconds_since_epoch(self._column.min), seconds_since_epoch(self._column.max)

    def _place(self, low: Floats, high: Floats, rng: np.random.Generator) -> pa.Array:
        step = 86_400 if self._column.type == "date" else RESOLUTION_SECONDS[self._column.resolution]
        least, most = self._bounds()
        first, last = np.floor(low / step), np.floor(high / step) + 1
        steps = steps_inside(low, high, self._top, first, last, lambda steps: steps * step, rng)
        steps = np.clip(steps, np.ceil(least / step), max(np.ceil(least / step), most // step))
        if self._column.type == "date":
            return pa.array(np.clip(steps, least // step, most // step).astype(np.int32)).cast(pa.date32())
        return self._released(np.clip(steps * step, least, most))

    def _released_from(self, low: float) -> float:
        """A cell that holds no whole step gets the one before."""
        step = 86_400 if self._column.type == "date" else RESOLUTION_SECONDS[self._column.resolution]
        return float(np.floor(low / step) * step)

    def _released(self, numbers: Floats) -> pa.Array:
        if self._column.type == "date":
            return pa.array((numbers // 86_400).astype(np.int32)).cast(pa.date32())
        return pa.array(np.round(numbers * 1e6).astype(np.int64)).cast(pa.timestamp("us"))

    def _label(self, edge: float) -> str:
        return str(np.datetime64(round(edge), "s")).replace("T00:00:00", "")

    def ranges(self) -> dict[str, ValueRange]:
        """Type and bounds."""
        values = (self._column.min, self._column.max, *self._column.exact)
        low, high = min(values), max(values)
        if self._column.type == "date":
            return {self.attribute: ValueRange(pa.date32(), self._nullable, low.date(), high.date())}
        return {self.attribute: ValueRange(pa.timestamp("us"), self._nullable, low, high)}
