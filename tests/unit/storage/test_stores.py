"""Stores that packages add: tables are read from their URLs, released folders go there, what they say of an object."""

from __future__ import annotations

import io
from collections.abc import Iterator
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from privsyn.base import registry
from privsyn.base.errors import RequestError
from privsyn.base.places import DataUrl, is_files_url, is_object_url
from privsyn.cli import app
from privsyn.extras.stores.objects import StoredObject, _read_mark
from privsyn.sources.file_source import _mark
from privsyn.sources.open_source import open_source
from privsyn.storage.store import Store
from privsyn.storage.stores import CopiedFolder, StoredFile, check_store
from tests.support.specs import make_spec


class BytesFile(StoredFile):
    """A file whose bytes are here."""

    mark, is_digest = "1", False

    def __init__(self, name: str, content: bytes) -> None:
        self._name, self.content = name, content

    @property
    def name(self) -> str:
        return self._name

    def open_file(self) -> Any:
        return io.BytesIO(self.content)

    open_stream = open_file

    def iterate_bytes(self) -> Iterator[bytes]:
        yield self.content

    def refuse_changed(self) -> None:
        """It never changes."""

    def refuse_failed(self, error: Exception) -> None:
        """It never fails."""


class BytesStore:
    """A store of one table; it remembers what was copied."""

    def __init__(self) -> None:
        self.copied: list[tuple[str, str]] = []

    def list_files(self, place: str, field: str) -> tuple[StoredFile, ...]:
        return (BytesFile(place.rpartition("/")[2], b"age\n30\n40\n"),)

    def copy_released(self, folder: Path, place: str, field: str) -> CopiedFolder:
        self.copied.append((folder.name, place))
        return CopiedFolder(f"{place}/{folder.name}", (), written=True)

    def fetch_released(self, place: str, field: str) -> Path:
        raise RequestError("holds no release", "", field)


STORE = BytesStore()


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    theirs = [EntryPoint("bytes", f"{__name__}:STORE", "privsyn.stores")]
    monkeypatch.setattr(
        registry,
        "entry_points",
        lambda *, group: [*entry_points(group=group), *(t for t in theirs if t.group == group)],
    )
    registry.find_parts.cache_clear()
    yield
    registry.find_parts.cache_clear()


def test_a_scheme_that_no_package_adds_is_refused() -> None:
    with pytest.raises(RequestError, match=r"is a URL \(none://\), a kind that is not supported"):
        DataUrl.parse("none://place/table.csv")


def test_a_table_of_an_added_store_is_read() -> None:
    assert is_files_url("bytes://place/table.csv") and is_object_url("bytes://place/table.csv")
    url = DataUrl.parse("bytes://place/table.csv")
    assert url.in_store and not url.is_file and url.is_within(["bytes://place"]) and not url.is_within(["bytes://b"])
    spec = make_spec({"age": {"kind": "integer", "min": 0, "max": 99}}, data="bytes://place/table.csv")
    source = open_source(spec.place, spec)
    assert [batch.to_pydict() for batch in source.batches()] == [{"age": ["30", "40"]}]


def test_a_released_folder_goes_to_an_added_store(tmp_path: Path) -> None:
    (tmp_path / "run-1").mkdir()
    (tmp_path / "run-1" / "manifest.json").write_text("{}", encoding="utf-8")
    done = CliRunner().invoke(app, ["publish", str(tmp_path / "run-1"), "bytes://place/folder"])
    assert done.exit_code == 0, done.output
    assert STORE.copied == [("run-1", "bytes://place/folder")]
    assert check_store("bytes://place/folder", "settings.released_store").bucket == "place"


class Opened(io.BytesIO):
    """An object as Arrow opens it."""

    def __init__(self, content: bytes, said: dict[str, bytes]) -> None:
        super().__init__(content)
        self.said = said

    def metadata(self) -> dict[str, bytes]:
        return self.said


class Filesystem:
    """A store of one object."""

    def __init__(self, content: bytes, **said: bytes) -> None:
        self.content, self.said = content, said

    def open_input_file(self, path: str, *_: Any) -> Opened:
        return Opened(self.content, self.said)

    open_input_stream = open_input_file


def find_object(scheme: str, content: bytes, **said: bytes) -> StoredObject:
    filesystem = Filesystem(content, **said)
    mark = _read_mark(filesystem, scheme, "bucket/key", filesystem.open_input_file("bucket/key"))
    return StoredObject(scheme, "bucket/key", *mark, filesystem)


@pytest.mark.parametrize(
    ("scheme", "said", "is_digest"),
    [
        ("s3", {"ETag": b"a"}, True),
        ("gs", {"md5Hash": b"a", "generation": b"1"}, True),
        ("gs", {"generation": b"1"}, False),
        ("abfs", {"ETag": b"0x1"}, False),
    ],
)
def test_objects_without_a_digest_are_told_apart_by_their_bytes(
    scheme: str, said: dict[str, bytes], is_digest: bool, tmp_path: Path
) -> None:
    store = Store(tmp_path / "p", tmp_path / "r")
    (tmp_path / "same").write_bytes(b"one")
    one, other = (find_object(scheme, content, **said) for content in (b"one", b"two"))
    assert one.is_digest is is_digest
    assert (_mark(one, store) == _mark(other, store)) is is_digest
    assert (_mark(one, store) == store.mac(tmp_path / "same")) is not is_digest


def test_an_object_of_which_a_store_says_nothing_is_refused() -> None:
    with pytest.raises(RequestError, match="says no ETag"):
        find_object("s3", b"one")
