"""``privsyn improve``: arguments; what is run and shown is as for ``privsyn release``."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from privsyn.cli.common import (
    AsFlow,
    AsJson,
    Debug,
    RunsFolder,
    parse_table,
    print_errors,
    read_settings,
    warn_of_epsilon,
)
from privsyn.cli.release_command import run_here_or_in_prefect, show_summary


def improve_command(
    release: Annotated[str, typer.Argument(metavar="RUN", help="A run's name, or its released folder.")],
    epsilon: Annotated[float, typer.Option(help="What the new looks may cost by themselves.")],
    data: Annotated[
        str | None, typer.Option(metavar="PATH", help="Where the unchanged private table lies now.")
    ] = None,
    out: RunsFolder = None,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Draw new noise although this improvement exists; costs budget.")
    ] = False,
    as_json: AsJson = False,
    prefect: AsFlow = False,
    debug: Debug = False,
) -> None:
    """Measure more of the unchanged table of RUN, and make a better table of all that was paid for.

    Only the new looks are charged. The result is a release of its own, whose epsilon is that of all looks together.
    """
    start = time.monotonic()
    with print_errors(debug=debug, out=out):
        from privsyn.api.improve import build_improved_spec
        from privsyn.pipelines.release_plan import build_candidate

        table, settings = parse_table(data, "--data"), read_settings(out)
        request = build_improved_spec(release, settings, epsilon, table)
        warn_of_epsilon(request.privacy.epsilon)
        candidate = build_candidate(request, settings, fresh=fresh)
        summary = run_here_or_in_prefect(candidate, prefect=prefect)
        show_summary(candidate, summary, start, as_json=as_json)
