"""Sources of rules: the note prints them, no key reads them, and a TODO is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from privsyn.base.errors import RequestError
from privsyn.data_contracts.release_spec import ReleaseSpec
from privsyn.engine.keys import compute_lineage_keys
from privsyn.pipelines.registry import plan_release
from privsyn.publish.markdown import TEMPLATES
from privsyn.specs.spec_file import load_spec
from privsyn.tasks.privacy.noise import OpenDPNoise
from tests.support.specs import PEOPLE_YAML, make_spec

COLUMNS: dict[str, Any] = {
    "age": {"kind": "integer", "min": 0, "max": 99},
    "adult": {"kind": "boolean"},
    "town": {"kind": "categorical", "values": ["a", "b"], "unlisted": "a"},
    "state": {"kind": "categorical", "values": ["x", "y"], "unlisted": "x"},
    "north": {"kind": "boolean"},
    "south": {"kind": "boolean"},
}
RULES: list[dict[str, Any]] = [
    {"never": "age < 9 and north"},
    {"derive": {"adult": "age >= 18"}},
    {"lookup": {"from": "town", "to": "state", "rows": [["a", "x"], ["b", "y"]]}},
    {"one_of": ["north", "south"]},
]


def sourced() -> list[dict[str, Any]]:
    return [{**rule, "source": f"book *{i}*"} for i, rule in enumerate(RULES)]


def test_the_note_prints_the_source_of_every_kind_of_rule() -> None:
    parts = TEMPLATES.get_template("parts.md.j2").module
    note = str(parts.rules(make_spec(COLUMNS, rules=sourced())))  # type: ignore[attr-defined]
    lines = [line for line in note.splitlines() if line.startswith("- ")]
    assert len(lines) == 4 and all(f"(source: book \\*{i}\\*)" in line for i, line in enumerate(lines)), lines
    without = str(parts.rules(make_spec(COLUMNS, rules=RULES)))  # type: ignore[attr-defined]
    assert "source" not in without and len([x for x in without.splitlines() if x.startswith("- ")]) == 4


def test_a_source_changes_no_key() -> None:
    """A rule whose source is named later draws no noise anew."""

    def keys(spec: ReleaseSpec) -> dict[str, str]:
        plan = plan_release(spec)
        return compute_lineage_keys(plan.request, "", 0, OpenDPNoise, plan.steps, plan.period)

    assert keys(make_spec(COLUMNS, rules=sourced())) == keys(make_spec(COLUMNS, rules=RULES))


def test_a_source_is_written_only_where_it_is_named() -> None:
    assert "source" not in make_spec(COLUMNS, rules=RULES).model_dump_json(include={"rules"})
    written = make_spec(COLUMNS, rules=sourced()).model_dump(mode="json", include={"rules"})
    assert [rule["source"] for rule in written["rules"]] == [f"book *{i}*" for i in range(4)]


def test_a_source_that_is_left_open_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "spec.yaml"
    file.write_text(f"{PEOPLE_YAML}rules:\n  - never: age < 20 and happy\n    source: TODO\n")
    with pytest.raises(RequestError, match=r"rules\[0\]\.source.*still says TODO"):
        load_spec(file)
    file.write_text(file.read_text().replace("TODO", "the codebook"))
    assert load_spec(file).rules[0].source == "the codebook"
