"""Flag sentences above 30 words, and chains of pronouns, in pages, docstrings and messages.

    python docs/check_prose.py            # every flagged sentence; exit code 1 if there is one
    python docs/check_prose.py TREE ...   # the same of these trees or files

The checker helps a writer; a reader is the judge.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]

TREES = ("README.md", "CONTRIBUTING.md", "SECURITY.md", "docs", "data_contracts", "flows", "privsyn", "tasks")
"""What is checked.  Links to folders are not followed."""

SKIPPED = ("docs/results",)
"""Folder of generated pages."""

MOST_WORDS = 30

_CHAINS = (
    *("of which", "of whose", "of whom", "of what", "that of", "those of", "what is told", "is told of"),
    *("all the same", "of those that"),
)
CHAIN = re.compile(rf"\b(?:{'|'.join(_CHAINS)})\b", re.I)

_FENCE = re.compile(r"^ *(```|~~~).*?^ *\1", re.M | re.S)
_COMMENT = re.compile(r"<!--.*?-->", re.S)
_CODE = re.compile(r"(`+).+?\1", re.S)
_LINK = re.compile(r"!?\[([^\]]*)\]\([^)]*\)")
_WORD = re.compile(r"[^\W\d_][\w'’-]*")
_SENTENCE = re.compile(r"(?<=[.!?])[*_)\"”]*\s+(?=[^a-z])")
_NEW_PARAGRAPH = re.compile(r"^\s*(?:[-*+]|\d+\.)\s|^\s*$|^#|^\s*\w+:\s*$|^\s+\w+: ")
_NOT_A_SENTENCE = re.compile(r"^#| \| |^\||---\||\S {3,}\S")  # a heading, or a line of a table

_NOT_PROSE = re.compile(r"\b(?:SELECT|CREATE|INSERT|UPDATE|GRANT|DROP)\b|^\s*[<{]|(?:\w\|\w.*){3}")
"""SQL, markup, and patterns of several alternatives."""


class Finding(NamedTuple):
    """A flagged sentence: its file, its line, what is wrong, and how it begins."""

    path: str
    line: int
    problem: str
    text: str


def find_problems(path: str, first_line: int, prose: str) -> Iterator[Finding]:
    """Yield the flagged sentences of one text; ``first_line``: the line of the file on which it begins."""
    for line, paragraph in split_paragraphs(prose):
        for sentence in _SENTENCE.split(paragraph):
            words, chain = len(_WORD.findall(sentence)), CHAIN.search(sentence)
            problem = f"{words} words" if words > MOST_WORDS else f'"{chain[0].lower()}"' if chain else ""
            if problem:
                yield Finding(path, first_line + line, problem, " ".join(sentence.split())[:90])


def split_paragraphs(prose: str) -> Iterator[tuple[int, str]]:
    """Yield each paragraph and list item with its line, counted from 0; tables are left out, and code is one word."""
    text = _blank(_COMMENT, _blank(_FENCE, prose))
    text = _LINK.sub(r"\1", _CODE.sub(lambda m: "Code" + "\n" * m[0].count("\n"), text))
    start, gathered = 0, list[str]()
    for number, line in enumerate((*text.split("\n"), "")):
        begins = bool(_NEW_PARAGRAPH.match(line))
        if begins and gathered:
            yield start, " ".join(gathered)
            gathered = []
        if line.strip() and not _NOT_A_SENTENCE.search(line):
            start = number if not gathered else start
            gathered.append(line)


def _blank(pattern: re.Pattern[str], text: str) -> str:
    return pattern.sub(lambda match: "\n" * match[0].count("\n"), text)


def list_texts(source: str) -> Iterator[tuple[int, str]]:
    """Yield the docstrings and the longer messages of a module, each with its line."""
    inside = set[int]()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.JoinedStr):
            inside |= {id(value) for value in node.values}
            text = "".join(str(value.value) if isinstance(value, ast.Constant) else "x" for value in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in inside:
            text = node.value
        else:
            continue
        if len(_WORD.findall(text)) > 4 and not _NOT_PROSE.search(text):
            yield node.lineno, text


def check_file(path: Path) -> list[Finding]:
    """Return the flagged sentences of a page or a module."""
    content, name = path.read_text(encoding="utf-8"), path.relative_to(ROOT).as_posix()
    texts = [(1, content)] if path.suffix == ".md" else list_texts(content)
    return [finding for line, text in texts for finding in find_problems(name, line, text)]


def list_files(tree: str) -> list[Path]:
    """Return the pages and modules of a tree."""
    place, skipped = ROOT / tree, [ROOT / other for other in SKIPPED]
    files = [place] if place.is_file() else sorted((*place.rglob("*.md"), *place.rglob("*.py")))
    own = [file for file in files if not any(map(file.is_relative_to, skipped))]
    return [file for file in own if not any((ROOT / folder).is_symlink() for folder in file.relative_to(ROOT).parents)]


def main(arguments: Sequence[str]) -> int:
    """Check, print and return the exit code."""
    found = [finding for tree in arguments or TREES for file in list_files(tree) for finding in check_file(file)]
    for f in found:
        print(f"{f.path}:{f.line}: {f.problem}: {f.text}")
    print(f"{len(found)} flagged sentences")
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
