"""Tables and marks for notebooks as HTML, with all texts escaped."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from html import escape


def is_in_notebook() -> bool:
    """Return whether this process is a notebook kernel."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return shell is not None and type(shell).__name__ == "ZMQInteractiveShell"


def format_html_table(headings: Sequence[str], rows: Sequence[Sequence[str]], mark: str = "") -> str:
    """Return a plain HTML table of texts; ``mark``: a word to mark wherever it occurs in a cell."""
    head = "".join(f"<th>{escape(h)}</th>" for h in headings)
    body = "".join("<tr>" + "".join(f"<td>{mark_up(c, mark)}</td>" for c in row) + "</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def mark_up(text: str, word: str) -> str:
    """Return the text as HTML, with ``word`` marked unless it is empty."""
    shown = escape(text)
    return shown.replace(escape(word), f"<mark>{escape(word)}</mark>") if word else shown


def format_paragraph(*lines: str) -> str:
    """Return lines of text as one paragraph."""
    return "<p>" + "<br>".join(escape(line) for line in lines) + "</p>"
