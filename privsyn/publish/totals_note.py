"""What the note and the certificate of a release say of known totals."""

from __future__ import annotations

from typing import Any

from privsyn.data_contracts.release_spec import ReleaseSpec
from privsyn.data_contracts.totals import KnownTotal
from privsyn.publish.markdown import escape_text, format_code

TOTALS_PROMISE = (
    "The totals are stated to be public. They are constants of this release, which never compares them with the "
    "private table: given them, the guarantee holds for every pair of neighbouring tables, whether these have the "
    "totals or not. It does not cover what the totals themselves tell of a person; whoever publishes them answers for "
    "that. If they are exact counts of the private table, two tables that both have them differ by two persons at "
    "least, so whoever knows them should read the guarantee as that of adding or removing two."
)
"""What known totals change of the promise."""


def list_stated_totals(spec: ReleaseSpec) -> dict[str, Any] | None:
    """Return the totals as the certificate states them, their counts being in the manifest; None without any."""
    if not spec.totals:
        return None
    return {"stated": [total.public() for total in spec.totals], "promise": TOTALS_PROMISE}


def write_totals_note(spec: ReleaseSpec) -> str:
    """Markdown: every total, its statement, and what they mean for the promise; empty without any."""
    if not spec.totals:
        return ""
    lines = "\n".join(map(_describe_total, spec.totals))
    return (
        "## Known totals\n\n"
        "The request states counts of the private table that are published elsewhere. Columns with such counts were "
        f"not measured by themselves. {TOTALS_PROMISE}\n\n{lines}"
    )


def _describe_total(total: KnownTotal) -> str:
    stated = total.public()
    what = f"rows by {' and '.join(map(format_code, total.columns))}" if total.columns else "all rows"
    held = "the table has exactly these" if total.hold == "exact" else "the table is near these"
    content = f"; its content: SHA-256 `{total.sha256}`" if total.sha256 else ""
    return f"- {what}, {stated['rows']:,} in sum; {held}; their statement: {escape_text(total.statement)}{content}"
