"""The public fields of the spec that name formats and publisher: what they take, and that nothing else sees them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from privsyn.base.errors import RequestError
from privsyn.engine.request import Request
from privsyn.pipelines.one_shot import STEPS
from privsyn.specs.spec_file import load_spec
from tests.support.described import ABOUT
from tests.support.specs import COLUMNS, make_spec

SPEC = """
dataset: people
data: people.parquet
unit: {records_per_person: 1}
privacy: {epsilon: 1.0, delta: 1.0e-9}
budget: {epsilon: 10.0, delta: 1.0e-8}
columns: {age: {kind: integer, min: 0, max: 9}}
"""


def loaded(tmp_path: Path, more: str) -> Any:
    path = tmp_path / "spec.yaml"
    path.write_text(SPEC + more, encoding="utf-8")
    return load_spec(path)


def test_a_full_spec_is_read(tmp_path: Path) -> None:
    spec = loaded(tmp_path, "formats: [csv, parquet, csv]\nabout: {title: T, published: 2026-11-21, sector: Energy}\n")
    assert spec.formats == ("parquet", "csv")
    assert spec.about.published.isoformat() == "2026-11-21"
    assert loaded(tmp_path, "").formats == ("parquet",)


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ("formats: [csv]", r"formats .*`parquet` is missing\. Add it"),
        ("formats: [parquet, xlsx]", r"formats\[1\] .*xlsx.*one of 'parquet', 'csv'"),
        ("formats: csv", r"formats .*must be a list"),
        ("about: {licence: free for all}", r"about\.licence .*neither an SPDX identifier"),
        ("about: {homepage: stats.example.org}", r"about\.homepage .*is not a web address"),
        ("about: {homepage: 'javascript:alert(1)'}", r"about\.homepage .*is not a web address"),
        ("about: {contact: me}", r"about\.contact .*neither a mail nor a web address"),
        ("about: {published: 2026}", r"about\.published .*is not a day"),
        ("about: {published: yesterday}", r"about\.published .*a day, such as 2026-11-21"),
        ("about: {publisher_type: Bank}", r"about\.publisher_type .*one of"),
        ("about: {keywords: ['', b]}", r"about\.keywords .*empty or longer"),
        ("about: {title: 5}", r"about\.title .*text"),
        ("about: {titel: T}", r"about\.titel .*Did you mean `title`"),
    ],
)
def test_what_is_wrong_is_said_in_a_sentence(more: str, says: str, tmp_path: Path) -> None:
    with pytest.raises(RequestError, match=says):
        loaded(tmp_path, more)


def test_no_step_sees_them() -> None:
    def settings(**changes: Any) -> list[str]:
        request = Request(make_spec(**changes), tuple(n for n in COLUMNS if n != "caseid"), lambda: ())
        return [step.key_json(request) for step in STEPS]

    assert settings() == settings(formats=["parquet", "csv"], about=ABOUT)
    assert settings() != settings(synthesis={"seed": 1})
