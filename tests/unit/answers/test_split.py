"""A column whose codes are split by the bins of a computed one: answered as any other, and so is the computed one."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from privsyn.base.errors import RequestError
from tests.support.answered import released
from tests.support.specs import make_spec
from tests.unit.answers.test_computed import Asked, held

COLUMNS: dict[str, Any] = {
    "hour": {"kind": "integer", "min": 0, "max": 23},
    "minute": {"kind": "integer", "min": 0, "max": 59},
    "time": {"kind": "integer", "min": 0, "max": 2400, "bins": 32},
    "delay": {"kind": "number", "min": 0, "max": 100, "bins": 10},
    "late": {"kind": "boolean"},
}
RULES = [{"derive": {"time": "hour * 100 + minute"}}]


@cache
def rows() -> pa.Table:
    rng = np.random.default_rng(0)
    hour, minute = np.clip(rng.normal(14, 4, 4_000), 0, 23).astype(np.int64), 5 * rng.integers(0, 12, 4_000)
    delay = np.clip(hour * 3 + minute / 3 + rng.normal(0, 5, 4_000), 0, 99.9)
    columns = (hour, minute, hour * 100 + minute, delay, delay > 50)
    return pa.table(dict(zip(COLUMNS, columns, strict=True)))


@cache
def release() -> Asked:
    promise = {"epsilon": 3.0, "delta": 1e-9}
    found = Asked(
        released(rows(), make_spec(COLUMNS, privacy=promise, rules=RULES, preset="0.3", synthesis={"sweeps": 2}), 1)
    )
    assert "split by" not in found._counts.columns and found._counts.codecs["hour"].size == 40
    return found


def test_the_levels_of_a_split_column_are_its_values() -> None:
    frame = rows().to_pandas()
    found = release().count("hour", level=0.9999)
    assert list(found.hour) == [str(h) for h in range(24)] and set(found.source) == {"measured"}
    real = frame.hour.value_counts().reindex(range(24), fill_value=0)
    assert held(found, real.set_axis(found.hour))
    at_ten = release().count(where="hour == 10")
    assert at_ten.estimate[0] == pytest.approx(found.estimate[10]), "a value's codes are summed"
    assert held(release().share("hour", level=0.9999), real.set_axis(found.hour) / len(frame))


def test_figures_of_a_split_column_have_intervals() -> None:
    frame = rows().to_pandas()
    mean = release().mean("hour", level=0.999)
    assert mean.low[0] <= frame.hour.mean() <= mean.high[0] and mean.source[0] == "measured"
    quantiles = release().quantile("hour", [0.1, 0.5, 0.9], level=0.999)
    assert (quantiles.low <= frame.hour.quantile([0.1, 0.5, 0.9]).to_numpy()).all()
    assert (quantiles.high >= frame.hour.quantile([0.1, 0.5, 0.9]).to_numpy()).all()
    real = frame.hour.corr(frame.delay)
    (found,) = release().correlation("hour", "delay", level=0.999).itertuples()
    assert found.low <= real <= found.high and found.source == "implied"


def test_joint_levels_of_a_split_column_hold_whole_values() -> None:
    frame = rows().to_pandas()
    counted, means = release().count("hour", "late", level=0.9999), release().mean("delay", by="hour", level=0.9999)
    for found in (counted, means):
        levels = list(dict.fromkeys(found.hour))
        ends = [(int(label.split(" to ")[0]), int(label.split(" to ")[-1])) for label in levels]
        assert [first for first, _ in ends] == [0, *(last + 1 for _, last in ends[:-1])] and ends[-1][1] == 23
        assert len(levels) > 6 and set(found.source) <= {"measured", "implied"}
        group = pd.cut(frame.hour, [-1, *(last for _, last in ends)], labels=levels)
        for row in found.itertuples():
            own = frame[(group == row.hour).to_numpy()]
            real = own.delay.mean() if found is means else (own.late == (row.late == "true")).sum()
            assert row.low - 1e-9 <= real <= row.high + 1e-9


def test_the_computed_column_is_answered_by_the_codes_it_splits() -> None:
    frame = rows().to_pandas()
    found = release().count("time", level=0.9999)
    assert len(found) == 32 and set(found.source) == {"measured"}
    assert held(found, pd.Series(np.bincount(frame.time // 75, minlength=32), found.time))
    both = release().count("time", where="hour == 10")
    assert both.estimate.sum() == pytest.approx(release().count(where="hour == 10").estimate[0])
    later = release().count(where="time >= 1200 and delay >= 50", level=0.9999)
    real = ((frame.time >= 1200) & (frame.delay >= 50)).sum()
    assert later.low[0] <= real <= later.high[0] and later.source[0] == "measured"
    assert release().share("time < 1200", by="late").source[0] == "measured"
    groups = release().mean("delay", by="time", level=0.9999)
    assert set(groups.source) == {"implied"}, "pairs of the hour are pairs of the time"


def test_correlations_of_a_computed_column_are_refused_with_the_cure() -> None:
    with pytest.raises(RequestError, match="'time' was not counted by itself") as error:
        release().correlation("time", "delay")
    assert error.value.cure == "Name the columns that determine it"
