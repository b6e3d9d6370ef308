"""The documentation builds as a site without a warning, and a reader's browser asks nobody but the site."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

from tests.support.places import ROOT

pytest.importorskip("mkdocs")

LOADING = {
    "img": "src",
    "script": "src",
    "iframe": "src",
    "source": "src",
    "video": "src",
    "audio": "src",
    "link": "href",
}
"""Elements whose address a browser fetches by itself, and the attribute that has it."""

NOT_FETCHED = {"canonical", "prev", "next", "alternate", "license", "author"}
"""Relations of <link> that name a page and load nothing."""

ELSEWHERE = re.compile(r"^\s*(?:[a-z][a-z0-9+.-]*:)?//", re.IGNORECASE)
STYLE_LOADS = re.compile(r"(?:url\(|@import)\s*[\"']?\s*((?:https?:)?//[^\"')\s]+)")
SCRIPT_LOADS = re.compile(r"(?:fetch|importScripts|import)\(\s*[\"'`]((?:https?:)?//[^\"'`]+)")


class Loads(HTMLParser):
    """The addresses that a page makes a browser fetch."""

    def __init__(self) -> None:
        super().__init__()
        self.addresses: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        if tag == "link" and NOT_FETCHED & set((found.get("rel") or "").split()):
            return
        self.addresses += [found[LOADING[tag]] or ""] if tag in LOADING and LOADING[tag] in found else []
        self.addresses += [part.split()[0] for part in (found.get("srcset") or "").split(",") if part.strip()]
        self.addresses += STYLE_LOADS.findall(found.get("style") or "")


def list_foreign_loads(page: str) -> list[str]:
    """Return the addresses on other hosts that a page of HTML makes a browser fetch."""
    parser = Loads()
    parser.feed(page)
    inside = [m for style in re.findall(r"<style[^>]*>(.*?)</style>", page, re.S) for m in STYLE_LOADS.findall(style)]
    scripts = [
        m for script in re.findall(r"<script[^>]*>(.*?)</script>", page, re.S) for m in SCRIPT_LOADS.findall(script)
    ]
    return [address for address in (*parser.addresses, *inside, *scripts) if ELSEWHERE.match(address)]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The documentation, built as `make docs` builds it."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict", "--site-dir", str(folder)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def test_every_page_of_the_docs_is_built(site: Path) -> None:
    pages = [p.relative_to(ROOT / "docs").with_suffix(".html") for p in (ROOT / "docs").rglob("*.md")]
    assert len(pages) > 40
    assert [p for p in pages if not (site / p).is_file()] == []


def test_pages_load_nothing_from_other_hosts(site: Path) -> None:
    foreign = {p.name: list_foreign_loads(p.read_text("utf-8")) for p in site.rglob("*.html")}
    assert {page: loads for page, loads in foreign.items() if loads} == {}
    for kind, loads in (("*.css", STYLE_LOADS), ("*.svg", STYLE_LOADS)):
        assert [p.name for p in site.rglob(kind) if loads.search(p.read_text("utf-8"))] == []
    # No formula or drawing is left to a script.
    algorithm = (site / "algorithm.html").read_text("utf-8")
    assert algorithm.count("<math") >= 20
    for page in site.rglob("*.html"):
        text = page.read_text("utf-8")
        assert 'class="arithmatex"' not in text and 'class="mermaid"' not in text, page.name


@pytest.mark.parametrize(
    "page",
    [
        '<img src="https://a.example/x.png">',
        '<img srcset="x.png 1x, //a.example/x.png 2x">',
        '<script src="//a.example/x.js"></script>',
        '<link rel="stylesheet" href="https://a.example/x.css">',
        "<style>@import url(https://a.example/x.css)</style>",
        '<p style="background: url(//a.example/x.png)">',
        '<script>fetch("https://a.example/x")</script>',
    ],
)
def test_what_a_browser_would_fetch_elsewhere_is_seen(page: str) -> None:
    assert len(list_foreign_loads(page)) == 1


def test_links_and_own_files_are_no_loads() -> None:
    page = '<a href="https://a.example/">x</a><link rel="canonical" href="https://a.example/"><img src="img/x.png">'
    assert list_foreign_loads(page) == []


RUN_ON = re.compile(r"^(?!- |\d+\. |\s|#|<|\||```).+\n(?:- |\d+\. |\| ).*", re.MULTILINE)
"""A list or a table right below a line of text, which the site shows as a part of that line."""


@pytest.mark.parametrize(
    ("text", "runs_on"), [("so:\n- a", True), ("so:\n\n- a", False), ("# so\n- a", False), ("- a\n- b", False)]
)
def test_what_runs_on_is_seen(text: str, runs_on: bool) -> None:
    assert bool(RUN_ON.search(text)) is runs_on


def test_lists_and_tables_stand_below_an_empty_line() -> None:
    for page in (ROOT / "docs").rglob("*.md"):
        text = re.sub(r"^```.*?^```$", "", page.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL)
        assert RUN_ON.findall(text) == [], page.name
