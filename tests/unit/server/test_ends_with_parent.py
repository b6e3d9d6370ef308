"""A module run as a program ends with the program that started it, also when that is killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from privsyn.server import ends_with_parent
from tests.unit.server.test_programs import gone

OUTER = (
    "import os, subprocess, sys, time\n"
    "subprocess.Popen([sys.executable, '-P', sys.argv[1], str(os.getpid()), 'sleeper', sys.argv[2]],"
    " start_new_session=True)\n"
    "time.sleep(60)"
)
SLEEPER = (
    "import os, sys, time\n"
    "assert __name__ == '__main__'\n"
    "with open(sys.argv[1] + '.part', 'w') as file:\n"
    "    file.write(str(os.getpid()))\n"
    "os.rename(sys.argv[1] + '.part', sys.argv[1])\n"
    "time.sleep(60)"
)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_it_ends_when_its_parent_is_killed(tmp_path: Path, number: signal.Signals) -> None:
    (tmp_path / "sleeper.py").write_text(SLEEPER)
    note = tmp_path / "pid"
    outer = subprocess.Popen(
        [sys.executable, "-c", OUTER, ends_with_parent.__file__, str(note)],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
    )
    while not note.exists():
        assert outer.poll() is None
        time.sleep(0.05)
    time.sleep(3 * ends_with_parent.CHECK_SECONDS)
    inner = int(note.read_text())
    assert not gone(inner)  # as long as the parent lives, whichever of its threads has ended
    outer.send_signal(number)
    outer.wait()
    end = time.monotonic() + 20
    while not gone(inner):
        assert time.monotonic() < end, "it outlives its parent"
        time.sleep(0.05)


def test_it_is_asked_to_end_and_then_ends_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[object] = []
    monkeypatch.setattr(os, "kill", lambda pid, number: done.append((pid, number)))
    monkeypatch.setattr(os, "_exit", done.append)
    monkeypatch.setattr(time, "sleep", done.append)
    ends_with_parent.watch(os.getppid() + 1)
    assert done == [(os.getpid(), signal.SIGTERM), ends_with_parent.STOP_SECONDS, 1]
