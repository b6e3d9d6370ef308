"""Contracts in Great Expectations: what each kind of expectation finds, in its own words."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from privsyn.base.errors import ContractError
from privsyn.data_contracts import tables
from privsyn.data_contracts.artifacts import Zone
from privsyn.data_contracts.receipts import Query, sum_rho
from privsyn.data_contracts.tables import Expectation, TableContract
from privsyn.engine import step_tables as checks
from tests.support.examples import choose_example_count
from tests.support.places import ROOT

GOOD = pa.table({"a": [1, 2], "b": [1.0, 2.0], "c": [True, True]})
BROKEN = {
    "expect_column_values_to_not_be_null": ("a", pa.array([1, None], pa.int64())),
    "expect_column_values_to_be_unique": ("a", pa.array([1, 1])),
    "expect_column_min_to_be_between": ("b", pa.array([0.5, 2.0])),
    "expect_column_max_to_be_between": ("a", pa.array([1, 9])),
    "expect_compound_columns_to_be_unique": ("a, b", None),
}
ASKED = (
    Expectation("expect_column_values_to_not_be_null", {"column": "a"}),
    Expectation("expect_column_values_to_be_unique", {"column": "a"}),
    Expectation("expect_column_min_to_be_between", {"column": "b", "min_value": 1}),
    Expectation("expect_column_max_to_be_between", {"column": "a", "min_value": 0, "max_value": 2}),
    Expectation("expect_compound_columns_to_be_unique", {"column_list": ["a", "b"]}),
    Expectation("expect_column_min_to_be_between", {"column": "c", "min_value": True}),
)
CONTRACT = TableContract("few", Zone.PRIVATE, GOOD.schema, ASKED)


def broken(kind: str) -> pa.Table:
    """A table that breaks this kind of expectation."""
    column, values = BROKEN[kind]
    if values is None:
        return pa.table({"a": [1, 1], "b": [1.0, 1.0], "c": [True, True]})
    return GOOD.set_column(GOOD.column_names.index(column), column, values)


def test_a_good_table_passes() -> None:
    checks.check_table(CONTRACT, GOOD)


@pytest.mark.parametrize("kind", BROKEN)
def test_what_is_broken_is_named_by_its_column_and_expectation(kind: str) -> None:
    with pytest.raises(ContractError) as caught:
        checks.check_table(CONTRACT, broken(kind))
    assert {"table": "few", "column": BROKEN[kind][0], "expectation": kind} in caught.value.failures


def test_false_is_found_where_all_must_be_true() -> None:
    with pytest.raises(ContractError) as caught:
        checks.check_table(CONTRACT, GOOD.set_column(2, "c", pa.array([True, False])))
    assert caught.value.failures == [{"table": "few", "column": "c", "expectation": "expect_column_min_to_be_between"}]


def test_a_profile_with_a_null_breaks_its_contract() -> None:
    """A smallest value is found beside a null, so nulls are told apart by an expectation of their own."""
    good = {"column": ["x"], "rows": [1], "unwanted_nulls": [0], "outside": [0], "type_matches": [True]}
    checks.check_table(tables.ENCODED_ROWS, pa.table(good, tables.PROFILE_SCHEMA))
    for name in good:
        if name != "rows":
            with pytest.raises(ContractError):
                checks.check_table(tables.ENCODED_ROWS, pa.table({**good, name: [None]}, tables.PROFILE_SCHEMA))


@pytest.mark.parametrize("kind", [*BROKEN, None])
def test_great_expectations_is_asked_about_what_arrow_doubts_and_nothing_else(
    kind: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    original = checks._ask_great_expectations

    def counted(expectations: Sequence[Expectation], table: pa.Table) -> list[bool]:
        asked.extend(e.type for e in expectations)
        return original(expectations, table)

    monkeypatch.setattr(checks, "_ask_great_expectations", counted)
    if kind is None:
        checks.check_table(CONTRACT, GOOD)
        assert asked == []
        return
    with pytest.raises(ContractError):
        checks.check_table(CONTRACT, broken(kind))
    assert kind in asked and len(asked) < len(ASKED)


def test_an_expectation_that_arrow_is_not_taught_is_asked_of_great_expectations() -> None:
    for expectation, holds in (
        (Expectation("expect_column_mean_to_be_between", {"column": "a", "min_value": 1, "max_value": 2}), True),
        (Expectation("expect_column_mean_to_be_between", {"column": "a", "min_value": 5}), False),
        (Expectation("expect_column_max_to_be_between", {"column": "a", "max_value": 2, "strict_max": True}), False),
    ):
        assert not checks.surely_holds(expectation, GOOD)
        assert checks._ask_great_expectations([expectation], GOOD) == [holds]


def test_what_only_arrow_finds_broken_is_refused_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "_ask_great_expectations", lambda expectations, table: [True] * len(expectations))
    for validate in (None, checks.validate_with_great_expectations):
        with pytest.raises(ContractError, match="a: expect_column_values_to_be_unique"):
            checks.check_table(CONTRACT, broken("expect_column_values_to_be_unique"), validate)


@pytest.mark.parametrize("kind", [*BROKEN, None])
def test_in_full_great_expectations_is_asked_of_every_rule_and_gives_the_quick_verdicts(kind: str | None) -> None:
    table = GOOD if kind is None else broken(kind)
    quick, full = (
        validate(CONTRACT.name, CONTRACT.expectations, table)
        for validate in (checks.validate_quickly, checks.validate_with_great_expectations)
    )
    assert quick == full and len(full) == len(CONTRACT.expectations)
    assert all(verdict.held for verdict in full) == (kind is None)


def test_great_expectations_holds_receipts_to_the_stage_s_total() -> None:
    queries = [Query(("a",), 2, 1, 10.0), Query(("b",), 3, 1, 10.0)]
    budget = sum_rho(queries)
    assert [v.held for v in checks.validate_receipts("stage", queries, budget)] == [True]
    for factor in (Fraction(99, 100), Fraction(101, 100)):
        assert [v.held for v in checks.validate_receipts("stage", queries, budget * factor)] == [False]


VALUES = {
    pa.int64(): st.integers(-3, 3),
    pa.float64(): st.sampled_from([-1.0, -0.0, 0.0, 0.5, 1.0, float("nan"), float("inf")]),
    pa.string(): st.sampled_from(["", "a", "b", "\u00e9"]),
    pa.bool_(): st.booleans(),
}
BOUND = st.none() | st.integers(-2, 2)


@st.composite
def questions(draw: st.DrawFn) -> tuple[pa.Table, Expectation]:
    """A small table, nulls and NaN included, and one expectation of a kind that a contract has."""
    types = draw(st.lists(st.sampled_from(list(VALUES)), min_size=2, max_size=2))
    rows = draw(st.integers(1, 4))
    columns = [draw(st.lists(st.none() | VALUES[t], min_size=rows, max_size=rows)) for t in types]
    table = pa.table([pa.array(values, t) for values, t in zip(columns, types, strict=True)], names=["a", "b"])
    kind = draw(st.sampled_from(sorted(checks._ANSWERS)))
    if kind == "expect_compound_columns_to_be_unique":
        return table, Expectation(kind, {"column_list": ["a", "b"]})
    arguments: dict[str, Any] = {"column": "a"}
    if "between" in kind:
        if types[0] == pa.string():
            table = table.set_column(0, "a", pa.array([draw(st.none() | VALUES[pa.int64()]) for _ in range(rows)]))
        low, high = draw(BOUND), draw(BOUND)
        if low is None and high is None:
            low = 0
        if low is not None and high is not None:
            low, high = min(low, high), max(low, high)
        arguments |= {k: v for k, v in (("min_value", low), ("max_value", high)) if v is not None}
        if low is not None and (high is None or low < high) and draw(st.booleans()):
            arguments["strict_min"] = True
    return table, Expectation(kind, arguments)


@settings(max_examples=choose_example_count(150), deadline=None)
@given(questions())
def test_arrow_is_never_surer_than_great_expectations(question: tuple[pa.Table, Expectation]) -> None:
    """Where Arrow finds that an expectation holds, so does Great Expectations; without nulls they agree both ways."""
    table, expectation = question
    sure = checks.surely_holds(expectation, table)
    (holds,) = checks._ask_great_expectations([expectation], table)
    named = expectation.kwargs.get("column_list") or [expectation.kwargs["column"]]
    whole = all(checks._has_no_nulls(table, column) for column in named)
    assert sure == holds if whole else not sure or holds


def test_a_good_release_loads_no_great_expectations_at_all() -> None:
    program = (
        "import sys; from privsyn.engine import step_tables as checks\n"
        "from tests.unit.engine.test_contract_checks import CONTRACT, GOOD\n"
        "checks.check_table(CONTRACT, GOOD); print('great_expectations' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.split() == ["False"]
