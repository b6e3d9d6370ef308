"""Extend MkDocs: formulas as MathML, drawings as pictures, files outside docs/ by their path.

Everything is made when the site is built, so that a reader's browser loads nothing from elsewhere.
"""

from __future__ import annotations

import hashlib
import html
import logging
import re
from pathlib import Path
from typing import Any

from latex2mathml.converter import convert

LOG = logging.getLogger("mkdocs.hooks.docs")
"""A warning fails the strict build."""

DRAWING = re.compile(r"^```mermaid\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\[([^\]]*)\]\(((?:\.\./)+[^)#\s]*)(#[^)\s]*)?\)")
FORMULA = re.compile(r'<(span|div) class="arithmatex">(?:\\\((.*?)\\\)|\\\[(.*?)\\\])</\1>', re.DOTALL)


def on_page_markdown(markdown: str, *, page: Any, config: Any, files: Any) -> str:
    """Show drawings as pictures, and files outside docs/ by their path in the repository."""
    folder = Path(page.file.abs_src_path).parent
    root = Path(config.docs_dir).parent

    def drawn(block: re.Match[str]) -> str:
        name = f"img/mermaid/{hashlib.sha256(block[1].encode()).hexdigest()[:12]}.svg"
        if not (Path(config.docs_dir) / name).is_file():
            LOG.warning("%s: a drawing has changed; draw it again: make diagrams", page.file.src_uri)
        up = "../" * page.file.src_uri.count("/")
        return f"![Drawing: the boxes and arrows of this section]({up}{name})"

    def outside(link: re.Match[str]) -> str:
        target = (folder / link[2]).resolve()
        if target.is_relative_to(config.docs_dir):
            return link[0]
        if not target.exists():
            LOG.warning("%s: %s is not there", page.file.src_uri, link[2])
            return link[0]
        path = target.relative_to(root).as_posix()
        return link[1] if path in link[1] else f"{link[1]} (`{path}`)"

    return LINK.sub(outside, DRAWING.sub(drawn, markdown))


def on_page_content(content: str, *, page: Any, config: Any, files: Any) -> str:
    """Turn formulas into MathML, which browsers show by themselves."""

    def formula(found: re.Match[str]) -> str:
        text = html.unescape(found[2] or found[3])
        try:
            return convert(text, display="inline" if found[2] else "block")
        except Exception as error:
            LOG.warning("%s: the formula %r cannot be read: %s", page.file.src_uri, text, error)
            return found[0]

    return FORMULA.sub(formula, content)
