"""The store: whole files only, in parts or not, two zones that do not mix, and checks of the key's holder alone."""

from __future__ import annotations

import errno
import hashlib
import multiprocessing
import os
import shutil
import signal
import stat
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from privsyn.base.errors import PrivsynError, RequestError
from privsyn.data_contracts import tables
from privsyn.data_contracts.artifacts import ArtifactRef, Zone
from privsyn.storage import disk
from privsyn.storage.released_root import ZoneError
from privsyn.storage.store import Store

KEY = hashlib.sha256(b"lineage").hexdigest()
SCHEMA = pa.schema([pa.field("a", pa.uint8(), nullable=False), pa.field("b", pa.uint16(), nullable=False)])
TABLE = pa.table({"a": [1, 2, 3], "b": [500, 600, 700]}, schema=SCHEMA)


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "private", tmp_path / "released", "people")


def write(store, zone=Zone.RELEASED, table=TABLE, schema=SCHEMA, name="noisy"):
    return store.write_table(table, schema, name, "one_way", KEY, zone)


def files(root: Path) -> set[str]:
    return {p.relative_to(root).as_posix() for p in root.rglob("*") if p.is_file()}


# tables


def test_a_table_comes_back(store):
    ref = write(store)
    assert Path(ref.path) == store.private_root / "store" / "people" / f"one_way-{KEY[:16]}-noisy.parquet"
    assert (ref.name, ref.step, ref.key, ref.zone) == ("noisy", "one_way", KEY, Zone.RELEASED)
    assert store.verify(ref)
    assert store.read_table(ref).equals(TABLE)
    assert store.read_table(ref).schema.equals(SCHEMA)
    assert stat.S_IMODE(Path(ref.path).stat().st_mode) == 0o600


def test_batches_stream_through(store, monkeypatch):
    made = []

    def stream():
        for i in range(5):
            made.append(i)
            yield pa.record_batch([np.full(1000, i, np.uint8), np.arange(1000, dtype=np.uint16)], schema=SCHEMA)

    ref = write(store, table=stream())
    assert made == [0, 1, 2, 3, 4]
    monkeypatch.setattr(tables, "BATCH_ROWS", 700)
    batches = list(store.read_batches(ref))
    assert sum(b.num_rows for b in batches) == 5000 and max(b.num_rows for b in batches) <= 700
    assert pq.ParquetFile(ref.path).num_row_groups == 5


LONG = [c for c in vars(tables).values() if isinstance(c, tables.TableContract) and c.schema is not None]


@pytest.mark.parametrize("contract", LONG, ids=lambda contract: contract.name)
def test_the_schema_of_every_contract_survives(store, contract):
    ref = write(store, table=contract.schema.empty_table(), schema=contract.schema, name=contract.name)
    assert store.read_table(ref).schema.equals(contract.schema)


def test_the_file_tells_nothing_of_the_source(store):
    frame = TABLE.to_pandas().set_index("b")
    dirty = pa.Table.from_pandas(frame).select(["a", "b"]).cast(SCHEMA)
    dirty = dirty.replace_schema_metadata({"source": "/home/x.csv"})
    metadata = pq.ParquetFile(write(store, table=dirty).path).metadata
    assert not metadata.metadata
    assert metadata.created_by.startswith("parquet-cpp-arrow version")
    assert metadata.row_group(0).column(0).compression == "ZSTD"


def test_another_schema_is_refused_and_leaves_nothing(store):
    with pytest.raises(ValueError, match="columns are not the schema's"):
        write(store, table=pa.table({"x": [1]}))
    assert not [f for f in files(store.private_root) if "store/" in f]


def test_a_failing_stream_leaves_nothing_and_the_old_file_whole(store):
    def broken():
        yield TABLE.to_batches()[0]
        raise RuntimeError("half way")

    with pytest.raises(RuntimeError):
        write(store, table=broken())
    assert not [f for f in files(store.private_root) if "store/" in f]
    ref = write(store)
    with pytest.raises(RuntimeError):
        write(store, table=broken())
    assert store.verify(ref) and store.read_table(ref).equals(TABLE)


def _write_and_hang(private: Path, released: Path) -> None:
    def stream():
        yield TABLE.to_batches()[0]
        (private / "half-way").touch()
        time.sleep(60)

    write(Store(private, released, "people"), table=stream())


def test_a_killed_writer_leaves_no_file_that_passes_for_whole(store):
    child = multiprocessing.get_context("fork").Process(
        target=_write_and_hang, args=(store.private_root, store.released_root)
    )
    child.start()
    while not (store.private_root / "half-way").exists():
        time.sleep(0.01)
    os.kill(child.pid, signal.SIGKILL)
    child.join()
    left = [f for f in files(store.private_root) if "store/" in f]
    assert len(left) == 1 and left[0].endswith(".part")
    assert store.verify(write(store))


# checks


def test_one_flipped_bit_is_found(store):
    ref = write(store)
    path = Path(ref.path)
    whole = path.read_bytes()
    for position in (0, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:position] + bytes([whole[position] ^ 1]) + whole[position + 1 :])
        assert not store.verify(ref)
    path.write_bytes(whole[:-1])
    assert not store.verify(ref)
    path.write_bytes(whole)
    assert store.verify(ref)
    path.unlink()
    assert not store.verify(ref)


def test_one_look_is_enough_until_the_file_changes(store, monkeypatch):
    """Even a change that keeps the size and sets the time of writing back is seen: it sets the time of change."""
    looks = []
    mac = Store.mac
    monkeypatch.setattr(Store, "mac", lambda self, path: looks.append(path) or mac(self, path))
    monkeypatch.setattr("privsyn.storage.store.SETTLED_SECONDS", 0.05)
    ref = write(store)
    path = Path(ref.path)
    time.sleep(0.1)
    looks.clear()
    assert store.verify(ref) and store.verify(ref) and len(looks) == 1
    assert not store.verify(ref.model_copy(update={"key": "0" * 64})) and len(looks) == 1
    assert store.verify(ref, afresh=True) and len(looks) == 2
    before, content = path.stat(), path.read_bytes()
    path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert path.stat().st_mtime_ns == before.st_mtime_ns and path.stat().st_size == before.st_size
    assert not store.verify(ref)
    other = path.with_name("other")
    shutil.copy2(path, other)
    other.replace(path)
    assert not store.verify(ref)


def test_a_file_that_has_just_changed_is_looked_at_again(store):
    """Within one tick of the file system's clock a second change leaves no trace in its times."""
    ref = write(store)
    path = Path(ref.path)
    assert store.verify(ref)
    before, content = path.stat(), path.read_bytes()
    path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    original = os.stat

    class Same:
        def __getattr__(self, name):
            return getattr(before, name)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Path, "stat", lambda self, **how: Same() if self == path else original(self, **how))
        assert not store.verify(ref)


def test_a_reference_cannot_change_its_zone_or_name(store):
    ref = write(store, zone=Zone.PRIVATE)
    for change in ({"zone": Zone.RELEASED}, {"name": "synthetic"}, {"key": "0" * 64}, {"step": "decode"}):
        assert not store.verify(ref.model_copy(update=change))


def test_a_file_outside_the_store_is_not_verified(store, tmp_path):
    ref = write(store)
    outside = tmp_path / "copy.parquet"
    shutil.copyfile(ref.path, outside)
    assert not store.verify(ref.model_copy(update={"path": str(outside)}))


def test_the_check_is_no_plain_hash_and_needs_the_key(store, tmp_path):
    ref = write(store)
    other = Store(tmp_path / "other", tmp_path / "other-released", "people")
    content = Path(ref.path).read_bytes()
    assert hashlib.sha256(content).hexdigest() not in (ref.check, store.mac(Path(ref.path)))
    assert other.mac(Path(ref.path)) != store.mac(Path(ref.path))


def test_fingerprint_sees_contents_and_boundaries_not_names(store, tmp_path):
    def lay(folder: str, **contents: str) -> list[Path]:
        (tmp_path / folder).mkdir()
        for name, text in contents.items():
            (tmp_path / folder / name).write_text(text)
        return [tmp_path / folder / name for name in contents]

    first = store.fingerprint(lay("one", a="xy", b="z"))
    assert store.fingerprint(reversed(lay("moved", c="xy", d="z"))) == first
    others = [lay("two", a="x", b="yz"), lay("four", a="xy"), lay("five", a="xy", b="Z"), lay("six", a="xyz")]
    assert len({first, *(store.fingerprint(paths) for paths in others)}) == 5
    with pytest.raises(PrivsynError, match="missing"):
        store.fingerprint([tmp_path / "one" / "missing"])


def test_the_key_is_private_and_lasts(store):
    key = store.private_root / ".key"
    assert len(key.read_bytes()) == 32
    assert stat.S_IMODE(key.stat().st_mode) == 0o600
    assert stat.S_IMODE(store.private_root.stat().st_mode) == 0o700
    ref = write(store)
    assert Store(store.private_root, store.released_root, "people").verify(ref)
    key.write_bytes(b"short")
    with pytest.raises(PrivsynError, match="not a whole key"):
        Store(store.private_root, store.released_root, "people")


def _mac_of(private: Path, released: Path, path: Path) -> str:
    return Store(private, released, "people").mac(path)


def test_concurrent_creation_agrees_on_one_key(tmp_path):
    (tmp_path / "x").write_text("x")
    with multiprocessing.get_context("fork").Pool(8) as pool:
        arguments = [(tmp_path / "private", tmp_path / "released", tmp_path / "x")] * 16
        assert len(set(pool.starmap(_mac_of, arguments, chunksize=1))) == 1


# publishing


def test_publishing_is_one_rename(store):
    seen = []

    def build(folder: Path) -> None:
        store.add_released(write(store), folder, "synthetic.parquet")
        (folder / "manifest.json").write_text("{}")
        seen.append(sorted(p.name for p in store.released_root.iterdir()))

    folder = store.released.publish("run-1", build)
    assert folder == store.released_root / "run-1"
    assert len(seen[0]) == 1 and seen[0][0].startswith(".building-run-1-")
    assert files(store.released_root) == {"run-1/synthetic.parquet", "run-1/manifest.json"}
    assert {stat.S_IMODE(p.stat().st_mode) for p in folder.iterdir()} == {0o644}
    assert pq.read_table(folder / "synthetic.parquet").equals(TABLE)


def test_a_failing_build_leaves_nothing(store):
    def build(folder: Path) -> None:
        (folder / "half").write_text("x")
        raise RuntimeError("half way")

    with pytest.raises(RuntimeError):
        store.released.publish("run-1", build)
    assert not list(store.released_root.iterdir())


def test_a_published_run_is_replaced_only_when_told(store):
    store.released.publish("run-1", lambda folder: (folder / "one").write_text("1") and None)
    with pytest.raises(RequestError, match="already published"):
        store.released.publish("run-1", lambda folder: None)
    with pytest.raises(ZeroDivisionError):
        store.released.publish("run-1", lambda folder: 1 // 0, replace=True)
    assert files(store.released_root) == {"run-1/one"}
    store.released.publish("run-1", lambda folder: (folder / "two").write_text("2") and None, replace=True)
    assert files(store.released_root) == {"run-1/two"}


def test_leftovers_of_crashed_builds_are_cleaned(store):
    mine, other = (store.released_root / f".building-{run}-0123456789abcdef" for run in ("run-1", "run-1-b"))
    for path in (mine, other):
        path.mkdir()
    store.released.publish("run-1", lambda folder: None)
    assert not mine.exists() and other.exists()


def test_a_crash_in_the_middle_of_a_replacement_is_undone(store):
    store.released.publish("run-1", lambda folder: (folder / "one").write_text("1") and None)
    (store.released_root / "run-1").rename(store.released_root / ".replaced-run-1-0123456789abcdef")
    with pytest.raises(RequestError, match="already published"):
        store.released.publish("run-1", lambda folder: None)
    assert files(store.released_root) == {"run-1/one"}


def test_a_private_table_cannot_be_released(store):
    private = write(store, zone=Zone.PRIVATE)
    for ref, error in ((private, ZoneError), (private.model_copy(update={"zone": Zone.RELEASED}), PrivsynError)):
        with pytest.raises(error):
            store.released.publish(
                "run-1", lambda folder, ref=ref: store.add_released(ref, folder, "rows.parquet") and None
            )
        assert not list(store.released_root.iterdir())
    assert issubclass(ZoneError, PermissionError)


def test_a_changed_table_cannot_be_released(store):
    ref = write(store)
    with Path(ref.path).open("ab") as file:
        file.write(b"x")
    with pytest.raises(PrivsynError, match="not the file that was written"):
        store.released.publish("run-1", lambda folder: store.add_released(ref, folder, "rows.parquet") and None)


def test_released_tables_may_lie_in_folders_or_stay_private(store):
    ref = write(store)
    folder = store.released.publish(
        "run-1", lambda folder: store.add_released(ref, folder, "marginals/one.parquet") and None
    )
    assert files(folder) == {"marginals/one.parquet"}
    assert stat.S_IMODE((folder / "marginals").stat().st_mode) == 0o755
    store.add_released(ref, store.private_root / "runs" / "run-1", "one.parquet")  # a run that is not private
    with pytest.raises(ZoneError):
        store.add_released(ref, folder, "late.parquet")  # published already


@pytest.mark.parametrize("name", ["../up", "/abs", "sub//dir", "sub/../dir", "..", "", ".hidden"])
def test_released_names_stay_in_the_folder(store, name):
    with pytest.raises(ZoneError):
        store.released.publish("run-1", lambda folder: store.add_released(write(store), folder, name) and None)


def test_links_out_of_the_released_root_are_refused(store, tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    (store.released_root / "run-1").symlink_to(outside)
    with pytest.raises(ZoneError):
        store.released.publish("run-1", lambda folder: None, replace=True)
    with pytest.raises(ZoneError):
        store.released.publish("run-2", lambda folder: (folder / "link").symlink_to(store.private_root / ".key"))
    with pytest.raises(ZoneError):
        store.add_released(write(store), outside, "rows.parquet")
    assert not list(outside.iterdir()) and not (store.released_root / "run-2").exists()


@pytest.mark.parametrize("name", ["", "..", "a/b", "Big", "-dash", ".hidden", "a" * 82, "a\n", "ü"])
def test_unsafe_names_are_refused(store, tmp_path, name):
    with pytest.raises(RequestError, match="is not a valid file name"):
        store.released.publish(name, lambda folder: None)
    with pytest.raises(RequestError, match=r"^dataset: "):
        Store(tmp_path / "p", tmp_path / "r", name)
    with pytest.raises(RequestError, match="is not a valid file name"), store.lock(name):
        pass


def test_roots_may_be_apart_but_not_overlap(tmp_path):
    for private, released in (("r/p", "r"), ("p", "p/r"), ("p", "p")):
        with pytest.raises(RequestError, match="overlap"):
            Store(tmp_path / private, tmp_path / released)
    shm = Path("/dev/shm")  # noqa: S108 - another file system
    if not shm.is_dir() or shm.stat().st_dev == tmp_path.stat().st_dev:
        pytest.skip("no second file system")
    far = shm / f"privsyn-test-{os.getpid()}"
    try:
        store = Store(tmp_path / "private", far, "people")
        store.released.publish(
            "run-1", lambda folder: store.add_released(write(store), folder, "rows.parquet") and None
        )
        assert pq.read_table(far / "run-1" / "rows.parquet").equals(TABLE)
    finally:
        shutil.rmtree(far)


DISK_ERRORS = [(errno.ENOSPC, "Free some space"), (errno.EACCES, "right"), (errno.EIO, "disk")]


@pytest.mark.parametrize(("number", "cure"), DISK_ERRORS)
def test_a_refusing_disk_is_a_paragraph_with_path_and_cure(store, monkeypatch, number, cure):
    def refuse(*_: object) -> None:
        raise OSError(number, "refused")

    monkeypatch.setattr(disk.os, "fsync", refuse)
    with pytest.raises(PrivsynError, match=cure) as error:
        write(store)
    assert "store/people" in str(error.value)
    with pytest.raises(PrivsynError, match=cure):
        store.released.publish("run-1", lambda folder: (folder / "a").write_text("a") and None)
    assert not list(store.released_root.iterdir())
    assert not [f for f in files(store.private_root) if f.endswith(".part")]


# locks


def _hold(private: Path, released: Path) -> None:
    with Store(private, released).lock("key"):
        (private / "held").touch()
        time.sleep(60)


def test_a_lock_excludes_and_dies_with_its_process(store):
    child = multiprocessing.get_context("fork").Process(target=_hold, args=(store.private_root, store.released_root))
    child.start()
    while not (store.private_root / "held").exists():
        time.sleep(0.01)
    with pytest.raises(PrivsynError, match="another process holds"), store.lock("key", timeout=0.1):
        pass
    with store.lock("another", timeout=0.1):
        pass
    os.kill(child.pid, signal.SIGKILL)
    child.join()
    with store.lock("key", timeout=5):
        pass


CODES = pa.schema([pa.field("a", pa.uint8(), nullable=False)])
TEN = pa.table({"a": list(range(10))}, schema=CODES)


def write_parts(store: Store, zone: Zone = Zone.RELEASED, parts: tuple[int, ...] = (4, 4, 2)) -> ArtifactRef:
    return store.write_table(TEN, CODES, "synthetic", "decode", KEY, zone, parts=parts)


def test_parts_are_read_as_one_table(store: Store) -> None:
    ref = write_parts(store)
    files = sorted(Path(ref.path).iterdir())
    assert [file.name for file in files] == ["part-00000.parquet", "part-00001.parquet", "part-00002.parquet"]
    assert [pq.read_table(file)["a"].to_pylist() for file in files] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    assert stat.S_IMODE(Path(ref.path).stat().st_mode) == 0o700
    assert store.verify(ref)
    assert store.verify(ref, afresh=True)
    assert store.read_table(ref).equals(TEN)
    assert pa.Table.from_batches(store.read_batches(ref)).equals(TEN)
    stored = store.stored(ref)
    assert (stored.num_rows, stored.files) == (10, tuple(files))


HARM: dict[str, Callable[[Path], object]] = {
    "changed": lambda folder: (folder / "part-00001.parquet").write_bytes(b"broken"),
    "lost": lambda folder: (folder / "part-00002.parquet").unlink(),
    "added": lambda folder: (folder / "notes.txt").write_text("x"),
    "swapped": lambda folder: [
        (folder / "part-00000.parquet").rename(folder / "x"),
        (folder / "part-00001.parquet").rename(folder / "part-00000.parquet"),
        (folder / "x").rename(folder / "part-00001.parquet"),
    ],
    "a folder": lambda folder: (folder / "more").mkdir(),
    "a link": lambda folder: [
        (folder / "part-00000.parquet").rename(folder.parent / "elsewhere"),
        (folder / "part-00000.parquet").symlink_to(folder.parent / "elsewhere"),
    ],
    "empty": lambda folder: [file.unlink() for file in folder.iterdir()],
}


@pytest.mark.parametrize("harm", HARM.values(), ids=list(HARM))
def test_a_folder_that_is_not_what_was_written_is_refused_and_replaced(
    store: Store, harm: Callable[[Path], object]
) -> None:
    ref = write_parts(store)
    harm(Path(ref.path))
    assert not store.verify(ref)
    again = write_parts(store)
    assert again == ref
    assert store.verify(ref)


def test_a_stream_that_fails_leaves_no_part(store: Store) -> None:
    def broken():  # type: ignore[no-untyped-def]
        yield from TEN.slice(0, 5).to_batches()
        raise ValueError("no more")

    with pytest.raises(ValueError, match="no more"):
        store.write_table(broken(), CODES, "synthetic", "decode", KEY, Zone.RELEASED, parts=(4, 6))
    assert list((store.private_root / "store" / "people").iterdir()) == []
    with pytest.raises(ValueError, match="fewer rows"):
        write_parts(store, parts=(4, 4, 3))
    assert list((store.private_root / "store" / "people").iterdir()) == []


def test_what_a_killed_writer_left_is_removed(store: Store) -> None:
    ref = write_parts(store)
    left = Path(ref.path).with_name(f".{Path(ref.path).name}.0123456789abcdef.part")
    left.mkdir()
    (left / "part-00000.parquet").write_bytes(b"half")
    store.remove_leftovers()
    assert not left.exists()
    assert store.verify(ref)


def test_private_zones_that_share_a_folder_leave_each_others_scratch(store: Store, tmp_path: Path) -> None:
    (tmp_path / "rows").mkdir()
    other = Store(tmp_path / "elsewhere", tmp_path / "released", "people")
    made = store.make_scratch(tmp_path / "rows")
    other.remove_leftovers(tmp_path / "rows")
    assert made.is_dir()
    store.remove_leftovers(tmp_path / "rows")
    assert not made.exists()


def test_released_parts_keep_their_folder_and_private_ones_stay(store: Store) -> None:
    def build(folder: Path) -> None:
        assert store.add_released(write_parts(store), folder, "synthetic.parquet") == folder / "synthetic"
        with pytest.raises(ZoneError):
            store.add_released(write_parts(store, Zone.PRIVATE), folder, "other.parquet")

    folder = store.released.publish("run-1", build)
    assert sorted(p.relative_to(folder).as_posix() for p in folder.rglob("*.parquet")) == [
        f"synthetic/part-0000{i}.parquet" for i in range(3)
    ]
    assert pq.read_table(folder / "synthetic").equals(TEN)
