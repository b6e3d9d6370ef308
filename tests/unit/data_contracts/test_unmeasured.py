"""The field `measured` of a column: what is refused and how, and that specs without it are as they were."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from privsyn.data_contracts.release_spec import ReleaseSpec
from privsyn.engine.request import Request
from privsyn.pipelines.registry import build_steps
from privsyn.specs.messages import locate_field
from tests.support.specs import STATED_PRIOR, make_spec

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
