"""``privsyn release``: arguments, progress and the closing summary.

Belongs here: what people type and see.  Does not belong here: the release (flows/release.py).
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Annotated

import typer
from rich.panel import Panel
from rich.table import Table

from flows.cli.common import (
    Debug,
    SpecPath,
    command_name,
    errors_for_people,
    make_folder,
    named_path,
    people,
    warn_of_epsilon,
)

if TYPE_CHECKING:
    from data_contracts.spec import ReleaseSpec
    from flows.publish import ReleaseSummary
    from flows.settings import Settings


def release_command(
    spec: SpecPath,
    data: Annotated[
        str | None, typer.Option(metavar="PATH", help="Private table instead of the spec's `data`.")
    ] = None,
    out: Annotated[str | None, typer.Option(metavar="PATH", help="Folder for released/ and private/.")] = None,
    epsilon: Annotated[float | None, typer.Option(help="Epsilon instead of the spec's.")] = None,
    delta: Annotated[float | None, typer.Option(help="Delta instead of the spec's.")] = None,
    seed_synthesis: Annotated[int | None, typer.Option(help="Seed of the post-processing (never of noise).")] = None,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Draw new noise although a release exists; costs budget.")
    ] = False,
    engine: Annotated[
        str | None, typer.Option(metavar="ENGINE", help="local, dask, or a Dask scheduler's address; same result.")
    ] = None,
    period: Annotated[
        str | None, typer.Option(metavar="PERIOD", help="Release this period, such as 2026-11, unless it is released.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on standard output.")] = False,
    debug: Debug = False,
) -> None:
    """Make a differentially private synthetic table from the private table that SPEC names."""
    start = time.monotonic()
    with errors_for_people(debug=debug):
        from flows.preflight import check_request, release_job
        from flows.settings import Settings
        from flows.spec.file import load_spec, override

        table, folder = named_path(data, "--data"), named_path(out, "--out")
        if folder is not None:
            os.environ["PRIVSYN_OUT"] = str(folder.absolute())
        settings = Settings()  # a wrong variable is refused before anything starts
        request = override(load_spec(spec), epsilon, delta, table, seed_synthesis, engine)
        if folder is not None:
            make_folder(settings)
        warn_of_epsilon(request.privacy.epsilon)
        job = release_job(request, period)
        with _released_before(settings, as_json=as_json):
            check_request(request, settings, fresh=fresh, job=job)  # what is wrong is said before Prefect starts
        summary = _run_release(request, fresh=fresh) if period is None else _run_period(request, period)
        seconds = round(time.monotonic() - start, 1)
        if as_json:
            shown = summary.model_dump(exclude={"drawn"})
            print(json.dumps({**shown, "seconds": seconds}))
        _print_summary(request, summary, seconds)
        if summary.rows == 0 and request.synthesis.rows == "auto":
            people.print(
                "[yellow]Warning:[/] the release has 0 rows: the noisy total is zero, since epsilon "
                f"{request.privacy.epsilon:g} is too small for a table of this size. What was spent stays spent.",
                soft_wrap=True,
            )


@contextmanager
def _released_before(settings: Settings, *, as_json: bool) -> Iterator[None]:
    """Say so, and end with 0, where the period is released already; with JSON, print the earlier release's object."""
    from flows.errors import PeriodReleasedError

    try:
        yield
    except PeriodReleasedError as done:
        from flows.publish import summary_on_disk

        summary = summary_on_disk(done.run, settings)
        people.print(done.paragraph(), soft_wrap=True, markup=False)
        if summary is not None:
            people.print(f"  {summary.released}", soft_wrap=True, markup=False)
        if as_json:
            shown = {"run": done.run} if summary is None else summary.model_dump(exclude={"drawn"})
            print(json.dumps({**shown, "seconds": 0.0}))
        raise typer.Exit(0) from None


def _run_release(request: ReleaseSpec, *, fresh: bool) -> ReleaseSummary:
    with _watched():
        from flows.release import release

        return release(request, fresh=fresh)


def _run_period(request: ReleaseSpec, period: str) -> ReleaseSummary:
    with _watched():
        from flows.operations.schedule import scheduled_release

        return scheduled_release(request, period=period)


@contextmanager
def _watched() -> Iterator[None]:
    """Show the progress of a release, and load what it needs while Prefect's server starts."""
    people.print("Starting Prefect ...", style="dim")
    from flows.operations.temporary_server import server_loss_in_words, temporary_server_starting

    with temporary_server_starting():
        from flows.checks import prepare
        from flows.release import reporting

        Thread(target=prepare, name="load-checks").start()  # seconds that pass anyway
    with server_loss_in_words(), _progress_bars() as report, reporting(report):
        yield


@contextmanager
def _progress_bars() -> Iterator[Callable[[str, int, int], None]]:
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

    from data_contracts.adaptive import MOST_ROUNDS
    from flows.rounds import rounds
    from flows.steps import STEPS

    known = {s.name: s for s in (*STEPS, *(step for r in rounds(MOST_ROUNDS) for step in r))}
    columns = (
        TextColumn("{task.description:<18}"),
        TextColumn("[dim]{task.fields[kind]:<11}"),
        BarColumn(bar_width=28),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=people, disable=not people.is_terminal) as progress:
        bars: dict[str, TaskID] = {}

        def report(step: str, done: int, total: int) -> None:
            if step not in bars:
                shown = known[step]
                bars[step] = progress.add_task(shown.title, total=total, kind=str(shown.kind))
                if not people.is_terminal:
                    people.print(shown.label, style="dim")
            if done == 1 and total == 1:
                total = done = int(progress.tasks[bars[step]].total or 1)
            progress.update(bars[step], completed=done, total=total)

        yield report


def _print_summary(request: ReleaseSpec, summary: ReleaseSummary, seconds: float) -> None:
    from flows.ledger.ledger import Ledger
    from flows.settings import Settings

    state = Ledger(Settings().ledger).summary(request.dataset)[0]
    drawn = ", ".join(s.replace("_", " ") for s in summary.drawn)
    nothing = "nothing: every noisy table was there already, no noise was drawn"
    cost = f"rho {summary.rho:.4g} at most; noise drawn for {drawn}" if drawn else nothing
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="bold", no_wrap=True)
    grid.add_column(overflow="fold")
    columns = len(request.released_columns)
    grid.add_row("Released", f"{summary.rows:,} synthetic rows, {columns} columns, run {summary.run}")
    promise = f"({summary.epsilon:g}, {summary.delta:g})-differential privacy"
    grid.add_row("Promise", f"{promise} for adding or removing {request.unit.describe()}")
    grid.add_row("This run cost", cost)
    grid.add_row("Budget", _budget_bar(state.epsilon, state.cap.epsilon, state.cap.delta))
    grid.add_row("Files", f"{summary.released}  (give away)")
    grid.add_row("", f"{summary.private}  (keep: private)")
    grid.add_row("Time", f"{seconds:g} s")
    people.print(Panel(grid, title="privsyn release", border_style="green", expand=False))
    people.print("Look next at:", style="bold")
    people.print(f"  {Path(summary.released) / 'README.md'}   what the release is, in plain words", soft_wrap=True)
    table = Path(summary.released) / "synthetic.parquet"
    people.print(f"  {table if table.exists() else table.with_suffix('')}   the table", soft_wrap=True)
    out = Settings().out
    where = "" if out == Settings.model_fields["out"].default else f" --out {out}"
    people.print(f"  {command_name()} evaluate {summary.run}{where}   how good it is: a private report", soft_wrap=True)
    people.print(f"  {command_name()} ledger show {request.dataset}   every charge so far", soft_wrap=True)


def _budget_bar(spent: float, cap: float, delta: float, width: int = 24) -> str:
    full = min(width, round(width * spent / cap))
    bar = "█" * full + "░" * (width - full)
    return f"{bar} epsilon {spent:.3g} of {cap:g} used in this data set's life (delta {delta:g})"
