"""Bug class 27, text of a spec becomes markup: every surface shows it as the words that it is.

The surfaces are the note (README.md and the run page), the certificate and overview of that page, and the terminal; the
report's page is in tests/unit/evaluation/report/test_page.py and tests/browser/test_report.py.

It does not see values of private rows, which no surface shows, nor the notes of linked tables and itemsets.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from rich.console import Console

from privsyn.api import check as spec_check
from privsyn.api.release import propose_release
from privsyn.base.settings import Settings
from privsyn.cli import common, release_command, spec_command
from privsyn.flows.run_page import format_certificate_page
from privsyn.pipelines.one_shot import STEPS
from privsyn.publish import markdown
from privsyn.publish.noise_overview import Column, Overview, write_overview
from privsyn.publish.overview_chart import MarginalOverview
from privsyn.publish.release_note import list_looks
from privsyn.storage.released_files import read_certificate
from tests.support.examples import choose_example_count
from tests.support.releases import release_in_process
from tests.support.specs import make_spec

RENDER = MarkdownIt("commonmark").enable(["table", "strikethrough"]).render
OWN_TAGS = {"h1", "h2", "p", "ul", "li", "table", "thead", "tbody", "tr", "th", "td", "code", "pre", "strong", "em"}
"""What the pages themselves are made of."""

HOSTILE = {
    "backticks": "x`<b>y</b>`z",
    "image": '<img src=x onerror="alert(1)">',
    "link": "[click](javascript:alert(1))",
    "address": "<javascript:alert(1)>",
    "picture": "![x](https://tracker.example/x.png)",
    "break out": "`|<b>x</b>|`\n\n# Title\n\n- [x]: javascript:alert(1)",
    "terminal": "[bold red]x[/] [/nothing] [link=https://x.example]y[/link]",
    "ends": "\\",
}
EVERYTHING = " ".join(HOSTILE.values())


class Page(HTMLParser):
    """The tags and the words of a page."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.words: list[str] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if (tag, dict(attrs).get("src")) != ("img", "relations.svg"):  # the note's own picture
            self.tags.add(tag)

    def handle_data(self, data: str) -> None:
        self.words.append(data)

    @property
    def text(self) -> str:
        return squeezed("".join(self.words))


def squeezed(text: str) -> str:
    return re.sub(r"\s+", "", text)


def rendered(text: str) -> Page:
    return Page(RENDER(text))


def assert_words_only(page: str, *shown: str) -> None:
    """The page has no tag but its own, and shows every text literally."""
    found = rendered(page)
    assert found.tags <= OWN_TAGS
    for text in shown:
        assert squeezed(text) in found.text


def hostile_spec(data: str) -> Any:
    columns = {f"{name} {text}": {"kind": "boolean", "description": text} for name, text in HOSTILE.items()}
    columns["listed"] = {"kind": "categorical", "values": list(HOSTILE.values()), "description": EVERYTHING}
    columns["number"] = {"kind": "integer", "min": 0, "max": 3, "unit": HOSTILE["image"]}
    columns[EVERYTHING] = {"kind": "drop"}
    words = dict.fromkeys(("description", "intended_use", "source"), EVERYTHING) | {"publisher": HOSTILE["break out"]}
    return make_spec(
        columns,
        data=data,
        unit={"person_id": EVERYTHING, "max_records": 1},
        about=words,
        formats=["parquet", "csv"],
        synthesis={"iterations": 1, "rows": 20},
    )


def hostile_table() -> pa.Table:
    rng, spec = np.random.default_rng(0), hostile_spec("x")
    made: dict[str, Any] = {name: rng.random(40) < 0.5 for name in spec.columns}
    made["listed"], made["number"] = rng.choice(list(HOSTILE.values()), 40), rng.integers(0, 4, 40)
    made[EVERYTHING] = [str(i) for i in range(40)]
    return pa.table(made)


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    """What people see, on a console made as the command makes its own."""
    shown = io.StringIO()
    console = Console(file=shown, width=500, highlight=False, markup=common.people._markup, force_terminal=True)
    for module in (common, release_command):
        monkeypatch.setattr(module, "people", console)
    return shown


def test_27_names_and_descriptions_are_words_on_every_surface(
    places: Path, save: Callable[..., str], terminal: io.StringIO
) -> None:
    spec = hostile_spec(save(hostile_table()))
    summary = release_in_process(spec, Settings())
    folder = Path(summary.released)
    assert_words_only((folder / "README.md").read_text(encoding="utf-8"), *HOSTILE.values(), *spec.released_columns)
    certificate = read_certificate(folder)
    assert_words_only(format_certificate_page(certificate, list_looks(STEPS)), repr(EVERYTHING))
    release_command._print_summary(propose_release(spec, Settings()), summary, 1.0, common.people)
    assert repr(EVERYTHING) in terminal.getvalue()
    spec_command.render_check(spec_check.check(spec), common.people)
    for name in ("image", "link", "terminal"):
        assert f"{name} {HOSTILE[name]}" in terminal.getvalue()


def test_27_the_overviews_words() -> None:
    measured = tuple(MarginalOverview((text, "x"), 4, 0.1, 0.1) for text in list(HOSTILE.values())[:5])
    note = write_overview(Overview((), (Column("x", 2, 0.1, 0.1),), measured, 1, 1))
    assert_words_only(note, *list(HOSTILE.values())[:5])


MARKS = st.text("<>[]()*_`~|\\!#+-=.:;&$\"'/ \n\tab01", max_size=20)


@settings(max_examples=choose_example_count(300), deadline=None)
@given(MARKS | st.sampled_from(list(HOSTILE.values())))
@example("    code")
@example("a\n===")
@example("0  \n0")
def test_27_any_text_is_shown_as_it_is(text: str) -> None:
    table = "| a | b |\n|---|---|\n| {} | {} |\n"
    in_cells = table.format(markdown.escape_text(text), markdown.format_code(text))
    for page in (f"x {markdown.escape_text(text)} x", markdown.format_paragraph(text), in_cells):
        assert_words_only(page, text.replace("\t", "\ufffd"))


@pytest.mark.parametrize("mutant", ["text", "paragraph", "code"])
def test_27_mutant_text_as_it_is(
    monkeypatch: pytest.MonkeyPatch, places: Path, save: Callable[..., str], mutant: str
) -> None:
    """Planted mutants: names and descriptions go into the note as they are; so do values between backticks."""
    spec = hostile_spec(save(hostile_table()))
    as_it_is: Callable[[str], str] = lambda text: f"`{text}`" if mutant == "code" else text  # noqa: E731
    monkeypatch.setitem(markdown.TEMPLATES.filters, mutant, as_it_is)
    folder = Path(release_in_process(spec, Settings()).released)
    with pytest.raises(AssertionError):
        assert_words_only((folder / "README.md").read_text(encoding="utf-8"), *HOSTILE.values())


def test_27_mutant_a_console_that_reads_markup(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted mutant: Rich's default, under which a column may end the command that has just released."""
    from rich.errors import MarkupError

    monkeypatch.setattr(common, "people", Console(file=io.StringIO()))
    with pytest.raises(MarkupError):
        common.people.print(f"enforced by the column {HOSTILE['terminal']!r}")
