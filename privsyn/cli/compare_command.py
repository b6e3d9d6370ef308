"""``privsyn compare``: arguments, progress, and the table."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from privsyn.base.errors import RequestError
from privsyn.cli.common import (
    PIPED_WIDTH,
    AsJson,
    Debug,
    SpecPath,
    Tables,
    make_folder,
    parse_table,
    people,
    print_answer,
    print_errors,
    read_settings,
)

if TYPE_CHECKING:
    from privsyn.base.settings import Settings
    from privsyn.evaluation.comparison.compare_methods import AskedComparison, Compared


def compare_command(
    spec: SpecPath,
    data: Annotated[str | None, typer.Option(metavar="PATH", help="Real table instead of the spec's `data`.")] = None,
    holdout: Annotated[
        str | None, typer.Option(metavar="PATH", help="Real rows that no method sees, for models and attacks.")
    ] = None,
    methods: Annotated[
        str, typer.Option(metavar="A,B", help="Methods, or `all`. A wrong name prints the list.")
    ] = "default,privsyn-paper,independent",
    epsilons: Annotated[str, typer.Option(metavar="E,E", help="Epsilons, with the spec's delta.")] = "0.2,1,2",
    seeds: Annotated[int, typer.Option(metavar="N", help="Number of seeds, 0 to N - 1.")] = 3,
    label: Annotated[
        list[str] | None, typer.Option(metavar="COL", help="Column that a model predicts. Repeatable.")
    ] = None,
    out: Annotated[str | None, typer.Option(metavar="DIR", help="Folder with private/, for the results.")] = None,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Compare methods on a table: quality and time.

    It prints mean and spread over the seeds.
    NOT private: the noise is seeded and the figures are exact. Use it for public data, or data that stays with you.
    Results stay in private/compare/. Nothing is released or charged. Exit code 1 if no run was done.
    """
    start = time.monotonic()
    with print_errors(debug=debug, out=out):
        table, held, settings = parse_table(data, "--data"), parse_table(holdout, "--holdout"), read_settings(out)
        from privsyn.evaluation.comparison.compare_methods import METHODS, AskedComparison
        from privsyn.evaluation.settings_file import load_evaluation_spec
        from privsyn.specs.spec_file import load_spec, override_options

        named = tuple(name.strip() for name in methods.split(",") if name.strip())
        asked = AskedComparison(
            spec=override_options(load_spec(spec), data=table),
            methods=tuple(METHODS) if named == ("all",) else named,
            epsilons=_parse_numbers(epsilons),
            seeds=seeds,
            holdout=None if held is None else str(held),
            evaluation=load_evaluation_spec(None, label or "auto"),
        )
        asked.check()
        if out is not None:
            make_folder(settings)
        compared = _compare(asked, settings)
        _show(compared, round(time.monotonic() - start, 1), as_json=as_json)
        if all(r.outcome != "done" for r in compared.results.runs):
            raise typer.Exit(1)


def _parse_numbers(text: str) -> tuple[float, ...]:
    numbers = []
    for part in (p.strip() for p in text.split(",") if p.strip()):
        try:
            numbers.append(float(part))
        except ValueError:
            raise RequestError(
                f"{part!r} is not a number", "Write numbers with commas: 0.2,1,2", "comparison.epsilons"
            ) from None
    return tuple(numbers)


def _compare(asked: AskedComparison, settings: Settings) -> Compared:
    from privsyn.evaluation.comparison.compare_methods import compare

    notice = "Not private: for comparing on data that is public or that stays with you. Charges nothing."
    people.print(notice, soft_wrap=True)
    with people.status("Reading the table ...") as status:

        def report(work: str, done: int, total: int) -> None:
            status.update(f"{work} ({done} of {total} runs done)")
            if not people.is_terminal:
                people.print(f"{done}/{total} {work}", style="dim")

        return compare(asked, settings, report)


def _show(compared: Compared, seconds: float, *, as_json: bool) -> None:
    from privsyn.evaluation.comparison.results import build_table, describe_missing

    results = compared.results
    shown = people if as_json else Tables(max(PIPED_WIDTH, 60 + 24 * len(results.methods)))
    if as_json:
        print_answer(json.dumps(_as_json(compared, seconds)))
    else:
        shown.print(build_table(results))
        shown.print(results.cells, soft_wrap=True)
        for sentence in describe_missing(results):
            shown.print(sentence, soft_wrap=True)
    undone = [r for r in results.runs if r.outcome != "done"]
    for name in dict.fromkeys(r.method for r in undone):
        first = next(r for r in undone if r.method == name)
        many = sum(r.method == name for r in undone)
        words = f": {many} runs {first.outcome} ({first.note})"
        shown.print(Text.assemble((name, "yellow"), words), soft_wrap=True)
    shown.print("Look next at:", style="bold")
    for file, words in (("table.md", "the same table"), ("plot.svg", "its plots"), ("results.json", "every run")):
        shown.print(f"  {compared.folder / file}   {words} (private)", soft_wrap=True)


def _as_json(compared: Compared, seconds: float) -> dict[str, Any]:
    from privsyn.evaluation.comparison.results import describe_missing, list_lines

    results = compared.results
    figures = [
        {"method": method, "epsilon": epsilon, "metric": line.name, "mean": cell.mean, "sd": cell.sd, "n": cell.values}
        for line in list_lines(results)
        for (method, epsilon), cell in line.cells.items()
    ]
    return {
        "private": True,
        "notice": results.notice,
        "folder": str(compared.folder),
        "dataset": results.dataset,
        "runs": len(results.runs),
        "done": sum(r.outcome == "done" for r in results.runs),
        "figures": figures,
        "not_computed": describe_missing(results),
        "seconds": seconds,
    }
