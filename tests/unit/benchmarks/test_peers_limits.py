"""A watched child: it ends by itself, or a limit stops it and everything it started."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

from benchmarks.peers import Limits, Watched, watch

NO_LIMITS = Limits(seconds=1e6, megabytes=1e6)
SPIN = "while True: pass"


def run(code: str, folder: Path, limits: Limits = NO_LIMITS) -> Watched:
    return watch([sys.executable, "-c", code], limits, os.environ, folder / "log")


def running(pid: int) -> bool:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"


def test_a_child_that_ends_by_itself(tmp_path: Path) -> None:
    ended = run("import sys; print('out'); print('last words', file=sys.stderr); sys.exit(5)", tmp_path)
    assert (ended.outcome, ended.exit_code) == ("ended", 5)
    assert "last words" in ended.stderr
    assert "out" in ended.stderr


def test_a_child_that_computes_is_stopped_at_the_time_limit(tmp_path: Path) -> None:
    stopped = run(SPIN, tmp_path, Limits(seconds=0.3, megabytes=1e6))
    assert stopped.outcome == "time"
    assert min(stopped.wall, stopped.cpu) > 0.3


def test_waiting_alone_is_not_past_the_limit(tmp_path: Path) -> None:
    """Wall and CPU time must both be past it: a busy machine stops nothing."""
    waited = run("import time; time.sleep(1.5)", tmp_path, Limits(seconds=1.0, megabytes=1e6))
    assert waited.outcome == "ended"
    assert waited.wall > 1.0


def test_a_child_that_eats_memory_is_stopped(tmp_path: Path) -> None:
    eaten = run("b = bytearray(300 << 20)\n" + SPIN, tmp_path, Limits(seconds=1e6, megabytes=200))
    assert eaten.outcome == "memory"
    assert eaten.peak_mb > 200


def test_what_the_child_started_counts_and_goes_with_it(tmp_path: Path) -> None:
    code = (
        "import subprocess, sys\n"
        f"child = subprocess.Popen([sys.executable, '-c', '{SPIN}'])\n"
        f"open({str(tmp_path / 'pid')!r}, 'w').write(str(child.pid))\n"
        "child.wait()"
    )
    stopped = run(code, tmp_path, Limits(seconds=0.3, megabytes=1e6))
    assert stopped.outcome == "time"  # the grandchild's CPU time alone can have reached the limit
    grandchild = int((tmp_path / "pid").read_text(encoding="utf-8"))
    for _ in range(100):  # a killed process may need a moment to be gone
        if not running(grandchild):
            break
        time.sleep(0.05)
    assert not running(grandchild)
