"""Rules across rows of a person: what they mean, held against SQL's window functions, and how rows keep them."""

from __future__ import annotations

from typing import Any

import duckdb
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from privsyn.data_contracts.frozen_model import FieldError
from privsyn.tasks.codecs import EncodingPlan, plan
from privsyn.tasks.panels.allowed_codes import draw_allowed
from privsyn.tasks.panels.link_rows import draw_codes
from privsyn.tasks.rules.compiled_rules import PersonRows
from privsyn.tasks.steps.decode_linked import _Decoder, _make_random_persons, check_persons_feasible
from tests.support.examples import choose_example_count
from tests.support.panels import PANEL_COLUMNS, make_panel_spec

COLUMNS: dict[str, Any] = {
    **PANEL_COLUMNS,
    "income": {**PANEL_COLUMNS["income"], "nullable": True},
    "end": {"kind": "integer", "min": 2000, "max": 2012},
}

SPELLS = {**COLUMNS, "start": COLUMNS["end"]}

_OPERANDS = st.sampled_from(
    ["income", "previous.income", "next.income", "first.income", "end", "previous.end", "year", "next.year"]
)
_SIGNS = st.sampled_from(["<", "<=", ">", "==", "!="])
_COMPARISONS = st.tuples(_OPERANDS, _SIGNS, _OPERANDS | st.just("30")).map(" ".join)
_COMPARISONS |= st.sampled_from(
    [
        "previous.job == job",
        "job == 'none' and previous.job == 'full'",
        "previous.income is null and income is not null",
        "count(job == 'none') > 1",
        "income > previous.income + 20",
        "next.end < end",
    ]
)
CONDITIONS = st.tuples(_COMPARISONS, st.sampled_from(["and", "or"]), _COMPARISONS).map(" ".join) | _COMPARISONS


def make_plan(*rules: str, **changes: Any) -> EncodingPlan:
    return plan(make_panel_spec(columns=COLUMNS, rules=[{"never": rule} for rule in rules], **changes))


def make_rows(seed: int, persons: int = 60) -> pd.DataFrame:
    """Rows person by person and in order, with nulls and persons of one row."""
    rng = np.random.default_rng(seed)
    many = rng.integers(1, 6, persons)
    rows = int(many.sum())
    return pd.DataFrame(
        {
            "pid": np.repeat(np.arange(persons), many),
            "year": np.concatenate([2000 + np.sort(rng.choice(10, n, replace=False)) for n in many]),
            "income": np.where(rng.random(rows) < 0.2, np.nan, np.round(rng.uniform(0, 60, rows), 0)),
            "job": rng.choice(["none", "part", "full"], rows),
            "end": rng.integers(2000, 2012, rows),
        }
    )


def find_broken(made: EncodingPlan, rows: pd.DataFrame) -> np.ndarray:
    assert made.rules is not None
    table = {name: pa.array(rows[name], from_pandas=True) for name in ("year", "income", "job", "end")}
    return made.rules.find_broken_persons(table, np.diff(rows["pid"], prepend=-1) != 0)


@given(condition=CONDITIONS, seed=st.integers(0, 1000))
@settings(max_examples=choose_example_count(50), deadline=None)
def test_a_condition_means_what_window_functions_of_sql_mean(condition: str, seed: int) -> None:
    made = make_plan(condition)
    assert made.rules is not None
    assume(made.rules.across)
    rows = make_rows(seed)
    words = {"previous": "lag({0}) over w", "next": "lead({0}) over w", "first": "first_value({0}) over w"}
    windows = ", ".join(
        f"{call.format(name)} as {word}_{name}"
        for word, call in words.items()
        for name in ("income", "end_", "year", "job")
    )
    sql = condition.replace("count(job == 'none')", "many").replace("end", "end_").replace("==", "=")
    for word in words:
        sql = sql.replace(f"{word}.", f"{word}_")
    table = rows.rename(columns={"end": "end_"})
    with duckdb.connect() as database:
        database.register("rows", table)
        query = (
            f"select ({sql}) is true from (select *, {windows}, "
            "sum((job = 'none')::int) over (partition by pid) as many from rows "
            "window w as (partition by pid order by year)) order by pid, year"
        )
        expected = [row[0] for row in database.execute(query).fetchall()]
    assert find_broken(made, rows)[0].tolist() == expected


@given(conditions=st.lists(CONDITIONS, min_size=1, max_size=3), seed=st.integers(0, 1000), size=st.integers(1, 5))
@settings(max_examples=choose_example_count(15), deadline=None)
def test_no_decoded_row_breaks_a_rule(conditions: list[str], seed: int, size: int) -> None:
    """From any codes, however bad: rows are mended, and persons left out that could not be."""
    made = make_plan(*conditions, "income > 90")
    assert made.rules is not None
    try:
        check_persons_feasible(made)
    except FieldError:
        assume(False)
    rng = np.random.default_rng(seed)
    table = _Decoder(made, _make_random_persons(made, size, rng), rng).decode()
    person = np.asarray(table["pid"])
    first = np.diff(person, prepend=-1) != 0
    assert not made.rules.find_broken_persons(table, first).any()
    assert not made.rules.find_broken_rows(table).any()
    rows = pd.DataFrame({name: values.to_pandas() for name, values in table.items()})
    assert (rows.groupby("pid").size() == size).all()
    assert (rows.groupby("pid")["sex"].nunique() == 1).all()
    assert (rows.groupby("pid")["year"].diff().dropna() > 0).all()


def test_next_to_no_person_is_left_out_where_equal_values_keep_the_rule() -> None:
    made = make_plan("income < previous.income", "previous.income is not null and income is null")
    rng = np.random.default_rng(3)
    table = _Decoder(made, _make_random_persons(made, 5, rng), rng).decode()
    assert len(table["pid"]) > 0.95 * 500 * 5


def test_values_that_keep_the_rule_stay() -> None:
    """Of persons none of whose rows breaks a rule, no value changes."""
    free, ruled = make_plan(), make_plan("job == 'none' and previous.job == 'full'")
    codes = _make_random_persons(ruled, 3, np.random.default_rng(1))
    plain = pd.DataFrame(pa.table(_Decoder(free, codes, np.random.default_rng(2)).decode()).to_pandas())
    kept = pd.DataFrame(pa.table(_Decoder(ruled, codes, np.random.default_rng(2)).decode()).to_pandas())
    before = plain.groupby("pid")["job"].shift()
    broken = ((plain["job"] == "none") & (before == "full")).groupby(plain["pid"]).transform("any")
    assert 0.1 < broken.mean() < 0.9
    untouched = plain[~broken]
    assert kept[kept["pid"].isin(untouched["pid"])].reset_index(drop=True).equals(untouched.reset_index(drop=True))
    both = kept.merge(plain, on=["pid", "year"], suffixes=("", "_before"))
    assert (both["income"] == both["income_before"])[both["income_before"].notna()].all()


def test_which_row_a_word_names() -> None:
    rows = PersonRows(
        np.array([True, False, False, True, True, False]),
        {"head": np.array([False, True, True, False, True, False])},
    )
    found = {word: rows.find_rows(word) for word in ("previous", "next", "first", "head")}
    named = {word: np.where(known, places, -1).tolist() for word, (places, known) in found.items()}
    assert named["previous"] == [-1, 0, 1, -1, -1, 4]
    assert named["next"] == [1, 2, -1, -1, 5, -1]
    assert named["first"] == [0, 0, 0, 3, 4, 4]
    assert named["head"] == [1, 1, 1, -1, 4, 4]
    assert rows.count(np.array([True, False, True, False, True, True])).tolist() == [2, 2, 2, 0, 2, 2]


@pytest.mark.slow
def test_a_rule_may_count_rows_and_name_no_column() -> None:
    made = make_plan("count(true) > 3")
    rows = make_rows(0)
    assert find_broken(made, rows)[0].tolist() == (rows.groupby("pid")["pid"].transform("size") > 3).tolist()
    check_persons_feasible(made)
    with pytest.raises(FieldError, match="no person of two or more rows"):
        check_persons_feasible(make_plan("count(true) > 1"))


def test_forbidden_codes_are_not_drawn_and_the_others_as_often_as_before() -> None:
    probabilities = np.array([[0.5, 0.3, 0.2], [0.0, 1.0, 0.0]])
    before = np.repeat(np.array([0, 1], np.uint8), 3_000)
    allowed = np.ones((6_000, 3), bool)
    allowed[:1_000, 0] = False
    allowed[3_000:4_000, 1] = False  # nothing is left: the rule is kept when rows are decoded
    codes, expected = draw_allowed(draw_codes, probabilities, before, allowed, np.random.default_rng(0))
    assert codes.dtype == np.uint8
    assert np.bincount(codes[:1_000], minlength=3).tolist() == [0, 600, 400]
    assert np.bincount(codes[1_000:3_000], minlength=3).tolist() == [1_000, 600, 400]
    assert (codes[3_000:] == 1).all()
    assert np.allclose(expected, [[1_000, 1_200, 800], [0, 3_000, 0]])


@pytest.mark.parametrize(
    ("rule", "words"),
    [
        ("previous.salary > 1", "names 'salary', which is not a released column"),
        ("before.income > 1", "has 'before' before a point, which is neither a row nor a table"),
        ("previous.job == 'nome'", "'nome' is not one of the values of 'job'"),
        ("previous.job > 3", "compares a text with a number"),
        ("previous.income.x > 1", "`previous.income.x` has no meaning here"),
        ("previous.previous.age > 1", "count(); and one of previous, next, first before a point and a column"),
        ("count(income) > 1", "is a number where a condition must stand"),
        ("previous.pid > 3", "names 'pid', which is not a released column"),
    ],
)
def test_what_cannot_be_read_is_refused_in_one_sentence(rule: str, words: str) -> None:
    with pytest.raises(ValidationError) as error:
        make_plan(rule)
    assert words in str(error.value)


@pytest.mark.parametrize("rule", ["previous.income > income", "count(income > 3) > 1"])
def test_rows_that_are_not_linked_have_no_others(rule: str) -> None:
    with pytest.raises(ValidationError, match="and the spec does not link rows"):
        make_plan(rule, order=None, constant=[], with_order=[])


@pytest.mark.slow
def test_rules_that_nobody_can_keep_are_refused() -> None:
    with pytest.raises(FieldError, match="no person of two or more rows was found that keeps it") as error:
        check_persons_feasible(make_plan("income is null", "previous.year < 2020"))
    assert error.value.place == ("rules", 1)
    with pytest.raises(FieldError, match="was found that keeps all rules across rows"):
        check_persons_feasible(make_plan("previous.end < end", "previous.end >= end"))
    check_persons_feasible(make_plan("previous.end < end", "previous.end > end"))


@pytest.mark.slow
def test_columns_that_follow_from_another_row_are_computed() -> None:
    """Along a whole person, inside the domain; the first row has the value that was made."""
    rules = [{"derive": {"end": "previous.end + (year - previous.year)"}}, {"never": "end < year - 5"}]
    made = plan(make_panel_spec(columns=COLUMNS, rules=rules))
    assert made.rules is not None
    assert "end" in made.following
    check_persons_feasible(made)
    rng = np.random.default_rng(0)
    table = pa.table(_Decoder(made, _make_random_persons(made, 4, rng), rng).decode()).to_pandas()
    assert len(table) > 1_000
    before = table.groupby("pid").shift()
    assert (table["end"] - before["end"])[before["end"].notna()].equals(
        (table["year"] - before["year"])[before["end"].notna()]
    )
    assert table["end"].between(2000, 2012).all()
    assert (table["end"] >= table["year"] - 5).all()


def test_columns_follow_from_another_row_without_any_search() -> None:
    """Through computed columns, too; what a row has instead, or has not, breaks the rule."""
    rules = [{"derive": {"end": "`previous`.start + 1"}}, {"derive": {"start": "end + 1"}}]
    made = plan(make_panel_spec(columns=SPELLS, rules=rules))
    assert made.rules is not None
    given = {name: pa.array([2000, 2000, 2000, None, 2000], pa.int64()) for name in ("start", "end")}
    first, ranges = np.array([True, False, False, True, False]), made.ranges()
    others = {name: pa.nulls(5, ranges[name].type) for name in made.rules.columns if name not in given}
    found = made.rules.continue_columns({**others, **given}, first, ranges)
    assert found["end"].to_pylist() == [2000, 2002, 2004, None, 2000]
    assert found["start"].to_pylist() == [2001, 2003, 2005, None, 2001]
    assert not made.rules.find_broken_persons({**others, **found}, first).any()
    lacking = {**others, **found, "end": pa.array([2000, 2002, None, None, 2000], pa.int64())}
    assert made.rules.find_broken_persons(lacking, first).any(axis=0).tolist() == [False, False, True, False, False]


@pytest.mark.parametrize(
    ("derived", "words"),
    [
        ({"income": "count(job == 'none')"}, "follows from a member's role or a count"),
        ({"year": "previous.year + 1"}, "is derived from another row, so it cannot be the order"),
        ({"income": "income + previous.income"}, "is derived from itself"),
        ({"job": "previous.income"}, "'job' is a text"),
        ({"income": "previous.income + count(job == 'none')"}, "follows from a member's role or a count"),
        ({"income": "first.income + 1"}, "is derived from itself"),
        ({"end": "previous.income + start", "start": "end + 1"}, "are computed from each other"),
        ({"end": "next.start + 1", "start": "previous.end + 1"}, "are computed from each other"),
        ({"end": "previous.end + next.end"}, "are computed from each other"),
    ],
)
def test_what_no_row_can_follow_from_is_refused(derived: dict[str, str], words: str) -> None:
    with pytest.raises(ValidationError) as error:
        make_panel_spec(columns=SPELLS, rules=[{"derive": derived}])
    assert words in str(error.value)
