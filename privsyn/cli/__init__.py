"""The command line: ``privsyn release | improve | backfill | query | evaluate | rerun | compare | spec ...``.

Belongs here: a module for each command, or group of commands: arguments, exit codes, progress and summaries on
standard error, JSON and tables on standard output.  Does not belong here: any logic of a release.  Heavy packages are
imported inside the commands, so that ``--help`` and refusals answer at once.
"""

from __future__ import annotations

import atexit
import gc
import os
import sys
from contextlib import suppress
from importlib.metadata import version
from typing import Annotated, Any

import typer
from typer.core import TyperGroup
from typer.main import get_command

from privsyn.base.errors import RequestError
from privsyn.base.registry import find_parts, load_part
from privsyn.cli import backfill_command as backfill
from privsyn.cli import compare_command as compare
from privsyn.cli import evaluate_command as evaluate
from privsyn.cli import folder_commands as folder
from privsyn.cli import forecasts
from privsyn.cli import ledger_command as ledger
from privsyn.cli import query_command as query
from privsyn.cli import release_command as release
from privsyn.cli import server_commands as operations
from privsyn.cli import spec_command as spec
from privsyn.cli.common import print_errors


class Commands(TyperGroup):
    """The commands of this module, and those that extras and other packages add."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names of all commands: of this module in its order, then of others."""
        with suppress(RequestError):  # an installation that is older than its code: a command says so
            return list(dict.fromkeys([*super().list_commands(ctx), *find_parts("commands")]))
        return super().list_commands(ctx)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return the command; packages are searched for one that is not of this module."""
        return super().get_command(ctx, cmd_name) or _load_command(cmd_name)


def _load_command(name: str) -> Any:
    """Return the command that a package adds: a function with the arguments of the command."""
    with print_errors(debug="--debug" in sys.argv):
        if name not in find_parts("commands"):
            return None
    added = typer.Typer(add_completion=False, rich_markup_mode=None)
    try:
        added.command(name)(load_part("commands", name))
    except RequestError as error:
        broken = error

        @added.command(name, help="Not available: its package cannot be loaded.")
        def say_broken() -> None:
            with print_errors(debug="--debug" in sys.argv):
                raise broken

    return get_command(added)


app = typer.Typer(
    cls=Commands,
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    help="Differentially private synthetic tables.",
)


def _show_version(*, wanted: bool) -> None:
    if wanted:
        typer.echo(f"privsyn {version('privsyn-flows')}")
        raise typer.Exit


@app.callback()
def show_version(
    wanted: Annotated[
        bool,
        typer.Option(
            "--version",
            help="Show the version and exit.",
            callback=lambda wanted: _show_version(wanted=wanted),
            is_eager=True,
        ),
    ] = False,
) -> None:
    """Differentially private synthetic tables."""


app.command("release")(release.release_command)
app.command("improve")(release.improve_command)
app.command("backfill")(backfill.backfill_command)
app.command("query")(query.query_command)
app.command("evaluate")(evaluate.evaluate_command)
app.command("rerun")(folder.rerun_command)
app.command("compare")(compare.compare_command)
app.command("formats")(folder.formats_command)
app.command("publish")(folder.publish_command)
app.command("epsilon")(forecasts.epsilon_command)
app.command("estimate")(forecasts.estimate_command)
app.command("prune")(folder.prune_command)
app.command("init")(operations.init_command)
app.command("server")(operations.server_command)
app.command("worker")(operations.worker_command)
app.command("deploy")(operations.deploy_command)
app.add_typer(spec.app, name="spec")
app.add_typer(ledger.app, name="ledger")


def main() -> None:
    """Entry point of ``privsyn``."""
    os.environ.setdefault("DO_NOT_TRACK", "1")
    os.environ.setdefault("PREFECT_SERVER_ANALYTICS_ENABLED", "false")
    os.environ.setdefault("PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS", "120")  # 20 are few on a busy machine
    if "--debug" not in sys.argv and not set(sys.argv[1:2]) & set(operations.COMMANDS):
        for logger in ("LOGGING", "SERVER_LOGGING", "LOGGING_ROOT", "LOGGING_HANDLERS_CONSOLE"):
            os.environ.setdefault(f"PREFECT_{logger}_LEVEL", "CRITICAL")
    # Loading makes hundreds of thousands of objects that stay: the collector need not look through them again and
    # again while they come, nor once more at the end, unless DuckDB is there, which would list what was not collected.
    gc.set_threshold(100_000, 50, 100)
    atexit.register(lambda: None if "duckdb" in sys.modules else gc.freeze())
    app()
