"""Lines for the person who holds the data: private figures, on an interactive terminal and nowhere else.

A pipe, a file, a log and a server's page outlive the moment and have other readers.
"""

from __future__ import annotations

import sys
from pathlib import Path

from rich.text import Text

from privsyn.cli.common import people

A_FEW = 0.02
"""Share of a column's values, or of all records, above which a release says on the terminal that it was repaired."""


def print_misread(private_folder: Path, spec: Path) -> None:
    """Say in one line which columns had how much repaired or nulled; silent but on a terminal."""
    from privsyn.publish.folder import count_repairs
    from privsyn.specs.misread import list_misread_columns

    if not is_on_terminal():
        return
    found = count_repairs(private_folder)
    columns = [misread.sentence() for misread in list_misread_columns(found.counts, found.rows, A_FEW)]
    if columns:
        cure = f"Where that is not meant, the spec is wrong: privsyn spec check {spec} --data TABLE shows why."
        _print_line(f"values were repaired or nulled; {'; '.join(columns)}. {cure} Do not share this line.")


def is_on_terminal() -> bool:
    """Return whether standard error is a terminal, whatever variables ask Rich to pretend."""
    return sys.stderr.isatty()


def _print_line(line: str) -> None:
    people.print(Text.assemble(("PRIVATE: ", "bold red"), make_printable(line)), soft_wrap=True)


def make_printable(text: str) -> str:
    """Return the text without characters that a terminal would obey."""
    return "".join(c if c.isprintable() else "\ufffd" for c in text)
