"""Means, standard deviations, quantiles and shares of exact values of every ordered column, for two tables.

Each synthetic figure has a band from the noise of the column's counts.  The band is two standard deviations to either
side, by the delta method.  A quantile's band runs between the synthetic quantiles at the ends of its share's band.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from math import sqrt
from typing import Any, Literal

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from privsyn.data_contracts.evaluation import ColumnStatistics, Statistic
from privsyn.data_contracts.release_spec import ReleaseSpec
from privsyn.tasks.codecs import EncodingPlan
from privsyn.tasks.codecs.ordered import OrderedCodec
from privsyn.tasks.estimation.recode import AttributeRecode, Recode

Floats = NDArray[np.float64]
Form = Literal["number", "date", "moment", "time"]

QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
NOISE_DEVIATIONS = 2.0
"""Half the width of a band, in standard deviations of the noise."""

_DAY = 86_400.0

MOST_VALUES = 1 << 21
"""Largest number of values kept per column for its quantiles; with more, every second, fourth ... is kept."""


@dataclass
class _Values:
    """Exact sums, centred at a public value, thinned values, and counts of exact values, of one column of one table."""

    origin: float
    exact: Floats
    rows: int = 0
    numbers: int = 0
    sums: Floats = field(default_factory=lambda: np.zeros(2))
    hits: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))
    kept: list[Floats] = field(default_factory=list)
    stride: int = 1

    def add(self, numbers: Floats) -> None:
        """Add a batch; NaN and infinities do not count."""
        self.rows += len(numbers)
        finite = numbers[np.isfinite(numbers)]
        centred = finite - self.origin
        self.sums += (centred.sum(), (centred**2).sum())
        hits = np.array([(finite == value).sum() for value in self.exact], np.int64)
        self.hits = hits if not len(self.hits) else self.hits + hits
        self.kept.append(finite[(-self.numbers) % self.stride :: self.stride])
        self.numbers += len(finite)
        while sum(map(len, self.kept)) > MOST_VALUES:
            self.kept, self.stride = [np.concatenate(self.kept)[::2]], 2 * self.stride

    def sorted(self) -> Floats:
        """Return the thinned values in order."""
        return np.sort(np.concatenate([np.zeros(0), *self.kept]))

    @property
    def mean(self) -> float:
        """The mean; at least one value is required."""
        return self.origin + float(self.sums[0]) / self.numbers

    @property
    def sd(self) -> float:
        """The standard deviation of the values; at least one value is required."""
        return sqrt(max(0.0, float(self.sums[1]) / self.numbers - (float(self.sums[0]) / self.numbers) ** 2))


def compute_column_statistics(
    spec: ReleaseSpec,
    encoding: EncodingPlan,
    real: Iterable[pa.RecordBatch],
    synthetic: Iterable[pa.RecordBatch],
    noise: Recode,
) -> tuple[ColumnStatistics, ...]:
    """Return the statistics of every ordered column, in table order; real values as stored, not repaired.

    ``encoding``: one codec per column; batches have the spec's columns.  ``noise``: attribute -> the variance of each
    fine count; other columns have no bands.
    """
    codecs = [c for c in encoding.codecs if isinstance(c, OrderedCodec)]
    real_values, synthetic_values = (_read(spec, codecs, batches) for batches in (real, synthetic))
    return tuple(
        _describe_column(spec, codec, real_values[i], synthetic_values[i], noise.get(codec.attribute))
        for i, codec in enumerate(codecs)
    )


def _read(spec: ReleaseSpec, codecs: Sequence[OrderedCodec], batches: Iterable[pa.RecordBatch]) -> list[_Values]:
    exact = [spec.columns[c.attribute].exact_values() for c in codecs]  # type: ignore[union-attr]
    columns = [
        _Values(float(np.nanmin(_compute_middles(c))), np.array(values, dtype=np.float64))
        for c, values in zip(codecs, exact, strict=True)
    ]
    for batch in batches:
        for codec, values in zip(codecs, columns, strict=True):
            values.add(codec.stored_numbers(batch.column(codec.attribute))[0])
    return columns


def _compute_middles(codec: OrderedCodec) -> Floats:
    middles = codec.values(fine=True)
    assert middles is not None  # noqa: S101 - an ordered codec has values
    return middles


def _describe_column(
    spec: ReleaseSpec, codec: OrderedCodec, real: _Values, synthetic: _Values, noise: AttributeRecode | None
) -> ColumnStatistics:
    column: Any = spec.columns[codec.attribute]
    name, listed = codec.attribute, sorted(getattr(column, "exact", ()))
    form, unit = _choose_format(column), str(getattr(column, "unit", ""))
    if not real.numbers or not synthetic.numbers:
        return ColumnStatistics(column=name, form=form, unit=unit, statistics=())
    middles = _compute_middles(codec)
    finite = ~np.isnan(middles)
    column_noise = None if noise is None else _Noise(middles[finite], noise.variance[finite], synthetic)
    sds = (None, None) if column_noise is None else (column_noise.mean(), column_noise.sd())
    values = [
        _build_statistic("mean", "value", real.mean, synthetic.mean, sds[0]),
        _build_statistic("standard deviation", "width", real.sd, synthetic.sd, sds[1]),
    ]
    first, second = real.sorted(), synthetic.sorted()
    for q in QUANTILES:
        of_real, of_synthetic, low, high = _compute_quantile(first, q), _compute_quantile(second, q), None, None
        if column_noise is not None:
            reach = NOISE_DEVIATIONS * column_noise.below(of_synthetic, q)
            low, high = _compute_quantile(second, q - reach), _compute_quantile(second, q + reach)
        title = "median" if q == 0.5 else f"{q:.0%} quantile"
        values.append(Statistic(name=title, kind="value", real=of_real, synthetic=of_synthetic, low=low, high=high))
    for i, (value, number) in enumerate(zip(listed, real.exact, strict=True)):
        sd = None if column_noise is None else column_noise.share(number)
        shown = f"{value:.12g}" if isinstance(value, float) else str(value)
        shares = int(real.hits[i]) / real.rows, int(synthetic.hits[i]) / synthetic.rows
        values.append(_build_statistic(f"share of {shown}", "share", *shares, sd))
    seconds = _DAY / column.per_day if column.kind == "time" else _DAY if column.kind == "date" else 1.0
    statistics = tuple(_describe_times(value, seconds) for value in values)
    return ColumnStatistics(column=name, form=form, unit=unit, statistics=statistics)


def _describe_times(statistic: Statistic, factor: float) -> Statistic:
    """Return the figure of a date or a time in seconds; ``factor``: from the codec's numbers to seconds, else 1."""
    if factor == 1 or statistic.kind == "share":
        return statistic
    low, high = (None if bound is None else bound * factor for bound in (statistic.low, statistic.high))
    real, synthetic = statistic.real * factor, statistic.synthetic * factor
    return Statistic(name=statistic.name, kind=statistic.kind, real=real, synthetic=synthetic, low=low, high=high)


def _choose_format(column: Any) -> Form:
    if column.kind in ("date", "time"):
        return "date" if column.kind == "date" else "time"
    if column.kind == "datetime":
        return "date" if column.type == "date" else "moment"
    return "number"


def _build_statistic(
    name: str, kind: Literal["value", "width", "share"], real: float, synthetic: float, sd: float | None
) -> Statistic:
    reach = None if sd is None else NOISE_DEVIATIONS * sd
    low = None if reach is None else (synthetic - reach if kind == "value" else max(0.0, synthetic - reach))
    high = None if reach is None else synthetic + reach
    return Statistic(name=name, kind=kind, real=real, synthetic=synthetic, low=low, high=high)


def _compute_quantile(ordered: Floats, q: float) -> float:
    """Return the quantile ``q`` of sorted values, with ``q`` clamped to 0..1."""
    place = min(max(q, 0.0), 1.0) * (len(ordered) - 1)
    return float(ordered[round(place)])


@dataclass(frozen=True)
class _Noise:
    """The noise of one column's fine counts, and of its statistics; arrays over the codes with a value."""

    middles: Floats
    variance: Floats
    synthetic: _Values

    def mean(self) -> float:
        """Return the standard deviation of sum(v n) / N."""
        slope = (self.middles - self.synthetic.mean) / self.synthetic.numbers
        return sqrt(float((slope**2 * self.variance).sum()))

    def sd(self) -> float:
        """Return the standard deviation of sqrt(sum((v - mean)^2 n) / N)."""
        width = self.synthetic.sd
        if not width:
            return 0.0
        squares = (self.middles - self.synthetic.mean) ** 2
        slope = (squares - width**2) / (2 * width * self.synthetic.numbers)
        return sqrt(float((slope**2 * self.variance).sum()))

    def below(self, value: float, q: float) -> float:
        """Return the standard deviation of the share of values up to ``value``."""
        return sqrt(float((((self.middles <= value) - q) ** 2 * self.variance).sum())) / self.synthetic.numbers

    def share(self, value: float) -> float:
        """Return the standard deviation of the share of an exact value's own cell."""
        return sqrt(float(self.variance[np.argmin(np.abs(self.middles - value))])) / self.synthetic.rows
