"""Released folders in an object store: a folder without its manifest is not a release.

The manifest is written last and removed first, so whoever finds it finds the files that it names; their hashes detect
later changes.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa

from privsyn.base.errors import PrivsynError, RequestError
from privsyn.base.places import DataUrl
from privsyn.extras.stores.objects import make_store_error, open_filesystem, translate_store_errors
from privsyn.storage.released_files import check_released_file, read_manifest
from privsyn.storage.released_root import is_released_name
from privsyn.storage.stores import CopiedFolder, check_store

_MANIFEST = "manifest.json"


def copy_released(folder: Path, store: str, field: str) -> CopiedFolder:
    """Copy a whole released folder into the store's folder ``store``, under the run's name.

    A folder with the same manifest stays as it is.  Raises RequestError, about ``field``, for a wrong URL; PrivsynError
    if the store refuses or does not answer.  The local folder is unchanged then, and another attempt completes the
    copy.
    """
    url, manifest = check_store(store, field), read_manifest(folder)
    top = "/".join(filter(None, (url.bucket, url.path.strip("/"), manifest.run)))
    place, manifest_bytes, failure = f"{url.scheme}://{top}", (folder / _MANIFEST).read_bytes(), None
    files = [check_released_file(folder, manifest, name, field) for name in sorted(manifest.files)]
    try:
        filesystem = open_filesystem(url)
        there = _read(filesystem, f"{top}/{_MANIFEST}")
        if there == manifest_bytes:
            return CopiedFolder(place, tuple(sorted(manifest.files)), written=False)
        if there is not None:
            filesystem.delete_file(f"{top}/{_MANIFEST}")
        for file in files:
            with file.open("rb") as source, _write(filesystem, f"{top}/{file.relative_to(folder)}") as sink:
                shutil.copyfileobj(source, sink)
        for path in _list_files(filesystem, top):
            if path.removeprefix(f"{top}/") not in manifest.files:
                filesystem.delete_file(path)
        with _write(filesystem, f"{top}/{_MANIFEST}") as sink:
            sink.write(manifest_bytes)
    except (OSError, pa.ArrowException) as error:
        failure = make_store_error(url.scheme, place, str(error), field)
    if failure is not None:
        cure = f"{failure.cure}. It is whole in {folder}; the same request then copies it, and costs nothing"
        raise PrivsynError(f"the released folder could not be copied: {failure.problem}", cure, field)
    return CopiedFolder(place, tuple(sorted(manifest.files)), written=True)


def fetch_released(place: str, field: str) -> Path:
    """Return a copy of the released folder at the URL, kept while this process runs; every file is checked.

    Raises RequestError, about ``field``, if there is no release, or a file does not match its manifest.
    """
    url = DataUrl.parse(place, field)
    top = "/".join(filter(None, (url.bucket, url.path.strip("/"))))
    with translate_store_errors(url.scheme, url.where, field):
        filesystem = open_filesystem(url)
        manifest_bytes = _read(filesystem, f"{top}/{_MANIFEST}")
        if manifest_bytes is None:
            problem = f"there is no release at {url.where}: no manifest.json, which is written last"
            raise RequestError(problem, "Name the folder of a release, or wait until it is whole", field)
        if (place, manifest_bytes) not in _FETCHED:
            _FETCHED[place, manifest_bytes] = _fetch(filesystem, top, manifest_bytes, field)
        return next(Path(_FETCHED[place, manifest_bytes].name).iterdir())


_FETCHED: dict[tuple[str, bytes], tempfile.TemporaryDirectory[str]] = {}
"""Place and manifest -> the folder's copy, which is removed when the process ends."""


def _fetch(filesystem: Any, top: str, manifest_bytes: bytes, field: str) -> tempfile.TemporaryDirectory[str]:
    holder = tempfile.TemporaryDirectory(prefix="privsyn-")
    folder = Path(holder.name) / top.rpartition("/")[2]
    folder.mkdir()
    (folder / _MANIFEST).write_bytes(manifest_bytes)
    manifest = read_manifest(folder)
    if not all(map(is_released_name, manifest.files)):
        problem = f"the manifest of {manifest.run} names a file that no release has"
        raise RequestError(problem, "Get the folder again from its publisher", field)
    for name in manifest.files:
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        with filesystem.open_input_stream(f"{top}/{name}", None) as source, file.open("wb") as sink:
            shutil.copyfileobj(source, sink)
        check_released_file(folder, manifest, name, field)
    return holder


def _read(filesystem: Any, path: str) -> bytes | None:
    try:
        with filesystem.open_input_stream(path, None) as stream:
            return bytes(stream.read())
    except FileNotFoundError:
        return None


def _write(filesystem: Any, path: str) -> Any:
    return filesystem.open_output_stream(path, None)


def _list_files(filesystem: Any, top: str) -> list[str]:
    from pyarrow import fs

    return [entry.path for entry in filesystem.get_file_info(fs.FileSelector(top, recursive=True)) if entry.is_file]
