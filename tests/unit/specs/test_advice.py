"""Advice before paying: relations that rows show, each with YAML to paste, and nothing on unrelated columns."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import privsyn
from benchmarks.advice import MADE, describe, make_spec
from privsyn.base.errors import RequestError
from privsyn.data_contracts.release_spec import ReleaseSpec
from privsyn.sources.open_source import open_source
from privsyn.specs.advice import LEAST_ROWS, Advice, advise
from privsyn.specs.advice.columns import RowSample
from privsyn.specs.spec_file import load_spec
from privsyn.tasks.codecs import plan
from tests.support.specs import make_spec as make_spec_of

ROWS = 3_000
SECONDS = 6.0
"""CPU seconds of 20,000 x 25 at most, three times what it takes on a computer that is busy."""


def read_sample(table: pd.DataFrame, **fields: Any) -> tuple[ReleaseSpec, dict[str, Any]]:
    """Return the spec that is read off a table, and its rows as the advice reads them."""
    spec = make_spec_of(describe(table), **fields)
    sample = RowSample()
    for batch in open_source(pa.Table.from_pandas(table, preserve_index=False), spec).batches():
        sample.add(batch)
    return spec, sample.read(plan(spec).row_plan.codecs)


def advise_on(table: pd.DataFrame, **fields: Any) -> Advice:
    return advise(*read_sample(table, **fields))


def said(table: pd.DataFrame, **fields: Any) -> list[str]:
    return [f.sentence for f in advise_on(table, **fields).findings]


def rng() -> np.random.Generator:
    return np.random.default_rng(7)


def days(start: str, offsets: Any) -> Any:
    return pd.Timestamp(start) + pd.to_timedelta(offsets, "D")


def make_codes() -> pd.DataFrame:
    code = rng().integers(0, 200, ROWS)
    return pd.DataFrame({"code": [f"z{i}" for i in code], "city": [f"c{i // 5}" for i in code], "state": code // 20})


def make_truths() -> pd.DataFrame:
    first = rng().random(ROWS) < 0.4
    second = first & (np.random.default_rng(8).random(ROWS) < 0.6)
    return pd.DataFrame({"e401k": first, "p401k": second})


def make_null_pairs() -> pd.DataFrame:
    table = make_sum()[["base", "bonus"]].astype(float)
    table.loc[np.random.default_rng(9).random(ROWS) < 0.3, ["base", "bonus"]] = np.nan
    return table


def make_sum() -> pd.DataFrame:
    a, b = rng().integers(0, 500, ROWS), np.random.default_rng(8).integers(0, 300, ROWS)
    return pd.DataFrame({"base": a, "bonus": b, "gross": a + b})


def make_product() -> pd.DataFrame:
    a, b = rng().integers(1, 60, ROWS), np.random.default_rng(8).integers(5, 90, ROWS)
    return pd.DataFrame({"tenure": a, "monthly": b, "paid": a * b})


def make_stay() -> pd.DataFrame:
    start, days_in = rng().integers(0, 1_500, ROWS), 1 + np.random.default_rng(8).integers(0, 8, ROWS)
    return pd.DataFrame({"came": days("2019-01-01", start), "left": days("2019-01-01", start + days_in)})


def make_parts() -> pd.DataFrame:
    hour, minute = rng().integers(0, 24, ROWS), np.random.default_rng(8).integers(0, 60, ROWS)
    return pd.DataFrame({"time": 100 * hour + minute, "hour": hour, "minute": minute})


def make(name: str) -> pd.DataFrame:
    """A table of benchmarks/advice.py, of fewer rows."""
    return MADE[name](rng(), ROWS)[0]


ADDRESSES, ORDERS, PAYROLL, STAYS = (partial(make, name) for name in ("addresses", "orders", "payroll", "stays"))
PLANTED: dict[str, tuple[Callable[[], pd.DataFrame], str, str]] = {
    "a code and its city": (ADDRESSES, "`city` follows from `postal` in all 3,000 rows: a `lookup`, if", "city"),
    "a city and its state": (ADDRESSES, "`state` follows from `city` in all 3,000 rows: a `lookup`, if", "state"),
    "two dates": (ORDERS, "`sent` is never before `ordered` in all 3,000 rows: a rule?", "sent"),
    "two amounts": (ADDRESSES, "`sold` is never below `margin` in all 3,000 rows: a rule?", "sold"),
    "an implication": (PAYROLL, "`p401k` implies `e401k` (", "p401k"),
    "null together": (make_null_pairs, "`base` and `bonus` are null together (", "bonus"),
    "null where": (STAYS, "Where `hours` is known, `intensive` is true (", "hours"),
    "a sum": (ORDERS, "`total` is `net + shipping` in all 3,000 rows: `derive`?", "total"),
    "a longer sum": (PAYROLL, "`gross` is `base + bonus + extra` in all 3,000 rows: `derive`?", "gross"),
    "a product": (ORDERS, "`net` is `price * quantity` in all 3,000 rows: `derive`?", "net"),
    "a body mass index": (PAYROLL, "`bmi` is `weight / (height * height) * 10000` in all 3,000 rows: `derive`?", "bmi"),
    "near dates": (make_stay, "`left` is 1 to 8 days after `came` in 98 % of rows, of a range of ", ""),
    "a band": (STAYS, "`group` is cut from `age` in all 3,000 rows: `derive`, with", "group"),
    "parts of a number": (make_parts, "`time` is `hour * 100 + minute` in all 3,000 rows: `derive`?", "time"),
    "dummies": (
        PAYROLL,
        "Exactly one of `north`, `south`, `west`, `east` is 1 in all 3,000 rows: `one_of`?",
        "east",
    ),
}


@pytest.mark.parametrize("case", PLANTED)
def test_a_planted_relation_is_found(case: str) -> None:
    make, sentence, _ = PLANTED[case]
    sentences = said(make())
    assert any(sentence in each for each in sentences), sentences


def break_one_row(table: pd.DataFrame, column: str) -> pd.DataFrame:
    """Return the table with one value of a column changed, so that no relation with it holds in that row."""
    table = table.copy()
    values = table[column]
    if column == "sent":
        row, value = 5, table["ordered"].iloc[5] - pd.Timedelta(days=3)
    elif column == "sold":
        row, value = int(table["margin"].to_numpy().argmax()), 0
    elif column == "p401k":
        row, value = int(np.flatnonzero(~table["e401k"])[0]), True
    elif column == "east":
        row, value = int(np.flatnonzero(~values)[0]), True
    elif column == "hours" or values.isna().any():
        row, value = int(np.flatnonzero(values.isna())[0]), 3
    elif column in ("group", "city", "state"):
        row = 5
        value = next(v for v in values if v != values.iloc[5])
    elif column == "bmi":
        row, value = 5, values.iloc[5] + 5
    else:
        row, value = 5, (values.iloc[5] + 7) % max(values)
    table.loc[row, column] = value
    return table


@pytest.mark.parametrize("case", [name for name, (_, _, column) in PLANTED.items() if column])
def test_one_broken_row_of_many_is_enough_not_to_say_every_row(case: str) -> None:
    make, sentence, column = PLANTED[case]
    sentences = said(break_one_row(make(), column))
    assert not any(sentence in each for each in sentences), sentences


def test_what_holds_in_nearly_all_rows_says_its_share() -> None:
    table = make_product()
    table.loc[:14, "paid"] += 500
    (sentence,) = [s for s in said(table) if "paid" in s]
    assert sentence == "`paid` is `tenure * monthly` within 1 % in 99.5 % of 3,000 rows: `derive`?"
    table.loc[:59, "paid"] += 500
    assert not [s for s in said(table) if "paid" in s]


@pytest.mark.parametrize("seed", range(3))
def test_unrelated_columns_get_no_advice(seed: int) -> None:
    table, planted = MADE["noise"](np.random.default_rng(100 + seed))
    assert not planted and said(table) == []
    assert said(table[:400].reset_index(drop=True)) == []


def test_dates_are_not_compared_where_the_spec_cannot() -> None:
    spec, rows = read_sample(make_stay())
    assert {f.kind for f in advise(spec, rows).findings} == {"order", "compare"}
    assert {f.kind for f in advise(spec, rows, compares=False).findings} == {"order"}


def test_few_rows_get_no_advice() -> None:
    assert said(make_codes()[: LEAST_ROWS - 1]) == [] and said(make_truths()[:100]) == []
    nearly_constant = make_truths().assign(e401k=True, p401k=rng().random(ROWS) < 0.002)
    assert said(nearly_constant) == []


def test_a_constant_and_what_a_chain_says_are_left_out() -> None:
    sentences = said(make_codes().assign(country="x"))
    assert len(sentences) == 2 and not any("country" in s or ("from `code`" in s and "state" in s) for s in sentences)


def test_what_rules_and_compared_columns_say_is_left_out() -> None:
    rows = sorted({(f"c{i // 5}", i // 20) for i in range(200)})
    rules = [{"lookup": {"from": "city", "to": "state", "rows": rows}}]
    assert [s[:6] for s in said(make_codes(), rules=rules)] == ["`city`"]
    assert said(make_truths(), rules=[{"never": "p401k and not e401k"}]) == []
    assert said(make_sum(), rules=[{"derive": {"gross": "base + bonus"}}]) == []
    stays = make_stay()
    assert said(stays, compare=[["came", "left"]], rules=[{"never": "left < came"}]) == []


@pytest.mark.parametrize("name", [name for name in MADE if name != "noise"])
def test_the_yaml_is_accepted_once_its_todos_are_filled(name: str, tmp_path: Path) -> None:
    """Everything at once, in one spec: the sources by hand, the lookups by tables beside the spec."""
    table, _ = MADE[name](np.random.default_rng(0))
    advice = advise_on(table)
    spec = make_spec(name, table)
    start = json.dumps(json.loads(spec.model_dump_json(exclude_defaults=True)))[1:-1]
    sections = {f.section: "" for f in advice.findings}
    for number, finding in enumerate(advice.findings):
        text = finding.as_yaml()
        if finding.kind == "dependency":
            of = [*finding.columns]
            table[of].drop_duplicates().to_csv(tmp_path / f"{number}.csv", index=False)
            text = text.replace("table: TODO", f"table: {number}.csv")
        sections[finding.section] += text + "\n"
    yaml = "\n".join(f'"{section}":\n{text}' for section, text in sections.items())
    file = tmp_path / "spec.yaml"
    top = "\n".join(f"{k}: {json.dumps(v, default=str)}" for k, v in json.loads("{" + start + "}").items())
    file.write_text(f"{top}\n{yaml}")
    with pytest.raises(RequestError, match=r"rules\[0\]\.source still says TODO|still says TODO"):
        load_spec(file)
    file.write_text(f"{top}\n{yaml}".replace("source: TODO", "source: the codebook"))
    loaded = load_spec(file)
    assert all(rule.source == "the codebook" for rule in loaded.rules)
    report = privsyn.check_spec(loaded, pa.Table.from_pandas(table, preserve_index=False))
    assert report.fit is not None
    left = {frozenset(f.columns) for f in report.fit.advice.findings}
    assert not left & {frozenset(f.columns) for f in advice.findings}, left


def test_advice_is_private(caplog: pytest.LogCaptureFixture) -> None:
    """It stands in the fit, which is marked, and nowhere else: no repr, no log, no public part of the JSON."""
    caplog.set_level(logging.DEBUG)
    table = make_truths()
    report = privsyn.check_spec(make_spec_of(describe(table)), pa.Table.from_pandas(table, preserve_index=False))
    assert report.fit is not None
    (finding,) = report.fit.advice.findings
    for text in (repr(report), repr(report.fit), repr(report.fit.advice), report._repr_html_(), caplog.text):
        assert "implies" not in text and "p401k and" not in text
    assert "implies" not in repr(finding)
    content = json.loads(json.dumps(report.as_json(), default=str))
    fit = content.pop("fit")
    assert fit["private"] is True and fit["advice"]["private"] is True
    assert fit["advice"]["findings"][0]["yaml"] == "  - never: p401k and not e401k\n    source: TODO"
    assert "implies" not in json.dumps(content)
    no_table = privsyn.check_spec(make_spec_of(describe(table)))
    assert no_table.fit is None and "advice" not in json.dumps(no_table.as_json(), default=str)


def test_a_sample_is_spread_evenly_and_bounded() -> None:
    sample = RowSample(limit=1_000)
    spec = ReleaseSpec.model_validate(
        make_spec_of({"n": {"kind": "integer", "min": 0, "max": 9_999}}).model_dump(exclude_unset=True)
    )
    for start in range(0, 10_000, 700):
        end = min(start + 700, 10_000)
        sample.add(pa.RecordBatch.from_pydict({"n": pa.array(range(start, end))}))
    kept = np.asarray(sample.read(plan(spec).row_plan.codecs)["n"])
    assert 500 <= len(kept) <= 1_000 and set(np.diff(kept)) == {16.0}


def test_batches_may_have_other_types_and_values() -> None:
    sample = RowSample()
    spec = make_spec_of(
        {"n": {"kind": "integer", "min": 0, "max": 99}, "c": {"kind": "categorical", "values": ["a", "b"]}}
    )
    for number, code in ((pa.array([1, 2]), pa.array(["a", "a"])), (pa.array(["3", "4"]), pa.array(["b", "a"]))):
        sample.add(pa.RecordBatch.from_pydict({"n": number, "c": code.dictionary_encode()}))
    read = sample.read(plan(spec).row_plan.codecs)
    assert read["n"].to_pylist() == [1, 2, 3, 4] and read["c"].to_pylist() == ["a", "a", "b", "a"]
    assert RowSample().read(plan(spec).row_plan.codecs) == {}


def test_it_takes_few_seconds() -> None:
    table, _ = MADE["noise"](np.random.default_rng(0))
    spec, rows = read_sample(table)
    start = time.process_time()
    advise(spec, rows)
    assert time.process_time() - start < SECONDS
