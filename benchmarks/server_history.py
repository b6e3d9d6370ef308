"""How many runs at once the server's history in SQLite takes: refused requests, lost events and waiting times.

``python -m benchmarks.server_history [--plain] [--runs 3,10,30] [--seconds 20]``

Each run is a thread that does what a release's flow does to the history (make a run, set states, write logs, artifacts
and labels, emit events), without a pause, on a server of its own, whose clients do not ask again.  ``--plain`` has
Prefect's own transactions, which begin as readers.
"""

from __future__ import annotations

import argparse
import os
import secrets
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from uuid import uuid4

import httpx


def create_plain_app() -> object:
    """Prefect's server as it is, for uvicorn."""
    from prefect.server.api.server import create_app

    return create_app(final=True)


@dataclass
class Load:
    """What the requests of all runs came to: the codes and seconds of their answers, and the rounds that were whole."""

    codes: Counter[int] = field(default_factory=Counter)
    seconds: list[float] = field(default_factory=list)
    rounds: int = 0


@contextmanager
def serve(*, plain: bool) -> Iterator[httpx.Client]:
    """Run a server on a new history in SQLite; a client of its API, which does not ask again."""
    with tempfile.TemporaryDirectory() as home, socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
        probe.close()
        login = f"x:{secrets.token_hex()}"
        environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith(("PREFECT_", "PRIVSYN_"))},
            "PREFECT_HOME": home,
            "PREFECT_API_URL": f"http://127.0.0.1:{port}/api",
            "PREFECT_SERVER_API_PORT": port,
            "PREFECT_SERVER_API_AUTH_STRING": login,
            "PREFECT_API_AUTH_STRING": login,
            "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
        }
        factory = "benchmarks.server_history:create_plain_app" if plain else "privsyn.server.request_guard:create_app"
        command = [sys.executable, "-m", "uvicorn", "--factory", factory, "--port", port, "--log-level", "critical"]
        server = subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL)
        name, _, password = login.partition(":")
        try:
            with httpx.Client(
                base_url=f"http://127.0.0.1:{port}/api/", auth=(name, password), timeout=120, limits=httpx.Limits()
            ) as client:
                _wait(client)
                yield client
        finally:
            server.terminate()
            server.wait()


def _wait(client: httpx.Client) -> None:
    end = time.monotonic() + 120
    while time.monotonic() < end:
        try:
            if client.get("health").status_code == 200:
                return
        except httpx.TransportError:
            pass
        time.sleep(0.2)
    raise RuntimeError("the server does not come up")


def run_one(client: httpx.Client, flow: str, load: Load, until: float) -> None:
    """Do what a release's flow does, again and again."""
    while time.monotonic() < until:
        made = _ask(client, load, "POST", "flow_runs/", {"flow_id": flow, "state": {"type": "PENDING"}})
        run = made.json().get("id") if made.is_success else None
        if run is None:
            continue
        _ask(client, load, "POST", f"flow_runs/{run}/set_state", {"state": {"type": "RUNNING"}})
        now = datetime.now(UTC).isoformat()
        lines = [{"name": "x", "level": 20, "message": "m", "timestamp": now, "flow_run_id": run} for _ in range(10)]
        _ask(client, load, "POST", "logs/", lines)
        event = {
            "id": str(uuid4()),
            "occurred": now,
            "event": "benchmark.round",
            "resource": {"prefect.resource.id": run},
        }
        _ask(client, load, "POST", "events", [event])
        artifact = {"key": f"k-{run}", "type": "markdown", "data": "d" * 2000, "flow_run_id": run}
        _ask(client, load, "POST", "artifacts/", artifact)
        _ask(client, load, "PATCH", f"flow_runs/{run}/labels", {"privsyn.dataset": "x"})
        _ask(client, load, "POST", f"flow_runs/{run}/set_state", {"state": {"type": "COMPLETED"}})
        load.rounds += 1


def _ask(client: httpx.Client, load: Load, method: str, path: str, content: object) -> httpx.Response:
    began = time.monotonic()
    while True:
        try:
            answer = client.request(method, path, json=content)
            break
        except httpx.TransportError:  # a connection that the server closed as idle
            load.codes[0] += 1
    load.seconds.append(time.monotonic() - began)
    load.codes[answer.status_code] += 1
    return answer


def measure(runs: int, seconds: float, *, plain: bool) -> Load:
    """Return what ``runs`` runs at once come to."""
    load = Load()
    with serve(plain=plain) as client:
        flow = client.post("flows/", json={"name": "benchmark"}).json()["id"]
        until = time.monotonic() + seconds
        threads = [threading.Thread(target=run_one, args=(client, flow, load, until)) for _ in range(runs)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    return load


def main() -> None:
    """Print a row for each number of runs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--plain", action="store_true")
    parser.add_argument("--runs", default="1,3,10,30")
    parser.add_argument("--seconds", type=float, default=20.0)
    asked = parser.parse_args()
    print("| runs at once | requests | of them 503 (locked) | other failures | median | 99 % | rounds a second |")
    print("|---|---|---|---|---|---|---|")
    for runs in map(int, asked.runs.split(",")):
        load = measure(runs, asked.seconds, plain=asked.plain)
        total, locked = len(load.seconds), load.codes[503]
        failed = sum(count for code, count in load.codes.items() if code >= 400 and code != 503)
        last = statistics.quantiles(load.seconds, n=100)[98]
        print(
            f"| {runs} | {total:,} | {locked:,} | {failed:,} | {1000 * statistics.median(load.seconds):.0f} ms "
            f"| {last:.2f} s | {load.rounds / asked.seconds:.1f} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
