"""Flag sentences above 30 words, and chains of pronouns, in pages, docstrings and messages.

    python docs/check_prose.py            # counts per tree, and what is wrong; exit code 1 if a tree has too many
    python docs/check_prose.py TREE ...   # every flagged sentence of these trees or files
    python docs/check_prose.py --lower    # write today's counts into prose_maxima.json, where they are smaller

A page in STRICT has no flagged sentence.  Every other tree has at most as many as ``docs/prose_maxima.json`` says, a
number that may only fall.  The checker helps a writer; a reader is the judge.
"""

from __future__ import annotations

import ast
import json
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
MAXIMA = Path(__file__).with_name("prose_maxima.json")

STRICT = (
    "README.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
    "docs",
    "data_contracts",
    "flows",
    "privsyn/api",
    "privsyn/cli",
    "tasks",
)
"""Pages and trees without any flagged sentence."""

TREES = (*STRICT, "privsyn")
"""What is checked; a file belongs to the first tree that has it.  Links to folders are not followed."""

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

_NOT_PROSE = re.compile(r"\b(?:SELECT|CREATE|INSERT|UPDATE|GRANT|DROP)\b|^\s*[<{]")


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
    """Return the pages and modules of a tree that no earlier tree has."""
    place, taken = ROOT / tree, (*TREES[: TREES.index(tree) if tree in TREES else 0], *SKIPPED)
    files = [place] if place.is_file() else sorted((*place.rglob("*.md"), *place.rglob("*.py")))
    own = [file for file in files if not any(file.is_relative_to(ROOT / other) for other in taken)]
    return [file for file in own if not any((ROOT / folder).is_symlink() for folder in file.relative_to(ROOT).parents)]


def judge(counts: Mapping[str, int], maxima: Mapping[str, int]) -> list[str]:
    """Return a line for each tree with more flagged sentences than it may have; a tree without a maximum has none."""
    return [f"{tree}: {n}, at most {maxima.get(tree, 0)}" for tree, n in counts.items() if n > maxima.get(tree, 0)]


def main(arguments: Sequence[str]) -> int:
    """Check, print and return the exit code."""
    trees = tuple(argument for argument in arguments if not argument.startswith("--")) or TREES
    found = {tree: [finding for file in list_files(tree) for finding in check_file(file)] for tree in trees}
    maxima: dict[str, int] = json.loads(MAXIMA.read_text(encoding="utf-8"))
    counts = {tree: len(findings) for tree, findings in found.items()}
    if "--lower" in arguments:
        lower = {tree: min(most, counts.get(tree, most)) for tree, most in maxima.items()}
        MAXIMA.write_text(json.dumps(lower, indent=2) + "\n", encoding="utf-8")
        return 0
    for tree, findings in found.items():
        for f in findings if tree in STRICT or trees is not TREES else ():
            print(f"{f.path}:{f.line}: {f.problem}: {f.text}")
    print("flagged sentences:", ", ".join(f"{tree} {n}" for tree, n in counts.items()))
    wrong = judge(counts, maxima) if trees is TREES else []
    for line in wrong:
        print(f"TOO MANY in {line}: mend them, or see all: python docs/check_prose.py TREE")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
