"""Lines for the person who holds the data: private figures, on an interactive terminal and nowhere else.

A pipe, a file, a log and a server's page outlive the moment and have other readers.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

from rich.text import Text

from privsyn.cli.common import people


def print_misread(private_folder: Path, spec: Path) -> None:
    """Name the columns of which so much was repaired that the ``spec`` is likely wrong; silent but on a terminal."""
    from privsyn.publish.folder import count_repairs
    from privsyn.specs.misread import list_misread_columns

    if not is_on_terminal():
        return
    found = count_repairs(private_folder)
    lines = [f"{misread.sentence()}." for misread in list_misread_columns(found.counts, found.rows)]
    if lines:
        cure = f"The spec is likely wrong there: privsyn spec check {spec} --data TABLE shows why. Do not share this."
        _print_line([*lines, cure])


def is_on_terminal() -> bool:
    """Return whether standard error is a terminal, whatever variables ask Rich to pretend."""
    return sys.stderr.isatty()


def _print_line(lines: Iterable[str]) -> None:
    for line in lines:
        people.print(Text.assemble(("PRIVATE: ", "bold red"), make_printable(line)), soft_wrap=True)


def make_printable(text: str) -> str:
    """Return the text without characters that a terminal would obey."""
    return "".join(c if c.isprintable() else "\ufffd" for c in text)
