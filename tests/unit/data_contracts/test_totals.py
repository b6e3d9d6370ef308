"""The field `totals` of the spec: what is refused and how, and what specs without it look like."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from privsyn.publish.certificate_of_run import TOTALS_PROMISE, list_stated_totals
from privsyn.specs.messages import locate_field
from tests.support.notes import write_section
from tests.support.specs import COLUMNS, make_spec

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
