"""A child process under limits: so much time, so much memory, then it is stopped.

Needs Linux's /proc.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

Outcome = Literal["ended", "time", "memory"]
_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")
_LOOK_SECONDS = 0.05


@dataclass(frozen=True)
class Limits:
    """Limits of one peer's run.

    seconds: stopped once wall and CPU time are both past it (a busy machine lengthens the wall time only);
    megabytes: stopped once the resident memory is past it (MB of 2**20 bytes).
    """

    seconds: float
    megabytes: float


@dataclass(frozen=True)
class Watched:
    """How a child ended, and what it used: wall and CPU seconds, peak resident memory in MB, its last words."""

    outcome: Outcome
    exit_code: int
    wall: float
    cpu: float
    peak_mb: float
    stderr: str


def watch(command: Sequence[str], limits: Limits, environment: Mapping[str, str], log: Path) -> Watched:
    """Run ``command`` in a process group of its own until it ends or passes a limit; then the group is killed.

    CPU seconds and memory are sums over the group.  ``log`` gets stdout and stderr.
    """
    start = time.perf_counter()
    with log.open("wb") as stream:
        child = subprocess.Popen(
            list(command), stdout=stream, stderr=stream, env=dict(environment), start_new_session=True
        )
        outcome: Outcome = "ended"
        cpu = peak = 0.0
        try:
            while child.poll() is None:
                used, resident = usage(child.pid)
                cpu, peak = max(cpu, used), max(peak, resident)
                if peak > limits.megabytes:
                    outcome = "memory"
                elif min(time.perf_counter() - start, cpu) > limits.seconds:
                    outcome = "time"
                if outcome != "ended":
                    break
                time.sleep(_LOOK_SECONDS)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
            child.wait()
    words = log.read_text(encoding="utf-8", errors="replace")
    return Watched(outcome, child.returncode, time.perf_counter() - start, cpu, peak, words[-2_000:])


def usage(group: int) -> tuple[float, float]:
    """CPU seconds and resident MB of all processes of a group, those included that have ended and been waited for."""
    cpu = memory = 0.0
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            content = (entry / "stat").read_text(encoding="utf-8", errors="replace")
        except OSError:
            continue  # it has ended meanwhile
        fields = content.rpartition(")")[2].split()  # after the name, which may hold anything: state, ppid, pgrp, ...
        if int(fields[2]) == group:
            cpu += sum(map(int, fields[11:15])) / _TICKS  # utime, stime, and those of children waited for
            memory += int(fields[21]) * _PAGE / 2**20
    return cpu, memory
