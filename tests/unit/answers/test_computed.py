"""Answers of columns that rules compute, of dummies, of columns split by others, and of columns named as figures."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from privsyn.answers.cells import ColumnCells, list_levels
from privsyn.answers.questions import Questions
from privsyn.answers.released_counts import MemoryCounts
from privsyn.base.errors import RequestError
from tests.support.answered import COLUMNS, released, spec, table
from tests.support.specs import make_spec

NEW: dict[str, Any] = {
    "work years": {"kind": "integer", "min": 0, "max": 89, "bins": 8, "nullable": True},
    "climate": {"kind": "categorical", "values": ["cold", "warm"], "nullable": True},
    "by car": {"kind": "integer", "min": 0, "max": 1},
    "by bus": {"kind": "integer", "min": 0, "max": 1},
}
RULES = [
    {"derive": {"work years": "max(age - 18, 0)"}},
    {"lookup": {"from": "region", "to": "climate", "rows": [["north", "cold"], ["south", "warm"], ["east", "cold"]]}},
    {"one_of": ["by car", "by bus"]},
]


class Asked(Questions):
    """A release in memory, asked as one of a folder."""

    def __init__(self, counts: MemoryCounts) -> None:
        self.__dict__["_counts"] = counts


@cache
def rows() -> pa.Table:
    made = table(3_000)
    age = made["age"].to_numpy(zero_copy_only=False)
    years = pa.array(np.nan_to_num(age - 18).astype(np.int64), mask=np.isnan(age))
    climate = ["warm" if r == "south" else "cold" for r in made["region"].to_pylist()]
    car = np.asarray(made["income"]) > 50_000
    columns = (years, pa.array(climate), pa.array(car.astype(np.int64)), pa.array(1 - car.astype(np.int64)))
    for name, values in zip(NEW, columns, strict=True):
        made = made.append_column(name, values)
    return made


@cache
def release() -> Asked:
    promise = {"epsilon": 3.0, "delta": 1e-9}
    return Asked(released(rows(), make_spec(COLUMNS | NEW, privacy=promise, rules=RULES), 3))


def held(found: pd.DataFrame, real: pd.Series) -> bool:
    both = found.set_index(found.columns[0])
    return all(both.low[k] - 1e-9 <= v <= both.high[k] + 1e-9 for k, v in real.items())


def test_counts_of_computed_columns_follow_from_those_of_their_sources() -> None:
    frame = rows().to_pandas()
    for column in ("climate", "by car"):
        found = release().count(column, level=0.999)
        found[column] = found[column].astype(str)
        assert held(found, frame[column].astype(str).value_counts())
        assert set(found.source) == {"measured"}
    years = release().count("work years")
    assert years.estimate.sum() == pytest.approx(3_000, abs=150)
    real = release().count(where="`work years` >= 20", level=0.999)
    assert real.low[0] <= (frame["work years"] >= 20).sum() <= real.high[0]


def test_no_cell_of_a_row_is_said_to_have_no_value_of_its_computed_level() -> None:
    counts, ages = release()._counts, rows()["age"].combine_chunks()
    codes, _ = counts.codecs["age"].encode({"age": ages})
    computed = counts.every_codec["work years"]
    levels = computed.groups[computed.encode({"work years": rows()["work years"].combine_chunks()})[0]]
    for level, (_, condition) in enumerate(list_levels(counts, "work years")):
        part = ColumnCells(counts, ("age",)).fractions(condition)[codes]
        assert (part[levels == level] > 0).all() and (part[levels != level] < 1).all()


def test_means_and_shares_of_computed_columns_have_intervals() -> None:
    frame = rows().to_pandas()
    mean = release().mean("work years")
    assert mean.low[0] <= frame["work years"].mean() <= mean.high[0] and mean.source[0] == "implied"
    share = release().share("climate == 'warm'", level=0.999)
    assert share.low[0] <= (frame.climate == "warm").mean() <= share.high[0]
    assert held(release().share("climate", level=0.999), frame.climate.value_counts(normalize=True))
    groups = release().mean("income", by="climate", level=0.999)
    assert held(groups, frame.groupby("climate").income.mean())
    joint = release().count("happy", "climate")
    assert list(joint.columns[:2]) == ["happy", "climate"] and len(joint) >= 4


@pytest.mark.slow
def test_what_is_not_known_of_computed_columns_is_said() -> None:
    assert release().quantile("work years", 0.5).source[0] == "not known"
    found = release().estimate(lambda rows: rows["work years"].mean(), columns=["work years"])
    assert found.source[0] == "simulated" and np.isfinite(found.high[0])
    for ask in (lambda: release().count("nobody"), lambda: release().mean("climate")):
        with pytest.raises(RequestError):
            ask()


SPLIT: dict[str, Any] = {
    "hour": {"kind": "integer", "min": 0, "max": 23},
    "minute": {"kind": "integer", "min": 0, "max": 59},
    "time": {"kind": "integer", "min": 0, "max": 2400, "bins": 32},
    "delay": {"kind": "number", "min": 0, "max": 100, "bins": 10},
    "late": {"kind": "boolean"},
}
SPLIT_RULES = [{"derive": {"time": "hour * 100 + minute"}}]


@cache
def split_rows() -> pa.Table:
    rng = np.random.default_rng(0)
    hour, minute = np.clip(rng.normal(14, 4, 4_000), 0, 23).astype(np.int64), 5 * rng.integers(0, 12, 4_000)
    delay = np.clip(hour * 3 + minute / 3 + rng.normal(0, 5, 4_000), 0, 99.9)
    columns = (hour, minute, hour * 100 + minute, delay, delay > 50)
    return pa.table(dict(zip(SPLIT, columns, strict=True)))


@cache
def split() -> Asked:
    promise = {"epsilon": 3.0, "delta": 1e-9}
    found = Asked(
        released(
            split_rows(), make_spec(SPLIT, privacy=promise, rules=SPLIT_RULES, preset="0.3", synthesis={"sweeps": 2}), 1
        )
    )
    assert "split by" not in found._counts.columns and found._counts.codecs["hour"].size == 40
    return found


def test_the_levels_of_a_split_column_are_its_values() -> None:
    frame = split_rows().to_pandas()
    found = split().count("hour", level=0.9999)
    assert list(found.hour) == [str(h) for h in range(24)] and set(found.source) == {"measured"}
    real = frame.hour.value_counts().reindex(range(24), fill_value=0)
    assert held(found, real.set_axis(found.hour))
    at_ten = split().count(where="hour == 10")
    assert at_ten.estimate[0] == pytest.approx(found.estimate[10]), "a value's codes are summed"
    assert held(split().share("hour", level=0.9999), real.set_axis(found.hour) / len(frame))


def test_figures_of_a_split_column_have_intervals() -> None:
    frame = split_rows().to_pandas()
    mean = split().mean("hour", level=0.999)
    assert mean.low[0] <= frame.hour.mean() <= mean.high[0] and mean.source[0] == "measured"
    quantiles = split().quantile("hour", [0.1, 0.5, 0.9], level=0.999)
    assert (quantiles.low <= frame.hour.quantile([0.1, 0.5, 0.9]).to_numpy()).all()
    assert (quantiles.high >= frame.hour.quantile([0.1, 0.5, 0.9]).to_numpy()).all()
    real = frame.hour.corr(frame.delay)
    (found,) = split().correlation("hour", "delay", level=0.999).itertuples()
    assert found.low <= real <= found.high and found.source == "implied"


def test_joint_levels_of_a_split_column_hold_whole_values() -> None:
    frame = split_rows().to_pandas()
    counted, means = (
        split().count("hour", "late", level=0.9999),
        split().mean("delay", by="hour", level=0.9999),
    )
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
    frame = split_rows().to_pandas()
    found = split().count("time", level=0.9999)
    assert len(found) == 32 and set(found.source) == {"measured"}
    assert held(found, pd.Series(np.bincount(frame.time // 75, minlength=32), found.time))
    both = split().count("time", where="hour == 10")
    assert both.estimate.sum() == pytest.approx(split().count(where="hour == 10").estimate[0])
    later = split().count(where="time >= 1200 and delay >= 50", level=0.9999)
    real = ((frame.time >= 1200) & (frame.delay >= 50)).sum()
    assert later.low[0] <= real <= later.high[0] and later.source[0] == "measured"
    assert split().share("time < 1200", by="late").source[0] == "measured"
    groups = split().mean("delay", by="time", level=0.9999)
    assert set(groups.source) == {"implied"}, "pairs of the hour are pairs of the time"


def test_correlations_of_a_computed_column_are_refused_with_the_cure() -> None:
    with pytest.raises(RequestError, match="'time' was not counted by itself") as error:
        split().correlation("time", "delay")
    assert error.value.cure == "Name the columns that determine it"


STATEMENT = "Residents by region, published by the office on 2026-01-01."
NAMES = ("estimate", "source", "probability", "n")


@pytest.fixture(scope="module")
def odd() -> Asked:
    rng = np.random.default_rng(3)
    n = rng.integers(0, 10, 400)
    rows = {name: rng.choice(["a", "b"], 400) for name in NAMES[:3]}
    kinds = {name: {"kind": "categorical", "values": ["a", "b"], "unlisted": "b"} for name in NAMES[:3]}
    whole = pa.table({**rows, "n": n, "low": np.where(n < 5, "few", "many")})
    columns = {
        **kinds,
        "n": {"kind": "integer", "min": 0, "max": 9},
        "low": {"kind": "categorical", "values": ["few", "many"]},
    }
    rule = {"derive": {"low": "'few' if n < 5 else 'many'"}}
    asked = make_spec(columns, privacy={"epsilon": 5.0, "delta": 1e-9}, rules=[rule])
    return Asked(released(whole, asked, 1))


def test_columns_named_as_figures_keep_their_labels(odd: Asked) -> None:
    assert odd.count("estimate")["estimate (column)"].tolist() == ["a", "b"]
    assert abs(odd.count("source")["estimate"].sum() - 400) < 40
    assert set(odd.count("low")["low (column)"]) == {"few", "many"}
    assert set(odd.share("source", by="low")["source (column)"]) == {"a", "b"}
    assert odd.quantile("n", [0.25, 0.5], by="probability")["probability"].tolist() == [0.25, 0.5] * 2


def test_a_share_of_what_it_is_grouped_by_is_refused(odd: Asked) -> None:
    with pytest.raises(RequestError, match="'source' is both asked for and grouped by"):
        odd.share("source", by="source")


def test_answers_by_known_totals_say_that_they_were_not_measured() -> None:
    known = {"north": 250, "south": 130, "east": 120}
    counts = [{"region": name, "count": n} for name, n in known.items()]
    told = {"columns": ["region"], "counts": counts, "statement": STATEMENT}
    known_totals = Asked(released(table(500), spec(totals=[told]), 1))
    said = "Not measured: counts of region are the spec's known totals"
    for answer in (known_totals.count("region"), known_totals.count(), known_totals.quantile("age", 0.5, by="region")):
        assert any(word.startswith(said) for word in answer.attrs["words"])
    assert not any(word.startswith(said) for word in known_totals.count("happy").attrs["words"])
