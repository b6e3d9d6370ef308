"""Contracts in Great Expectations: what each kind of expectation finds, in its own words."""

import subprocess
import sys
from collections import Counter
from typing import Any

import pyarrow as pa
import pytest

from privsyn.data_contracts import tables
from privsyn.data_contracts.artifacts import Zone
from privsyn.data_contracts.tables import Expectation, TableContract
from privsyn.errors import ContractError
from privsyn.run import contract_checks as checks

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


def test_a_good_table_passes() -> None:
    checks.check_table(CONTRACT, GOOD)


@pytest.mark.parametrize("kind", BROKEN)
def test_what_is_broken_is_named_by_its_column_and_expectation(kind: str) -> None:
    column, values = BROKEN[kind]
    table = GOOD if values is None else GOOD.set_column(GOOD.column_names.index(column), column, values)
    if values is None:
        table = pa.table({"a": [1, 1], "b": [1.0, 1.0], "c": [True, True]})
    with pytest.raises(ContractError) as caught:
        checks.check_table(CONTRACT, table)
    assert {"table": "few", "column": column, "expectation": kind} in caught.value.failures


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


def test_an_expectation_works_out_its_configuration_once_and_the_library_keeps_its_own_class(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    checks.prepare()
    from great_expectations.expectations.expectation import Expectation as Original

    worked_out: Counter[str] = Counter()
    plain = Original.configuration.fget

    def counted(self: Any) -> Any:
        worked_out[f"{type(self).__name__} {self.column}"] += 1
        return plain(self)

    monkeypatch.setattr(Original, "configuration", property(counted))
    checks._kind.cache_clear()
    asked = tuple(e for e in ASKED if e.type.startswith("expect_column_m"))
    checks.check_table(TableContract("few", Zone.PRIVATE, GOOD.schema, asked), GOOD)
    checks._kind.cache_clear()
    # Great Expectations copies an expectation a few times on its way to the check; each copy works it out once.
    assert len(worked_out) == len(asked) and max(worked_out.values()) <= 5, worked_out
    from great_expectations.expectations.core import ExpectColumnMinToBeBetween

    assert ExpectColumnMinToBeBetween.expectation_type == "expect_column_min_to_be_between"


def test_what_no_contract_needs_is_loaded_when_it_is_used() -> None:
    program = (
        "import gc, sys; from privsyn.run import contract_checks as checks\n"
        "checks.prepare(); stats = sys.modules['scipy.stats']\n"
        "print(gc.isenabled(), 'scipy.stats._distn_infrastructure' in sys.modules)\n"
        "print(round(float(stats.norm.cdf(0)), 3), 'scipy.stats._distn_infrastructure' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True", "False", "0.5", "True"]
