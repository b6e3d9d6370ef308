"""``privsyn spec draft``, ``privsyn spec check`` and ``privsyn spec json``."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.panel import Panel
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from privsyn.base.errors import RequestError
from privsyn.base.wording import make_printable
from privsyn.cli.common import (
    AsJson,
    Debug,
    SpecPath,
    open_results,
    parse_table,
    people,
    print_answer,
    print_errors,
    read_settings,
    write_new,
)
from privsyn.cli.forecasts import (
    EarlierRelease,
    Epsilons,
    Plot,
    PublicTable,
    RowsAbout,
    Strength,
    forecast_as_asked,
    parse_numbers,
    refuse_without_rows,
    render_forecast,
)

if TYPE_CHECKING:
    from rich.console import Console

    from privsyn.api.check import CheckReport
    from privsyn.data_contracts.panels import Panel as LinkedRows
    from privsyn.specs.advice import Advice
    from privsyn.specs.table_fit import TableFit

app = typer.Typer(no_args_is_help=True, help="Write and check release specs.")


@app.command("draft")
def draft_command(
    data: Annotated[
        list[str],
        typer.Argument(
            metavar="DATA",
            help="CSV file, Parquet file or database table; only names and types are read. For several tables, name "
            "the one with one row a person first. Each is PATH or NAME=PATH.",
        ),
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="Where to write the draft.")],
    dictionary: Annotated[
        Path | None,
        typer.Option(
            help="Public dictionary: JSON, DDI, SQL, a table, or a Stata, SPSS or SAS file (docs/dictionaries.md)."
        ),
    ] = None,
    dataset: Annotated[str | None, typer.Option(help="Name of the data set in the ledger.")] = None,
    delimiter: Annotated[str | None, typer.Option(metavar="MARK", help="CSV: delimiter, such as ';'.")] = None,
    decimal: Annotated[str | None, typer.Option(metavar="MARK", help="CSV: decimal mark, '.' or ','.")] = None,
    thousands: Annotated[str | None, typer.Option(metavar="MARK", help="CSV: mark between groups of digits.")] = None,
    encoding: Annotated[
        str | None, typer.Option(metavar="NAME", help="CSV: encoding, such as utf-8 or cp1252.")
    ] = None,
    quote: Annotated[str | None, typer.Option(metavar="MARK", help="CSV: quotation mark; '' for none.")] = None,
    header: Annotated[
        bool,
        typer.Option("--header", help="CSV, Excel: the first line is the header, even if it looks like a record."),
    ] = False,
    look: Annotated[
        bool,
        typer.Option("--look", help="PRIVATE: guess kinds of CSV columns from rows, and list categories."),
    ] = False,
    key: Annotated[
        str | None,
        typer.Option(metavar="COLUMN", help="Two tables: the column in both that identifies the owner of a row."),
    ] = None,
    of: Annotated[
        str | None, typer.Option(metavar="NAME", help="Two tables: the one with one row a person, if not the first.")
    ] = None,
    debug: Debug = False,
) -> None:
    """Draft a spec from column names and a codebook.

    Unknown facts become TODOs.
    """
    with print_errors(debug=debug):
        from privsyn.api.draft import check_dictionary
        from privsyn.specs.draft import list_open_fields
        from privsyn.specs.draft_tables import draft_any
        from privsyn.specs.messages import group_todos

        marks = {"delimiter": delimiter, "decimal": decimal, "thousands": thousands, "quote": quote}
        csv = {name: value for name, value in {**marks, "encoding": encoding}.items() if value is not None}

        guesses: tuple[str, ...] = ()

        def write() -> str:
            nonlocal guesses
            drafted = draft_any(
                _name_tables(data), dictionary, dataset, out.parent, csv, key=key, of=of, header=header, look=look
            )
            if dictionary is not None:
                check_dictionary(drafted.text, dictionary, read_settings())
            guesses = drafted.guesses
            return drafted.text

        text = write_new(out, write, "--out")
        if look:
            people.print(f"PRIVATE: rows were looked at, so {out} is private until you checked it.", soft_wrap=True)
        todos = list_open_fields(text)
        people.print(f"Wrote {out}: {len(todos)} TODOs left{':' if todos else '.'}", soft_wrap=True)
        for group in group_todos(todos):
            people.print(f"  {make_printable(group)}", soft_wrap=True)
        if guesses:
            people.print(f"Confirm what was guessed from names and types: {', '.join(guesses)}.", soft_wrap=True)
        people.print(f"Fill them from public sources, then: privsyn spec check {out}", soft_wrap=True)


@app.command("check")
def check_command(
    spec: SpecPath,
    data: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PATH",
            help="Private table: also show, privately, how well it fits. For several tables, NAME=PATH each.",
        ),
    ] = None,
    rows_about: RowsAbout = None,
    epsilons: Epsilons = None,
    earlier: EarlierRelease = None,
    public: PublicTable = None,
    strength: Strength = None,
    plot: Plot = None,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Check a spec and predict the noise, at no cost.

    With --data, it also shows how well the private table fits the spec.
    With --rows-about, it forecasts the quality of a release by simulation; the private table is not used.
    """
    with print_errors(debug=debug):
        from privsyn.api.check import check, open_for_check
        from privsyn.engine.checked_tables import note_checked
        from privsyn.specs.spec_file import load_spec, override_options, with_defaults
        from privsyn.specs.yaml_file import read_yaml

        filled = with_defaults(read_yaml(spec))[1]
        loaded = load_spec(spec)
        tables: Any = _read_tables(data, loaded.tables) if loaded.tables else None
        request = loaded
        if data and not loaded.tables:
            if len(data) > 1:
                raise RequestError("is given several times, and the spec is of one table", "Give it once", "--data")
            request = override_options(loaded, data=parse_table(data[0], "--data"))
            tables = request.data
        settings = read_settings()
        source = open_for_check(request, tables, settings)
        report = check(request, source, settings)
        if source is not None:
            note_checked(loaded, tables or request.data, settings)
        wanted = None if epsilons is None else parse_numbers(epsilons)
        if rows_about is None:
            refuse_without_rows(epsilons)
        forecast = forecast_as_asked(loaded, rows_about, wanted, earlier, public, strength, plot)
        if as_json:
            more = {
                name: value
                for name, value in (("defaults", filled), ("forecast", forecast and forecast.as_json()))
                if value
            }
            print_answer(json.dumps({**report.as_json(), **more}, default=str))
        results = open_results(as_json=as_json)
        render_check(report, results, people, panel=loaded.panel)
        if filled:
            results.print(build_defaults_table(filled))
        if forecast is not None:
            render_forecast(forecast, results)
        else:
            hint = "To forecast which relations will be measured, and in how many codes, add --rows-about N."
            results.print(hint, soft_wrap=True)


def _name_tables(texts: Sequence[str]) -> str | Path | dict[str, str | Path]:
    """Return where a table is, or several by name: of NAME=PATH, else made from the file's.  Raises RequestError."""
    from privsyn.data_contracts.linked_tables import TABLE_NAME
    from privsyn.specs.draft_tables import make_table_name

    places = [parse_table(place, "draft_spec.data") or "" for place in texts]
    if len(places) == 1:
        return places[0]
    named: dict[str, str | Path] = {}
    for text, place in zip(texts, places, strict=True):
        name, mark, rest = text.partition("=")
        is_named = bool(mark) and TABLE_NAME.fullmatch(name) is not None
        name = name if is_named else make_table_name(text)
        if name in named:
            raise RequestError(f"has two tables called {name}", "Name them: NAME=PATH", "draft_spec.data")
        named[name] = (parse_table(rest, "draft_spec.data") or "") if is_named else place
    return named


def _read_tables(texts: Sequence[str] | None, names: Collection[str]) -> dict[str, str] | None:
    """Return where each of a spec's tables is, of options NAME=PATH; None without any.  Raises RequestError."""
    if not texts:
        return None
    parts = dict(text.partition("=")[::2] for text in texts)
    if set(parts) != set(names) or len(texts) != len(names):
        problem = f"says where each of the spec's tables is, {' and '.join(names)}"
        raise RequestError(problem, f"Write {' '.join(f'--data {name}=PATH' for name in names)}", "--data")
    return {name: str(parse_table(place, "--data")) for name, place in parts.items()}


@app.command("json")
def json_command(
    spec: SpecPath,
    part: Annotated[
        str | None, typer.Option(metavar="FIELD", help="Print one top-level field only, such as `columns`.")
    ] = None,
    debug: Debug = False,
) -> None:
    """Print a spec as JSON for a deployment.

    The output suits Prefect's run form, its command line and its REST API.
    """
    with print_errors(debug=debug):
        from privsyn.flows.deploy import read_spec

        parameters = read_spec(str(spec))
        if part is not None and part not in parameters["spec"]:
            there = ", ".join(parameters["spec"])
            raise RequestError(f"the spec does not give {part!r}", f"It gives: {there}", "--part")
        print_answer(json.dumps(parameters if part is None else parameters["spec"][part], indent=2))


def render_check(
    report: CheckReport, console: Console, warnings: Console | None = None, *, panel: LinkedRows | None = None
) -> None:
    """Print the report: a table a section, and a banner over what is private.

    ``warnings``: where columns that are likely misread are named; None: on the same console.  ``panel``: of the spec's
    linked rows, whose cap has another price.
    """
    from privsyn.api.check import SET_HEADERS

    noise = "Predicted noise (standard deviation of each count)"
    console.print(_build_table("Columns", ["column", "kind", "codes", "bins"], report.columns_rows()))
    console.print(_build_table("Shares of the release's budget", ["look", "share"], report.share_rows()))
    console.print(_build_table(noise, ["what", "how many", "sd"], report.noise_rows()))
    console.print(f"Accountant {report.accountant}.", soft_wrap=True, markup=False)
    console.print(report.budget, soft_wrap=True, markup=False)
    if report.sets:
        title = "Named sets, each measured as one table (expected error by noise, as a share of the rows)"
        console.print(_build_table(title, [*SET_HEADERS], report.set_rows()))
    if report.warnings:
        console.print(_build_table("Warnings", ["warning"], [[w] for w in report.warnings]))
    if report.fit is not None:
        _render_fit(report.fit, console, warnings or console, _describe_larger_cap(panel))
    for table, fit in report.further_tables.items():
        _render_fit(fit, console, warnings or console, "adds no noise", table)


def _describe_larger_cap(panel: LinkedRows | None) -> str:
    """Return what a larger ``max_records`` costs; of linked rows a person or household is one record in most counts."""
    if panel is None:
        return "multiplies the noise"
    return "adds no noise" if panel.household else "multiplies the noise of the counts of all rows only"


def _render_fit(fit: TableFit, console: Console, warnings: Console, larger_cap: str, table: str = "") -> None:
    """Print how a table fits; ``table``: the name of a further one, whose cap of rows is of each row above."""
    by, cap_of, of_table = (
        (f"`tables.{table}.max`", f"`{table}.max`", f" of {table}")
        if table
        else ("the unit of protection", "`max_records`", "")
    )
    cut = "" if fit.cut is None else f" {fit.cut:,} of them are left out by {by}."
    if fit.cut and fit.rows:
        caps = ", ".join(f"{cap}: {_share(many, fit.rows)}" for cap, many in fit.cut_by.items())
        cut += f" Left out by {cap_of}, {caps}. A larger cap keeps more rows, and {larger_cap}."
    if fit.unread:
        cut += f" {fit.unread:,} more records cannot be read and are left out (fields, quotation marks, length)."
    console.print(
        Panel(
            Text(f"The table below is computed from the private rows{of_table} ({fit.rows:,} rows).{cut}"),
            title="PRIVATE - do not share",
            border_style="bold red",
        )
    )
    for misread in fit.misread:
        warnings.print(Text(f"PRIVATE: {make_printable(misread.sentence())}.", style="bold red"), soft_wrap=True)
    rows = [
        [
            c.column,
            c.stored,
            c.released,
            _share(c.nulls, fit.rows),
            ", ".join(f"{repair}: {_share(n, fit.rows)}" for repair, n in c.repairs.items()) or "none",
            *([", ".join(c.examples)] if console.is_terminal else []),
        ]
        for c in fit.columns
    ]
    headers = ["column", "stored", "released", "null", "repairs", *(["e.g."] if console.is_terminal else [])]
    console.print(_build_table("PRIVATE - how the table fits", headers, rows))  # values for eyes only: no pipe, no log
    cures = [[c.column, f"{cure}."] for c in fit.columns for cure in c.cures]
    if cures:
        console.print(_build_table("PRIVATE - likely cures", ["column", "cure"], cures))
    if fit.advice.findings:
        _render_advice(fit.advice, console, table)


def _render_advice(advice: Advice, console: Console, table: str) -> None:
    """Print what rows show and the spec does not say, each with YAML to paste; ``table``: the name of a further one."""
    place = f" of `tables.{table}`" if table else ""
    red = "bold red"
    header = (
        f"{advice.rows:,} of the private rows show these relations, and a release without rules breaks them. What rows "
        "show is no source: paste a relation where a codebook, a law or arithmetic says it, too, and fill its `TODO`. "
        "The release's note prints the source."
    )
    console.print(Panel(Text(header), title="PRIVATE - advice before paying, do not share", border_style=red))
    for section in dict.fromkeys(finding.section for finding in advice.findings):
        console.print(Text(f"PRIVATE - under `{section}:`{place}", style=red))
        for finding in advice.findings:
            if finding.section == section:
                end = "" if finding.sentence.endswith("?") else "."
                console.print(Text(make_printable(finding.sentence) + end), soft_wrap=True)
                console.print(Text(finding.as_yaml()), soft_wrap=True)
    if advice.more:
        console.print(Text(f"PRIVATE - {advice.more:,} more are not listed; those above explain many of them."))
    console.print(Rule("PRIVATE - end of the advice", style=red))


def build_defaults_table(filled: Mapping[str, Mapping[str, Any]]) -> Table:
    """Return what each column has from ``defaults`` of the spec's file; public."""
    from privsyn.specs.table_fit import show_value

    rows = [[name, ", ".join(f"{f}: {show_value(v)}" for f, v in fields.items())] for name, fields in filled.items()]
    return _build_table("Columns with fields from `defaults`", ["column", "fields"], rows)


def _share(count: int, whole: int) -> str:
    return f"{count:,} ({count / whole:.1%})" if count and whole else str(count)


def _build_table(title: str, headers: list[str], rows: list[list[str]]) -> Table:
    table = Table(title=Text(title), title_justify="left")
    for header in headers:
        table.add_column(header, justify="right" if header in ("codes", "bins", "how many", "sd") else "left")
    for row in rows:
        table.add_row(*(Text(make_printable(cell)) for cell in row))
    return table
