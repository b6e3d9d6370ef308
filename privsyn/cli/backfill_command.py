"""``privsyn backfill``: release the periods that were missed, in order, after their prices were shown."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from privsyn.base.errors import PeriodReleasedError, RequestError
from privsyn.cli.common import (
    AsJson,
    Debug,
    OutFolder,
    is_interactive,
    make_folder,
    open_results,
    people,
    print_answer,
    print_errors,
    read_settings,
)

if TYPE_CHECKING:
    from privsyn.api.backfill import Backfill
    from privsyn.base.settings import Settings
    from privsyn.data_contracts.release_spec import ReleaseSpec

Release = Callable[[str], str]


def backfill_command(
    dataset: Annotated[
        str,
        typer.Argument(
            metavar="DATASET", help="A deployed data set, or a spec's file, which is released in this process."
        ),
    ],
    first: Annotated[str, typer.Option("--from", metavar="PERIOD", help="The first period, such as 2026-01.")],
    last: Annotated[str, typer.Option("--to", metavar="PERIOD", help="The last period.")],
    out: OutFolder = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask before the releases are paid for.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print periods and prices, and stop.")] = False,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Release the missed periods of a data set.

    It shows the price of all periods first, and leaves out released ones.
    The server's worker releases a deployed data set; this process releases a spec's.
    It stops at the first failure; the same command continues from there.
    """
    with print_errors(debug=debug, out=out), ExitStack() as stack:
        from privsyn.api.backfill import list_rows, plan_backfill

        settings = read_settings(out)
        spec, calendar, release = _find_releaser(dataset, first, settings, stack)
        backfill = plan_backfill(spec, settings, first, last, calendar)
        results = open_results(as_json=as_json)
        if not as_json:
            table = Table("period", "state", "what is done", title=f"Backfill of {backfill.spec.dataset}")
            for row in list_rows(backfill):
                table.add_row(*row)
            results.print(table)
        people.print(backfill.words, soft_wrap=True)
        backfill.check()
        if not dry_run:
            _confirm(backfill, yes=yes)
            if out is not None:
                make_folder(settings)
        released = {} if dry_run else {period: _release(release, period) for period in backfill.due}
        if as_json:
            print_answer(json.dumps({"dataset": spec.dataset, "periods": backfill.states, "released": released}))


def _find_releaser(
    dataset: str, first: str, settings: Settings, stack: ExitStack
) -> tuple[ReleaseSpec, str | None, Release]:
    """Return spec, calendar and what releases periods as long as ``first``: this process, or a server's worker."""
    if Path(dataset).suffix in {".yaml", ".yml"} or Path(dataset).is_file():
        from privsyn.specs.spec_file import load_spec

        spec = load_spec(Path(dataset))
        return spec, None, lambda period: _release_here(spec, settings, period)
    from privsyn.base.calendar_periods import list_periods, parse_period
    from privsyn.server.backfill_runs import connect, find_deployment, release_period

    every = parse_period(list_periods(first, first)[0])[0]
    client = stack.enter_context(connect(settings))
    deployment = find_deployment(client, dataset, every)
    return deployment.spec, deployment.calendar, lambda period: release_period(client, deployment, period, people.print)


def _release_here(spec: ReleaseSpec, settings: Settings, period: str) -> str:
    from privsyn.api.release import propose_release
    from privsyn.cli.release_command import run_here_or_in_prefect

    try:
        summary = run_here_or_in_prefect(propose_release(spec, settings, period=period), prefect=False)
    except PeriodReleasedError as done:  # by somebody else, meanwhile
        return str(done)
    return f"{summary.rows:,} rows, {summary.released}"


def _release(release: Release, period: str) -> str:
    people.print(f"{period} ...")
    words = release(period)
    people.print(f"{period}: {words}", soft_wrap=True)
    return words


def _confirm(backfill: Backfill, *, yes: bool) -> None:
    """Ask before anything is paid for; ends with exit code 1 for a no."""
    if yes or not backfill.price:
        return
    if not is_interactive():
        raise RequestError("is needed where nobody can be asked", "Look at the prices with --dry-run first", "--yes")
    try:
        wanted = typer.confirm(f"Release {len(backfill.due)} periods of {backfill.spec.dataset!r}?", err=True)
    except typer.Abort:
        wanted = False
    if not wanted:
        people.print("Nothing was read, nothing was charged.")
        raise typer.Exit(1)
