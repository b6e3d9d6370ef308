"""The same request on a Dask cluster: the same integers, one draw and one charge, whatever happens to its workers."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from pydantic import ValidationError

from privsyn.data_contracts.domain import Domain
from privsyn.data_contracts.engine_choice import EngineChoice
from privsyn.data_contracts.release_spec import ReleaseSpec
from privsyn.engines.chosen_engine import engine_of
from privsyn.engines.dask_engine import DaskEngine
from privsyn.engines.local_engine import LocalEngine
from privsyn.errors import PrivsynError, RequestError
from privsyn.ledgers.ledger import Ledger
from privsyn.settings import Settings
from privsyn.storage.table_files import StoredTable
from privsyn.tasks.kernels import blocks
from privsyn.tasks.kernels.counting import CodeTable
from privsyn.tasks.privacy.noise import NoNoise
from tests.support.releases import few, run
from tests.support.specs import people

distributed = pytest.importorskip("distributed", reason="no Dask: install privsyn-flows[dask]")
cloudpickle = pytest.importorskip("cloudpickle")

FORBIDDEN = (
    *("privsyn.tasks.privacy", "opendp", "privsyn.ledgers", "privsyn.run.execute", "privsyn.run.open_run"),
    *("privsyn.data_contracts.receipts", "privsyn.data_contracts.release_spec", "prefect"),
)
"""What a worker has no use for: noise, budgets, and whatever knows of either."""


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """Two worker processes, as somebody's cluster at an address; what tests send brings no module of tests along."""
    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None, memory_limit=0, silence_logs=50
    ) as started:
        yield started


@pytest.fixture
def folder(tmp_path: Path) -> str:
    """A private table of twelve files, which are twelve row groups once they are encoded."""
    place, table = tmp_path / "people", people(600)
    place.mkdir()
    for i in range(12):
        pq.write_table(table.slice(50 * i, 50), place / f"{i:02}.parquet")
    return str(place)


class Counted(NoNoise):
    """No noise, and how often it was asked for any."""

    def __init__(self) -> None:
        self.draws = 0

    def draw(self, sigma: float, cells: int) -> np.ndarray:
        self.draws += 1
        return super().draw(sigma, cells)


def tables(released: str) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(Path(released).rglob("*.parquet"))}


def on(spec: ReleaseSpec, **engine: Any) -> ReleaseSpec:
    return spec.model_copy(update={"engine": EngineChoice(**engine)})


def check_money() -> None:
    """Three steps, each reserved once and spent once, nothing given back."""
    ledger = Ledger(Settings().ledger)
    entries = ledger.entries("people")
    assert sorted(e.event for e in entries) == ["reserve"] * 3 + ["spent"] * 3, entries
    assert {ledger.state("people", e.key) for e in entries} == {"spent"}
    assert len({e.key for e in entries}) == 3


def modules_of_a_worker() -> list[str]:
    return sorted(sys.modules)


def test_two_workers_give_the_local_counts_with_one_draw(
    places: Path, folder: str, cluster: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec, noise = few(folder), Counted()
    there = run(on(spec, kind="dask", address=cluster.scheduler_address), noise=noise)
    check_money()
    draws = noise.draws
    assert draws >= 3
    with distributed.Client(cluster, set_as_default=False) as client:
        loaded = client.run(modules_of_a_worker)
    assert len(loaded) == 2
    for names in loaded.values():
        assert "privsyn.engines.partitions" in names, "this worker has counted nothing"
        assert [name for name in names if name.startswith(FORBIDDEN)] == []
    monkeypatch.setattr(DaskEngine, "open", lambda self: pytest.fail("the second run needs no cluster"))
    monkeypatch.setattr(LocalEngine, "rows", lambda *a, **k: pytest.fail("the second run counts nothing"))
    again = run(spec, noise=noise)
    assert (again.run, again.drawn, noise.draws) == (there.run, (), draws), "the engine is part of a key"
    monkeypatch.undo()
    here = run(spec.model_copy(update={"dataset": "again"}), noise=NoNoise())
    assert tables(here.released) == tables(there.released)
    assert cluster.scheduler_address not in (Path(there.released) / "manifest.json").read_text(encoding="utf-8")


def slow_counting(folder: str) -> None:
    """On a worker: each partition takes half a second more, and leaves a file named for the worker when done."""
    from privsyn.engines import partitions

    count = partitions.count_partition

    def slowly(part: Any, *arguments: Any, **named: Any) -> Any:
        found = count(part, *arguments, **named)
        time.sleep(0.5)
        (Path(folder) / f"{os.getpid()}-{time.monotonic_ns()}").touch()
        return found

    partitions.count_partition = slowly


def test_a_worker_that_is_killed_in_mid_run_loses_nothing(places: Path, folder: str, cluster: Any) -> None:
    """It dies with finished partitions in its memory and another under way: they are counted again, by others."""
    marks = places / "marks"
    marks.mkdir()
    spec, killed = few(folder), list[int]()
    with distributed.Client(cluster, set_as_default=False) as client:
        client.run(slow_counting, str(marks))
        pids = set(client.run(os.getpid).values())

        def kill_one() -> None:
            while not killed:
                done = {int(path.name.split("-")[0]) for path in marks.iterdir()}
                if done:
                    killed.append(done.pop())
                    os.kill(killed[0], signal.SIGKILL)
                time.sleep(0.01)

        killer = threading.Thread(target=kill_one)
        killer.start()
        noise = Counted()
        there = run(on(spec, kind="dask", address=cluster.scheduler_address), noise=noise)
        killer.join()
        assert killed[0] in pids
        assert killed[0] not in set(client.run(os.getpid).values())
    check_money()
    again = Counted()
    here = run(spec.model_copy(update={"dataset": "again"}), noise=again)
    assert noise.draws == again.draws
    assert tables(here.released) == tables(there.released)


def test_counts_in_several_passes_over_padded_rows(
    tmp_path: Path, cluster: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    domain = Domain.of({"a": 3, "b": 40, "c": 2})
    rng = np.random.default_rng(0)
    columns = tuple(rng.integers(s + 1, size=5_000).astype(np.uint8) for s in domain.sizes)
    arrow = CodeTable(domain, columns, padded=True).to_arrow()
    pq.write_table(arrow, tmp_path / "codes.parquet", row_group_size=333)
    stored = StoredTable((tmp_path / "codes.parquet",), lambda: iter(()))
    cliques = [("a",), ("b", "a"), ("a", "b", "c"), (), ("c", "b")]
    monkeypatch.setattr(blocks, "PASS_CELLS", 200)
    with engine_of(EngineChoice(kind="dask", address=cluster.scheduler_address)) as engine:
        theirs = list(engine.rows(stored, domain, padded=True).counts(cliques))
    ours = list(LocalEngine().rows(stored, domain, padded=True).counts(cliques))
    assert all(np.array_equal(a, b) for a, b in zip(theirs, ours, strict=True))
    assert ours[3] == 5_000


def test_a_wrong_address_is_refused_before_anything_is_spent(places: Path, folder: str) -> None:
    spec = on(few(folder), kind="dask", address="tcp://127.0.0.1:9")
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("privsyn.engines.dask_engine._CONNECT", "1s")
        with pytest.raises(RequestError, match=r"tcp://127\.0\.0\.1:9") as refused:
            run(spec)
    assert refused.value.field == "engine.address"
    assert Ledger(Settings().ledger).entries("people") == []


def test_without_dask_the_cure_is_named(places: Path, folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(RequestError, match=r"not installed.*privsyn-flows\[dask\]") as refused:
        run(on(few(folder), kind="dask"))
    assert refused.value.field == "engine.kind"


@pytest.mark.parametrize(
    "content",
    [{"kind": "local", "workers": 2}, {"kind": "dask", "address": "scheduler:8786"}, {"kind": "spark"},
     {"kind": "dask", "address": "tcp://a:1", "workers": 2}],
)  # fmt: skip
def test_a_choice_that_means_nothing_is_refused(content: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        EngineChoice(**content)


def test_errors_of_workers_keep_their_words_to_themselves() -> None:
    from privsyn.engines.dask_engine import _in_words

    with pytest.raises(PrivsynError, match="cannot read the private store") as told, _in_words():
        raise FileNotFoundError("/mnt/elsewhere/secret")
    assert "secret" not in str(told.value)
    assert told.value.__cause__ is None
