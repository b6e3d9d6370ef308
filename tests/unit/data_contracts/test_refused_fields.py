"""Fields of the spec about columns and public knowledge: what is refused, where, and what is told."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from privsyn.data_contracts.release_spec import ReleaseSpec
from privsyn.engine.request import Request
from privsyn.pipelines.registry import build_steps
from privsyn.publish.certificate_of_run import PRIOR_PROMISE, TOTALS_PROMISE, list_stated_totals
from privsyn.specs.messages import locate_field
from tests.support.notes import write_section
from tests.support.specs import COLUMNS, STATED_PRIOR, make_spec

AMOUNT = {"kind": "integer", "min": 0, "max": 1000}
AMOUNTS: dict[str, Any] = {
    "wages": AMOUNT,
    "income": AMOUNT,
    "share": {"kind": "number", "min": 0, "max": 1},
    "day": {"kind": "date", "min": "2020-01-01", "max": "2021-01-01"},
    "sex": {"kind": "categorical", "values": ["f", "m"]},
}


IN_TWO_UNITS = {"wages": {**AMOUNT, "unit": "EUR"}, "income": {**AMOUNT, "unit": "USD"}}
ONE = [["wages", "income"]]


@pytest.mark.parametrize(
    ("pairs", "more", "words"),
    [
        ([["wages"]], {}, "must name two different columns"),
        ([["wages", "wages"]], {}, "must name two different columns"),
        ([["wages", "salary"]], {}, "measures no column 'salary'"),
        ([["wages", "sex"]], {}, "no order: it is 'categorical'"),
        ([["wages", "day"]], {}, "'wages' is 'integer' and 'day' is 'date'"),
        ([["wages", "share"]], {}, "have different steps"),
        ([["wages", "income"], ["income", "wages"]], {}, "a second time"),
        (ONE, {"columns": {**AMOUNTS, "wages minus income": AMOUNT}}, "the name that the comparison needs"),
        (ONE, {"columns": {**AMOUNTS, **IN_TWO_UNITS}}, "is in 'EUR' and 'income' in 'USD'"),
        (ONE, {"rules": [{"derive": {"income": "wages"}}]}, "made from others by a rule"),
    ],
)
def test_pairs_without_a_difference_are_refused(pairs: list[list[str]], more: dict[str, Any], words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        make_spec(**{"columns": AMOUNTS, "compare": pairs, **more})


HOURS = {"kind": "number", "min": 0, "max": 24, "bins": 8}
TIMES: dict[str, Any] = {
    "sent": {**HOURS, "unit": "hours"},
    "came": {**HOURS, "min": 0.1, "max": 24.1, "nullable": True},
    "left": {**HOURS, "heaps": [0.5]},
    "spent": {**HOURS, "unit": "minutes"},
    "late": {**HOURS, "min": 12, "max": 36},
    "fine": {**HOURS, "bins": 16},
    "whole": {"kind": "integer", "min": 0, "max": 23, "bins": 8},
    "place": {"kind": "categorical", "values": ["north", "south"]},
    "twice": {**HOURS, "max": 48},
}
DOUBLED = [{"derive": {"twice": "2 * sent"}}]


@pytest.mark.parametrize(
    ("groups", "i", "words"),
    [
        ([["sent"]], 0, "names fewer than two columns"),
        ([["sent", "gone"]], 0, "the spec releases no column 'gone'"),
        ([["sent", "sent"]], 0, "names the column 'sent' twice"),
        ([["sent", "came"], ["came", "fine"]], 1, "names the column 'came' twice"),
        ([["sent", "twice"]], 0, "the column 'twice' is made from others by a rule"),
        ([["sent", "place"]], 0, "the values of 'place' have no order: it is 'categorical'"),
        ([["sent", "left"]], 0, "values of 'left' are drawn where its `heaps` say"),
        ([["sent", "whole"]], 0, "'sent' is 'number' and 'whole' is 'integer'"),
        ([["sent", "spent"]], 0, "'sent' is in 'hours' and 'spent' in 'minutes'"),
        ([["sent", "fine"]], 0, "the bins of 'sent' and 'fine' are not at the same places"),
        ([["sent", "late"]], 0, "the bins of 'sent' and 'late' are not at the same places"),
    ],
)
def test_columns_that_cannot_be_placed_together_are_refused(groups: list[list[str]], i: int, words: str) -> None:
    with pytest.raises(ValidationError) as caught:
        make_spec(TIMES, rules=DOUBLED, together=groups)
    (error,) = caught.value.errors()
    assert words in error["msg"]
    assert locate_field(error) == ("together", i)


def test_columns_whose_bins_lie_nearly_at_the_same_places_are_taken() -> None:
    assert make_spec(TIMES, rules=DOUBLED, together=[["sent", "came"]]).together == (("sent", "came"),)


def test_only_the_last_step_knows_of_it_and_only_where_it_is_used() -> None:
    plain, grouped = (make_spec(TIMES, rules=DOUBLED, **more) for more in ({}, {"together": [["sent", "came"]]}))
    assert "together" not in plain.public()
    settings = [
        {
            step.name: step.key_json(Request(spec, tuple(spec.released_columns)))
            for step in build_steps(Request(spec, tuple(spec.released_columns)))
        }
        for spec in (plain, grouped)
    ]
    assert {name for name in settings[0] if settings[0][name] != settings[1][name]} == {"decode"}
    assert "together" not in settings[0]["decode"]


REGION: dict[str, Any] = {"kind": "categorical", "values": ["north", "south"], "unlisted": "north"}
NUMBER: dict[str, Any] = {"kind": "number", "min": 0, "max": 9}
TRUTH: dict[str, Any] = {"kind": "boolean"}
BASE: dict[str, Any] = {"age": {**NUMBER, "kind": "integer"}, "size": NUMBER, "place": REGION, "happy": TRUTH}
NOT = {"measured": False}
NAMED = "names 'x', which is not measured: its values are drawn at random, whatever else is known"


def with_x(column: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {"columns": {**BASE, "x": {**column, **NOT}}, **fields}


TOTALS = [{"columns": ["x"], "counts": [{"x": "north", "count": 9}], "statement": "Published by the office."}]
LOOKUP = {"from": "x", "to": "happy", "rows": [["north", True], ["south", False]]}
ANSWERED = {"from": "place", "to": "x", "rows": [["north", "north"], ["south", "south"]]}
BY_PRIOR = {"prior": STATED_PRIOR, "mechanism": {"name": "prior", "group": ["place", "x"]}}


@pytest.mark.parametrize(
    ("content", "place", "words"),
    [
        (with_x(NUMBER, rules=[{"never": "happy and x > 3"}]), ("rules", 0), NAMED),
        (with_x(NUMBER, rules=[{"never": "happy and age > 3"}, {"derive": {"size": "x + 1"}}]), ("rules", 1), NAMED),
        (with_x(NUMBER, rules=[{"derive": {"x": "size + 1"}}]), ("rules", 0), NAMED),
        (with_x(REGION, rules=[{"lookup": LOOKUP}]), ("rules", 0), NAMED),
        (with_x(REGION, rules=[{"lookup": ANSWERED}]), ("rules", 0), NAMED),
        (with_x(TRUTH, rules=[{"one_of": ["happy", "x"]}]), ("rules", 0), NAMED),
        (with_x(NUMBER, focus={"columns": ["age", "x"]}), ("focus", "columns"), NAMED),
        (with_x(NUMBER, workload=[{"columns": ["age", "x"]}]), ("workload", 0, "columns"), NAMED),
        (with_x(NUMBER, together=[["size", "x"]]), ("together", 0), NAMED),
        (with_x(REGION, totals=TOTALS), ("totals", 0, "columns"), NAMED),
        (with_x(REGION, **BY_PRIOR), ("mechanism", "group"), NAMED),
        (with_x({**NUMBER, "exact": [0]}), ("columns", "x", "exact"), "`exact` chooses how the column is counted"),
        (with_x({**NUMBER, "heaps": [2]}), ("columns", "x", "heaps"), "`heaps` chooses how the column is counted"),
        (
            with_x({**REGION, "levels": ["happy"]}),
            ("columns", "x", "levels"),
            "`levels` chooses how the column is counted",
        ),
        ({"columns": {"x": {**NUMBER, **NOT}, "y": {"kind": "drop"}}}, ("columns",), "no column is measured"),
    ],
)
def test_what_would_depend_on_such_a_column_is_refused(
    content: dict[str, Any], place: tuple[str | int, ...], words: str
) -> None:
    with pytest.raises(ValidationError) as caught:
        make_spec(**content)
    (error,) = caught.value.errors()
    assert words in error["msg"]
    assert locate_field(error) == place


def test_a_dropped_column_has_no_such_field_and_only_yes_or_no_is_taken() -> None:
    for column in ({"kind": "drop", **NOT}, {**NUMBER, "measured": "none"}):
        with pytest.raises(ValidationError):
            make_spec({**BASE, "x": column})


def settings(spec: ReleaseSpec) -> dict[str, str]:
    request = Request(spec, tuple(spec.released_columns))
    return {step.name: step.key_json(request) for step in build_steps(request)}


def test_private_rows_are_coded_and_counted_as_if_the_column_were_dropped() -> None:
    """So what a spec says of it later, another list of values say, makes the last step again and nothing else."""
    dropped = make_spec({**BASE, "x": {"kind": "drop"}})
    found = [dropped, *(make_spec({**BASE, "x": {**column, **NOT}}) for column in (REGION, NUMBER))]
    keys = [settings(spec) for spec in found]
    for other in keys[1:]:
        assert {name for name in other if other[name] != keys[0][name]} == {"decode"}
    assert keys[1]["decode"] != keys[2]["decode"]


SAID = "Rows of the census of 2010, which anybody may download."


@pytest.mark.parametrize(
    ("prior", "more", "words"),
    [
        ({"table": "a.csv"}, {}, "Field required"),
        ({"table": "a.csv", "statement": "public"}, {}, "is not a statement of 20 printable characters or more. Say"),
        ({"statement": SAID}, {}, "give either `table: FILE` or `release: FOLDER`"),
        ({"table": "a.csv", "release": "b", "statement": SAID}, {}, "give either `table: FILE`"),
        ({"table": "a.csv", "statement": SAID, "sha256": "12"}, {}, "should match pattern"),
        ({"table": "a.csv", "statement": SAID}, {"mechanism": {"name": "mst"}}, "only the mechanism privsyn"),
        ({"table": "a.csv", "statement": SAID}, {"mechanism": {"name": "adaptive"}}, "only the mechanism privsyn"),
        ({"table": "a.csv", "statement": SAID}, {"preset": "paper"}, "only the mechanism privsyn with scores"),
    ],
)
def test_a_prior_that_is_none_is_refused(prior: dict[str, Any], more: dict[str, Any], words: str) -> None:
    with pytest.raises(ValidationError, match=words) as caught:
        make_spec(prior=prior, **more)
    assert locate_field(caught.value.errors()[0])[0] == "prior"


PUBLIC = {"table": "a.csv", "statement": SAID}


@pytest.mark.parametrize(
    ("options", "more", "field", "words"),
    [
        ({"group": ["region"]}, {"prior": None}, ("prior",), "makes its rows from a public table, and the spec names"),
        ({}, {}, ("mechanism", "group"), "names no column"),
        ({"group": ["city"]}, {}, ("mechanism", "group", 0), "'city' is not a released column"),
        ({"group": ["caseid"]}, {}, ("mechanism", "group", 0), "is not a released column"),
        ({"group": ["region", "age"]}, {}, ("mechanism", "group", 1), "is of the kind integer, not categorical"),
        ({"group": ["region", "region"]}, {}, ("mechanism", "group", 1), "is named twice"),
        (
            {"group": ["happy"]},
            {"rules": [{"derive": {"happy": "income > 30000"}}]},
            ("mechanism", "group", 0),
            "is computed from others",
        ),
        ({"group": ["region"], "large": ["region"]}, {}, ("mechanism", "large"), "must be some of `group`, not all"),
        ({"group": ["region"], "large": ["happy"]}, {}, ("mechanism", "large"), "must be some of `group`, not all"),
    ],
)
def test_groups_that_fit_no_table_are_refused(
    options: dict[str, Any], more: dict[str, Any], field: tuple[str | int, ...], words: str
) -> None:
    with pytest.raises(ValidationError, match=words) as caught:
        make_spec(**{"prior": PUBLIC, "mechanism": {"name": "prior", **options}, **more})
    assert locate_field(caught.value.errors()[0]) == field


def test_too_many_groups_and_groups_of_every_column_are_refused() -> None:
    towns = {"kind": "categorical", "values": [f"town {i}" for i in range(501)]}
    columns = {"town": towns, "happy": {"kind": "boolean"}}
    for group, words in ((["town", "happy"], "make 1,002 groups, more than 1,000"), (["happy"], "")):
        fields = {"prior": PUBLIC, "mechanism": {"name": "prior", "group": group}}
        if words:
            with pytest.raises(ValidationError, match=words):
                make_spec(columns, **fields)
        else:
            assert make_spec(columns, **fields).mechanism.name == "prior"
    with pytest.raises(ValidationError, match="names every released column"):
        make_spec({"happy": columns["happy"]}, prior=PUBLIC, mechanism={"name": "prior", "group": ["happy"]})


def test_what_is_public_of_a_prior() -> None:
    spec = make_spec(prior={"table": "here/a.csv", "statement": SAID, "sha256": "a" * 64})
    assert "here" not in str(spec.public()) and spec.prior_key() == {"prior": {"sha256": "a" * 64, "zeros": False}}
    assert make_spec(prior=spec.public()["prior"]).public() == spec.public()  # as a manifest shows it
    note = write_section("prior", spec, PRIOR_PROMISE)
    assert SAID in note and PRIOR_PROMISE in note and "a" * 64 in note


STATEMENT = "Residents by region, published by the office on 2026-01-01."
SOUTH = {"region": "south", "count": 5}
BY_REGION = {"columns": ["region"], "counts": [{"region": "north", "count": 7}, SOUTH], "statement": STATEMENT}
ROWS = {"rows": 12, "statement": STATEMENT}
THREE = {**COLUMNS, "wet": {"kind": "boolean"}}


def pair(a: str, b: str, *counts: tuple[Any, Any, int], **more: Any) -> dict[str, Any]:
    return {
        "columns": [a, b],
        "counts": [{a: x, b: y, "count": n} for x, y, n in counts],
        "statement": STATEMENT,
        **more,
    }


@pytest.mark.parametrize(
    ("totals", "more", "place", "words"),
    [
        ([{**BY_REGION, "statement": "public"}], {}, "statement", "is not a statement of 20 printable characters"),
        ([{"columns": ["region"], "statement": STATEMENT}], {}, 0, "give either `table: FILE` or `counts"),
        ([{"statement": STATEMENT}], {}, 0, "names no columns, so it needs `rows`"),
        ([{**BY_REGION, "columns": ["region", "region"]}], {}, 0, "names a column twice"),
        ([{**BY_REGION, "count": "region"}], {}, "count", "is both one of `columns` and the column of counts"),
        ([{**BY_REGION, "columns": ["area"]}], {}, "columns", "the spec releases no column 'area'"),
        ([{**BY_REGION, "columns": ["age"]}], {}, "columns", "'age' is of kind 'integer', but totals need columns"),
        ([{**BY_REGION, "counts": [{"region": "west", "count": 1}]}], {}, 0, "'west' is not a value of the column"),
        ([{**BY_REGION, "counts": [{"region": "south", "count": -1}]}], {}, 0, "-1 is not a count"),
        ([{**BY_REGION, "counts": [{"region": "south", "count": True}]}], {}, 0, "true is not a count"),
        ([{**BY_REGION, "counts": [{"region": "south"}]}], {}, 0, "must have 'region', 'count' and nothing else"),
        ([{**BY_REGION, "counts": [SOUTH, SOUTH]}], {}, 1, "names region = 'south' twice"),
        ([pair("region", "happy", *[("north", True, 6)] * 2)], {}, 1, "names region = 'north' and happy = true twice"),
        ([{**BY_REGION, "counts": [{"region": "south", "count": 0}]}], {}, "counts", "must sum to a number from 1"),
        ([BY_REGION, {**ROWS, "rows": 13}], {}, 1, "sums to 13 rows, totals[0] to 12"),
        ([BY_REGION, BY_REGION], {}, 1, "has the columns of totals[0]"),
        ([BY_REGION], {"synthesis": {"rows": 13}}, 0, "is of 12 rows, and `synthesis.rows` asks for 13"),
        ([BY_REGION], {"mechanism": {"name": "mst"}}, "totals", "only the mechanism privsyn with scores"),
        (
            [BY_REGION, pair("region", "happy", ("north", True, 6), ("south", False, 6))],
            {},
            1,
            "has 6 rows with region = 'north', totals[0] has 7",
        ),
        (
            [BY_REGION],
            {"rules": [{"lookup": {"from": "happy", "to": "region", "rows": [[True, "north"], [False, "south"]]}}]},
            "columns",
            "the column 'region' follows from others by a rule",
        ),
        (
            [BY_REGION],
            {"columns": {"region": COLUMNS["region"]}},
            "totals",
            "give the counts of every column, so no single column is left",
        ),
        (
            [BY_REGION],
            {
                "columns": {
                    "age": COLUMNS["age"],
                    "region": {"kind": "categorical", "values": ["north", "south"], "levels": ["wet"]},
                    "wet": {"kind": "boolean", "nullable": True},
                },
                "rules": [{"lookup": {"from": "region", "to": "wet", "rows": [["north", True], ["south", False]]}}],
            },
            "columns",
            "the column 'region' has `levels`, which are counted with noise",
        ),
        (
            [
                pair("region", "happy", ("north", True, 12)),
                pair("happy", "wet", (True, True, 12)),
                pair("region", "wet", ("north", True, 12)),
            ],
            {"columns": THREE},
            "hold",
            "closes a circle of pairs of columns",
        ),
    ],
)
def test_totals_that_are_none_are_refused(
    totals: list[dict[str, Any]], more: dict[str, Any], place: str | int, words: str
) -> None:
    with pytest.raises(ValidationError) as caught:
        make_spec(totals=totals, **more)
    (error,) = caught.value.errors()
    assert words in error["msg"]
    assert locate_field(error)[0] == "totals" and place in locate_field(error)


def test_totals_that_agree_are_taken() -> None:
    close = pair("region", "wet", ("north", True, 7), ("south", True, 5), hold="close")
    circle = [pair("region", "happy", ("north", True, 7), ("south", True, 5)), pair("happy", "wet", (True, True, 12))]
    spec = make_spec(THREE, totals=[BY_REGION, ROWS, *circle, close])
    assert spec.totals[0].by_value() == {("north",): 7, ("south",): 5} and spec.totals[1].by_value() == {(): 12}
    make_spec(totals=[{**BY_REGION, "hold": "close"}], synthesis={"rows": 13})  # shares are kept, not counts


def test_what_is_public_of_totals() -> None:
    spec = make_spec(totals=[{**BY_REGION, "sha256": "a" * 64}, ROWS])
    assert make_spec(totals=spec.public()["totals"]).public() == spec.public()  # as a manifest shows it
    assert list_stated_totals(spec) == {
        "stated": [
            {"columns": ["region"], "rows": 12, "statement": STATEMENT, "hold": "exact", "sha256": "a" * 64},
            {"columns": [], "rows": 12, "statement": STATEMENT, "hold": "exact"},
        ],
        "promise": TOTALS_PROMISE,
    }
    note = write_section("totals", spec, TOTALS_PROMISE)
    assert STATEMENT in note and TOTALS_PROMISE in note and "a" * 64 in note and "all rows, 12 in sum" in note
