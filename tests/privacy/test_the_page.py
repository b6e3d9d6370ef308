"""docs/privacy.md lists all bug classes, each with tests and planted mutants that exist.

It does not see what a test looks at: the module of each test says what it does not see, and a test here asks for that.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from pathlib import Path

import pytest

from tests.support.places import ROOT

HERE = Path(__file__).parent
PAGE = ROOT / "docs" / "privacy.md"
CLASSES = (*range(1, 22), 23, 24, 27, 28, 30, 35, 36, 37)


def functions_of(folder: Path) -> dict[str, str]:
    """Name of every test function under the folder -> its file's name."""
    found = {}
    for path in sorted(folder.glob("test_*.py")):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                found[node.name] = path.name
    return found


def faults(page: str, found: dict[str, str]) -> list[str]:
    """Classes without a test or mutant of their own, rows that are missing, and names that do not exist."""
    rows = {int(n): row for n, row in re.findall(r"^\| (\d+) (\|.*\|)$", page, re.MULTILINE)}
    wrong = [f"class {n} has no row" for n in CLASSES if n not in rows]
    own: dict[int, dict[bool, list[str]]] = defaultdict(lambda: {True: [], False: []})
    for name in found:
        numbered = re.match(r"test_(\d\d)_(mutant_)?", name)
        if numbered:
            own[int(numbered[1])][numbered[2] is not None].append(name)
    for n, row in rows.items():
        named = re.findall(r"`(test_\w+)`", row)
        wrong += [f"class {n}: {name} does not exist" for name in named if name not in found]
        for is_mutant, kind in ((False, "test"), (True, "mutant")):
            if not set(own[n][is_mutant]) & set(named):
                wrong.append(f"class {n} names no {kind} of its own")
    return wrong


def test_the_page_lists_every_class_with_its_tests_and_mutants() -> None:
    assert faults(PAGE.read_text(encoding="utf-8"), functions_of(HERE)) == []


def find_silent(folder: Path) -> list[str]:
    """Return the modules of tests under the folder that do not say what they do not see."""
    modules = {
        path.name: ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) for path in folder.glob("test_*.py")
    }
    return sorted(name for name, words in modules.items() if "It does not see " not in (words or ""))


def test_each_module_says_what_it_does_not_see(tmp_path: Path) -> None:
    assert find_silent(HERE) == []
    (tmp_path / "test_silent.py").write_text('"""Bug class 1, and nothing of what is left out."""\n')
    assert find_silent(tmp_path) == ["test_silent.py"]


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        (lambda page: re.sub(r"^\| 7 \|.*\n", "", page, flags=re.MULTILINE), "class 7 has no row"),
        (lambda page: page.replace("test_13_mutant_", "test_13_", 1), "class 13"),
        (lambda page: page.replace("`test_04_mutant_", "`not_a_mutant_"), "class 4 names no mutant of its own"),
    ],
)
def test_a_page_that_leaves_something_out_is_found(change: object, fault: str) -> None:
    page = change(PAGE.read_text(encoding="utf-8"))  # type: ignore[operator]
    assert any(found.startswith(fault) for found in faults(page, functions_of(HERE)))


def test_every_test_here_belongs_to_a_class() -> None:
    numbered = {name for name in functions_of(HERE) if re.match(r"test_\d\d_", name)}
    assert {int(name[5:7]) for name in numbered} == set(CLASSES)
    others = {name: file for name, file in functions_of(HERE).items() if name not in numbered}
    assert set(others.values()) == {Path(__file__).name}


def test_the_attacks_are_made_by_tests_that_exist() -> None:
    pages = {PAGE: "## Attacks and their tests", ROOT / "SECURITY.md": "## Threat model"}
    rows = []
    for page, heading in pages.items():
        section = page.read_text(encoding="utf-8").partition(heading)[2].partition("\n## ")[0]
        rows += [row for row in section.splitlines() if "`tests/" in row]
    assert len(rows) >= 12 + len(ROLES)
    for row in rows:
        file = ""
        for path, name in re.findall(r"`(tests/[\w/]+\.py)?::(\w+)`", row):
            file = path or file
            assert f"def {name}(" in (ROOT / file).read_text(encoding="utf-8"), (file, name)


ROLES = ("steward", "operator", "worker", "receiver", "researcher", "visitor")


def find_lines_without_a_test(page: str) -> list[str]:
    """Lines of the threat model that name neither a test that exists nor a section that says it is not closed."""
    section = page.partition("## Threat model")[2].partition("\n## ")[0]
    rows = [row for row in section.splitlines() if row.startswith("| ") and not row.startswith(("| role", "|---"))]
    missing = [role for role in ROLES if not any(row.startswith(f"| {role}") for row in rows)]
    for row in rows:
        named = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", row)
        exist = [f"def {name}(" in (ROOT / file).read_text(encoding="utf-8") for file, name in named]
        if not all(exist) or not (named or "not closed: listed under" in row):
            missing.append(row)
    return missing


def test_each_line_of_the_threat_model_names_its_test() -> None:
    page = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
    assert find_lines_without_a_test(page) == []
    assert find_lines_without_a_test(page.replace("::test_27_names", "::test_27_no_names"))
    assert "receiver" in find_lines_without_a_test(page.replace("| receiver", "| reader"))


def test_every_mutant_says_what_is_planted() -> None:
    for path in HERE.glob("test_*.py"):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.FunctionDef) and re.match(r"test_\d\d_mutant_", node.name):
                assert (ast.get_docstring(node) or "").startswith("Planted mutant"), node.name
