"""Text as Markdown that shows it as it is: whatever a spec says, it is read as words, never as markup.

For renderers of CommonMark and GitHub's tables.  HTML pages have their own escapes (privsyn/report/page.py).
"""

from __future__ import annotations

import re

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
