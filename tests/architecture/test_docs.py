"""The docs name real things, are made from the declarations of the steps, and hold no long sentence."""

from __future__ import annotations

import re
import runpy
import tomllib
from pathlib import Path
from typing import Any, get_args

import networkx as nx
import pytest

from privsyn.data_contracts.columns import Column, DropColumn
from privsyn.data_contracts.mechanism_options import AnyMechanism
from privsyn.engine.request import Request
from privsyn.engine.step import Step
from privsyn.pipelines.drawing import STEPS, build_pages, draw_mermaid, list_stages, tabulate_steps
from privsyn.pipelines.registry import build_steps
from privsyn.specs.spec_file import load_any_spec, load_spec
from privsyn.specs.yaml_file import parse_yaml
from tests.support.panels import make_panel_spec
from tests.support.places import ROOT
from tests.support.specs import make_spec

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
    spec = load_any_spec(parse_yaml(text, "docs/spec.md").content)
    assert spec.dataset == "people" and spec.rules and spec.focus is not None


def test_the_install_page_has_every_extra() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    page = (ROOT / "docs" / "install.md").read_text(encoding="utf-8")
    assert sorted(re.findall(r"^\| `([a-z-]+)` \|", page, re.M)) == sorted(project["optional-dependencies"])


REQUESTS = {
    "examples/gss.yaml": Request(load_spec(ROOT / "examples" / "gss.yaml")),
    "columns with bins": Request(make_spec()),
    "linked rows": Request(make_panel_spec()),
}


def test_the_pages_are_made_from_the_declarations() -> None:
    for page, text in build_pages(ROOT).items():
        assert page.read_text(encoding="utf-8") == text, "python -m privsyn.pipelines.drawing"


@pytest.fixture(params=REQUESTS.values(), ids=REQUESTS)
def steps(request: pytest.FixtureRequest) -> tuple[Step, ...]:
    return build_steps(request.param)


def test_every_step_that_runs_is_shown_and_what_all_releases_have_runs(steps: tuple[Step, ...]) -> None:
    run, shown = {step.name: step.title for step in steps}, {step.name: step.title for step in STEPS}
    assert run.items() <= shown.items()
    assert {step.name for step in STEPS if not step.when} <= run.keys()
    text, drawing, table = list_stages(), draw_mermaid(), tabulate_steps()
    for name, title in run.items():
        assert f"    {title} " in text and f'{name}["{title}"]' in drawing and f"| {title.lower()} |" in table.lower()


def test_steps_run_in_the_order_of_the_list(steps: tuple[Step, ...]) -> None:
    order = [step.name for step in STEPS]
    assert [step.name for step in steps] == sorted((step.name for step in steps), key=order.index)


def test_every_table_that_is_read_is_an_arrow_or_follows_from_arrows(steps: tuple[Step, ...]) -> None:
    arrows = [line.split() for line in draw_mermaid().splitlines() if "-->" in line]
    drawn: nx.DiGraph = nx.DiGraph((a, b) for a, _, b in arrows)
    for step in steps:
        assert all(nx.has_path(drawn, producer, step.name) for producer in step.producers)


def test_a_step_that_some_releases_lack_says_which_have_it() -> None:
    without = {step.name for step in build_steps(REQUESTS["columns with bins"])}
    assert all(step.when for step in STEPS if step.name not in without)
    assert all(step.about for step in STEPS)


CHECKER = ROOT / "docs" / "check_prose.py"
LONG = "This sentence has " + "very " * 26 + "many words."


@pytest.fixture(scope="module")
def checker() -> dict[str, Any]:
    """The names of docs/check_prose.py."""
    return runpy.run_path(str(CHECKER))


def problems(checker: dict[str, Any], page: str) -> list[tuple[int, str]]:
    return [(found.line, found.problem) for found in checker["find_problems"]("page.md", 1, page)]


def test_a_sentence_above_thirty_words_is_flagged_with_its_line(checker: dict[str, Any]) -> None:
    assert problems(checker, f"# A page\n\nShort.\n\n{LONG}\n") == [(5, "31 words")]
    assert problems(checker, LONG.replace("very ", "", 1)) == []
    assert problems(checker, f"Short here.\n{LONG.removesuffix('.')}\nand one more.") == [(1, "34 words")]


@pytest.mark.parametrize("chain", ["of which", "those of", "all the same"])
def test_a_chain_is_flagged(checker: dict[str, Any], chain: str) -> None:
    assert problems(checker, f"- An item.\n- The noise, {chain} the table, is small.\n") == [(2, f'"{chain}"')]


@pytest.mark.parametrize(
    "page",
    [
        f"```sh\n{LONG}\n```\n",
        f"| column | meaning |\n|---|---|\n| `a` | {LONG} |\n",
        f"column | meaning\n---|---\n`a` | {LONG}\n",
        f"Call `{LONG}` here.",
        f"[A link](page.md#{LONG.replace(' ', '-')}).",
        f"<!-- {LONG} -->",
        "- One item without a full stop has these ten words\n" * 4,
        "Five words end this sentence. " * 9,
    ],
    ids=["fence", "table", "table without outer marks", "code", "link", "comment", "list", "short sentences"],
)
def test_what_is_not_a_long_sentence_is_not_flagged(checker: dict[str, Any], page: str) -> None:
    assert problems(checker, page) == []


def test_docstrings_and_messages_of_a_module_are_read(checker: dict[str, Any]) -> None:
    source = (
        '"""Return the noise, that of the counts."""\n'
        'WORDS = f"the {1} codes are those "\\\n    "of the table above"\n'
        'SHORT = "that of x"\n'
        'QUERY = "SELECT those of the rows FROM a table that has many"\n'
    )
    found = [
        (finding.line, finding.problem)
        for line, text in checker["list_texts"](source)
        for finding in checker["find_problems"]("module.py", line, text)
    ]
    assert found == [(1, '"that of"'), (2, '"those of"')]


def test_a_flagged_sentence_fails_the_check(
    checker: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "page.md").write_text(LONG, encoding="utf-8")
    monkeypatch.setitem(checker["main"].__globals__, "ROOT", tmp_path)
    assert checker["main"](["page.md"]) == 1
