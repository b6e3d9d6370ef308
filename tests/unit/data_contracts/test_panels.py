"""What a spec can say of the rows of one person, and what it is refused for."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from privsyn.data_contracts.release_spec import ReleaseSpec
from tests.support.panels import PANEL_COLUMNS, make_panel_spec
from tests.support.specs import make_spec


def test_the_person_is_one_record_where_rows_are_linked() -> None:
    spec = make_panel_spec()
    assert spec.panel is not None
    assert (spec.unit.records, spec.records) == (5, 1)
    assert "counted as one record" in spec.describe_unit()


def test_a_spec_without_an_order_is_written_as_before() -> None:
    written = make_spec().model_dump()
    assert not {"order", "constant", "with_order"} & set(written)
    assert ReleaseSpec.model_validate(written).panel is None


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"unit": {"records_per_person": 3}}, "nothing says which rows are a person's"),
        ({"unit": {"person_id": "pid", "max_records": 1}}, "no row follows another"),
        ({"unit": {"person_id": "pid", "max_records": 0}}, "greater than or equal to 1"),
        ({"order": None}, "the spec gives none"),
        ({"order": "nothing"}, "measures no column 'nothing'"),
        ({"order": "job"}, "puts no rows in order: it is of the kind 'categorical'"),
        ({"order": "income"}, "puts no rows in order: it is of the kind 'number'"),
        ({"constant": ["none"]}, "measures no column 'none'"),
        ({"constant": ["year"]}, "is the order or was named before"),
        ({"constant": ["age"]}, "was named before"),
        ({"with_order": ["income"]}, "does not grow by whole steps"),
        ({"mechanism": {"name": "mst"}}, "does not link the rows of a person"),
        ({"together": [["age", "year"]]}, "does not go with `order`"),
        (
            {"columns": {**PANEL_COLUMNS, "year": {"kind": "integer", "min": 2000, "max": 2009, "exact": [2005]}}},
            "the order is by its values alone",
        ),
        (
            {"columns": {**PANEL_COLUMNS, "pid (rows)": {"kind": "boolean"}}},
            "has the name that a count of rows needs",
        ),
    ],
)
def test_what_does_not_fit_is_refused_in_one_sentence(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(ValidationError) as found:
        make_panel_spec(**changes)
    (error,) = found.value.errors()
    assert words in error["msg"]
