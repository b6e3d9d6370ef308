"""Prefect's server and a worker, started and stopped together; or a worker alone."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from privsyn.base.errors import LedgerError
from privsyn.base.settings import Settings
from privsyn.server import doors, ends_with_parent, work_pool
from privsyn.server.environment import DATABASE, POOL, Address, build_client_auth_env, build_prefect_environment
from privsyn.server.login import build_server_login, locate_login_file
from privsyn.server.lost_runs import name_worker
from privsyn.server.programs import stop_together
from privsyn.storage.disk import translate_os_errors

Say = Callable[[str], None]

OPEN_PAGES = 3
"""Seconds that connections of open pages may hold up a server that is told to stop."""


def run_server(settings: Settings, say: Say, *, worker: bool = True, health_port: int | None = None) -> None:
    """Run the server, and with ``worker`` a worker beside it, until an interrupt (Ctrl-C, SIGTERM).

    With ``health_port`` the worker answers there while it polls the server.  One that ends by itself is started again,
    and takes nothing with it.  Raises RequestError for a port that is not free, PrivsynError when the database does not
    answer or the server does not come up; nothing is left running.
    """
    environment = build_prefect_environment(settings)
    address = Address.of(environment)
    address.check_free()
    home = Path(environment["PREFECT_HOME"])
    with translate_os_errors(home):
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
    environment |= build_server_login(settings, environment)
    if settings.server_database is not None:
        check_database(settings)
    history = "PostgreSQL" if "postgresql" in environment.get(DATABASE, "") else f"{home} (SQLite)"
    with stop_together() as programs:
        programs.start("server", _build_server_command(address), environment)
        programs.wait_until(address.answers)
        if worker:  # started again beside a server that starts, too, it would take the processor from it
            command, health = _build_worker_command(health_port), _build_health(health_port)
            programs.start("worker", command, environment | health, needs=address.answers)
        say(f"The page: {address.page}   its history: {history}")
        say(
            f"It asks for the login in {locate_login_file(settings, environment)}, which is worth this account: "
            f"keep it."
        )
        if worker:
            say(f"A worker runs what is started there; its files go to {settings.out.absolute()}")
        say("Next, in another terminal: `privsyn deploy`. Stop with Ctrl-C.")
        while True:
            programs.restart_exited(say)
            time.sleep(0.5)


def run_worker(settings: Settings, say: Say, *, health_port: int | None = None) -> None:
    """Run one worker for the server at PREFECT_API_URL until an interrupt; it may be on another computer.

    With ``health_port`` it answers there while it polls the server.
    """
    environment = build_prefect_environment(settings) | _build_health(health_port)
    address = Address.of(environment)
    address.wait()
    environment |= build_client_auth_env(settings, environment, address)
    with stop_together() as programs:
        programs.start("worker", _build_worker_command(health_port), environment)
        say(f"A worker for {address.page}; its files go to {settings.out.absolute()}. Stop with Ctrl-C.")
        while True:
            programs.restart_exited(say)
            time.sleep(0.5)


def check_database(settings: Settings) -> None:
    """Raise LedgerError, without a password, where PRIVSYN_DATABASE_URL names a database that lets nobody in.

    One that may be starting is waited for, as a ledger's.
    """
    from privsyn.base.database_url import check_ledger_url
    from privsyn.ledgers.database import check_connection

    try:
        check_connection(check_ledger_url(settings.database_url, settings.database_password_file))
    except LedgerError as error:
        url = "settings.database_url"
        raise error.about(url, {"settings.ledger": url}) from error


def _build_server_command(address: Address) -> list[str]:
    """Prefect's server behind its doors, without its services' chatter."""
    command = doors.build_uvicorn_command("create_app", address.host, address.port, "warning")
    return [*ends_with_parent.build_watched_command(), *command, "--timeout-graceful-shutdown", str(OPEN_PAGES)]


def _build_health(port: int | None) -> dict[str, str]:
    """Return the variables of a worker that answers at ``port`` of this computer."""
    if port is None:
        return {}
    return {"PREFECT_WORKER_WEBSERVER_HOST": "127.0.0.1", "PREFECT_WORKER_WEBSERVER_PORT": str(port)}


def _build_worker_command(health_port: int | None) -> list[str]:
    """Prefect's worker, once the pool is closed."""
    start = ["--no-prompt", "worker", "start", "--pool", POOL, "--type", "process", "--name", name_worker()]
    start += [] if health_port is None else ["--with-healthcheck"]
    return [*ends_with_parent.build_watched_command(), work_pool.__name__, *start]
