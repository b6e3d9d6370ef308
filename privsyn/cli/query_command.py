"""``privsyn query``: a question to a released folder, and its answers with error bars."""

from __future__ import annotations

import csv
import datetime as dt
import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from privsyn.base.errors import RequestError
from privsyn.cli.common import PIPED_WIDTH, AsJson, Debug, parse_path, people, print_answer, print_errors

if TYPE_CHECKING:
    import pandas as pd

    from privsyn.answers.questions import Questions
    from privsyn.api.open_release import Release

EPOCH = dt.datetime(1970, 1, 1)  # released moments have no zone


def query_command(
    release: Annotated[str, typer.Argument(metavar="RELEASE", help="Released folder, or run name.")],
    question: Annotated[
        str,
        typer.Argument(
            metavar="QUESTION",
            help="Columns to count by, such as 'sex, income where age >= 65'. Or 'mean(age) by sex', 'share(happy) by "
            "region', 'median(income)', 'quantile(age, 0.9)', 'correlation()', 'regress(income ~ age)'. "
            "For linked rows also 'transitions(job)'.",
        ),
    ],
    earlier: Annotated[
        str | None, typer.Option(metavar="RELEASE", help="Show differences from this release: counts, shares or means.")
    ] = None,
    table: Annotated[
        str | None, typer.Option(metavar="NAME", help="For a tree of tables: the further table to ask about.")
    ] = None,
    level: Annotated[float, typer.Option(help="Confidence level of the intervals.")] = 0.95,
    population: Annotated[
        bool, typer.Option("--population", help="Intervals about the population from which the table was sampled.")
    ] = False,
    as_json: AsJson = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print CSV.")] = False,
    plot: Annotated[
        str | None, typer.Option(metavar="FILE", help="Write a chart with error bars, .png or .svg.")
    ] = None,
    out: Annotated[str | None, typer.Option(metavar="PATH", help="Folder with released/.")] = None,
    debug: Debug = False,
) -> None:
    """Answer a question from a release, with intervals.

    It needs only the released folder: no ledger, no table. It draws no noise and costs nothing.
    """
    with print_errors(debug=debug):
        picture, folder = parse_path(plot, "--plot"), parse_path(out, "--out")
        if as_json and as_csv:
            raise RequestError("--json and --csv are two formats", "Choose one of them")
        releases = [_open(release, folder, "query.release")]
        if earlier is not None:
            releases.append(_open(earlier, folder, "query.other"))
        queried = releases if table is None else [opened.of_table(table) for opened in releases]
        answers = _build_answers(queried, question, level, population=population)
        if picture is not None:
            from privsyn.answers.answer_table import build_answer_chart
            from privsyn.base.pictures import write_picture

            write_picture(build_answer_chart(answers), picture, "query.plot")
        _print(answers, as_json=as_json, as_csv=as_csv)


def _open(release: str, out: Path | None, field: str) -> Release:
    from privsyn.api.open_release import open_release
    from privsyn.base.settings import load_settings
    from privsyn.storage.released_files import find_release

    return open_release(find_release(release, load_settings(None if out is None else out.absolute()), field))


def _build_answers(releases: Sequence[Questions], question: str, level: float, *, population: bool) -> pd.DataFrame:
    from privsyn.answers.questions import answer, parse_difference

    if len(releases) == 1:
        return answer(releases[0], question, level, population=population)
    if population:
        raise RequestError("--population is not for differences", "Leave --earlier or --population out")
    return parse_difference(releases[0], releases[1], question, level)


def _print(answers: pd.DataFrame, *, as_json: bool, as_csv: bool) -> None:
    from privsyn.answers.answer_table import SECONDS_NOTE

    if as_json:
        rows = json.loads(answers.to_json(orient="records"))
        print_answer(json.dumps({"question": answers.attrs["about"], "answers": rows, "words": answers.attrs["words"]}))
        return
    if as_csv:
        print_answer(_format_csv(answers))
    else:
        figures, kind = {"estimate", "std_error", "low", "high"} & {*answers.columns}, answers.attrs.get("kind")
        cells = {name: [_format_cell(v, kind, name) for v in answers[name]] for name in figures}
        print_answer(answers.assign(**cells).to_string(index=False, line_width=PIPED_WIDTH))
    for words in answers.attrs["words"]:
        if as_json or as_csv or words != SECONDS_NOTE:  # the table has dates
            people.print(words, soft_wrap=True, style="dim")


def _format_csv(answers: pd.DataFrame) -> str:
    lines = io.StringIO()
    writer = csv.writer(lines, lineterminator="\n")
    writer.writerow(answers.columns)
    writer.writerows([["" if value != value else value for value in row] for row in answers.to_numpy(object).tolist()])
    return lines.getvalue().rstrip("\n")


def _format_cell(value: float, kind: str | None, name: str) -> str:
    """Return a rounded figure, - if unknown; one of dates or times (``kind``) as such, its error in days or minutes."""
    if value != value:
        return "-"
    if kind is None:
        return f"{value:,.0f}" if abs(value) >= 1_000 else f"{value:.4g}"
    if name == "std_error":
        return f"{value / 60:.3g} min" if kind == "time" else f"{value / 86_400:.3g} days"
    moment = EPOCH + dt.timedelta(seconds=round(value))
    if kind == "date":
        return (moment + dt.timedelta(hours=12)).date().isoformat()
    return f"{moment:%H:%M}" if kind == "time" else moment.isoformat(" ", "minutes")
