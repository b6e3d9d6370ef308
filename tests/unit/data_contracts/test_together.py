"""The field `together` of the spec: what is refused and how, and that specs without it are as they were."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from privsyn.engine.request import Request
from privsyn.pipelines.registry import build_steps
from privsyn.specs.messages import locate_field
from tests.support.specs import make_spec

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
