"""Pages, docstrings and messages hold no long sentence and no chain of pronouns: docs/check_prose.py."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import pytest

from tests.support.places import ROOT

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
