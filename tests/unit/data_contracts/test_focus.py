"""Targets of the spec: what is refused and how, and what specs without any look like."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from privsyn.data_contracts.release_spec import ReleaseSpec
from privsyn.publish.release_note import write_targets_note

BASE: dict[str, Any] = {
    "dataset": "people",
    "data": "people.parquet",
    "unit": {"records_per_person": 1},
    "privacy": {"epsilon": 1.0, "delta": 1e-9},
    "budget": {"epsilon": 10.0, "delta": 1e-8},
    "columns": {
        "age": {"kind": "integer", "min": 0, "max": 99},
        "adult": {"kind": "boolean"},
        "income": {"kind": "number", "min": 0, "max": 100, "bins": 4},
        "id": {"kind": "drop"},
    },
}


def read(**more: Any) -> ReleaseSpec:
    return ReleaseSpec.model_validate({**BASE, **more})


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"focus": {"columns": []}}, "names no column. Name at least one"),
        ({"focus": {"columns": ["age", "age"]}}, "'age' twice. Take one out"),
        ({"focus": {"columns": ["ages"]}}, "no column 'ages'. Name one that it releases"),
        ({"focus": {"columns": ["id"]}}, "no column 'id'"),
        ({"focus": {"columns": ["age"], "weight": 0.5}}, "greater than or equal to 1"),
        ({"focus": {"columns": ["age"], "weight": 101}}, "less than or equal to 100"),
        (
            {"focus": {"columns": ["adult"]}, "rules": [{"derive": {"adult": "age >= 18"}}]},
            "'adult' is computed from others by a rule, so it is not measured. Name the columns",
        ),
        ({"focus": {"columns": ["age"]}, "mechanism": {"name": "independent"}}, "knows no targets"),
        ({"focus": {"columns": ["age"]}, "mechanism": {"name": "mst"}}, "knows no targets"),
        ({"focus": {"columns": ["age"]}, "preset": "paper"}, "'dense_marg', which knows no targets. Take the field"),
        ({"workload": [{"columns": ["age"]}]}, "names one column only, 'age'. Add another"),
        ({"workload": [{"columns": ["age", "pay"]}]}, "no column 'pay'"),
        ({"workload": [{"columns": []}]}, "names no column"),
    ],
)
def test_what_is_wrong_is_refused_with_its_cure(more: dict[str, Any], words: str) -> None:
    with pytest.raises(ValidationError) as refused:
        read(**more)
    assert words in str(refused.value)


def test_a_spec_without_targets_is_written_as_before() -> None:
    assert not {"focus", "workload"} & (read().public().keys() | read().model_dump().keys())
    assert read().targets() == {} and write_targets_note(read()) == ""


def test_targets_are_public_and_told() -> None:
    spec = read(focus={"columns": ["income"]}, workload=[{"columns": ["age", "adult"], "weight": 5}])
    assert spec.targets() == {key: spec.public()[key] for key in ("focus", "workload")}
    note = write_targets_note(spec)
    assert "relations with income: 3 times" in note and "relations between age, adult: 5 times" in note
