"""``privsyn init``, ``privsyn server``, ``privsyn worker`` and ``privsyn deploy``."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from privsyn.cli.common import Debug, parse_path, people, print_errors, read_settings

COMMANDS = ("server", "worker", "deploy")
"""Their logs are an operator's: not silenced, as Prefect's are elsewhere."""


HealthPort = Annotated[
    int | None, typer.Option(min=1, max=65535, help="Port of the worker's http://127.0.0.1:PORT/health.")
]


def init_command(
    folder: Annotated[str, typer.Argument(metavar="FOLDER", help="Created if missing. No file is replaced.")],
    debug: Debug = False,
) -> None:
    """Create a server's configuration files.

    These are deployments, an operator's policy, PostgreSQL scripts, systemd units and an example.
    """
    with print_errors(debug=debug):
        from privsyn.server.deployments_file import write_starter_files

        for path in write_starter_files(parse_path(folder, "init.folder") or Path()):
            _print_line(f"Wrote {path}")
        _print_line(f"Next: cd {folder}; privsyn server; and in another terminal, there too: privsyn deploy.")


def server_command(
    worker: Annotated[bool, typer.Option(help="Also start a worker, which executes the runs.")] = True,
    health_port: HealthPort = None,
    debug: Debug = False,
) -> None:
    """Run a Prefect server and a worker, until Ctrl-C.

    PREFECT_SERVER_API_PORT sets the port (default 4200).
    PRIVSYN_DATABASE_URL sets a PostgreSQL database for the server and the ledger.
    """
    with print_errors(debug=debug):
        from privsyn.server.server_and_worker import run_server

        _run_until_stopped(lambda: run_server(read_settings(), _print_line, worker=worker, health_port=health_port))


def worker_command(
    health_port: HealthPort = None,
    debug: Debug = False,
) -> None:
    """Run a worker for the server at PREFECT_API_URL, until Ctrl-C."""
    with print_errors(debug=debug):
        from privsyn.server.server_and_worker import run_worker

        _run_until_stopped(lambda: run_worker(read_settings(), _print_line, health_port=health_port))


def deploy_command(
    file: Annotated[Path, typer.Option(metavar="FILE", help="File of deployments.")] = Path("deployments/prefect.yaml"),
    debug: Debug = False,
) -> None:
    """Register or update deployments and notifications.

    They are registered with the server at PREFECT_API_URL.
    """
    with print_errors(debug=debug):
        from privsyn.server.registration import register

        register(read_settings(), _print_line, file)


def _run_until_stopped(run: Callable[[], None]) -> None:
    try:
        run()
    except KeyboardInterrupt:
        people.print("privsyn: stopped.")


def _print_line(text: str) -> None:
    people.print(text, soft_wrap=True)
