"""What a release says of columns that were not measured."""

from __future__ import annotations

from typing import Any

from privsyn.data_contracts.release_spec import ReleaseSpec
from privsyn.data_contracts.spec_checks import NOT_MEASURED
from privsyn.publish.markdown import escape_text

TELLS_NOTHING = f"This column {NOT_MEASURED}."
"""What machine-readable descriptions say beside the column."""

PROMISE = (
    "no look at the private table asked about these columns, alone or with others: their values are drawn at random "
    "from the public request, tell nothing of the private table, and cost no budget"
)
"""What the certificate says of them."""


def write_unmeasured_note(spec: ReleaseSpec) -> str:
    """Markdown: the columns, in the spec's order, and how their values were made up; empty without any."""
    names = spec.unmeasured_columns
    if not names:
        return ""
    listed = "\n".join(f"- {escape_text(name)}" for name in names)
    return (
        "## Columns that were not measured\n\n"
        "**These columns tell nothing of the private table**: they were never read, alone or with others, and cost no "
        "budget. Every value was drawn by itself from the possible values above: listed ones are equally likely, "
        "numbers, days and times are spread evenly from the first to the last, and null, where it is possible, is as "
        "likely as one listed value or one bin. How often a value occurs here, and what it goes with, is chance. Leave "
        "them out of every analysis. Where this page says every column, it means every other one.\n\n"
        f"{listed}"
    )


def list_stated_unmeasured(spec: ReleaseSpec) -> dict[str, Any] | None:
    """Return what the certificate says of such columns; None without any."""
    names = list(spec.unmeasured_columns)
    return {"columns": names, "promise": PROMISE} if names else None


def add_unmeasured(words: str, column: Any) -> str:
    """Return the description of a released column; of one that was not measured, it says so."""
    return words if column.measured else f"{words} {TELLS_NOTHING}".strip()
