"""What a spec can say of the rows of one person, what it is refused for, and compositions of households."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

from privsyn.data_contracts.panels import count_compositions
from privsyn.data_contracts.release_spec import ReleaseSpec
from privsyn.engine.request import Request
from privsyn.tasks.codecs.encoding_plan import plan
from privsyn.tasks.codecs.person_figures import find_kinds
from tests.support.households import HOUSEHOLD_COLUMNS, make_household_spec
from tests.support.panels import PANEL_COLUMNS, make_panel_spec


def test_the_person_is_one_record_where_rows_are_linked() -> None:
    spec = make_panel_spec()
    assert spec.panel is not None
    assert (spec.unit.records, spec.records) == (5, 1)
    assert "counted as one record" in spec.describe_unit()


PERSONS: list[tuple[dict[str, Any], str]] = [
    ({"unit": {"records_per_person": 3}}, "links the rows of a person, but no column identifies the person"),
    ({"unit": {"person_id": "pid", "max_records": 1}}, "no row follows another"),
    ({"unit": {"person_id": "pid", "max_records": 0}}, "greater than or equal to 1"),
    ({"order": None}, "the spec gives none"),
    ({"order": "nothing"}, "measures no column 'nothing'"),
    ({"order": "job"}, "cannot order rows: it is of kind 'categorical'"),
    ({"order": "income"}, "cannot order rows: it is of kind 'number'"),
    ({"constant": ["none"]}, "measures no column 'none'"),
    ({"once": ["none"]}, "the promise is about a person"),
    ({"constant": ["year"]}, "is the order or was named before"),
    ({"constant": ["age"]}, "was named before"),
    ({"with_order": ["income"]}, "does not grow by whole steps"),
    ({"mechanism": {"name": "mst"}}, "does not link the rows of a person"),
    ({"together": [["age", "year"]]}, "does not go with `order`"),
    (
        {"columns": {**PANEL_COLUMNS, "year": {"kind": "integer", "min": 2000, "max": 2009, "exact": [2005]}}},
        "the order must use its values alone",
    ),
    (
        {"columns": {**PANEL_COLUMNS, "pid (rows)": {"kind": "boolean"}}},
        "has the name that a count of rows needs",
    ),
]


def test_a_household_is_one_record() -> None:
    spec = make_household_spec()
    assert spec.panel is not None
    assert (spec.panel.once, spec.records) == ((0, 1), 1)
    assert spec.describe_unit().startswith("one household with all members (at most 5 kept, counted as one record")
    written = spec.model_dump(mode="json")
    assert ReleaseSpec.model_validate(written) == spec
    assert "household_id" not in make_panel_spec().model_dump()["unit"]


def test_households_of_many_roles_have_their_own_compositions() -> None:
    """Of 60 roles; a number that has a digit for each role overflows 64 bits."""
    roles = {"kind": "categorical", "values": [f"r{i}" for i in range(60)], "unlisted": "r59"}
    spec = make_household_spec(
        columns={**HOUSEHOLD_COLUMNS, "role": roles}, unit={"household_id": "hid", "max_records": 2}, once=[]
    )
    codec = plan(spec).get_compositions()
    assert (codec.encode_members(codec.members) == range(codec.size)).all()


def test_compositions_are_as_many_as_are_listed() -> None:
    codec = plan(make_household_spec()).get_compositions()
    assert codec.size == count_compositions(3, 2, 5) == 19
    assert (codec.encode_members(codec.members) == range(codec.size)).all()
    assert codec.members[:, :2].max() == 1
    assert codec.members.sum(axis=1).max() == 5


MANY = [f"role {i}" for i in range(12)]


HOUSEHOLDS: list[tuple[dict[str, Any], str]] = [
    (
        {"unit": {"household_id": "hid", "person_id": "hid", "max_records": 5}},
        "one person is a part of a household",
    ),
    ({"unit": {"household_id": "hid"}}, "`household_id` and `max_records` go together"),
    ({"unit": {"household_id": "hid", "max_records": 0}}, "greater than or equal to 1"),
    ({"unit": {"household_id": "age", "max_records": 5}}, "list the column 'age' under `columns`"),
    ({"order": None}, "the column with the roles of household members is missing"),
    ({"order": "age"}, "roles are values of a `categorical` column"),
    ({"order": "nothing"}, "as the column of the members' roles, but the spec does not describe it"),
    ({"once": ["nobody"]}, "names 'nobody', which 'role' does not list"),
    ({"once": ["head", "head"]}, "names a role twice"),
    ({"with_order": ["age"]}, "roles are not numbers"),
    ({"constant": ["role"]}, "is the order or was named before"),
    ({"mechanism": {"name": "mst"}}, "does not link the rows of a person"),
    (
        {"columns": {**HOUSEHOLD_COLUMNS, "role": {"kind": "categorical", "values": MANY}}, "once": []},
        "5 members of 13 roles can be in 8,567 compositions, but 5,000 is the limit",
    ),
    *(
        ({"columns": {**HOUSEHOLD_COLUMNS, taken: {"kind": "boolean"}}}, "has the name that a count of rows needs")
        for taken in ("role (of the pair)", "role (beside the first)", "age (next row)", "age (later member)")
    ),
]


@pytest.mark.parametrize(
    ("make", "changes", "words"),
    [*((make_panel_spec, *case) for case in PERSONS), *((make_household_spec, *case) for case in HOUSEHOLDS)],
)
def test_what_does_not_fit_is_refused_in_one_sentence(
    make: Callable[..., Any], changes: dict[str, Any], words: str
) -> None:
    with pytest.raises(ValidationError) as found:
        make(**changes)
    (error,) = found.value.errors()
    assert words in error["msg"]


@pytest.mark.parametrize(
    ("changes", "place", "cure"),
    [
        ({"order": "nothing"}, ("order",), "Name the column of the relation to the head"),
        ({"order": "age"}, ("order",), "write `person_id` in place of `household_id`"),
        (
            {"columns": {**HOUSEHOLD_COLUMNS, "role": {**HOUSEHOLD_COLUMNS["role"], "measured": False}}},
            ("columns", "role"),
            "measured `categorical` column",
        ),
        ({"rules": [{"derive": {"role": "'head' if age > 30 else 'child'"}}]}, ("rules",), "out of the rules"),
        (
            {"columns": {**HOUSEHOLD_COLUMNS, "role": {"kind": "categorical", "values": MANY}}, "once": []},
            ("unit", "max_records"),
            "Lower it",
        ),
        ({"unit": {"household_id": "hid", "max_records": 1}}, ("unit", "max_records"), "Keep 2 rows"),
    ],
)
def test_an_error_about_roles_names_the_field_that_is_wrong(
    changes: dict[str, Any], place: tuple[str, ...], cure: str
) -> None:
    with pytest.raises(ValidationError) as found:
        make_household_spec(**changes)
    error = found.value.errors()[0]["ctx"]["error"]
    assert error.place == place and cure in error.cure


def test_pairs_of_each_kind_are_those_of_members_written_down() -> None:
    of = Request(make_household_spec(), tuple(HOUSEHOLD_COLUMNS)[1:]).encoding.get_compositions()
    for code, members in enumerate(of.members):
        roles = np.repeat(np.arange(len(members)), members)
        neighbours = find_kinds(roles[:-1], roles[1:])
        later = find_kinds(np.full(len(roles[2:]), roles[0]), roles[2:])
        assert (of.pairs[code] == np.bincount(neighbours, minlength=of.kinds)).all()
        assert (of.pairs_with_first[code] == np.bincount(later, minlength=of.kinds)).all()
        assert [of.find_first(place)[code] for place in range(len(roles))] == roles.tolist()
