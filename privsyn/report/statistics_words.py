"""Statistics of columns in words: numbers, days, moments, times of day and shares."""

from __future__ import annotations

import datetime as dt

from privsyn.data_contracts.evaluation_results import ColumnStatistics, Statistic
from privsyn.report.explanations import format_number, format_percent

_EPOCH = dt.datetime(1970, 1, 1)
_DAY = 86_400


def format_statistic(value: float | None, statistic: Statistic, column: ColumnStatistics) -> str:
    """Return one figure of ``statistic`` as its column has it; a dash for None."""
    if value is None:
        return format_number(None)
    if statistic.kind == "share":
        return format_percent(value)
    if column.form == "number":
        return format_number(value)
    if statistic.kind == "width":
        return _format_duration(value)
    if column.form == "time":
        return _format_clock(value)
    try:
        moment = _EPOCH + dt.timedelta(seconds=value)
    except OverflowError:
        return format_number(value)
    return moment.date().isoformat() if column.form == "date" else moment.isoformat(" ", "minutes")


def is_beyond_noise(statistic: Statistic) -> bool:
    """Return whether the real figure lies outside the band of the noise; never where that is not known."""
    if statistic.low is None or statistic.high is None:
        return False
    return not statistic.low <= statistic.real <= statistic.high


def _format_clock(seconds: float) -> str:
    minutes = round(seconds / 60)
    return f"{minutes // 60:02}:{minutes % 60:02}"


def _format_duration(seconds: float) -> str:
    for unit, length in (("days", _DAY), ("hours", 3_600), ("minutes", 60)):
        if seconds >= 2 * length:
            return f"{format_number(seconds / length)} {unit}"
    return f"{format_number(seconds)} seconds"
