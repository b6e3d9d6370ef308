"""The documented commands of a Dask cluster listen on no interface but the one that they are told."""

from __future__ import annotations

import re
import shlex
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import pytest

pytest.importorskip("distributed", reason="no distributed: install privsyn-flows[dask]")

DOCS = Path(__file__).parents[2] / "docs" / "operations" / "scale.md"
LOOPBACK = {"127.0.0.1", "::1"}


def read_options(kind: str) -> list[str]:
    """The options of ``dask scheduler`` or ``dask worker`` in the docs, without certificates and the address."""
    text = DOCS.read_text(encoding="utf-8").replace("\\\n", " ")
    (line,) = re.findall(rf"^dask {kind} .*$", text, re.M)
    words = [word for word in shlex.split(line)[2:] if not word.startswith("tls://")]
    pairs = zip(words[::2], words[1::2], strict=True)
    return [word for pair in pairs if not pair[0].startswith("--tls") for word in pair]


@contextmanager
def started(kind: str, *arguments: str) -> Iterator[psutil.Process]:
    """A process of the command, with a few workers in place of sixteen."""
    options = [{"16": "2"}.get(word, word) for word in read_options(kind)]
    command = [sys.executable, "-m", "dask", kind, *arguments, *options, "--host", "127.0.0.1"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as running:
        try:
            yield psutil.Process(running.pid)
        finally:
            for process in (*psutil.Process(running.pid).children(recursive=True), running):
                process.kill()


def list_listening(process: psutil.Process) -> set[tuple[str, int]]:
    """Addresses and ports that a process and its children listen on; a child that has ended meanwhile has none."""
    found = process.net_connections()
    for child in process.children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            found += child.net_connections()
    return {(c.laddr.ip, c.laddr.port) for c in found if c.status == psutil.CONN_LISTEN}


def wait_for_ports(process: psutil.Process, number: int) -> set[tuple[str, int]]:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        found = list_listening(process)
        if len(found) >= number:
            time.sleep(1)  # whatever else opens
            return list_listening(process)
        time.sleep(0.2)
    raise AssertionError(f"only {list_listening(process)}")


def test_scheduler_and_workers_listen_on_the_named_interface_only() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with started("scheduler", "--port", str(port)) as scheduler:
        ports = wait_for_ports(scheduler, 2)
        assert ("127.0.0.1", port) in ports and {ip for ip, _ in ports} <= LOOPBACK
        with started("worker", f"tcp://127.0.0.1:{port}") as workers:
            assert {ip for ip, _ in wait_for_ports(workers, 4)} <= LOOPBACK
