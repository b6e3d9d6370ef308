"""Rules over rows and over codes: held against SQLite, against each other, and against what is released."""

from __future__ import annotations

import re
import sqlite3
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

import privsyn
from privsyn.data_contracts.frozen_model import FieldError
from privsyn.specs.yaml_file import parse_yaml
from privsyn.tasks.codecs import plan, plan_every_column
from privsyn.tasks.codecs.cells import AttributeBins
from privsyn.tasks.estimation.known_zeros import build_known_zeros
from privsyn.tasks.estimation.recode import compress_attribute
from privsyn.tasks.rules.repair import check_feasible, find_valid_row, repair_rows
from tests.support.examples import choose_example_count, keep_first
from tests.support.ruled import COLUMNS, CONDITIONS, RULES, people, ruled_spec
from tests.support.specs import make_spec

ROWS = people(400, seed=3)


@pytest.fixture(scope="module")
def sql() -> sqlite3.Connection:
    """The rows in a database whose meaning of null is the one that rules promise."""
    base = sqlite3.connect(":memory:")
    table = ROWS.assign(hired=ROWS.hired.astype(str), **{c: ROWS[c].astype(float) for c in ("age", "educ")})
    table.loc[::7, "marital"] = None
    table.to_sql("people", base, index=False)
    base.create_function("floor", 1, lambda x: None if x is None else float(np.floor(x)))
    base.create_function("mod_", 2, lambda a, b: None if a is None or not b else a - b * np.floor(a / b))
    return base


@given(condition=CONDITIONS)
@settings(max_examples=choose_example_count(150), deadline=None)
def test_a_condition_means_what_it_means_in_sql(sql: sqlite3.Connection, condition: str) -> None:
    spec = ruled_spec([{"never": condition}])
    table = ROWS.copy()
    table.loc[::7, "marital"] = None
    columns = {name: pa.array(table[name], from_pandas=True) for name in ("age", "educ", "wage", "marital")}
    book = plan(spec).rules
    assert book is not None
    broken = book.find_broken_rows(columns)[0]
    expected = sql.execute(f"select ({condition.replace('age % 7', 'mod_(age, 7)')}) is true from people").fetchall()
    assert broken.tolist() == [bool(row[0]) for row in expected]


@pytest.mark.slow
@given(condition=CONDITIONS, seed=st.integers(0, 1000))
@settings(max_examples=choose_example_count(100), deadline=None)
def test_a_forbidden_cell_holds_no_row_that_may_be(condition: str, seed: int) -> None:
    """Where codes are said to be surely broken, every row that is decoded from them is."""
    made = plan(ruled_spec([{"never": condition}]))
    assert made.rules is not None
    rng = np.random.default_rng(seed)
    codes = {c.attribute: rng.integers(c.size, size=300) for c in made.codecs}
    columns = made.decode(codes, rng)
    broken = made.rules.find_broken_rows(columns)
    cells = {name: c for codec in made.codecs for name, c in codec.value_bounds().items()}
    for i, found in enumerate(made.rules.conditions):
        codecs = [c for c in made.codecs if set(c.ranges()) & set(found.needs)]
        surely = made.rules.find_impossible_cells(found, cells, [tuple(c.ranges()) for c in codecs])
        surely = np.broadcast_to(surely, [c.size for c in codecs])
        assert broken[i][surely[tuple(codes[c.attribute] for c in codecs)]].all()


def test_thresholds_are_bin_edges_and_codes_on_one_side_are_surely_forbidden() -> None:
    made = plan(ruled_spec())
    labels = made.labels()["age"]
    assert any(label.startswith("15") for label in labels)
    zeros = build_known_zeros(made, {c.attribute: _whole(c.groups) for c in made.codecs})
    forbidden = dict(zeros.tables)[("age", "wage", "marital")]
    below = [i for i, codec in enumerate(made.codecs[0].groups) if made.codecs[0].values(fine=True)[i] < 15]  # type: ignore[index]
    coarse = sorted({int(made.codecs[0].groups[i]) for i in below})
    assert forbidden[coarse, :-1, :].all()  # with a wage
    assert not forbidden[coarse, -1, 0].any()  # without one, never married


def _whole(groups: Any) -> Any:
    from privsyn.data_contracts.mechanism_options import Compression

    return compress_attribute(np.full(len(groups), 1000), 1.0, AttributeBins(groups), Compression(enabled=False))


@given(rules=st.lists(CONDITIONS.map(lambda c: {"never": c}), min_size=1, max_size=4), seed=st.integers(0, 1000))
@settings(max_examples=choose_example_count(12), deadline=None)
def test_no_mended_row_breaks_a_rule(rules: list[dict[str, str]], seed: int) -> None:
    """Random rules with the fixed derived column and dummies: from any codes, however bad."""
    made = plan(ruled_spec([RULES[0], RULES[4], *rules]))
    try:
        check_feasible(made)
    except FieldError:
        assume(False)
    assert made.rules is not None
    rng = np.random.default_rng(seed)
    codes = {c.attribute: rng.integers(c.size, size=500) for c in made.codecs}
    columns = made.decode(codes, rng)
    make_valid_row = lambda given: find_valid_row(made, given) or {}  # noqa: E731
    mended = repair_rows(codes, columns, lambda c: made.decode(c, rng), made.rules, made.codecs, make_valid_row, rng)
    assert not made.rules.find_broken_rows(mended).any()
    table = pa.table(mended).to_pandas()
    assert (table.exper == table.age - table.educ - 6).all()
    assert (table.east.astype(int) + table.north == 1).all()


def test_rows_that_keep_the_rules_are_not_touched() -> None:
    made = plan(ruled_spec())
    assert made.rules is not None
    rng = np.random.default_rng(5)
    codes = {c.attribute: rng.integers(c.size, size=2000) for c in made.codecs}
    columns = made.decode(codes, rng)
    fine = ~made.rules.find_broken_rows(columns).any(axis=0)
    before = pa.table(columns)
    mended = repair_rows(codes, dict(columns), lambda c: made.decode(c, rng), made.rules, made.codecs, dict, rng)
    assert 0 < fine.sum() < 2000
    assert pa.table(mended).filter(pa.array(fine)).equals(before.filter(pa.array(fine)))


def test_a_batch_without_one_possible_row_is_mended_by_the_row_that_was_found_before() -> None:
    made = plan(ruled_spec([{"never": "age > 1"}]))
    assert made.rules is not None
    codes = {c.attribute: np.full(20, c.size - 1) for c in made.codecs}
    rng = np.random.default_rng(0)
    columns = made.decode(codes, rng)
    mended = repair_rows(
        codes,
        columns,
        lambda c: made.decode(c, rng),
        made.rules,
        made.codecs,
        lambda given: find_valid_row(made, given) or {},
        rng,
    )
    assert max(mended["age"].to_pylist()) <= 1


@pytest.mark.parametrize(
    ("rules", "place", "said"),
    [
        ([{"never": "age >= 0"}], ("rules", 0), "no row was found that keeps it: never age >= 0"),
        ([{"never": "age < 50"}, {"never": "age >= 50"}], ("rules", 1), "keeps both it and rule 1"),
        ([{"derive": {"exper": "age + 200"}}], ("rules", 0), "outside its column's domain"),
        (
            [{"never": "age < 80"}, {"never": "educ < 20"}, {"never": "age + educ > 99"}],
            ("rules", 2),
            "no row was found that keeps it and the rules before it",
        ),
    ],
)
def test_rules_that_leave_no_row_are_named(rules: list[dict[str, Any]], place: tuple[Any, ...], said: str) -> None:
    with pytest.raises(FieldError) as refused:
        check_feasible(plan(ruled_spec(rules)))
    assert refused.value.place == place
    assert said in str(refused.value)


def test_a_lookup_gives_what_the_table_says_and_forbids_what_it_lacks() -> None:
    lookup = {"from": ["marital", "east"], "to": ["educ"], "rows": [["married", True, 3], ["widowed", False, 4]]}
    made = plan(ruled_spec([{"lookup": lookup}]))
    assert made.rules is not None
    table = {
        "marital": pa.array(["married", "married", "widowed", None]),
        "east": pa.array([True, False, False, True]),
    }
    assert made.rules.compute_columns(table, {"educ": pa.int64()})["educ"].to_pylist() == [3, None, 4, None]
    assert made.rules.find_broken_rows(table).any(axis=0).tolist() == [False, True, False, True]


def test_a_column_with_the_name_of_the_dummies_attribute_is_refused() -> None:
    columns = {name: {"kind": "boolean"} for name in ("east", "north", "one of east, north", "wet")}
    with pytest.raises(ValidationError, match="'one of east, north' has the name that the counts need"):
        make_spec(columns, rules=[{"one_of": ["east", "north"]}])
    make_spec(columns, rules=[{"one_of": ["north", "east"]}])


def test_dummies_are_one_attribute_that_gives_each_column_its_type() -> None:
    made = plan(ruled_spec([{"one_of": ["east", "north"], "or_none": True}]))
    codec = next(c for c in made.codecs if len(c.sources) == 2)
    columns = {"east": pa.array([True, False, True, None]), "north": pa.array(["0", "1", "1", "x"])}
    codes, repairs = codec.encode(columns)
    assert codes.tolist() == [0, 1, 0, 2]
    assert repairs["not exactly one"] == 1
    decoded = codec.decode(np.array([0, 1, 2]), np.random.default_rng(0))
    assert decoded["east"].to_pylist() == [True, False, False]
    assert decoded["north"].to_pylist() == [0, 1, 0]
    assert decoded["north"].type == pa.int64()


def test_what_private_rows_break_is_counted_and_they_are_counted_as_they_are() -> None:
    from privsyn.tasks.codecs.encode_rows import Repairs, encode_batch

    made, repairs = plan(ruled_spec()), Repairs()
    batch = pa.RecordBatch.from_pandas(ROWS[list(COLUMNS)], preserve_index=False)
    codes = encode_batch(batch, made, repairs)
    child = (ROWS.age < 15) & (ROWS.wage.notna() | (ROWS.marital != "never married"))
    assert repairs.counts["rules[1]", f"never {RULES[1]['never']}"] == child.sum() > 0
    assert (
        repairs.counts["rules.exper", "'exper' is another than computed"]
        == (ROWS.exper != ROWS.age - ROWS.educ - 6).sum()
        > 0
    )
    wages = pd.Series(codes.column("wage").to_numpy()) == made.domain.size("wage") - 1
    assert (wages == ROWS.wage.isna()).all()


@pytest.mark.parametrize(
    ("column", "condition", "edge", "forbidden"),
    [
        (
            {"kind": "date", "min": "2000-01-01", "max": "2009-12-31"},
            "x < '2004-05-06'",
            12544.0,
            lambda x: x.year < 2004,
        ),
        (
            {"kind": "date", "min": "2000-01-01", "max": "2009-12-31"},
            "x > '2004-05-06'",
            12545.0,
            lambda x: x.year > 2004,
        ),
        ({"kind": "time", "format": "hhmm"}, "x >= 1015", 615.0, lambda x: x >= 1015),
        ({"kind": "time", "format": "HH:MM"}, "x < '10:15'", 615.0, lambda x: (x.hour, x.minute) < (10, 15)),
        ({"kind": "time", "format": "seconds"}, "x < 70", 70.0, lambda x: x < 70),
        ({"kind": "integer", "min": 0, "max": 900, "exact": [999]}, "x > 900", 901.0, lambda x: x == 999),
    ],
)
def test_days_times_and_exact_values_are_what_they_are_released_as(
    column: dict[str, Any], condition: str, edge: float, forbidden: Any
) -> None:
    made = plan(make_spec({"x": column, "y": {"kind": "boolean"}}, rules=[{"never": condition}]))
    assert made.rules is not None
    assert edge in made.rules.thresholds["x"]
    codes = {c.attribute: np.arange(c.size).repeat(3) for c in made.codecs}
    table = made.codecs[0].decode(codes["x"], np.random.default_rng(0))
    broken = made.rules.find_broken_rows(table)[0]
    assert 0 < broken.sum() < broken.size
    assert all(b or not forbidden(x) for b, x in zip(broken, table["x"].to_pylist(), strict=True))
    surely = made.rules.find_impossible_cells(made.rules.conditions[0], made.codecs[0].value_bounds(), [("x",)])
    assert (surely.repeat(3) == broken).all()  # its threshold is an edge: every code is on one side


PAGE = (Path(__file__).parents[4] / "docs" / "rules.md").read_text()
EXAMPLES = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)


@pytest.mark.parametrize("text", keep_first(EXAMPLES, 4), ids=lambda text: text.split(":")[1].strip())
def test_no_released_row_breaks_a_rule(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PRIVSYN_LEDGER", str(tmp_path / "ledger.sqlite"))
    content: dict[str, Any] = dict(parse_yaml(text, "the example").content)
    spec = make_spec(content["columns"], rules=content["rules"], data="")
    rng = np.random.default_rng(1)
    columns = plan_every_column(spec)  # private rows of any kind: most of them break the rules
    private = pa.table(columns.decode({c.attribute: rng.integers(c.size, size=1500) for c in columns.codecs}, rng))
    release = privsyn.release(private, spec, out=tmp_path)
    rules = plan(spec).rules
    assert rules is not None
    table = {name: release.table[name].combine_chunks() for name in release.table.column_names}
    assert release.table.num_rows > 1000
    assert not rules.find_broken_rows(table).any()
    assert not any(rows.any() for rows in rules.find_differing_rows(table).values())
