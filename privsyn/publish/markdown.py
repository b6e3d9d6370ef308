"""Notes in Markdown, from ``templates/``, and text that they show as it is: read as words, never as markup.

For renderers of CommonMark and GitHub's tables.  HTML pages have their own escapes (privsyn/evaluation/report/page.py).
"""

from __future__ import annotations

import re
from decimal import ROUND_CEILING, Decimal
from fractions import Fraction
from typing import Any

import jinja2

from privsyn.base.wording import format_share

_MARKUP = re.compile(r"[\\`*\[\]<>|~&$]|(?<![^\W_])_|_(?![^\W_])")
"""What begins or ends something anywhere in a line; an underscore within a word does not."""

_LINE_END = re.compile(r" +(?=\n)")
_LINE_START = re.compile(r"(?m)^[ \t]*(?:([-+#=:])|([0-9]+)([.)]))?")
_BACKTICKS = re.compile("`+")


def escape_text(text: str) -> str:
    """Return words of one line."""
    return format_paragraph(text.replace("\r\n", " ").replace("\n", " "))


def format_paragraph(text: str) -> str:
    """Return words of one or more lines; what cannot be printed is a mark."""
    shown = "".join(c if c.isprintable() or c == "\n" else "\ufffd" for c in text.replace("\r\n", "\n"))
    shown = _LINE_END.sub("", shown)  # two spaces there would be a line break
    return _LINE_START.sub(_escape_start, _MARKUP.sub(r"\\\g<0>", shown))


def format_code(text: str) -> str:
    """Return words of one line between backticks, also in a cell of a table."""
    shown = "".join(c if c.isprintable() else " " if c == "\n" else "\ufffd" for c in text).replace("|", "\\|")
    longest = max(map(len, _BACKTICKS.findall(shown)), default=0)
    fence = "`" * (longest + 1)
    gap = " " if longest else ""
    return f"{fence}{gap}{shown}{gap}{fence}"


def _escape_start(start: re.Match[str]) -> str:
    """Return the beginning of a line without its indent, so that it begins no list, heading or block of code."""
    mark, number, end = start.groups()
    return f"\\{mark}" if mark else f"{number}\\{end}" if number else ""


def round_up(epsilon: float) -> str:
    """Four significant digits, never less than ``epsilon``."""
    exact = Decimal(epsilon)
    return format(exact.quantize(Decimal(1).scaleb(exact.adjusted() - 3), rounding=ROUND_CEILING).normalize(), "f")


def format_rho(price: str | Fraction) -> str:
    """Return a price to six digits."""
    return f"{float(Fraction(price)):.6g}"


_SHARED = jinja2.PackageLoader("privsyn.publish")

TEMPLATES = jinja2.Environment(
    loader=_SHARED,
    autoescape=False,  # noqa: S701  (Markdown: a spec's texts go through the filters text, paragraph, code and names)
    undefined=jinja2.StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
"""The templates of notes, and their filters."""

TEMPLATES.filters |= {
    "text": escape_text,
    "paragraph": format_paragraph,
    "code": format_code,
    "names": lambda columns: ", ".join(map(escape_text, columns)),
    "flow": lambda text: " ".join(filter(None, text.split("\n"))) + "\n",
    "fmt": format,
    "rho": format_rho,
    "share_of": lambda price, whole: format_share(Fraction(price), Fraction(whole)),
    "round_up": round_up,
}


def render_note(template: str, package: str = "", **facts: Any) -> str:
    """Return the note that a template of ``templates/`` makes of the facts.

    ``package``: the package with the template, which may import templates of this package; empty: this package.
    """
    templates = TEMPLATES
    if package:
        templates = TEMPLATES.overlay(loader=jinja2.ChoiceLoader([jinja2.PackageLoader(package), _SHARED]))
    return templates.get_template(template).render(**facts).strip("\n") + "\n"
