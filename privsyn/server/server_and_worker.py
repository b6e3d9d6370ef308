"""Prefect's server and a worker, or only a worker, as programs that start and stop together.

A program that ends by itself is restarted.
"""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

import psutil

from privsyn.base.errors import LedgerError, PrivsynError
from privsyn.base.settings import Settings
from privsyn.server import ends_with_parent, request_guard, work_pool
from privsyn.server.environment import (
    DATABASE,
    POOL,
    UMASK,
    Address,
    build_client_auth_env,
    build_prefect_environment,
    make_home_private,
)
from privsyn.server.login import build_server_login, locate_login_file
from privsyn.server.work_pool import name_worker

Log = Callable[[str], None]

OPEN_PAGES = 3
"""Seconds that open pages may delay the server's stop."""


def run_server(settings: Settings, log: Log, *, worker: bool = True, health_port: int | None = None) -> None:
    """Run the server, and with ``worker`` a worker beside it, until an interrupt (Ctrl-C, SIGTERM).

    With ``health_port`` the worker answers there while it polls the server.  A program that ends by itself is restarted
    alone.  Raises RequestError if the port is not free, PrivsynError if the database does not answer or the server does
    not start; nothing is left running.
    """
    environment = build_prefect_environment(settings)
    address = Address.of(environment)
    address.check_free()
    home = Path(environment["PREFECT_HOME"])
    make_home_private(home, environment.get(DATABASE, ""))
    environment |= build_server_login(settings, environment)
    if settings.server_database is not None:
        log("Waiting for the database of PRIVSYN_DATABASE_URL")
        check_database(settings)
    history = "PostgreSQL" if "postgresql" in environment.get(DATABASE, "") else f"{home} (SQLite)"
    with stop_together() as programs:
        programs.start("server", _build_server_command(address), environment, umask=UMASK)
        log(f"Waiting for Prefect's server to answer at {address.api}")
        programs.wait_until(address.answers, lambda seconds: log(f"Still waiting for it, after {seconds:.0f} s"))
        if worker:  # restart it only after the server, so that they do not compete for the processor
            command, health = _build_worker_command(health_port), _build_health(health_port)
            programs.start("worker", command, environment | health, needs=address.answers)
        log(f"The page: {address.page}   its history: {history}")
        log(
            f"It asks for the login in {locate_login_file(settings, environment)}, which is worth this account: "
            f"keep it."
        )
        if worker:
            log(f"A worker runs what is started there; its files go to {settings.out.absolute()}")
        log("Next, in another terminal: `privsyn deploy`. Stop with Ctrl-C.")
        while True:
            programs.restart_exited(log)
            time.sleep(0.5)


def run_worker(settings: Settings, log: Log, *, health_port: int | None = None) -> None:
    """Run one worker for the server at PREFECT_API_URL until an interrupt; it may be on another computer.

    With ``health_port`` it answers there while it polls the server.
    """
    environment = build_prefect_environment(settings) | _build_health(health_port)
    address = Address.of(environment)
    if not address.answers():
        log(f"Waiting for the server at {address.api}")
    address.wait()
    environment |= build_client_auth_env(settings, environment, address)
    make_home_private(Path(environment["PREFECT_HOME"]))
    with stop_together() as programs:
        programs.start("worker", _build_worker_command(health_port), environment)
        log(f"A worker for {address.page}; its files go to {settings.out.absolute()}. Stop with Ctrl-C.")
        while True:
            programs.restart_exited(log)
            time.sleep(0.5)


def check_database(settings: Settings) -> None:
    """Raise LedgerError, without a password in it, if the database of PRIVSYN_DATABASE_URL refuses the connection.

    Wait for a database that may be starting, as for a ledger's.
    """
    from privsyn.base.settings import check_ledger_url
    from privsyn.ledgers.database import check_connection

    try:
        check_connection(check_ledger_url(settings.database_url, settings.database_password_file))
    except LedgerError as error:
        url = "settings.database_url"
        raise error.about(url, {"settings.ledger": url}) from error


def _build_server_command(address: Address) -> list[str]:
    """Return the command of Prefect's server behind the checks of request_guard.py, with warnings only."""
    command = request_guard.build_uvicorn_command("create_app", address.host, address.port, "warning")
    return [*ends_with_parent.build_watched_command(), *command, "--timeout-graceful-shutdown", str(OPEN_PAGES)]


def _build_health(port: int | None) -> dict[str, str]:
    """Return the variables of a worker that answers at ``port`` of this computer."""
    if port is None:
        return {}
    return {"PREFECT_WORKER_WEBSERVER_HOST": "127.0.0.1", "PREFECT_WORKER_WEBSERVER_PORT": str(port)}


def _build_worker_command(health_port: int | None) -> list[str]:
    """Return the command of Prefect's worker, which closes the pool first."""
    start = ["--no-prompt", "worker", "start", "--pool", POOL, "--type", "process", "--name", name_worker()]
    start += [] if health_port is None else ["--with-healthcheck"]
    return [*ends_with_parent.build_watched_command(), work_pool.__name__, *start]


STOP_SECONDS = 20.0
"""Seconds that a program and its children have to stop before they are killed."""

FIRST_PAUSE, LONGEST_PAUSE = 1.0, 60.0
"""Shortest and longest pause in seconds before a program that ended by itself is restarted."""

REMINDER_SECONDS = 10.0
"""Seconds between two reminders of a wait."""

STEADY_SECONDS = 60.0
"""Seconds after which a program counts as running well."""

_Process = subprocess.Popen[bytes]


@dataclass
class Programs:
    """Started programs, in order, each in its own session.

    Only this process receives the terminal's Ctrl-C; it stops the others, the last one first.
    """

    started: dict[str, _Process] = field(default_factory=dict)
    _commands: dict[str, tuple[Sequence[str], dict[str, str], int]] = field(default_factory=dict)
    _needs: dict[str, Callable[[], bool]] = field(default_factory=dict)
    _pauses: dict[str, float] = field(default_factory=dict)
    _since: dict[str, float] = field(default_factory=dict)
    _due: dict[str, float] = field(default_factory=dict)

    def start(
        self,
        name: str,
        command: Sequence[str],
        environment: Mapping[str, str],
        needs: Callable[[], bool] = lambda: True,
        umask: int = -1,
    ) -> None:
        """Start a program with ``umask`` (-1: this process's), ``name`` for people; a restart waits for ``needs``."""
        self._commands[name], self._needs[name] = (command, dict(environment), umask), needs
        self._begin(name)

    def _begin(self, name: str) -> None:
        command, environment, umask = self._commands[name]
        process = subprocess.Popen(  # noqa: S603
            command, env=environment, stdin=subprocess.DEVNULL, start_new_session=True, umask=umask
        )
        self.started[name], self._since[name] = process, time.monotonic()

    def restart_exited(self, log: Callable[[str], None]) -> None:
        """Restart each program that has ended by itself, after a pause.  Call this regularly.

        The pause is FIRST_PAUSE, and doubles up to LONGEST_PAUSE each time the program ends within STEADY_SECONDS.
        """
        now = time.monotonic()
        for name, process in self.started.items():
            if process.poll() is None:
                continue
            if name not in self._due:
                settled = now - self._since[name] >= STEADY_SECONDS
                pause = FIRST_PAUSE if settled else min(2 * self._pauses.get(name, FIRST_PAUSE / 2), LONGEST_PAUSE)
                self._pauses[name], self._due[name] = pause, now + pause
                log(f"The {name} ended by itself, with exit code {process.returncode}; it starts again in {pause:g} s.")
            elif now >= self._due[name] and self._needs[name]():
                del self._due[name]
                self._begin(name)

    def check(self) -> None:
        """Raise PrivsynError if a program has ended by itself."""
        for name, process in self.started.items():
            if process.poll() is not None:
                raise PrivsynError(
                    f"the {name} ended by itself, with exit code {process.returncode}",
                    "What it printed above says why; the others were stopped too",
                )

    def wait_until(self, ready: Callable[[], bool], remind: Callable[[float], None] = lambda _: None) -> None:
        """Wait for ``ready`` while all programs run; every REMINDER_SECONDS call ``remind`` with the time waited."""
        start = reminded = time.monotonic()
        while not ready():
            self.check()
            if (now := time.monotonic()) - reminded >= REMINDER_SECONDS:
                reminded = now
                remind(now - start)
            time.sleep(0.2)

    def stop(self) -> None:
        """Stop all programs by :func:`_stop`, the last one first."""
        for process in reversed(self.started.values()):
            if process.poll() is None:
                _stop(process)


@contextmanager
def stop_together() -> Iterator[Programs]:
    """Yield programs that are stopped at the end of the block, even after an error; SIGTERM ends it like Ctrl-C.

    Both signals work even if the caller ignored them, as a shell does for background programs.
    """
    programs = Programs()
    before = {number: signal.signal(number, _interrupt) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield programs
    finally:
        programs.stop()
        for number, handler in before.items():
            signal.signal(number, handler)


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _stop(process: _Process) -> None:
    """Stop a process's children, then itself; kill the rest after STOP_SECONDS each, or at a second Ctrl-C.

    A worker's runs get their own signal, so that each can still report its interruption to the server.  An interrupted
    worker kills its runs, and their pages would say Running forever.
    """
    itself = psutil.Process(process.pid)
    with suppress(psutil.NoSuchProcess):
        runs, everything = itself.children(), itself.children(recursive=True)
        try:
            for run in runs:
                run.terminate()
            psutil.wait_procs(runs, STOP_SECONDS)
            process.send_signal(signal.SIGINT)
            process.wait(STOP_SECONDS)
        except (subprocess.TimeoutExpired, KeyboardInterrupt):
            pass
        finally:
            for survivor in (itself, *everything, *_list_children(itself)):
                with suppress(psutil.NoSuchProcess):
                    survivor.kill()  # psutil checks that the process ID was not reused
    process.wait()


def _list_children(process: psutil.Process) -> list[psutil.Process]:
    with suppress(psutil.NoSuchProcess):
        return list(process.children(recursive=True))
    return []
