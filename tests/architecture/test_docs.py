"""The docs name real things: tests, files, commands."""

from __future__ import annotations

import re
import runpy
import tomllib
from pathlib import Path
from typing import Any, get_args

import pytest

from privsyn.data_contracts.columns import Column, DropColumn
from privsyn.data_contracts.mechanism_options import AnyMechanism
from privsyn.specs.spec_file import check_spec_content
from privsyn.specs.yaml_file import parse_yaml
from tests.support.places import ROOT

PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md")),
    *sorted(ROOT.glob("*/README.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
]
FOLDERS = "privsyn|tasks|flows|data_contracts|examples|benchmarks|deployments|docs"


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.relative_to(ROOT).as_posix())
def test_named_tests_and_files_exist(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    for file, name in re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", text):
        assert (ROOT / file).is_file(), file
        assert not name or f"def {name}(" in (ROOT / file).read_text(encoding="utf-8"), name
    for link in re.findall(r"\]\(([^)#:]+)\)", text):
        assert (page.parent / link).exists(), link
    for path in re.findall(rf"`((?:{FOLDERS})/[\w/]+\.(?:py|md|yaml))`", text):
        assert (ROOT / path).is_file(), path
    targets = (ROOT / "Makefile").read_text(encoding="utf-8")
    for target in re.findall(r"`make ([a-z-]+)`", text):
        assert re.search(rf"^[a-z -]*\b{target}\b[a-z -]*:", targets, re.M), target


def test_every_bug_class_of_the_privacy_page_has_a_test() -> None:
    rows = (ROOT / "docs" / "privacy.md").read_text(encoding="utf-8").split("## Bug classes")[1].split("##")[0]
    lines = [line for line in rows.splitlines() if line.startswith("| ")][1:]
    assert len(lines) >= 12
    assert all("`tests/" in line for line in lines)


SPEC_PAGE = ROOT / "docs" / "spec.md"


@pytest.fixture(scope="module")
def spec_tables() -> dict[str, Any]:
    """The names of docs/make_spec_tables.py."""
    return runpy.run_path(str(ROOT / "docs" / "make_spec_tables.py"))


def test_the_fields_of_the_spec_page_are_those_of_the_models(spec_tables: dict[str, Any]) -> None:
    page = SPEC_PAGE.read_text(encoding="utf-8")
    assert spec_tables["insert_tables"](page) == page, "run: python docs/make_spec_tables.py"
    assert "`dataset` | required" in page
    assert spec_tables["insert_tables"](page.replace("`dataset` | required", "`data_set` | required")) == page


def test_the_spec_page_has_every_kind_of_column_and_every_mechanism(spec_tables: dict[str, Any]) -> None:
    shown = {model for _, models in spec_tables["SECTIONS"] for model in models}
    kinds, mechanisms = (get_args(get_args(union)[0]) for union in (Column, AnyMechanism))
    assert {*kinds, *mechanisms} - shown == {DropColumn}  # it has no field of its own


def test_the_spec_on_the_spec_page_is_valid() -> None:
    text = SPEC_PAGE.read_text(encoding="utf-8").split("```yaml\n")[1].split("```")[0]
    spec = check_spec_content(parse_yaml(text, "docs/spec.md").content)
    assert spec.dataset == "people" and spec.rules and spec.focus is not None


def test_the_install_page_has_every_extra() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    page = (ROOT / "docs" / "install.md").read_text(encoding="utf-8")
    assert sorted(re.findall(r"^\| `([a-z-]+)` \|", page, re.M)) == sorted(project["optional-dependencies"])
