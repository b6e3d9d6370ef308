"""Waiting for workers of Dask ends: by what they made, by who asks to stop, or by the limit of the settings."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from privsyn.base.errors import PrivsynError
from privsyn.base.interrupts import defer_interrupts
from privsyn.base.settings import Settings
from privsyn.counting.engine import PartFile
from privsyn.extras.dask import dask_engine
from privsyn.extras.dask.dask_engine import DaskEngine

distributed = pytest.importorskip("distributed", reason="no Dask: install privsyn-flows[dask]")


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A scheduler and one worker in this process; looks are frequent."""
    monkeypatch.setattr(dask_engine, "_LOOK_EVERY", 0.05)
    monkeypatch.setattr(dask_engine, "_ASK_EVERY", 0.1)
    with distributed.LocalCluster(
        n_workers=1, threads_per_worker=1, processes=False, protocol="tcp", dashboard_address=None, memory_limit=0,
        silence_logs=50, scheduler_kwargs={"dashboard_address": "127.0.0.1:0"},
    ) as started:  # fmt: skip
        yield started


def opened(cluster: Any, wait_minutes: float) -> DaskEngine:
    engine = DaskEngine(0, Settings(dask=cluster.scheduler_address, dask_wait_minutes=wait_minutes))
    engine.open()
    return engine


def make(task: float, path: str, threads: int) -> PartFile:
    time.sleep(task)
    return PartFile(path, pa.table({}))


def raise_timeout(task: float, path: str, threads: int) -> PartFile:
    raise TimeoutError("a disk of the worker's")


def take_workers(cluster: Any, engine: DaskEngine) -> None:
    cluster.scale(0)
    while engine._client.nthreads():
        time.sleep(0.05)


def test_a_cluster_that_nobody_works_for_is_given_up(cluster: Any) -> None:
    with closing(opened(cluster, 0.01)) as engine:
        take_workers(cluster, engine)
        with pytest.raises(PrivsynError, match=r"at work for 0\.01 minutes.*PRIVSYN_DASK_WAIT_MINUTES") as told:
            list(engine.make_parts(make, [(0.0, "part")], 1))
    assert told.value.field == "settings.dask"


def test_a_worker_at_work_is_waited_for_longer_than_the_limit(cluster: Any, tmp_path: Path) -> None:
    with closing(opened(cluster, 0.04)) as engine:  # 2.4 s; a worker tells twice a second what it has in hand
        (part,) = engine.make_parts(make, [(4.0, "part")], 1)
    assert part.path == "part"


@pytest.fixture
def heard_interrupts() -> Iterator[None]:
    """Python's own handler: a command that a shell puts in the background is started with SIGINT ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("heard_interrupts")
def test_who_asks_to_stop_is_heard_while_workers_are_waited_for(cluster: Any) -> None:
    with closing(opened(cluster, 0.2)) as engine:
        take_workers(cluster, engine)
        ask = threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT))
        with pytest.raises(KeyboardInterrupt), defer_interrupts(grace=600):
            ask.start()
            list(engine.make_parts(make, [(0.0, "part")], 1))


def test_a_time_out_of_a_worker_is_its_error_and_not_that_of_waiting(cluster: Any) -> None:
    with closing(opened(cluster, 10)) as engine, pytest.raises(PrivsynError, match=r"private store \(TimeoutError\)"):
        list(engine.make_parts(raise_timeout, [(0.0, "part")], 1))


@pytest.mark.slow
def test_a_scheduler_that_is_lost_ends_the_wait(cluster: Any) -> None:
    with closing(opened(cluster, 10)) as engine:
        parts = engine.make_parts(make, [(0.0, "first"), (3.0, "second")], 1)
        assert next(parts).path == "first"
        threading.Timer(0.2, cluster.close).start()
        with pytest.raises(PrivsynError, match="connection to the Dask scheduler was lost"):
            next(parts)


def test_a_worker_that_does_not_start_is_called_so(monkeypatch: pytest.MonkeyPatch, places: Path) -> None:
    """Dask says so itself, or no worker ever comes."""
    start = distributed.LocalCluster

    def fail(**how: Any) -> Any:
        raise RuntimeError("Cluster failed to start: zanzibar")

    def start_none(**how: Any) -> Any:
        return start(**{**how, "n_workers": 0, "processes": False, "security": None, "protocol": "tcp"})

    monkeypatch.setattr(dask_engine, "_CONNECT", "1s")
    for begin, name in ((fail, "RuntimeError"), (start_none, "TimeoutError")):
        monkeypatch.setattr(distributed, "LocalCluster", begin)
        engine = DaskEngine(1, Settings())
        with pytest.raises(PrivsynError) as told:
            engine.open()
        words = str(told.value)
        assert words.startswith("a Dask worker on this machine did not start (")
        assert f"{name}); nothing was spent. Give" in words
        assert "zanzibar" not in words and told.value.exit_code == 1
        assert engine._cluster is None and engine._client is None
