"""``privsyn evaluate``: arguments, progress and the closing summary."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.panel import Panel
from rich.table import Table

from privsyn.base.errors import RequestError
from privsyn.cli.common import (
    AsJson,
    Debug,
    RunsFolder,
    open_results,
    parse_path,
    parse_table,
    people,
    print_answer,
    print_errors,
    read_settings,
    warn_of_epsilon,
)

if TYPE_CHECKING:
    from rich.console import Console

    from privsyn.base.settings import Settings
    from privsyn.data_contracts.evaluation import Evaluation, Metric
    from privsyn.evaluation.private_evaluation import AskedEvaluation, Report


def evaluate_command(
    release: Annotated[str, typer.Argument(metavar="RELEASE", help="Run name, or folder under released/.")],
    data: Annotated[
        str | None, typer.Option(metavar="REAL", help="Private table. Default: the one that the run remembers.")
    ] = None,
    holdout: Annotated[
        str | None,
        typer.Option(metavar="REAL2", help="Real rows that the release has not seen, for models and attacks."),
    ] = None,
    against: Annotated[
        list[str] | None,
        typer.Option(metavar="OTHER", help="Another synthetic table with the same columns. Repeatable."),
    ] = None,
    label: Annotated[
        list[str] | None, typer.Option(metavar="COLUMN", help="Column that a model predicts. Repeatable.")
    ] = None,
    settings_file: Annotated[
        str | None,
        typer.Option(
            "--settings",
            metavar="FILE",
            help="YAML file with any of seed, labels, range_queries, nist_schemas, nist_queries, k, groups, "
            "income, pie, mgd (with hierarchies), model_rows, attack_rows, analyses.",
        ),
    ] = None,
    epsilon_report: Annotated[
        float | None,
        typer.Option(
            metavar="E",
            help="Instead, release a few noisy figures at this epsilon, charged to the budget.",
        ),
    ] = None,
    out: RunsFolder = None,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Compare a release with its private table.

    The report is private. With --epsilon-report, a few noisy figures are released instead, at a cost.
    """
    start = time.monotonic()
    with print_errors(debug=debug, out=out):
        table, settings = parse_table(data, "--data"), read_settings(out)
        if epsilon_report is not None:
            if holdout or against or label or settings_file:
                raise RequestError(
                    "goes with --data and --out only: what it publishes is fixed",
                    "Leave the other options out, or run the private evaluation without it",
                    "evaluate.epsilon_report",
                )
            _release_figures(release, epsilon_report, settings, table, as_json=as_json)
            return
        from privsyn.evaluation.private_evaluation import AskedEvaluation
        from privsyn.evaluation.settings_file import load_evaluation_spec

        spec = load_evaluation_spec(parse_path(settings_file, "--settings"), label or ())
        asked = AskedEvaluation(
            release,
            table,
            parse_table(holdout, "--holdout"),
            [str(parse_table(p, "--against")) for p in against or ()],
            spec,
        )
        report = _evaluate(asked, settings)
        seconds = round(time.monotonic() - start, 1)
        if as_json:
            print_answer(json.dumps(_as_json(report, seconds)))
        _print_summary(report, seconds, open_results(as_json=as_json))


def _evaluate(asked: AskedEvaluation, settings: Settings) -> Report:
    from privsyn.evaluation.private_evaluation import evaluate

    with people.status("Opening the release ...") as status:

        def stage(name: str, run: Callable[[], Any]) -> Any:
            status.update(f"{name} ...")
            if not people.is_terminal:
                people.print(name, style="dim")
            return run()

        return evaluate(asked, settings, stage)


def _print_summary(report: Report, seconds: float, results: Console) -> None:
    """Print the headlines; a narrow terminal shows an arrow to where better is in place of the range."""
    evaluation = report.evaluation
    wide = results.width >= 100 + 14 * (len(evaluation.scores) - 1)
    grid = Table(box=None, padding=(0, 2 if wide else 1), header_style="bold", title_justify="left")
    grid.add_column("private figures", overflow="fold")
    for scores in evaluation.scores:
        grid.add_column(scores.table, justify="right", overflow="fold")
    if wide:
        grid.add_column("range", no_wrap=True)
    grid.add_column("like a sample of", justify="right", no_wrap=True)
    for i, metric in enumerate(evaluation.release.metrics):
        if metric.headline:
            values = [_format_value(s.metrics[i]) for s in evaluation.scores]
            arrow = "" if wide else " ↓" if metric.better == "lower" else " ↑"
            grid.add_row(metric.title + arrow, *values, *([_format_range(metric)] if wide else []), _sample(metric))
    title = f"privsyn evaluate {evaluation.run}: private, computed from the real rows"
    results.print(Panel(grid, title=title, border_style="yellow", expand=False))
    for metric in evaluation.release.metrics:
        if metric.headline and metric.value is None and metric.note:
            results.print(f"{metric.title}: {metric.note.rstrip('.')}.", soft_wrap=True, markup=False)
    for analysis in evaluation.analyses:
        close = sum(figure.close for figure in analysis.figures)
        number = len(analysis.figures)
        words = f"{close} of {number} figure{'s' * (number != 1)} within 15 % or two standard errors"
        results.print(
            f"{analysis.title}: {words if number else (analysis.note or 'no figure').rstrip('.')}.",
            soft_wrap=True,
            markup=False,
        )
    results.print("Look next at:", style="bold")
    results.print(f"  {report.html}   the private report ({seconds:g} s)", soft_wrap=True)
    results.print(f"  {report.figures}   the same figures", soft_wrap=True)


def _format_value(metric: Metric) -> str:
    return "not known" if metric.value is None else f"{metric.value:,.4g}"


def _format_range(metric: Metric) -> str:
    high = "" if metric.high is None else f"{metric.high:g}"
    return f"{metric.low:g}..{high}, {metric.better} is better"


def _sample(metric: Metric) -> str:
    if metric.subsample is None:
        return ""
    from privsyn.tasks.metrics.samples import SHARES  # here: other commands do without what it loads

    return f"{'≤ ' if metric.subsample <= SHARES[0] else ''}{metric.subsample:.1%} of real rows"


def _as_json(report: Report, seconds: float) -> dict[str, Any]:
    evaluation: Evaluation = report.evaluation
    return {
        "run": evaluation.run,
        "private": True,
        "report": str(report.html),
        "figures": str(report.figures),
        "scores": {s.table: {m.name: m.value for m in s.metrics} for s in evaluation.scores},
        "seconds": seconds,
    }


def _release_figures(
    release: str, epsilon: float, settings: Settings, data: str | Path | None, *, as_json: bool
) -> None:
    from privsyn.evaluation.quality_release import publish_quality

    warn_of_epsilon(epsilon)
    summary = publish_quality(release, epsilon, settings, data=data)
    if as_json:
        print_answer(json.dumps(summary.model_dump(mode="json")))
    results = open_results(as_json=as_json)
    grid = Table(box=None, padding=(0, 2), header_style="bold")
    grid.add_column("released figures")
    grid.add_column("value", justify="right")
    grid.add_column("sd of its noise", justify="right")
    for figure in summary.figures:
        grid.add_row(figure.title, f"{figure.value:.4g}", f"{figure.noise_sd:.2g}")
    results.print(Panel(grid, title=f"{summary.run}", border_style="green", expand=False))
    cost = f"epsilon {summary.epsilon:g}, delta {summary.delta:g} (rho {summary.rho:.4g})"
    charged = f"Cost: {cost}, charged to the data set" if summary.drawn else f"Cost: nothing, they were there ({cost})"
    results.print(f"{charged}. Files: {summary.released}  (publish)", soft_wrap=True)
