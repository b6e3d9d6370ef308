"""Artifacts on disk: two zones, whole files only, and an HMAC for each.

The private root holds every step's table, of either zone, under ``store/``, the HMAC key and the locks.  The released
root holds published runs, one folder each, that appear whole or not at all.  A plain hash of private data would confirm
a right guess of the data, so checks and fingerprints are HMAC-SHA256 under a key that never leaves the private root.

A run hashes each file once (:meth:`Store.verify`).  The store then recognizes it by device, inode, size, and the times
of its last write and change, if those lie SETTLED_SECONDS before the hash.  The hash protects against disks, copies,
restores and other programs that change files; each such change sets the time of change, which programs cannot set back.
It does not protect against a writer in the private root, where the key is, too.  Files for the released root, and the
private table itself, are hashed every time.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import secrets
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import filelock
import pyarrow as pa
import pyarrow.parquet as pq

from privsyn.base.errors import PrivsynError
from privsyn.base.interrupts import check_interrupts
from privsyn.base.places import make_safe_name
from privsyn.base.wording import mention, refer_to_action
from privsyn.data_contracts.artifacts import ArtifactRef, Zone
from privsyn.storage.disk import remove_parts, replace_file, replace_folder, translate_os_errors
from privsyn.storage.released_root import ReleasedRoot, ZoneError, get_roots, is_released_name, make_private_root
from privsyn.storage.stores import check_store
from privsyn.storage.table_files import (
    StoredTable,
    iterate_batches,
    name_part,
    strip_schema,
    write_parquet,
    write_parts,
)

_BUFFER = 1 << 20

_LOOK_EVERY = 0.5
"""Seconds between checks for a request to stop, while waiting for a lock."""

_ROWS_FOR_THREADS = 50_000
"""Least rows of a file to read its columns with several threads: below, starting threads costs more."""

SETTLED_SECONDS = 2.0
"""Seconds after which a changed file counts as settled; before, it may change again within one tick of the clock."""

Stamp = tuple[int, int, int, int, int]


class TableSeals:
    """The HMACs of a private root's tables, under its key, to check which tables are whole, without writing."""

    def __init__(self, private_root: Path, key: bytes) -> None:
        self.private_root, self._key = private_root, key
        self._macs: dict[Path, tuple[Stamp, str]] = {}

    def mac(self, path: Path) -> str:
        """Return the HMAC-SHA256 (hex) of one file's content."""
        with translate_os_errors(path), path.open("rb") as file:
            return self.mac_stream(iter(lambda: file.read(_BUFFER), b""))

    def mac_stream(self, blocks: Iterable[bytes]) -> str:
        """Return the HMAC-SHA256 (hex) of a file's content in blocks, equal to :meth:`mac`."""
        return self._compute_hmac(b"artifact", blocks)

    def _compute_hmac(self, label: bytes, blocks: Iterable[bytes] = ()) -> str:
        digest = hmac.new(self._key, label, hashlib.sha256)
        for block in blocks:
            digest.update(block)
        return digest.hexdigest()

    def verify(self, ref: ArtifactRef, *, afresh: bool = False) -> bool:
        """Return whether the stored file is whole and belongs to the reference.

        The file must be inside this store, byte for byte as written, and the reference (zone, name, step, key) must be
        the one issued for it.

        ``afresh``: hash all bytes even if this store did so before and the file has not changed since.
        """
        path = Path(ref.path)
        if not path.exists() or not path.resolve().is_relative_to(self.private_root):
            return False
        if not all(file.is_file() and not (path.is_dir() and file.is_symlink()) for file in list_part_files(path)):
            return False
        mac = self._compute_mac(path, self.mac if afresh else self._recall_mac)
        return hmac.compare_digest(self._sign(ref.name, ref.step, ref.zone, ref.key, mac), ref.check)

    def place_here(self, ref: ArtifactRef, dataset: str) -> ArtifactRef:
        """Return the reference with the table's path under this root; a copied root has other paths."""
        path = str(self.private_root / "store" / dataset / Path(ref.path).name)
        return ArtifactRef(name=ref.name, step=ref.step, zone=ref.zone, key=ref.key, path=path, check=ref.check)

    def _compute_mac(self, path: Path, mac: Callable[[Path], str]) -> str:
        """Return the HMAC of a table: of its file, or of the names and HMACs of its folder's files."""
        if not path.is_dir():
            return mac(path)
        parts = "\0".join(f"{file.name}\0{mac(file)}" for file in list_part_files(path))
        return self._compute_hmac(f"parts\0{parts}".encode())

    def _sign(self, name: str, step: str, zone: Zone, key: str, mac: str) -> str:
        return self._compute_hmac("\0".join(("reference", zone, name, step, key, mac)).encode())

    def _recall_mac(self, path: Path) -> str:
        """Return the file's HMAC, from memory if the file is unchanged."""
        with translate_os_errors(path):
            before, began = _read_stamp(path), time.time()
            recalled = self._macs.get(path)
            if recalled is not None and recalled[0] == before:
                return recalled[1]
            mac = self.mac(path)
            if _read_stamp(path) == before and max(before[3:]) / 1e9 < began - SETTLED_SECONDS:
                self._macs[path] = (before, mac)
        return mac


class Store(TableSeals):
    """The artifacts of one data set under a private and a released root, on one file system or two."""

    def __init__(
        self, private_root: Path, released_root: Path, dataset: str = "default", released_store: str = ""
    ) -> None:
        """Create the roots (private: mode 0700) and the key if they are missing.

        Raises RequestError if one root lies inside the other.  Raises PrivsynError if the disk refuses, or if the key
        of the private root is lost or changed.
        """
        self.dataset = make_safe_name(dataset, "dataset")
        private_root, self.released_root = get_roots(private_root, released_root)
        make_private_root(private_root)
        with translate_os_errors(private_root):
            for folder in ("store", "locks"):
                (private_root / folder).mkdir(mode=0o700, exist_ok=True)
            with filelock.FileLock(private_root / "locks" / ".key.lock"):
                super().__init__(private_root, load_key(private_root))
        self.released = ReleasedRoot(self.released_root, self.private_root / "locks")
        self.released_store = released_store
        if released_store:
            check_store(released_store, "settings.released_store")

    # fingerprints

    def fingerprint(self, paths: Iterable[Path]) -> str:
        """Return the HMAC-SHA256 (hex) of the files' contents, in any order, without names and places.

        So moving or renaming the data changes nothing, and does not cost a new release.
        """
        return self.fingerprint_of_macs([self.mac(Path(p)) for p in paths])

    def fingerprint_of_macs(self, macs: Iterable[str]) -> str:
        """Return the fingerprint from each file's :meth:`mac`."""
        return self._compute_hmac("\0".join(("fingerprint", *sorted(macs))).encode())

    def fingerprint_of_table(self, content: Iterable[bytes]) -> str:
        """Return the HMAC-SHA256 (hex) of a table in memory from blocks of its canonical bytes.

        It differs from every file's: a file and a table in memory are different sources.
        """
        return self._compute_hmac(b"table in memory\0", content)

    @property
    def row_key(self) -> bytes:
        """The secret that decides which of several rows is chosen (tasks/panels/row_order.py)."""
        return _derive_row_key(self._key)

    def mark(self, *parts: str) -> str:
        """Return the HMAC-SHA256 (hex) of the texts under the private root's key; it may leave that root."""
        return self._compute_hmac("\0".join(("mark", *parts)).encode())

    @property
    def identity(self) -> str:
        """The random name of the private root, derived from its key: a copy of the root has the same name."""
        return self.mark("identity of the private root")[:32]

    def derive_key(self, purpose: str) -> bytes:
        """Return a key of 32 bytes for one purpose, from the private root's key; it stays in this process."""
        return hmac.new(self._key, f"derived key\0{purpose}".encode(), hashlib.sha256).digest()

    # tables

    def write_table(
        self,
        table: pa.Table | Iterable[pa.RecordBatch],
        schema: pa.Schema,
        name: str,
        step: str,
        key: str,
        zone: Zone,
        *,
        parts: Sequence[int] = (),
        part_files: Sequence[Path] = (),
        for_good: bool = True,
    ) -> ArtifactRef:
        """Write a table (or a stream of batches) whole or not at all, and return its reference.

        ``parts``: rows of each file in a folder of files ``part-00000.parquet`` ..; empty: one file.  ``part_files``:
        finished files from :func:`write_parquet`, which are moved instead of reading batches.  ``for_good``: sync to
        disk; without it a power failure may lose the table, which :meth:`verify` detects, and the step runs again.

        Columns must be the schema's, in order; the file keeps only pandas' types of its metadata.  Raises ValueError
        for another schema; PrivsynError, naming path and cure, if the disk refuses.  The reference's ``check`` covers
        its zone, name, step and key, and the file's content.
        """
        label = "-".join((make_safe_name(step), make_safe_name(key[:16]), make_safe_name(name)))
        folder = self.private_root / "store" / self.dataset
        target = folder / f"{label}.parquet"
        with translate_os_errors(target):
            folder.mkdir(mode=0o700, exist_ok=True)
            if part_files or parts:
                target = folder / label
                with replace_folder(target, for_good=for_good) as temporary:
                    for number, path in enumerate(part_files):
                        shutil.move(path, temporary / name_part(number))
                    if not part_files:
                        write_parts(temporary, table, strip_schema(schema), parts)
            else:
                with replace_file(target, for_good=for_good) as temporary:
                    write_parquet(temporary, table, strip_schema(schema))
        check = self._sign(name, step, zone, key, self._compute_mac(target, self.mac))
        return ArtifactRef(name=name, step=step, zone=zone, key=key, path=str(target), check=check)

    def put_back(self, ref: ArtifactRef, content: bytes) -> ArtifactRef:
        """Write the file of a released one-file table to its place in this store, for :meth:`verify` to judge.

        Returns the reference at that place.  Raises ZoneError for a private table.
        """
        if ref.zone is not Zone.RELEASED:
            raise ZoneError(f"{ref.name} of step {ref.step} is private, and no released folder has it")
        placed = self.place_here(ref, self.dataset)
        target = Path(placed.path)
        with translate_os_errors(target):
            target.parent.mkdir(mode=0o700, exist_ok=True)
            with replace_file(target) as temporary:
                temporary.write_bytes(content)
        self._macs.pop(target, None)
        return placed

    def read_table(self, ref: ArtifactRef) -> pa.Table:
        """Return the whole table."""
        tables = []
        for path in list_part_files(Path(ref.path)):
            with translate_os_errors(path), pq.ParquetFile(path) as file:
                tables.append(file.read(use_threads=file.metadata.num_rows > _ROWS_FOR_THREADS))
        return tables[0] if len(tables) == 1 else pa.concat_tables(tables)

    def read_batches(self, ref: ArtifactRef) -> Iterator[pa.RecordBatch]:
        """Yield the table in batches of bounded size, for any number of rows and columns."""
        for path in list_part_files(Path(ref.path)):
            with translate_os_errors(path):
                yield from iterate_batches(path)

    def stored(self, ref: ArtifactRef) -> StoredTable:
        """Return the table as files, for streaming or counting file by file."""
        return StoredTable(list_part_files(Path(ref.path)), lambda: self.read_batches(ref))

    def remove_table(self, ref: ArtifactRef) -> None:
        """Delete a private table, if it still exists.

        Raises ZoneError for a released table and for a place outside this store.
        """
        path = Path(ref.path)
        if ref.zone is not Zone.PRIVATE or not path.absolute().is_relative_to(self.private_root / "store"):
            raise ZoneError(f"{ref.name} of step {ref.step} is not a private table of this store")
        with translate_os_errors(path):
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)

    def make_scratch(self, root: Path | None = None) -> Path:
        """Return a new folder for unfinished tables; the next run removes the folders of killed runs.

        ``root``: parent folder, possibly shared with others; None: the private zone.
        """
        folder = self._locate_scratch(root)
        with translate_os_errors(folder):
            folder.mkdir(mode=0o700, exist_ok=True)
            scratch = folder / f".scratch.{secrets.token_hex(8)}.part"
            scratch.mkdir(mode=0o700)
        return scratch

    def remove_leftovers(self, root: Path | None = None) -> None:
        """Remove unfinished tables of killed runs; the caller holds the data set's lock.

        ``root``: as in :meth:`make_scratch`.
        """
        remove_parts(self._locate_scratch(root))

    def _locate_scratch(self, root: Path | None) -> Path:
        """Return the parent of scratch folders.

        In a shared folder, its name is unique to this private zone: the lock of one zone does not keep another zone
        from removing apparent leftovers.
        """
        if root is None:
            return self.private_root / "store" / self.dataset
        return root.absolute() / self.mark("scratch", str(self.private_root), self.dataset)[:32]

    def add_released(self, ref: ArtifactRef, folder: Path, name: str) -> Path:
        """Copy a released table into a folder that ``released.publish`` builds, or into one of the private root.

        ``name`` may contain folders; a table in parts becomes a folder of that name without its extension.  Returns the
        place.  Raises ZoneError for a private table and for another place, PrivsynError if the table is not as it was
        written.
        """
        if ref.zone is not Zone.RELEASED:
            raise ZoneError(f"{ref.name} of step {ref.step} is private and cannot be released")
        source = Path(ref.path)
        name = name.removesuffix(".parquet") if source.is_dir() else name
        copies = {p: f"{name}/{p.name}" if source.is_dir() else name for p in list_part_files(source)}
        for copy in copies.values():
            self._check_place(folder / copy, copy)
        if not self.verify(ref, afresh=True):
            problem = f"{ref.name} of step {ref.step} is not the file that was written"
            raise PrivsynError(problem, "Run the release again")
        for path, copy in copies.items():
            place = folder / copy
            with translate_os_errors(place):
                place.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(path, place)
                place.chmod(0o644)
        return folder / name

    def _check_place(self, target: Path, name: str) -> None:
        """Raise ZoneError unless ``target`` is inside a folder being built or the private root."""
        place = target.resolve()
        inside = self.private_root in place.parents or self.released.is_building(place)
        if not is_released_name(name) or target.is_symlink() or not inside:
            raise ZoneError(f"{name} would not lie in a folder that is being built")

    @contextlib.contextmanager
    def lock(self, name: str, timeout: float = -1) -> Iterator[None]:
        """Hold a lock between processes; the system releases it when the process dies.

        ``timeout``: in seconds; negative: no limit.  Raises PrivsynError when it passes.
        """
        path = self.private_root / "locks" / f"{make_safe_name(name)}.lock"
        file_lock, started = filelock.FileLock(path), time.monotonic()
        while not file_lock.is_locked:
            try:
                with translate_os_errors(path):
                    file_lock.acquire(timeout=_LOOK_EVERY if timeout < 0 else min(timeout, _LOOK_EVERY))
            except filelock.Timeout as error:
                check_interrupts()
                if 0 <= timeout <= time.monotonic() - started:
                    raise PrivsynError(
                        f"another process holds {path}", "Wait for it to end, then start again"
                    ) from error
        try:
            yield
        finally:
            file_lock.release()


def list_part_files(path: Path) -> tuple[Path, ...]:
    """Return the files of a table: itself, or everything in its folder by name."""
    return tuple(sorted(path.iterdir())) if path.is_dir() else (path,)


def _read_stamp(path: Path) -> Stamp:
    """Return a stamp that identifies a file and its version; times in nanoseconds."""
    s = path.stat()
    return s.st_dev, s.st_ino, s.st_size, s.st_mtime_ns, s.st_ctime_ns


def _derive_row_key(key: bytes) -> bytes:
    return hmac.new(key, b"row order", hashlib.sha256).digest()


def read_row_key(private_root: Path) -> bytes:
    """Return :attr:`Store.row_key` of a private root, to read its releases' rows again; empty without a key."""
    path = private_root / NAME
    with translate_os_errors(path):
        return _derive_row_key(path.read_bytes()) if path.is_file() else b""


def open_seals(private_root: Path) -> TableSeals | None:
    """Return the seals of a private root's tables; None if the key is missing or unreadable."""
    try:
        key = (private_root / NAME).read_bytes()
    except OSError:
        return None
    return TableSeals(private_root.resolve(), key)


NAME = ".key"
CHECK = "key-check"
"""The file beside the key that identifies it: an HMAC of a fixed text, which reveals nothing of the key."""

_BYTES = 32
_FILLED = ("store", "records", "noise")
_CURE = (
    "Restore the whole private folder from its backup, including dot files, or release "
    f"into another folder with {mention('settings.out')}, where every request is charged anew: "
    f"{refer_to_action('redraw')}"
)


def load_key(root: Path) -> bytes:
    """Return the private root's key, which the first call creates; the caller holds the key's lock.

    Raises PrivsynError if the key is incomplete, is missing although tables or records exist, or does not match
    ``key-check``.  Folders from versions without that file get it for the existing key.
    """
    path, check = root / NAME, root / CHECK
    if not path.exists():
        if any(path.is_file() for name in _FILLED for path in (root / name).rglob("*")):
            problem = f"the key {path} of this folder's tables and records is missing"
            raise PrivsynError(f"{problem}; nothing was read, nothing was spent", _CURE)
        check.unlink(missing_ok=True)  # belongs to a key that was never used
        with replace_file(path) as temporary:
            temporary.write_bytes(secrets.token_bytes(_BYTES))
    key = path.read_bytes()
    if len(key) != _BYTES:
        raise PrivsynError(f"{path} is not a whole key", "Restore it; without it no finished step can be reused")
    mark = hmac.new(key, b"key-check", hashlib.sha256).hexdigest().encode()
    if not check.exists():
        remove_parts(root)  # left by a killed run
        with replace_file(check) as temporary:
            temporary.write_bytes(mark + b"\n")
    elif not hmac.compare_digest(check.read_bytes().strip(), mark):
        problem = f"the key {path} is not the key of this folder's records: {check.name} does not match it"
        raise PrivsynError(f"{problem}; nothing was read, nothing was spent", _CURE)
    return key
