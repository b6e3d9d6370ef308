"""A table in parts: a folder of files that is whole or absent, and checked as one."""

from __future__ import annotations

import hashlib
import stat
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from privsyn.data_contracts.artifacts import ArtifactRef, Zone
from privsyn.storage.released_root import ZoneError
from privsyn.storage.store import Store

KEY = hashlib.sha256(b"lineage").hexdigest()
SCHEMA = pa.schema([pa.field("a", pa.uint8(), nullable=False)])
TABLE = pa.table({"a": list(range(10))}, schema=SCHEMA)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "private", tmp_path / "released", "people")


def write(store: Store, zone: Zone = Zone.RELEASED, parts: tuple[int, ...] = (4, 4, 2)) -> ArtifactRef:
    return store.write_table(TABLE, SCHEMA, "synthetic", "decode", KEY, zone, parts=parts)


def test_parts_are_read_as_one_table(store: Store) -> None:
    ref = write(store)
    files = sorted(Path(ref.path).iterdir())
    assert [file.name for file in files] == ["part-00000.parquet", "part-00001.parquet", "part-00002.parquet"]
    assert [pq.read_table(file)["a"].to_pylist() for file in files] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    assert stat.S_IMODE(Path(ref.path).stat().st_mode) == 0o700
    assert store.verify(ref)
    assert store.verify(ref, afresh=True)
    assert store.read_table(ref).equals(TABLE)
    assert pa.Table.from_batches(store.read_batches(ref)).equals(TABLE)
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
    ref = write(store)
    harm(Path(ref.path))
    assert not store.verify(ref)
    again = write(store)
    assert again == ref
    assert store.verify(ref)


def test_a_stream_that_fails_leaves_no_part(store: Store) -> None:
    def broken():  # type: ignore[no-untyped-def]
        yield from TABLE.slice(0, 5).to_batches()
        raise ValueError("no more")

    with pytest.raises(ValueError, match="no more"):
        store.write_table(broken(), SCHEMA, "synthetic", "decode", KEY, Zone.RELEASED, parts=(4, 6))
    assert list((store.private_root / "store" / "people").iterdir()) == []
    with pytest.raises(ValueError, match="fewer rows"):
        write(store, parts=(4, 4, 3))
    assert list((store.private_root / "store" / "people").iterdir()) == []


def test_what_a_killed_writer_left_is_removed(store: Store) -> None:
    ref = write(store)
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
        assert store.add_released(write(store), folder, "synthetic.parquet") == folder / "synthetic"
        with pytest.raises(ZoneError):
            store.add_released(write(store, Zone.PRIVATE), folder, "other.parquet")

    folder = store.released.publish("run-1", build)
    assert sorted(p.relative_to(folder).as_posix() for p in folder.rglob("*.parquet")) == [
        f"synthetic/part-0000{i}.parquet" for i in range(3)
    ]
    assert pq.read_table(folder / "synthetic").equals(TABLE)
