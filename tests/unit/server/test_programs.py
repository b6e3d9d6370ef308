"""Programs that live and stop together, with small ones of Python's own, and end with the program that started them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from privsyn.base.errors import PrivsynError
from privsyn.server import ends_with_parent
from privsyn.server import server_and_worker as programs
from privsyn.server.server_and_worker import stop_together

POLITE = "import signal, time\ntry:\n    time.sleep(60)\nexcept KeyboardInterrupt:\n    print('bye', flush=True)"
STUBBORN = (
    "import signal, subprocess, sys, time\n"
    "signal.signal(signal.SIGINT, signal.SIG_IGN); signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
    "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'])\n"
    "open(sys.argv[1], 'w').write(str(child.pid)); time.sleep(60)"
)


def python(code: str, *arguments: str) -> list[str]:
    return [sys.executable, "-c", code, *arguments]


def gone(pid: int) -> bool:
    """Whether a process has ended (a zombie of somebody else's counts as ended)."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(") ", 1)[1][0] in "ZX"
    except FileNotFoundError:
        return True


def test_all_are_stopped_at_the_end_of_the_block() -> None:
    with stop_together() as together:
        together.start("one", python(POLITE), os.environ)
        together.start("two", python(POLITE), os.environ)
        time.sleep(0.5)  # until their interpreters are up
        together.check()
    assert all(p.poll() is not None for p in together.started.values())
    together.stop()  # twice is once


def test_one_that_ends_by_itself_ends_the_others() -> None:
    with pytest.raises(PrivsynError, match="the second ended by itself, with exit code 3"), stop_together() as both:
        both.start("first", python(POLITE), os.environ)
        both.start("second", python("raise SystemExit(3)"), os.environ)
        both.wait_until(lambda: False)
    assert both.started["first"].poll() is not None


def test_one_that_does_not_stop_is_killed_with_what_it_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(programs, "STOP_SECONDS", 0.2)
    note = tmp_path / "pid"
    with stop_together() as together:
        together.start("stubborn", python(STUBBORN, str(note)), os.environ)
        together.wait_until(lambda: note.exists() and note.read_text().isdecimal())
    assert together.started["stubborn"].returncode == -signal.SIGKILL
    grandchild = int(note.read_text())
    for _ in range(100):
        if gone(grandchild):
            return
        time.sleep(0.05)
    raise AssertionError("what it started is still there")


CUT_SHORT = (
    "import signal, sys, time\n"
    "def say(*_):\n"
    "    open(sys.argv[1], 'w').write('cut short'); sys.exit()\n"
    "signal.signal(signal.SIGTERM, say); open(sys.argv[1], 'w').write('runs'); time.sleep(60)"
)
WORKER = (
    "import subprocess, sys, time\n"
    "run = subprocess.Popen([sys.executable, '-c', sys.argv[1], sys.argv[2]], start_new_session=True)\n"
    "try:\n    run.wait(); time.sleep(60)\nexcept KeyboardInterrupt:\n    run.kill()"
)
"""As Prefect's does: an interrupt kills its runs."""


def test_what_a_worker_runs_can_say_that_it_was_cut_short(tmp_path: Path) -> None:
    note = tmp_path / "note"
    with stop_together() as together:
        together.start("worker", python(WORKER, CUT_SHORT, str(note)), os.environ)
        together.wait_until(lambda: note.exists() and note.read_text() == "runs")
    assert note.read_text() == "cut short"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_either_signal_stops_them_even_where_it_was_ignored(number: signal.Signals, tmp_path: Path) -> None:
    """As a shell starts what it puts into the background: with interrupts ignored."""
    code = (
        "import os, sys, time; from pathlib import Path; from privsyn.server.server_and_worker import stop_together\n"
        "try:\n"
        "    with stop_together() as all:\n"
        f"        all.start('one', [sys.executable, '-c', {POLITE!r}], os.environ); time.sleep(0.5)\n"
        "        Path(sys.argv[1]).write_text(str(all.started['one'].pid)); time.sleep(60)\n"
        "except KeyboardInterrupt:\n"
        "    print('stopped', all.started['one'].returncode)"
    )
    note = tmp_path / "pid"
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        outer = subprocess.Popen(python(code, str(note)), stdout=subprocess.PIPE, text=True)
    finally:
        signal.signal(signal.SIGINT, before)
    while not (note.exists() and note.read_text()):
        time.sleep(0.05)
    outer.send_signal(number)
    said, _ = outer.communicate(timeout=30)
    assert said.splitlines() == ["bye", "stopped 0"]
    assert gone(int(note.read_text()))


def test_one_that_is_killed_is_started_again_and_the_other_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(programs, "FIRST_PAUSE", 0.1)
    said: list[str] = []
    with stop_together() as both:
        both.start("server", python(POLITE), os.environ)
        both.start("worker", python(POLITE), os.environ)
        server, killed = both.started["server"], both.started["worker"]
        killed.kill()
        killed.wait()
        end = time.monotonic() + 30
        while both.started["worker"] is killed:
            assert time.monotonic() < end
            both.restart_exited(said.append)
            time.sleep(0.05)
        assert both.started["worker"].poll() is None
        assert both.started["server"] is server and server.poll() is None
    assert said == ["The worker ended by itself, with exit code -9; it starts again in 0.1 s."]


def test_one_that_needs_another_starts_again_once_that_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(programs, "FIRST_PAUSE", 0.0)
    answers, said = [False], list[str]()
    with stop_together() as both:
        both.start("worker", python(POLITE), os.environ, needs=lambda: answers[0])
        killed = both.started["worker"]
        killed.kill()
        killed.wait()
        for _ in range(3):
            both.restart_exited(said.append)
        assert both.started["worker"] is killed
        answers[0] = True
        both.restart_exited(said.append)
        assert both.started["worker"] is not killed


class Ended:
    """A process that has ended."""

    returncode = 1

    def poll(self) -> int:
        return 1


def test_one_that_keeps_ending_is_started_less_and_less_often(monkeypatch: pytest.MonkeyPatch) -> None:
    now, said, starts = [0.0], list[str](), list[float]()
    monkeypatch.setattr(programs.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(programs.subprocess, "Popen", lambda *_, **__: starts.append(now[0]) or Ended())
    failing = programs.Programs()
    failing.start("worker", [], {})
    while now[0] < 300:
        failing.restart_exited(said.append)
        now[0] += 0.5
    pauses = [float(line.rsplit(" in ", 1)[1].removesuffix(" s.")) for line in said]
    assert pauses[:8] == [1, 2, 4, 8, 16, 32, 60, 60]
    assert len(starts) < 12
    failing._since["worker"] = now[0] - programs.STEADY_SECONDS - 100  # it has run well since
    failing._due.clear()
    failing.restart_exited(said.append)
    assert said[-1].endswith("in 1 s.")


def test_what_is_waited_for_is_said_again_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(programs, "REMINDER_SECONDS", 0.0)
    answers, waited = iter([False, False, True]), list[float]()
    programs.Programs().wait_until(lambda: next(answers), waited.append)
    assert len(waited) == 2 and waited == sorted(waited)


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
