"""``privsyn release`` with Prefect's temporary server, stopped in mid-run: words, and no server left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.support.specs import PEOPLE_YAML, people


@contextmanager
def begun(folder: Path) -> Iterator[tuple[subprocess.Popen[str], psutil.Process]]:
    """A release in a process group of its own, once its first step runs; and its server, killed afterwards."""
    pq.write_table(pa.table(people(300)), folder / "people.parquet")
    (folder / "people.yaml").write_text(PEOPLE_YAML, encoding="utf-8")
    kept = {n: v for n, v in os.environ.items() if not n.startswith(("PRIVSYN_", "PREFECT_"))}
    environment = {**kept, "HOME": str(folder), "PRIVSYN_OUT": str(folder), "PYTHONPATH": os.pathsep.join(sys.path)}
    run = subprocess.Popen(
        [sys.executable, "-m", "privsyn.cli", "release", "people.yaml", "--prefect"],
        cwd=folder, env=environment, stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    server = None
    try:
        assert run.stderr is not None
        for line in run.stderr:
            if "Encode" in line:
                break
        (server,) = (p for p in psutil.Process(run.pid).children() if "uvicorn" in p.cmdline())
        yield run, server
    finally:
        run.kill()
        run.wait()
        if server is not None and server.is_running():
            server.kill()


def ended(server: psutil.Process) -> bool:
    """Whether it ends within some seconds (a zombie of somebody else's counts as ended)."""
    end = time.monotonic() + 30
    while server.is_running() and server.status() != psutil.STATUS_ZOMBIE:
        if time.monotonic() > end:
            return False
        time.sleep(0.1)
    return True


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("send", [os.kill, os.killpg], ids=["alone", "group"])
def test_it_is_stopped_in_words_with_its_server(tmp_path: Path, send: object, number: signal.Signals) -> None:
    """A terminal sends its Ctrl-C to the whole group."""
    with begun(tmp_path) as (run, server):
        send(run.pid, number)  # type: ignore[operator]
        _, said = run.communicate(timeout=60)
        assert run.returncode == 1, said
        assert "stopped. Run the same command again" in " ".join(said.split())
        assert "Error" not in said
        assert ended(server)


@pytest.mark.slow
def test_a_killed_one_leaves_no_server(tmp_path: Path) -> None:
    with begun(tmp_path) as (run, server):
        run.kill()
        run.wait()
        assert ended(server)
