"""``privsyn epsilon`` and ``privsyn estimate``, and the forecasts of other commands: shared options, and tables."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from privsyn.base.errors import RequestError
from privsyn.base.wording import make_printable
from privsyn.cli.common import (
    AsJson,
    Debug,
    SpecPath,
    Tables,
    open_results,
    parse_path,
    people,
    print_answer,
    print_errors,
)

if TYPE_CHECKING:
    from privsyn.data_contracts.release_spec import ReleaseSpec
    from privsyn.evaluation.forecasts.attacker import Risk
    from privsyn.evaluation.forecasts.forecast import Forecast


RowsAbout = Annotated[
    int | None,
    typer.Option(metavar="N", help="Forecast the quality of a release of about N rows, a public number."),
]
Epsilons = Annotated[str | None, typer.Option(metavar="E,E", help="More epsilons to show.")]
EarlierRelease = Annotated[
    str | None, typer.Option(metavar="RELEASE", help="Forecast from the rows of an earlier release.")
]
PublicTable = Annotated[str | None, typer.Option(metavar="PATH", help="Forecast from a public table's rows.")]
Strength = Annotated[
    float | None,
    typer.Option(
        metavar="R", help="Forecast from made-up rows whose columns have correlations of 0 to R. [default: 0.9]"
    ),
]
Plot = Annotated[str | None, typer.Option(metavar="FILE", help="Write a picture of the forecast, .png or .svg.")]


def parse_numbers(text: str) -> list[float]:
    """Return the numbers of ``0.2,1``.  Raises RequestError for anything else."""
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise RequestError(f"{text!r} are not numbers", "Write them as 0.2,1,5", "forecast.epsilons") from None


def refuse_without_rows(*options: object) -> None:
    """Raise RequestError if any of the options is given: only a forecast has them, and it is of a number of rows."""
    if any(option is not None for option in options):
        raise RequestError("is missing", "Say about how many rows, from public knowledge", "forecast.rows")


def forecast_as_asked(
    spec: ReleaseSpec,
    rows: int | None,
    epsilons: Sequence[float] | None,
    earlier: str | None,
    public: str | None,
    strength: float | None,
    plot: str | None,
) -> Forecast | None:
    """Return the forecast that the options ask for, drawn if they ask for it; None without ``--rows-about``.

    Raises RequestError for options that only a forecast has where there is none.
    """
    picture, table = parse_path(plot, "--plot"), parse_path(public, "--public")
    folder = parse_path(earlier, "--earlier")
    if rows is None:
        refuse_without_rows(earlier, public, strength, plot)
        return None
    from privsyn.base.settings import load_settings
    from privsyn.engine.choose_accountant import assume_accountant
    from privsyn.engine.progress import show_bar
    from privsyn.evaluation.forecasts.forecast import forecast

    spec, _ = assume_accountant(spec, load_settings(None))
    with show_bar("simulating") as report:
        simulated = forecast(
            spec, rows, epsilons=epsilons, earlier=folder, public=table, strength=strength, progress=report
        )  # fmt: skip
    if picture is not None:
        simulated.plot(picture)
    return simulated


def render_forecast(forecast: Forecast, console: Console, table: str = "") -> None:
    """Print the forecast: a table over epsilons, one over columns, and the assumption; then further tables.

    ``table``: the further table that this forecast is about.
    """
    from privsyn.evaluation.forecasts.forecast import HEADINGS, RELATION_HEADINGS

    of_table = f" of {table}" if table else ""
    title = f"Forecast{of_table} for about {forecast.size}"
    console.print(build_table(title, HEADINGS, forecast.epsilon_rows()))
    console.print(
        build_table(
            f"Columns{of_table}: share of rows in a wrong bin, codes of relations, standard error of the mean",
            forecast.column_headings(),
            forecast.column_rows(),
        )
    )
    if forecast.asked.relations:
        title = f"The strongest relations{of_table} at epsilon {forecast.own:g}: measured, and in how many codes"
        console.print(build_table(title, RELATION_HEADINGS, forecast.relation_rows()))
    for words in [f"Assumed: {forecast.assumption}."] if table else forecast.words:
        console.print(words, soft_wrap=True, style="dim")
    for name, further in forecast.further_tables.items():
        render_forecast(further, console, name)


def build_sizes_table(forecasts: Sequence[Forecast]) -> Table:
    """Return a row for each number of rows, at the spec's own epsilon."""
    from privsyn.evaluation.forecasts.forecast import HEADINGS

    rows = [[f"{forecast.rows:,}", *forecast.epsilon_rows()[0][1:]] for forecast in forecasts]
    title = f"Forecast at epsilon {forecasts[0].at[0].epsilon:g}, by about how many {forecasts[0].unit} the table has"
    return build_table(title, [forecasts[0].unit, *HEADINGS[1:]], rows)


def estimate_command(
    spec: SpecPath,
    rows_about: Annotated[
        int | None, typer.Option(metavar="N", help="Approximate rows of the table, a public number.")
    ] = None,
    workers: Annotated[int, typer.Option(metavar="N", help="Workers of a Dask cluster; 0: as in the spec.")] = 0,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Estimate time, memory and disk of a release.

    It rehearses the release on a few made-up rows. It reads no table and charges nothing.
    """
    with print_errors(debug=debug):
        from privsyn.api.cost_estimate import estimate_cost
        from privsyn.base.settings import load_settings
        from privsyn.engine.choose_accountant import assume_accountant
        from privsyn.specs.spec_file import load_spec

        if rows_about is None:
            raise RequestError("is missing", "Say about how many rows, from public knowledge", "estimate.rows")
        asked, _ = assume_accountant(load_spec(spec), load_settings(None))
        people.print("Rehearsing the release on made-up rows ...", style="dim")
        result = estimate_cost(asked, rows_about, workers=workers, loading=time.process_time())
        if as_json:
            print_answer(json.dumps(result.as_json()))
        results, size = open_results(as_json=as_json), f"{result.rows:,} rows x {result.columns:,} columns"
        title = f"Estimate for about {size}, {result.rows_out:,} synthetic rows"
        results.print(build_table(title, result.headings(), result.step_rows()))
        for words in result.words:
            results.print(words, soft_wrap=True, style="dim")
        people.print("An estimate: no table was read, nothing was charged.")


def render_risks(risks: Sequence[Risk], console: Console) -> None:
    """Print what an attacker can learn at each epsilon."""
    headings = [
        "epsilon",
        "guess right",
        "belief from 10 %, typical",
        "belief from 10 %, at most",
        "belief from 1 %, at most",
        "found at 1 % false alarms",
    ]
    rows = []
    for r in risks:
        half, tenth, hundredth = r.guesses
        rows.append(
            [
                f"{r.epsilon:g}",
                f"{_format_percent(half.after)} ({_format_percent(half.any_promise)})",
                _format_percent(tenth.typical),
                _format_percent(tenth.most),
                _format_percent(hundredth.most),
                _format_percent(r.found),
            ]
        )
    console.print(build_table(f"What an attacker can learn of one person, at delta {risks[0].delta:g}", headings, rows))
    for words in RISK_WORDS:
        console.print(words, soft_wrap=True, style="dim")


RISK_WORDS = (
    "The attacker knows every row except one person's. Guess right: the best chance to guess whether that person is in "
    "the table; blind guessing has 50 %. In brackets: the bound for any mechanism with this epsilon and delta.",
    "Belief: an attacker believed with 10 % (1 %) that a person is in the table, who is. In half of all releases, the "
    "new belief is at most the typical figure. It exceeds the other figure only with a probability near delta.",
    "Found: the share of people in the table whom a test recognises, if the test is wrong for 1 % of the others.",
)


def _format_percent(share: float) -> str:
    return "over 99.9%" if 0.9995 <= share < 1 else f"{share:.1%}"


def render_published(console: Console) -> None:
    """Print what others published with."""
    from privsyn.evaluation.forecasts.attacker import PUBLISHED, REGISTRY

    rows = [[p.parameters, p.name, p.curator, str(p.year), p.unit] for p in PUBLISHED]
    console.print(build_table("What others published with", ["parameters", "what", "by", "year", "unit"], rows))
    console.print(
        f"From {REGISTRY}, pending review there. Compare the units before the numbers.", soft_wrap=True, style="dim"
    )


def build_table(title: str, headings: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    """Return a table of text, in which nothing is markup."""
    table = Table(title=Text(title), title_justify="left")
    for heading in headings:
        table.add_column(heading)
    for row in rows:
        table.add_row(*(Text("\n".join(map(make_printable, cell.split("\n")))) for cell in row))
    return table


def epsilon_command(
    spec: Annotated[
        Path | None, typer.Argument(metavar="SPEC", help="Release spec (YAML), for its epsilon, delta and a forecast.")
    ] = None,
    epsilons: Annotated[str, typer.Option(metavar="E,E", help="Epsilons to compare.")] = "0.1,0.2,0.5,1,2,5,10",
    delta: Annotated[float | None, typer.Option(help="Delta. Default: the spec's, else 1e-9.")] = None,
    rows_about: RowsAbout = None,
    earlier: EarlierRelease = None,
    public: PublicTable = None,
    strength: Strength = None,
    plot: Plot = None,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Help to choose epsilon.

    It shows what an attacker learns and what others published with. With SPEC and --rows-about, it also forecasts the
    quality of a release. It reads no private table and costs nothing.
    """
    with print_errors(debug=debug):
        from privsyn.evaluation.forecasts.attacker import PUBLISHED, REGISTRY, USUAL_DELTA, compute_risks
        from privsyn.specs.spec_file import load_spec

        loaded = None if spec is None else load_spec(spec)
        if loaded is None and rows_about is not None:
            raise RequestError("--rows-about needs a spec", "Name one: privsyn epsilon SPEC --rows-about N")
        promised = delta if delta is not None else USUAL_DELTA if loaded is None else loaded.privacy.delta
        wanted = [*parse_numbers(epsilons), *(() if loaded is None else (loaded.privacy.epsilon,))]
        risks = compute_risks(wanted, promised)
        forecast = None
        if loaded is None:
            refuse_without_rows(earlier, public, strength, plot)
        else:
            forecast = forecast_as_asked(loaded, rows_about, wanted, earlier, public, strength, plot)
        if as_json:
            content = {
                "risks": [r.as_json() for r in risks],
                "published": [p._asdict() for p in PUBLISHED],
                "source": REGISTRY,
                "forecast": None if forecast is None else forecast.as_json(),
            }
            print_answer(json.dumps(content))
            return
        shown = Tables()
        render_risks(risks, shown)
        render_published(shown)
        if forecast is not None:
            render_forecast(forecast, shown)
