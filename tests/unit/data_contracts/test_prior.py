"""The field `prior` of the spec: what is refused and how, and what specs without it look like."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from privsyn.publish.certificate_of_run import PRIOR_PROMISE
from privsyn.specs.messages import locate_field
from tests.support.notes import write_section
from tests.support.specs import make_spec

STATEMENT = "Rows of the census of 2010, which anybody may download."


@pytest.mark.parametrize(
    ("prior", "more", "words"),
    [
        ({"table": "a.csv"}, {}, "Field required"),
        ({"table": "a.csv", "statement": "public"}, {}, "is not a statement of 20 printable characters or more. Say"),
        ({"statement": STATEMENT}, {}, "give either `table: FILE` or `release: FOLDER`"),
        ({"table": "a.csv", "release": "b", "statement": STATEMENT}, {}, "give either `table: FILE`"),
        ({"table": "a.csv", "statement": STATEMENT, "sha256": "12"}, {}, "should match pattern"),
        ({"table": "a.csv", "statement": STATEMENT}, {"mechanism": {"name": "mst"}}, "only the mechanism privsyn"),
        ({"table": "a.csv", "statement": STATEMENT}, {"mechanism": {"name": "adaptive"}}, "only the mechanism privsyn"),
        ({"table": "a.csv", "statement": STATEMENT}, {"preset": "paper"}, "only the mechanism privsyn with scores"),
    ],
)
def test_a_prior_that_is_none_is_refused(prior: dict[str, Any], more: dict[str, Any], words: str) -> None:
    with pytest.raises(ValidationError, match=words) as caught:
        make_spec(prior=prior, **more)
    assert locate_field(caught.value.errors()[0])[0] == "prior"


PUBLIC = {"table": "a.csv", "statement": STATEMENT}


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
    spec = make_spec(prior={"table": "here/a.csv", "statement": STATEMENT, "sha256": "a" * 64})
    assert "here" not in str(spec.public()) and spec.prior_key() == {"prior": {"sha256": "a" * 64, "zeros": False}}
    assert make_spec(prior=spec.public()["prior"]).public() == spec.public()  # as a manifest shows it
    note = write_section("prior", spec, PRIOR_PROMISE)
    assert STATEMENT in note and PRIOR_PROMISE in note and "a" * 64 in note
