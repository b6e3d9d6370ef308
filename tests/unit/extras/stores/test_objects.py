"""What a store says of an object: a digest of its bytes, or only that it was written."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest

from privsyn.base.errors import RequestError
from privsyn.extras.stores.objects import StoredObject, _read_mark
from privsyn.sources.file_source import _mark
from privsyn.storage.store import Store


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
