"""The command line: ``privsyn release | spec draft | spec check | ledger show``.

Belongs here: arguments, exit codes, progress and summaries on standard error, JSON and the ledger on standard output.
Does not belong here: any logic of a release.  Heavy packages are imported inside the commands, so that
``--help`` and refusals answer at once.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from flows.errors import PrivsynError, RequestError
from flows.settings import Settings

if TYPE_CHECKING:
    from data_contracts.spec import ReleaseSpec
    from flows.publish import ReleaseSummary

app = typer.Typer(
    no_args_is_help=True, add_completion=False, rich_markup_mode=None, help="Differentially private synthetic tables."
)
spec_app = typer.Typer(no_args_is_help=True, help="Write and check release specs.")
ledger_app = typer.Typer(no_args_is_help=True, help="Look into the privacy ledger.")
app.add_typer(spec_app, name="spec")
app.add_typer(ledger_app, name="ledger")

people = Console(stderr=True, highlight=False)
"""What people watch goes to standard error; standard output is for ``--json`` and what ``ledger show`` shows."""

PIPED_WIDTH = 160
"""Columns of a table that is not shown on a terminal."""

WARN_EPSILON = 10.0

SpecPath = Annotated[Path, typer.Argument(metavar="SPEC", help="Release spec (YAML).")]
Debug = Annotated[bool, typer.Option("--debug", help="Show the whole error. It may contain private values.")]


def main() -> None:
    """Entry point of ``privsyn``."""
    os.environ.setdefault("DO_NOT_TRACK", "1")
    os.environ.setdefault("PREFECT_SERVER_ANALYTICS_ENABLED", "false")
    if "--debug" not in sys.argv:
        for logger in ("LOGGING", "SERVER_LOGGING", "LOGGING_ROOT", "LOGGING_HANDLERS_CONSOLE"):
            os.environ.setdefault(f"PREFECT_{logger}_LEVEL", "CRITICAL")
    app()


@contextmanager
def _errors_for_people(*, debug: bool) -> Iterator[None]:
    """Turn errors into one paragraph and an exit code: 2 request, 3 budget, 1 anything else."""
    started = time.time()
    try:
        yield
    except typer.Exit:
        raise
    except KeyboardInterrupt:
        people.print("privsyn: stopped. Run the same command again: finished steps are kept, nothing is charged twice.")
        raise typer.Exit(1) from None
    except Exception as error:
        if debug:
            _print_failure(since=started)
            traceback.print_exc()
        known = error if isinstance(error, PrivsynError) else _unexpected(error)
        people.print(Text.assemble(("privsyn: ", "bold red"), known.paragraph()), soft_wrap=True)
        raise typer.Exit(known.exit_code) from None


def _unexpected(error: Exception) -> PrivsynError:
    return PrivsynError(
        f"an unexpected {type(error).__name__} stopped the run",
        "Run again: finished steps are kept and nothing is charged twice; --debug shows the whole error, which may "
        "contain private values",
    )


def _print_failure(since: float) -> None:
    """The whole error behind a failed step, which the release keeps in the private zone only."""
    path = Settings().private_root / "failure.txt"
    if path.is_file() and path.stat().st_mtime >= since:
        people.print(path.read_text(encoding="utf-8"), markup=False)


@app.command("release")
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
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on standard output.")] = False,
    debug: Debug = False,
) -> None:
    """Make a differentially private synthetic table from the private table that SPEC names."""
    start = time.monotonic()
    with _errors_for_people(debug=debug):
        from flows.spec_file import load_spec, override

        table, folder = _named(data, "--data"), _named(out, "--out")
        if folder is not None:
            os.environ["PRIVSYN_OUT"] = str(folder.absolute())
        settings = Settings()  # a wrong variable is refused before anything starts
        request = override(load_spec(spec), epsilon=epsilon, delta=delta, data=table, seed=seed_synthesis)
        if folder is not None:
            _make_folder(settings.out)
        if request.privacy.epsilon > WARN_EPSILON:
            people.print(
                f"[yellow]Warning:[/] epsilon {request.privacy.epsilon:g} is above {WARN_EPSILON:g}: "
                "at this level attacks on single people are known to work."
            )
        summary = _run_release(request, fresh=fresh)
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


def _named(path: str | None, field: str) -> Path | None:
    """The path of an option; an empty one would silently mean the working folder, so it is refused."""
    if path is not None and not path.strip():
        raise RequestError("is empty", "Name a path, or leave the option out", field)
    return None if path is None else Path(path)


def _make_folder(out: Path) -> None:
    try:
        out.expanduser().mkdir(parents=True, exist_ok=True)
    except OSError as error:
        problem = f"cannot make the folder {out}: {error.strerror}"
        raise RequestError(problem, "Choose a folder that can be written", "--out") from None


def _run_release(request: ReleaseSpec, *, fresh: bool) -> ReleaseSummary:
    people.print("Starting Prefect ...", style="dim")
    from flows.release import release, reporting

    with _progress_bars() as report, reporting(report):
        return release(request, fresh=fresh)


@contextmanager
def _progress_bars() -> Iterator[Callable[[str, int, int], None]]:
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

    from flows.steps import STEPS

    titles = {s.name: f"{s.title}" for s in STEPS}
    kinds = {s.name: str(s.kind) for s in STEPS}
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
                bars[step] = progress.add_task(titles[step], total=total, kind=kinds[step])
                if not people.is_terminal:
                    people.print(f"{titles[step]} ({kinds[step]})", style="dim")
            if done == 1 and total == 1:
                total = done = int(progress.tasks[bars[step]].total or 1)
            progress.update(bars[step], completed=done, total=total)

        yield report


def _print_summary(request: ReleaseSpec, summary: ReleaseSummary, seconds: float) -> None:
    from flows.ledger import Ledger

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
    people.print(f"  {Path(summary.released) / 'synthetic.parquet'}   the table", soft_wrap=True)
    people.print(f"  {_command()} ledger show {request.dataset}   every charge so far", soft_wrap=True)


def _command() -> str:
    """How the reader starts this program again, on the same ledger."""
    started = Path(sys.argv[0])
    name = "privsyn" if shutil.which("privsyn") == str(started.absolute()) else str(started)
    ledger = os.environ.get("PRIVSYN_LEDGER")
    return f"PRIVSYN_LEDGER={ledger} {name}" if ledger and "@" not in ledger else name


def _budget_bar(spent: float, cap: float, delta: float, width: int = 24) -> str:
    full = min(width, round(width * spent / cap))
    bar = "█" * full + "░" * (width - full)
    return f"{bar} epsilon {spent:.3g} of {cap:g} used in this data set's life (delta {delta:g})"


@spec_app.command("draft")
def draft_command(
    data: Annotated[Path, typer.Argument(metavar="DATA", help="CSV or Parquet; only names and types are read.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="Where to write the draft.")],
    dictionary: Annotated[
        Path | None, typer.Option(help="Public dictionary (Frictionless, SDV, data-set JSON).")
    ] = None,
    dataset: Annotated[str | None, typer.Option(help="The ledger's name for the data set.")] = None,
    debug: Debug = False,
) -> None:
    """Draft a spec from the data's column names and a public dictionary; unknowns become TODOs."""
    with _errors_for_people(debug=debug):
        from flows.spec_draft import draft, open_todos

        if out.exists():
            raise RequestError(f"{out} exists already", "Choose another name, or move the file away", "--out")
        text = draft(data, dictionary, dataset, folder=out.parent)
        try:
            out.write_text(text, encoding="utf-8")
        except OSError as error:
            problem = f"cannot write {out}: {error.strerror}"
            raise RequestError(problem, "Choose a folder that exists and is writable", "--out") from None
        people.print(f"Wrote {out}: {open_todos(text)} TODOs left.", soft_wrap=True)
        people.print(f"Fill them from public sources, then: privsyn spec check {out}", soft_wrap=True)


@spec_app.command("check")
def check_command(
    spec: SpecPath,
    data: Annotated[
        str | None, typer.Option(metavar="PATH", help="Private table: also show, privately, how well it fits.")
    ] = None,
    debug: Debug = False,
) -> None:
    """Check a spec; with --data also how well the private table fits it. Spends nothing."""
    with _errors_for_people(debug=debug):
        from flows.source import Source
        from flows.spec_check import check, render
        from flows.spec_file import load_spec, override

        table = _named(data, "--data")
        request = override(load_spec(spec), data=table)
        source = Source.open(request.data, request) if table is not None else None
        render(check(request, source), people)


@ledger_app.command("show")
def show_command(
    dataset: Annotated[str | None, typer.Argument(metavar="[DATASET]", help="One data set; without it, all.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="JSON on standard output.")] = False,
    debug: Debug = False,
) -> None:
    """Show what each data set has spent of its budget, and every charge.

    Exit code 1 when the audit finds a problem.  A ledger that does not exist yet is no error, and is not made.
    """
    with _errors_for_people(debug=debug):
        from flows.ledger_view import ledger_as_json, print_ledger

        settings = Settings()
        if as_json:
            answer = ledger_as_json(settings.ledger, dataset)
            print(json.dumps(answer))
            verified = bool(answer["verified"])
        else:
            width = None if sys.stdout.isatty() else PIPED_WIDTH
            verified = print_ledger(settings.ledger, dataset, Console(highlight=False, width=width))
        if not verified:
            raise typer.Exit(1)


if __name__ == "__main__":
    main()
