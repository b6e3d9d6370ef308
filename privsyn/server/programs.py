"""Several programs that start and stop together; one that ends by itself is started again."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from types import FrameType

import psutil

from privsyn.base.errors import PrivsynError

STOP_SECONDS = 20.0
"""Seconds that a program, and what it runs, has for stopping by itself; then all of it is killed."""

FIRST_PAUSE, LONGEST_PAUSE = 1.0, 60.0
"""Seconds before a program that ended by itself is started again."""

STEADY_SECONDS = 60.0
"""Seconds after which a program counts as running well."""

_Process = subprocess.Popen[bytes]


@dataclass
class Programs:
    """Programs that were started, in order, each in a process group of its own.

    Only this process receives a Ctrl-C of the terminal; it stops the others, the last first.
    """

    started: dict[str, _Process] = field(default_factory=dict)
    _commands: dict[str, tuple[Sequence[str], dict[str, str]]] = field(default_factory=dict)
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
    ) -> None:
        """Start one more; ``name`` is for people, and it starts again once ``needs`` holds."""
        self._commands[name], self._needs[name] = (command, dict(environment)), needs
        self._begin(name)

    def _begin(self, name: str) -> None:
        command, environment = self._commands[name]
        process = subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, start_new_session=True)  # noqa: S603
        self.started[name], self._since[name] = process, time.monotonic()

    def restart_exited(self, say: Callable[[str], None]) -> None:
        """Start again each that has ended by itself, after a pause; the others go on.  To be called now and then.

        The pause is FIRST_PAUSE, and twice as long each time it ends again before it has run for STEADY_SECONDS, up to
        LONGEST_PAUSE.
        """
        now = time.monotonic()
        for name, process in self.started.items():
            if process.poll() is None:
                continue
            if name not in self._due:
                settled = now - self._since[name] >= STEADY_SECONDS
                pause = FIRST_PAUSE if settled else min(2 * self._pauses.get(name, FIRST_PAUSE / 2), LONGEST_PAUSE)
                self._pauses[name], self._due[name] = pause, now + pause
                say(f"The {name} ended by itself, with exit code {process.returncode}; it starts again in {pause:g} s.")
            elif now >= self._due[name] and self._needs[name]():
                del self._due[name]
                self._begin(name)

    def check(self) -> None:
        """Raise PrivsynError if one has ended by itself."""
        for name, process in self.started.items():
            if process.poll() is not None:
                raise PrivsynError(
                    f"the {name} ended by itself, with exit code {process.returncode}",
                    "What it printed above says why; the others were stopped too",
                )

    def wait_until(self, ready: Callable[[], bool]) -> None:
        """Wait for ``ready``, as long as all of them run."""
        while not ready():
            self.check()
            time.sleep(0.2)

    def stop(self) -> None:
        """Stop them, the last first, each as :func:`_stop`."""
        for process in reversed(self.started.values()):
            if process.poll() is None:
                _stop(process)


@contextmanager
def stop_together() -> Iterator[Programs]:
    """Programs that are stopped at the end of the block, whatever ends it; SIGTERM ends it as Ctrl-C does.

    Both signals count even where the caller had them ignored (a shell does that for what it puts into the background).
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
    """Ask what it runs to end, then itself; kill what is left after STOP_SECONDS each, or at a second Ctrl-C.

    A worker's runs get a signal of their own, so that each can still tell the server that it was cut short; a worker
    that is interrupted kills them, and their pages would say Running for ever.
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
            for left in (itself, *everything, *_list_children(itself)):
                with suppress(psutil.NoSuchProcess):
                    left.kill()  # by process, not number: a number that was given anew is left alone
    process.wait()


def _list_children(process: psutil.Process) -> list[psutil.Process]:
    with suppress(psutil.NoSuchProcess):
        return list(process.children(recursive=True))
    return []
