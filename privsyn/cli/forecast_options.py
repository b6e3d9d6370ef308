"""The options of a forecast, which ``spec check`` and ``epsilon`` share, and running one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from privsyn.base.errors import RequestError
from privsyn.cli.common import parse_path

if TYPE_CHECKING:
    from privsyn.data_contracts.release_spec import ReleaseSpec
    from privsyn.forecasts.forecast import Forecast

RowsAbout = Annotated[
    int | None,
    typer.Option(metavar="N", help="Forecast a release of about N rows, a public number: what it would be worth."),
]
Epsilons = Annotated[str | None, typer.Option(metavar="E,E", help="Epsilons beside the spec's.")]
EarlierRelease = Annotated[
    str | None, typer.Option(metavar="RELEASE", help="Forecast from the rows of an earlier release.")
]
PublicTable = Annotated[str | None, typer.Option(metavar="PATH", help="Forecast from a public table's rows.")]
Strength = Annotated[
    float | None, typer.Option(metavar="R", help="Forecast from made-up rows correlated by 0 to R. [default: 0.9]")
]
Plot = Annotated[str | None, typer.Option(metavar="FILE", help="Picture of the forecast, .png or .svg.")]


def parse_numbers(text: str) -> list[float]:
    """Return the numbers of ``0.2,1``.  Raises RequestError for anything else."""
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise RequestError(f"{text!r} are not numbers", "Write them as 0.2,1,5", "forecast.epsilons") from None


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
    picture, table, folder = (
        parse_path(plot, "--plot"),
        parse_path(public, "--public"),
        parse_path(earlier, "--earlier"),
    )
    if rows is None:
        if any(option is not None for option in (earlier, public, strength, plot)):
            raise RequestError("is missing", "Say about how many rows, from public knowledge", "forecast.rows")
        return None
    from privsyn.api.progress import show_bar
    from privsyn.forecasts.forecast import forecast

    with show_bar("simulating") as report:
        made = forecast(
            spec, rows, epsilons=epsilons, earlier=folder, public=table, strength=strength, progress=report
        )  # fmt: skip
    if picture is not None:
        made.plot(picture)
    return made
