"""``privsyn epsilon``: what an attacker can learn at each epsilon, what others chose, and what a release would get."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from privsyn.base.errors import RequestError
from privsyn.cli.common import AsJson, Debug, Tables, print_answer, print_errors
from privsyn.cli.forecasts import (
    EarlierRelease,
    Plot,
    PublicTable,
    RowsAbout,
    Strength,
    forecast_as_asked,
    parse_numbers,
    render_forecast,
    render_published,
    render_risks,
)


def epsilon_command(
    spec: Annotated[
        Path | None, typer.Argument(metavar="SPEC", help="Release spec (YAML): its epsilon and delta, and a forecast.")
    ] = None,
    epsilons: Annotated[str, typer.Option(metavar="E,E", help="Epsilons to compare.")] = "0.1,0.2,0.5,1,2,5,10",
    delta: Annotated[float | None, typer.Option(help="Delta; without it the spec's, else 1e-9.")] = None,
    rows_about: RowsAbout = None,
    earlier: EarlierRelease = None,
    public: PublicTable = None,
    strength: Strength = None,
    plot: Plot = None,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Help to choose epsilon: what an attacker learns, what others published with, and what a release is worth.

    The last needs SPEC and --rows-about. Reads no private table, spends nothing.
    """
    with print_errors(debug=debug):
        from privsyn.forecasts.attacker import PUBLISHED, REGISTRY, USUAL_DELTA, compute_risks
        from privsyn.specs.spec_file import load_spec

        asked = None if spec is None else load_spec(spec)
        if asked is None and rows_about is not None:
            raise RequestError("--rows-about needs a spec", "Name one: privsyn epsilon SPEC --rows-about N")
        promised = delta if delta is not None else USUAL_DELTA if asked is None else asked.privacy.delta
        wanted = [*parse_numbers(epsilons), *(() if asked is None else (asked.privacy.epsilon,))]
        found = compute_risks(wanted, promised)
        made = (
            None
            if asked is None
            else forecast_as_asked(asked, rows_about, wanted, earlier, public, strength, plot)
        )  # fmt: skip
        if as_json:
            content = {
                "risks": [r.as_json() for r in found],
                "published": [p._asdict() for p in PUBLISHED],
                "source": REGISTRY,
                "forecast": None if made is None else made.as_json(),
            }
            print_answer(json.dumps(content))
            return
        shown = Tables()
        render_risks(found, shown)
        render_published(shown)
        if made is not None:
            render_forecast(made, shown)
