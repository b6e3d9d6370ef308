"""``privsyn spec check`` on a terminal: a table a section, and a banner over what is private."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from privsyn.api.check import SET_HEADERS, CheckReport
from privsyn.data_contracts.panels import Panel as LinkedRows
from privsyn.specs.table_fit import TableFit, make_printable


def render(
    report: CheckReport, console: Console, warnings: Console | None = None, *, panel: LinkedRows | None = None
) -> None:
    """Print the report: a table a section, and a banner over what is private.

    ``warnings``: where columns that are likely misread are named; None: on the same console.  ``panel``: of the spec's
    linked rows, whose cap has another price.
    """
    console.print(
        _build_table(
            "Columns",
            ["column", "kind", "codes", "bins"],
            report.columns_rows(),
        )
    )
    console.print(
        _build_table(
            "Predicted noise (standard deviation of each count)",
            ["what", "how many", "sd"],
            report.noise_rows(),
        )
    )
    if report.sets:
        title = "Named sets, each measured as one table (expected error by noise, as a share of the rows)"
        console.print(_build_table(title, [*SET_HEADERS], report.set_rows()))
    if report.warnings:
        console.print(_build_table("Worth a thought", ["warning"], [[w] for w in report.warnings]))
    if report.fit is not None:
        _render_fit(report.fit, console, warnings or console, _describe_larger_cap(panel))


def _describe_larger_cap(panel: LinkedRows | None) -> str:
    """Return what a larger ``max_records`` costs; of linked rows a person or household is one record in most counts."""
    if panel is None:
        return "multiplies the noise"
    return "adds no noise" if panel.household else "multiplies the noise of the counts of all rows only"


def _render_fit(fit: TableFit, console: Console, warnings: Console, larger_cap: str) -> None:
    cut = "" if fit.cut is None else f" {fit.cut:,} of them are left out by the unit of protection."
    if fit.cut and fit.rows:
        caps = ", ".join(f"{cap}: {_share(many, fit.rows)}" for cap, many in fit.cut_by.items())
        cut += f" Left out by `max_records`, {caps}. A larger cap keeps more rows, and {larger_cap}."
    if fit.unread:
        cut += f" {fit.unread:,} more records cannot be read and are left out (fields, quotation marks, length)."
    console.print(
        Panel(
            Text(f"The table below is computed from the private rows ({fit.rows:,} rows).{cut}"),
            title="PRIVATE - do not share",
            border_style="bold red",
        )
    )
    for misread in fit.misread:
        warnings.print(Text(f"PRIVATE: {_clean(misread.sentence())}.", style="bold red"), soft_wrap=True)
    rows = [
        [
            c.column,
            c.stored,
            c.released,
            _share(c.nulls, fit.rows),
            ", ".join(f"{what}: {_share(n, fit.rows)}" for what, n in c.repairs.items()) or "none",
            *([", ".join(c.examples)] if console.is_terminal else []),
        ]
        for c in fit.columns
    ]
    headers = ["column", "stored", "released", "null", "repairs", *(["e.g."] if console.is_terminal else [])]
    console.print(_build_table("PRIVATE - how the table fits", headers, rows))  # values for eyes only: no pipe, no log
    cures = [[c.column, f"{cure}."] for c in fit.columns for cure in c.cures]
    if cures:
        console.print(_build_table("PRIVATE - likely cures", ["column", "cure"], cures))


def build_defaults_table(filled: Mapping[str, Mapping[str, Any]]) -> Table:
    """Return what each column has from ``defaults`` of the spec's file; public."""
    rows = [
        [name, ", ".join(f"{f}: {make_printable(v)}" for f, v in fields.items())] for name, fields in filled.items()
    ]
    return _build_table("Columns with fields from `defaults`", ["column", "fields"], rows)


def _share(part: int, whole: int) -> str:
    return f"{part:,} ({part / whole:.1%})" if part and whole else str(part)


def _build_table(title: str, headers: list[str], rows: list[list[str]]) -> Table:
    table = Table(title=Text(title), title_justify="left")
    for header in headers:
        table.add_column(header, justify="right" if header in ("codes", "bins", "how many", "sd") else "left")
    for row in rows:
        table.add_row(*(Text(_clean(cell)) for cell in row))
    return table


def _clean(text: str) -> str:
    return "".join(c if c.isprintable() else "\ufffd" for c in text)
