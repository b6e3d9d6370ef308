"""A table's files elsewhere: objects of S3-compatible, Google's and Azure's stores, and files of SFTP servers.

Keys come from the environment or from the files of the provider's own programs; so does the address of a store that is
not the provider's.  A store's own messages can hold a key or a request, and are never passed on.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from privsyn.base.errors import RequestError
from privsyn.base.places import DataUrl
from privsyn.base.wording import mention
from privsyn.storage.stores import StoredFile

_READ_AHEAD = 1 << 22
_DIGESTS = {"gs": "md5Hash", "s3": "ETag"}
"""The metadata field derived from an object's bytes; Google's own ETag also covers other metadata."""

_VERSIONS = {"gs": "generation", "abfs": "ETag"}
"""The metadata field that changes with each write, whatever was written."""

_CREDENTIALS = {
    "s3": "Set AWS_PROFILE, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, of a role that may list and read there",
    "gs": "Set GOOGLE_APPLICATION_CREDENTIALS to the file of a role that may list and read there",
    "sftp": "Put the key of a user who may list and read there into ~/.ssh, and the server's own into known_hosts",
    "abfs": "Sign in with `az login`, or set AZURE_STORAGE_ACCOUNT_KEY, or AZURE_CLIENT_ID and those beside it",
}
_DENIED = re.compile(r"ACCESS_DENIED|FORBIDDEN|\b40[13]\b|INVALID_ACCESS_KEY|SIGNATURE|credential|permission", re.I)
_IN_STORE = re.compile(r"\bAWS Error|curlCode|google::cloud|Azure|timed? ?out|connection", re.I)
_LOST = "does not answer, or broke off; no budget is lost"
_AGAIN = "Look at the connection and at the store's address; the same request then goes on where it stopped"


@dataclass(frozen=True)
class StoredObject(StoredFile):
    """An object as it was when the table was opened: each later look at it has to find the same ``mark``.

    ``path``: bucket and key, or the path on the server ``host``.  ``mark``: the store's ETag, digest or generation, or
    a server file's size and time.  ``is_digest``: whether the mark is derived from the object's bytes.
    """

    scheme: str
    path: str
    mark: str
    is_digest: bool
    filesystem: Any = field(repr=False, compare=False)
    host: str = ""

    @property
    def name(self) -> str:
        """The last part of the key."""
        return self.path.rpartition("/")[2]

    def __str__(self) -> str:
        return f"{self.scheme}://{self.host}{self.path}"

    def open_file(self) -> Any:
        """Open the object for random access.  Raises RequestError if it changed."""
        with translate_store_errors(self.scheme, str(self)):
            return self._hold(self.filesystem.open_input_file(self.path))

    def open_stream(self) -> Any:
        """Return the object's bytes as a stream.  Raises RequestError if it changed."""
        with translate_store_errors(self.scheme, str(self)):
            return self._hold(self.filesystem.open_input_stream(self.path, None, _READ_AHEAD))

    def iterate_bytes(self) -> Iterator[bytes]:
        """Yield the object's bytes in blocks.  Raises RequestError if it changed, or breaks off."""
        with self.open_stream() as stream, translate_store_errors(self.scheme, str(self)):
            while block := stream.read(_READ_AHEAD):
                yield block

    def refuse_changed(self) -> None:
        """Raise RequestError if the object changed, or cannot be reached."""
        self.open_file().close()

    def refuse_failed(self, error: Exception) -> None:
        """Raise RequestError for an error during a read, unless the object exists, whole and unchanged."""
        self.refuse_changed()
        if _IN_STORE.search(str(error)):
            raise make_store_error(self.scheme, str(self), str(error))

    def _hold(self, opened: Any) -> Any:
        if _read_mark(self.filesystem, self.scheme, self.path, opened) != (self.mark, self.is_digest):
            opened.close()
            problem = "the private table changed while it was read"
            raise RequestError(problem, "Run again once it is complete", "release.data")
        return opened


def list_objects(place: str, field: str = "data") -> tuple[StoredObject, ...]:
    """Return the objects of the URL: one object, or a folder's objects in the order of their names.

    Names that start with ``.`` or ``_`` are left out.  Raises RequestError about ``field``.
    """
    url = DataUrl.parse(place, field)
    path = f"/{url.path}" if url.scheme == "sftp" else f"{url.bucket}/{url.path}".rstrip("/")
    with translate_store_errors(url.scheme, url.where, field):
        from pyarrow import fs

        filesystem = open_filesystem(url)
        info = filesystem.get_file_info(path)
        if info.type == fs.FileType.Directory:
            entries = sorted(filesystem.get_file_info(fs.FileSelector(path)), key=lambda entry: entry.base_name)
            shown = [entry for entry in entries if not entry.base_name.startswith((".", "_"))]
        elif info.type == fs.FileType.NotFound:
            exists = url.scheme == "sftp" or filesystem.get_file_info(url.bucket).type != fs.FileType.NotFound
            problem = f"no object or folder {url.path!r} in {url.bucket!r}" if exists else f"no bucket {url.bucket!r}"
            another = "Check the name, or give another table with " + mention("release.data")
            raise RequestError(f"there is {problem}", another, field)
        else:
            shown = [info]
        if folder := next((entry.base_name for entry in shown if entry.type != fs.FileType.File), None):
            raise RequestError(f"{url.where} holds {folder!r}, which is a folder", "Put all objects in one", field)
        host = url.host if url.scheme == "sftp" else ""
        return tuple(_find_object(filesystem, url.scheme, entry.path, host) for entry in shown)


def _find_object(filesystem: Any, scheme: str, path: str, host: str) -> StoredObject:
    with filesystem.open_input_file(path) as opened:
        return StoredObject(scheme, path, *_read_mark(filesystem, scheme, path, opened), filesystem, host)


def _read_mark(filesystem: Any, scheme: str, path: str, opened: Any) -> tuple[str, bool]:
    """Return the store's mark of the content, and whether it is derived from the bytes.

    Raises RequestError if the store has no mark.
    """
    if scheme == "sftp":
        entry = filesystem.get_file_info(path)
        return f"{entry.size} {entry.mtime_ns}", False
    metadata = opened.metadata() or {}
    is_digest = bool(metadata.get(_DIGESTS.get(scheme, "")))
    mark = metadata.get((_DIGESTS if is_digest else _VERSIONS).get(scheme, ""))
    if not mark:
        problem = "lies in a store that says no ETag, by which a changed object is known"
        raise RequestError(problem, "Copy the table to a file or folder here", "data")
    return mark.decode() if isinstance(mark, bytes) else str(mark), is_digest


def open_filesystem(url: DataUrl) -> Any:
    """Return Arrow's filesystem for the store of a URL, with keys, region and address from the environment."""
    from pyarrow import fs  # here: most runs read files

    if url.scheme == "sftp":
        from privsyn.extras.stores.sftp import open_sftp

        return open_sftp(url)
    if url.scheme == "gs":
        return fs.GcsFileSystem()
    if url.scheme == "abfs":
        account = url.account or os.environ.get("AZURE_STORAGE_ACCOUNT_NAME", "")
        if not account:
            cure = "Write abfs://CONTAINER@ACCOUNT.dfs.core.windows.net/FOLDER, or set AZURE_STORAGE_ACCOUNT_NAME"
            raise RequestError("names no storage account", cure, "data")
        key, token = (os.environ.get(f"AZURE_STORAGE_{name}") for name in ("ACCOUNT_KEY", "SAS_TOKEN"))
        return fs.AzureFileSystem(account, account_key=key, sas_token=None if key else token)
    endpoint = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
    region = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
    if not region and not endpoint:
        region = fs.resolve_s3_region(url.bucket)
    return fs.S3FileSystem(region=region, endpoint_override=endpoint, connect_timeout=10, request_timeout=60)


@contextmanager
def translate_store_errors(scheme: str, where: str, field: str = "data") -> Iterator[None]:
    """Raise RequestError for an error of a store's filesystem."""
    failure = None
    try:
        yield
    except FileNotFoundError:
        failure = RequestError(f"{where} is not there any more, or not for this user", _CREDENTIALS[scheme], field)
    except (OSError, pa.ArrowException) as error:
        failure = make_store_error(scheme, where, str(error), field)
    if failure is not None:
        raise failure from None  # the store's message may hold a key or a signed request


def make_store_error(scheme: str, where: str, words: str, field: str = "data") -> RequestError:
    """Return the error behind a store's message: the bucket is missing, the user is refused, or no answer."""
    if "NO_SUCH_BUCKET" in words or re.search(r"Bucket '[^']*' not found", words):
        return RequestError(f"{where} is in a bucket that does not exist", "Correct its name", field)
    if _DENIED.search(words):
        return RequestError(f"{where} is refused to this user by the store", _CREDENTIALS[scheme], field)
    return RequestError(f"{where} {_LOST}", _AGAIN, field)
