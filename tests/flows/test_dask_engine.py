"""The same request on a Dask cluster: the same integers, one draw and one charge, whatever happens to its workers."""

from __future__ import annotations

import functools
import importlib
import itertools
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from pydantic import ValidationError

import privsyn
from privsyn.base.errors import PrivsynError, RequestError
from privsyn.base.settings import Settings
from privsyn.counting.engine import LocalEngine, PartFile
from privsyn.data_contracts.domain import Domain
from privsyn.data_contracts.release_spec import EngineChoice, ReleaseSpec
from privsyn.engine.proposal import choose_engine
from privsyn.extras.dask.dask_engine import DaskEngine, _call_write
from privsyn.ledgers.ledger import Ledger
from privsyn.publish.folder import ReleaseSummary
from privsyn.storage.table_files import StoredTable
from privsyn.tasks.kernels import blocks
from privsyn.tasks.kernels.counting import CodeTable
from privsyn.tasks.privacy.noise import NoNoise
from tests.support.releases import FEW, QUICK, few, run
from tests.support.specs import COLUMNS, make_spec, people

distributed = pytest.importorskip("distributed", reason="no Dask: install privsyn-flows[dask]")
cloudpickle = pytest.importorskip("cloudpickle")

FORBIDDEN = (
    *("privsyn.tasks.privacy", "opendp", "privsyn.ledgers", "privsyn.engine.execute", "privsyn.engine.open_run"),
    *("privsyn.data_contracts.receipts", "privsyn.data_contracts.release_spec", "prefect"),
)
"""What a worker that counts has no use for: noise, budgets, and whatever knows of either."""

FORBIDDEN_TO_MAKERS = (
    *("privsyn.tasks.privacy", "opendp", "privsyn.ledgers", "privsyn.engine", "privsyn.storage.store", "prefect"),
)
"""What a worker that makes rows has no use for."""


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """An authority, and one certificate of it for all sides: the operator's settings."""
    return written(distributed.Security.temporary(), tmp_path_factory.mktemp("certificates"))


def written(security: Any, folder: Path) -> dict[str, str]:
    texts = {
        "PRIVSYN_DASK_CA": security.tls_ca_file,
        "PRIVSYN_DASK_CERTIFICATE": security.tls_client_cert,
        "PRIVSYN_DASK_KEY": security.tls_client_key,
    }
    for name, text in texts.items():
        (folder / f"{name}.pem").write_text(text, encoding="utf-8")
    return {name: str(folder / f"{name}.pem") for name in texts}


def security_of(files: dict[str, str]) -> Any:
    """What scheduler and workers are started with."""
    ca, certificate, key = files.values()
    return distributed.Security(
        tls_ca_file=ca, tls_scheduler_cert=certificate, tls_scheduler_key=key, tls_worker_cert=certificate,
        tls_worker_key=key, tls_client_cert=certificate, tls_client_key=key, require_encryption=True,
    )  # fmt: skip


@pytest.fixture(scope="module")
def started(certificates: dict[str, str]) -> Iterator[Any]:
    """Two worker processes, as somebody's cluster at tls://; what tests send brings no module of tests along."""
    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None, memory_limit=0, silence_logs=50,
        security=security_of(certificates), protocol="tls",
    ) as cluster:  # fmt: skip
        assert cluster.scheduler_address.startswith("tls://")
        yield cluster


@pytest.fixture
def cluster(started: Any, certificates: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> Any:
    """The cluster, which the operator has named."""
    for name, value in {**certificates, "PRIVSYN_DASK": started.scheduler_address}.items():
        monkeypatch.setenv(name, value)
    return started


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


def list_forbidden(loaded: list[str], forbidden: tuple[str, ...]) -> list[str]:
    """What is loaded of these modules and of what is in them."""
    return [name for name in loaded if f"{name}.".startswith(tuple(f"{module}." for module in forbidden))]


def test_two_workers_give_the_local_counts_with_one_draw(
    places: Path, folder: str, cluster: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec, noise = few(folder), Counted()
    there = run(on(spec, kind="dask"), noise=noise)
    check_money()
    draws = noise.draws
    assert draws >= 3
    with distributed.Client(cluster, set_as_default=False) as client:
        loaded = client.run(modules_of_a_worker)
    assert len(loaded) == 2
    for names in loaded.values():
        assert "privsyn.counting.engine" in names, "this worker has counted nothing"
        assert list_forbidden(names, FORBIDDEN) == []
    with monkeypatch.context() as patch:
        patch.setattr(DaskEngine, "open", lambda self: pytest.fail("the second run needs no cluster"))
        patch.setattr(LocalEngine, "rows", lambda *a, **k: pytest.fail("the second run counts nothing"))
        again = run(spec, noise=noise)
    assert (again.run, again.drawn, noise.draws) == (there.run, (), draws), "the engine is part of a key"
    check_same_here(spec, there)
    assert cluster.scheduler_address not in (Path(there.released) / "manifest.json").read_text(encoding="utf-8")


@pytest.mark.slow
def test_a_column_that_is_not_measured_is_drawn_here(places: Path, folder: str, cluster: Any) -> None:
    spec = make_spec({**FEW, "income": {**COLUMNS["income"], "measured": False}}, data=folder, **QUICK)
    there = run(on(spec, kind="dask"), noise=NoNoise())
    check_same_here(spec, there)
    made = pq.read_table(Path(there.released) / "synthetic.parquet")
    assert made["income"].null_count == 0 and made.column_names == ["age", "income", "region"]


def slow_down(marks: str, place: str, at_its_end: bool) -> None:
    """On a worker: what ``place`` names takes half a second more; it leaves a file named for the worker as it begins.

    ``at_its_end``: the file is there once its work is done.
    """
    module, *path, name = place.split(".")
    owner = functools.reduce(getattr, path, importlib.import_module(f"privsyn.counting.{module}"))
    make = getattr(owner, name)

    @functools.wraps(make)  # a bound method is sent to another worker by its name
    def slowly(*arguments: Any, **named: Any) -> Any:
        mark = Path(marks) / f"{os.getpid()}-{time.monotonic_ns()}"
        if not at_its_end:
            mark.touch()
            time.sleep(0.5)
            return make(*arguments, **named)
        found = make(*arguments, **named)
        time.sleep(0.5)
        mark.touch()
        return found

    setattr(owner, name, slowly)


def kill_first(marks: Path, killed: list[int]) -> None:
    """Kill the first worker that left a file named for it; put its number into ``killed``."""
    while not killed:
        done = {int(path.name.split("-")[0]) for path in marks.iterdir()}
        if done:
            killed.append(done.pop())
            os.kill(killed[0], signal.SIGKILL)
        time.sleep(0.01)


@contextmanager
def killing(cluster: Any, places: Path, place: str, *, at_its_end: bool = False) -> Iterator[Any]:
    """A client, and while it is there the first worker that comes to ``place`` is killed: others take its work."""
    (marks := places / "marks").mkdir()
    killed = list[int]()
    with distributed.Client(cluster, set_as_default=False) as client:
        client.run(slow_down, str(marks), place, at_its_end)
        pids = set(client.run(os.getpid).values())
        killer = threading.Thread(target=kill_first, args=(marks, killed), daemon=True)
        killer.start()
        yield client
        killer.join(10)
        assert killed, "no worker came to this place"
        assert killed[0] in pids and killed[0] not in set(client.run(os.getpid).values())


def check_same_here(spec: ReleaseSpec, there: ReleaseSummary, noise: NoNoise | None = None) -> None:
    """The release of these rows without a cluster has the same bytes."""
    again = spec.model_copy(update={"dataset": "again"})
    here = run(again, noise=noise or NoNoise(), new_dataset="the same, here")
    assert tables(here.released) == tables(there.released)


def test_a_worker_that_is_killed_in_mid_run_loses_nothing(places: Path, folder: str, cluster: Any) -> None:
    """It dies with finished partitions in its memory and another under way: they are counted again, by others."""
    spec, noise, again = few(folder), Counted(), Counted()
    with killing(cluster, places, "engine.count_partition", at_its_end=True):
        there = run(on(spec, kind="dask"), noise=noise)
    check_money()
    check_same_here(spec, there, again)
    assert noise.draws == again.draws


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
    with closing(choose_engine(EngineChoice(kind="dask"), Settings())) as engine:
        theirs = list(engine.rows(stored, domain, padded=True).counts(cliques))
    ours = list(LocalEngine().rows(stored, domain, padded=True).counts(cliques))
    assert all(np.array_equal(a, b) for a, b in zip(theirs, ours, strict=True))
    assert ours[3] == 5_000


def refused(spec: ReleaseSpec) -> RequestError:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("privsyn.extras.dask.dask_engine._CONNECT", "1s")
        with pytest.raises(RequestError) as caught:
            run(on(spec, kind="dask"))
    assert Ledger(Settings().ledger).entries("people") == []
    return caught.value


def test_a_wrong_address_is_refused_before_anything_is_spent(
    places: Path, folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PRIVSYN_DASK", "tcp://127.0.0.1:9")
    error = refused(few(folder))
    assert (error.field, "tcp://127.0.0.1:9" in str(error)) == ("settings.dask", True)


def test_a_cluster_that_other_certificates_know_is_not_talked_to(
    places: Path, folder: str, cluster: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in written(distributed.Security.temporary(), places).items():
        monkeypatch.setenv(name, value)
    assert refused(few(folder)).field == "settings.dask"


@pytest.mark.parametrize(
    ("settings", "field"),
    [
        ({"PRIVSYN_DASK": "tcp://scheduler.example.org:8786"}, "settings.dask"),
        ({"PRIVSYN_DASK": "tcp://10.0.0.1:8786"}, "settings.dask"),
        ({"PRIVSYN_DASK": "tcp://localhost.example.org:8786"}, "settings.dask"),
        ({"PRIVSYN_DASK": "tls://127.0.0.1:8786"}, "settings.dask_ca"),
        ({"PRIVSYN_DASK": "tls://127.0.0.1:8786", "PRIVSYN_DASK_CA": "/nowhere.pem"}, "settings.dask_ca"),
        ({"PRIVSYN_DASK": "ws://127.0.0.1:8786"}, "settings.dask"),
        ({"PRIVSYN_DASK": "tcp://a@127.0.0.1:8786"}, "settings.dask"),
        (
            {
                **dict.fromkeys(("PRIVSYN_DASK", "PRIVSYN_DASK_PUBLIC"), "tcp://127.0.0.1:9"),
                "PRIVSYN_DASK_PUBLIC_FOLDER": "/usr",
            },
            "settings.dask_public",
        ),
        ({"PRIVSYN_DASK_PUBLIC": "tcp://127.0.0.1:9"}, "settings.dask_public_folder"),
        (
            {"PRIVSYN_DASK_PUBLIC": "tcp://127.0.0.1:9", "PRIVSYN_DASK_PUBLIC_FOLDER": "/", "PRIVSYN_PRIVATE": "/"},
            "settings.dask_public_folder",
        ),
        (
            {"PRIVSYN_DASK_PUBLIC": "tls://127.0.0.1:9", "PRIVSYN_DASK_PUBLIC_FOLDER": "/usr"},
            "settings.dask_public_ca",
        ),
    ],
)
def test_a_cluster_that_cannot_be_known_is_refused_before_it_is_called(
    places: Path, folder: str, monkeypatch: pytest.MonkeyPatch, settings: dict[str, str], field: str
) -> None:
    monkeypatch.setattr(distributed, "Client", lambda *a, **k: pytest.fail("it was called"))
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(RequestError) as caught:
        run(on(few(folder), kind="dask"))
    assert caught.value.field == field


@pytest.mark.parametrize(
    "inside", [".", "out", "out/private", "out/private/rows", "out/released", "people", "keys", "l"]
)
def test_the_folder_of_synthetic_rows_holds_nothing_private(
    places: Path, folder: str, monkeypatch: pytest.MonkeyPatch, inside: str
) -> None:
    """Neither root, in either direction, nor the table's files, the ledger's or a key's."""
    monkeypatch.setattr(distributed, "Client", lambda *a, **k: pytest.fail("it was called"))
    for name in ("out/private/rows", "out/released", "keys", "l"):
        (places / name).mkdir(parents=True)
    (places / "keys" / "login").touch()
    (places / "link").symlink_to(places / inside)
    monkeypatch.setenv("PRIVSYN_LOGIN_FILE", str(places / "keys" / "login"))
    monkeypatch.setenv("PRIVSYN_LEDGER", str(places / "l" / "ledger.sqlite"))
    monkeypatch.setenv("PRIVSYN_DASK_PUBLIC", "tcp://127.0.0.1:9")
    monkeypatch.setenv("PRIVSYN_DASK_PUBLIC_FOLDER", str(places / "link"))
    words = {"people": "holds the private table", "keys": "file of PRIVSYN_LOGIN_FILE", "l": "holds the ledger"}
    error = refused(few(folder))
    assert error.field == "settings.dask_public_folder"
    assert words.get(inside, "apart from the private and the released one") in str(error)


def name_makers(cluster: Any, places: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Name the cluster as the second one, too, by another of its addresses, and its folder."""
    for name in ("CA", "CERTIFICATE", "KEY"):
        monkeypatch.setenv(f"PRIVSYN_DASK_PUBLIC_{name}", os.environ[f"PRIVSYN_DASK_{name}"])
    address = cluster.scheduler_address.replace("127.0.0.1", "localhost")
    assert address != cluster.scheduler_address
    (places / "rows").mkdir()
    monkeypatch.setenv("PRIVSYN_DASK_PUBLIC", address)
    monkeypatch.setenv("PRIVSYN_DASK_PUBLIC_FOLDER", str(places / "rows"))


def test_one_scheduler_by_two_addresses_is_refused(
    places: Path, folder: str, cluster: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    name_makers(cluster, places, monkeypatch)
    error = refused(few(folder))
    assert (error.field, "workers that read private rows" in str(error)) == ("settings.dask_public", True)
    assert list((places / "rows").glob("*/.scratch.*")) == [], "the folder of the trial is left"


def test_makers_that_do_not_reach_their_folder_are_refused_before_anything_is_spent(
    places: Path, folder: str, cluster: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A relative path stands for a folder that is not mounted: the workers' working folder is another one."""
    name_makers(cluster, places, monkeypatch)
    monkeypatch.setenv("PRIVSYN_DASK", "tcp://127.0.0.1:9")
    monkeypatch.chdir(places)
    check = DaskEngine.check_folder
    monkeypatch.setattr(DaskEngine, "check_folder", lambda self, at: check(self, at.relative_to(places)))
    error = refused(few(folder))
    assert error.field == "settings.dask_public_folder"
    assert "FileNotFoundError" in str(error) and "private folder" not in str(error)


def test_no_spec_names_a_cluster(places: Path, folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A scheduler's answers are pickles: the process that connects to a hostile one runs what that one sends."""
    monkeypatch.setattr(distributed, "Client", lambda *a, **k: pytest.fail("a scheduler of the spec's was called"))
    content = {**few(folder).model_dump(exclude_unset=True), "engine": {"kind": "dask", "address": "tcp://127.0.0.1:9"}}
    with pytest.raises(ValidationError, match="address"):
        ReleaseSpec.model_validate(content)
    with pytest.raises(RequestError, match="The operator names the cluster: PRIVSYN_DASK"):
        privsyn.release(None, content)
    assert "address" not in EngineChoice.model_fields


def test_the_operators_cluster_has_its_own_workers(places: Path, folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PRIVSYN_DASK", "tcp://127.0.0.1:9")
    with pytest.raises(RequestError) as caught:
        run(on(few(folder), kind="dask", workers=2))
    assert caught.value.field == "engine.workers"


def test_without_dask_the_cure_is_named(places: Path, folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(RequestError, match=r"not installed.*privsyn-flows\[dask\]") as refused:
        run(on(few(folder), kind="dask"))
    assert refused.value.field == "engine.kind"


@pytest.mark.parametrize(
    "content",
    [{"kind": "local", "workers": 2}, {"kind": "spark"}, {"kind": "dask", "workers": -1}],
)
def test_a_choice_that_means_nothing_is_refused(content: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        EngineChoice(**content)


@pytest.mark.parametrize(
    ("field", "words"),
    [
        ("settings.dask", "Mount the private folder"),
        ("settings.dask_public", "PRIVSYN_DASK_PUBLIC_FOLDER: a worker of"),
    ],
)
def test_errors_of_workers_keep_their_words_to_themselves(field: str, words: str) -> None:
    from privsyn.extras.dask.dask_engine import _translate_worker_errors

    with pytest.raises(PrivsynError, match=words) as told, _translate_worker_errors(field):
        raise FileNotFoundError("/mnt/elsewhere/secret")
    assert "secret" not in str(told.value)
    assert ("private" in str(told.value)) == (field == "settings.dask"), "nobody opens the private folder to makers"
    assert told.value.__cause__ is None


@pytest.mark.slow
def test_the_scratch_of_a_cluster_of_ones_own_lies_in_the_private_folder(places: Path) -> None:
    settings = Settings()
    with closing(choose_engine(EngineChoice(kind="dask", workers=1), settings)) as engine:
        assert isinstance(engine, DaskEngine)
        engine.open()
        (scratch,) = engine._client.run(lambda dask_worker: dask_worker.local_directory).values()
    assert Path(scratch).is_relative_to(settings.private_root / "dask")


@pytest.mark.slow
@pytest.mark.parametrize(
    "place",
    [
        "part_files.TableWriter.write",
        *(f"synthetic_parts.{name}" for name in ("CoreParts.refine", "WholeParts.make", "DecodedParts.make")),
    ],
)
def test_a_worker_that_is_killed_while_it_makes_rows_changes_none(
    places: Path, folder: str, cluster: Any, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It dies while shards are written, moved together, given their last attributes, or decoded."""
    measured = itertools.cycle([*[0] * 3, *[1] * 3])  # of three shards nothing, of all together too much: each is moved
    monkeypatch.setattr("privsyn.tasks.synthesis.shards.measure_residuals", lambda residuals: next(measured))
    spec = few(folder, synthesis={"sweeps": 2, "rows": 300, "shard_rows": 100})
    with killing(cluster, places, place) as client:
        there = run(on(spec, kind="dask"), noise=NoNoise())
        for names in client.run(modules_of_a_worker).values():
            assert list_forbidden(names, FORBIDDEN_TO_MAKERS) == []
    check_money()
    check_same_here(spec, there)
    assert len(list((Path(there.released) / "synthetic").iterdir())) == 3


@pytest.mark.slow
def test_workers_encode_and_recode_and_one_that_is_killed_changes_nothing(
    places: Path, folder: str, cluster: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same repairs, noise and released bytes as from rows that are encoded at once."""
    spec = few(folder)
    here = run(spec, noise=NoNoise())
    monkeypatch.setattr("privsyn.counting.engine.PART_ROWS", 100)
    with killing(cluster, places, "part_files.TableWriter.write"):
        again = spec.model_copy(update={"dataset": "again"})
        there = run(on(again, kind="dask"), noise=NoNoise(), new_dataset="the same, there")
    assert tables(here.released) == tables(there.released)
    store = places / "out" / "private" / "store"
    for step in ("encode-*-encoded_rows", "recode_rows-*-recoded_rows"):
        (whole,), (parts,) = (store / "people").glob(f"{step}.parquet"), (store / "again").glob(step)
        assert (whole.is_file(), parts.is_dir(), len(list(parts.iterdir()))) == (True, True, 12)
        assert pq.read_table(whole).equals(pq.read_table(parts))
    ours, theirs = ((store / name).glob("encode-*-repairs.parquet") for name in ("people", "again"))
    assert pq.read_table(next(ours)).equals(pq.read_table(next(theirs)))


@pytest.mark.slow
def test_workers_that_make_rows_are_told_of_no_private_file(
    places: Path, folder: str, cluster: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two clusters that do not know each other: one encodes and counts, the other makes rows; the bytes are as here."""
    public, keys, sent = places / "public", places / "keys", dict[str, bytes]()
    public.mkdir()
    keys.mkdir()
    files = written(distributed.Security.temporary(), keys)
    hand_out = DaskEngine.make_parts

    def noting(self: DaskEngine, write: Any, tasks: Any, threads: int) -> Iterator[PartFile]:
        sent[self._field] = sent.get(self._field, b"") + cloudpickle.dumps((write, tasks))
        return hand_out(self, write, tasks, threads)

    monkeypatch.setattr(DaskEngine, "make_parts", noting)
    monkeypatch.setattr("privsyn.counting.engine.PART_ROWS", 100)
    spec = few(folder, synthesis={"sweeps": 2, "rows": 300, "shard_rows": 100})
    with distributed.LocalCluster(
        n_workers=1, threads_per_worker=1, processes=True, dashboard_address=None, memory_limit=0, silence_logs=50,
        security=security_of(files), protocol="tls",
    ) as makers:  # fmt: skip
        for name, value in files.items():
            monkeypatch.setenv(name.replace("DASK", "DASK_PUBLIC"), value)
        monkeypatch.setenv("PRIVSYN_DASK_PUBLIC", makers.scheduler_address)
        monkeypatch.setenv("PRIVSYN_DASK_PUBLIC_FOLDER", str(public))
        there = run(on(spec, kind="dask"), noise=NoNoise())
        with distributed.Client(makers, set_as_default=False) as client:
            (names,) = client.run(modules_of_a_worker).values()
    assert "privsyn.counting.synthetic_parts" in names
    assert list_forbidden(names, FORBIDDEN_TO_MAKERS) == []
    private = [str(places / "out" / "private").encode(), folder.encode()]
    assert all(place in sent["settings.dask"] for place in private)
    assert not any(place in sent["settings.dask_public"] for place in private)
    assert str(public).encode() in sent["settings.dask_public"]
    assert str(public).encode() not in sent["settings.dask"]
    assert [path for path in public.rglob("*") if path.is_file()] == []
    for name in ("PRIVSYN_DASK_PUBLIC", "PRIVSYN_DASK_PUBLIC_FOLDER"):
        monkeypatch.delenv(name)
    check_same_here(spec, there)


@pytest.mark.slow
def test_an_error_of_a_worker_has_none_of_its_words() -> None:
    """Dask logs it where it likes, and the words of a cast hold the value."""

    def fail(task: object, path: str, threads: int) -> PartFile:
        raise ValueError("could not convert 'Anna Meier' to int64")

    with pytest.raises(PrivsynError, match=r"could not make a part \(ValueError\)") as error:
        _call_write(fail, None, "part")
    assert error.value.__context__ is error.value.__cause__ is None
