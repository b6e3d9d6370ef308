"""The docs name real things: tests, files, commands."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support.places import ROOT

PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md")),
    *sorted(ROOT.glob("*/README.md")),
    *sorted((ROOT / "docs").glob("*.md")),
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
