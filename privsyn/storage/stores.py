"""Files of tables, and released folders, elsewhere: what a package that reaches a store gives the core.

The registry's group ``stores`` has an object by the scheme of the store's URLs.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from privsyn.base.errors import RequestError
from privsyn.base.places import DataUrl, is_object_url
from privsyn.base.registry import load_part


class StoredFile(ABC):
    """A file of a store as it was when its table was opened: each later look has to find the same ``mark``.

    ``mark``: what the store says of the content; ``is_digest``: whether that is made from the file's bytes.
    """

    mark: str
    is_digest: bool

    @property
    @abstractmethod
    def name(self) -> str:
        """The last part of the path."""

    @abstractmethod
    def open_file(self) -> Any:
        """Return the file for reads at any place.  Raises RequestError if it is another one by now."""

    @abstractmethod
    def open_stream(self) -> Any:
        """Return the file's bytes as a stream.  Raises RequestError if it is another one by now."""

    @abstractmethod
    def iterate_bytes(self) -> Iterator[bytes]:
        """Yield the file's bytes in blocks.  Raises RequestError if it is another one by now, or breaks off."""

    @abstractmethod
    def refuse_changed(self) -> None:
        """Raise RequestError if the file is another one by now, or cannot be reached."""

    @abstractmethod
    def refuse_failed(self, error: Exception) -> None:
        """Raise RequestError for an error in the middle of a read, unless the file is there, whole and the same."""


@dataclass(frozen=True)
class CopiedFolder:
    """A released folder in a store, its files, and whether it was written now: False where all was there."""

    place: str
    files: tuple[str, ...]
    written: bool


class FileStore(Protocol):
    """A kind of store.  Its methods raise RequestError about ``field``, without a key or a store's own words."""

    def list_files(self, place: str, field: str) -> tuple[StoredFile, ...]:
        """Return the file at the URL, or the files of a folder in the order of their names."""

    def copy_released(self, folder: Path, place: str, field: str) -> CopiedFolder:
        """Copy a whole released folder into the folder ``place`` of the store, under the run's name.

        A folder with this manifest is there already, and stays.
        """

    def fetch_released(self, place: str, field: str) -> Path:
        """Return a copy of the released folder at the URL, for as long as this process runs; every file is checked."""


def find_store(place: str, field: str) -> FileStore:
    """Return the store of a URL.  Raises RequestError about ``field`` where no package reaches it."""
    store: FileStore = load_part("stores", place.strip().partition("://")[0].lower(), field)
    return store


def check_store(place: str, field: str) -> DataUrl:
    """Return the parts of a store's URL.  Raises RequestError about ``field`` for any other, and for a key in it."""
    if not is_object_url(place):
        raise RequestError("names no folder of an object store", "Write s3://BUCKET/FOLDER", field)
    return DataUrl.parse(place, field)
