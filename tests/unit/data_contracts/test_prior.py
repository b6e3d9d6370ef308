"""The field `prior` of the spec: what is refused and how, and what specs without it look like."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from privsyn.publish.prior_note import PRIOR_PROMISE, prior_note
from privsyn.spec.places import place_of
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
    assert place_of(caught.value.errors()[0])[0] == "prior"


def test_specs_without_a_prior_are_as_before() -> None:
    spec = make_spec()
    assert "prior" not in spec.public() and "prior" not in spec.model_dump()
    assert spec.prior_key() == {} and prior_note(spec) == ""


def test_what_is_public_of_a_prior() -> None:
    spec = make_spec(prior={"table": "here/a.csv", "statement": STATEMENT, "sha256": "a" * 64})
    assert "here" not in str(spec.public()) and spec.prior_key() == {"prior": {"sha256": "a" * 64, "zeros": False}}
    assert make_spec(prior=spec.public()["prior"]).public() == spec.public()  # as a manifest shows it
    note = prior_note(spec)
    assert STATEMENT in note and PRIOR_PROMISE in note and "a" * 64 in note
