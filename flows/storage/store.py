"""Artifacts on disk: two zones, whole files only, and an HMAC for each.

Belongs here: where tables lie, writing and reading them, the fingerprints of private inputs, publishing
a run, locks between processes.  Does not belong here: what a table must hold (data_contracts/tables.py
and flows/checks.py), which step runs when (the flow), the key itself (flows/storage/private_key.py).

The private root holds every step's table, of either zone, under ``store/``, the HMAC key and the
locks.  The released root holds published runs, one folder each, that appear whole or not at all.  A
plain hash of private data would tell whoever guesses the data that the guess is right, so checks and
fingerprints are HMAC-SHA256 under a key that never leaves the private root.

One look at a file is enough for a run (:meth:`Store.verify`): the store knows it again by device, inode, size and
the times of its last writing and change, if those lay SETTLED before the look.  The look is there for disks, copies,
restores and other programs that change files; each such change sets the time of change, which programs cannot set
back.  It is no defence against whoever may write in the private root: the key lies there too.  What leaves for the
released root, and the private table itself, are looked at afresh every time.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import re
import secrets
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby
from pathlib import Path

import filelock
import pyarrow as pa
import pyarrow.parquet as pq

from data_contracts.artifacts import ArtifactRef, Zone
from flows.engines.base import StoredTable
from flows.errors import PrivsynError, RequestError
from flows.storage.disk import in_words, remove_parts, replacing, replacing_folder, sync
from flows.storage.private_key import load_key
from flows.storage.table_files import open_parquet
from flows.storage.zones import make_private_root, roots
from tasks.shards import cut

SAFE_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,80}")
_RELEASED_FILE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,120}")
_BUFFER = 1 << 20

SETTLED = 2.0
"""Seconds.  A file changed just before a look may change again within one tick of its file system's clock."""

Stamp = tuple[int, int, int, int, int]


class ZoneError(PermissionError):
    """A private artifact was about to enter the released root."""


class Store:
    """The artifacts of one data set under a private and a released root, on the same file system or not."""

    def __init__(self, private_root: Path, released_root: Path, dataset: str = "default") -> None:
        """Creates the roots (private: mode 0700) and the key where missing; PrivsynError when that fails, and for a
        root whose key is lost or changed (flows/storage/private_key.py).

        Raises RequestError when one root lies inside the other.
        """
        self.dataset = safe_name(dataset, "dataset")
        self._seen: dict[Path, tuple[Stamp, str]] = {}
        self.private_root, self.released_root = roots(private_root, released_root)
        make_private_root(self.private_root)
        with in_words(self.private_root):
            for folder in ("store", "locks"):
                (self.private_root / folder).mkdir(mode=0o700, exist_ok=True)
            with filelock.FileLock(self.private_root / "locks" / ".key.lock"):
                self._key = load_key(self.private_root)
        with in_words(self.released_root):
            self.released_root.mkdir(parents=True, exist_ok=True)

    # fingerprints

    def fingerprint(self, paths: Iterable[Path]) -> str:
        """HMAC-SHA256 (hex) of the files' contents, in any order; names and places take no part.

        So moving or renaming the data changes nothing, and does not cost a new release.
        """
        contents = sorted(self.mac(Path(p)) for p in paths)
        return hmac.new(self._key, "\0".join(("fingerprint", *contents)).encode(), hashlib.sha256).hexdigest()

    def mac(self, path: Path) -> str:
        """HMAC-SHA256 (hex) of one file's content."""
        digest = hmac.new(self._key, b"artifact", hashlib.sha256)
        with in_words(path):
            _feed(digest, path)
        return digest.hexdigest()

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
    ) -> ArtifactRef:
        """Write a table (or a stream of batches) whole or not at all, and return its reference.

        ``parts``: rows of each file of a folder of files ``part-00000.parquet`` ..; empty: one file.

        Columns must be the schema's, in order; the file carries no metadata but Parquet's own.  Raises
        ValueError for another schema; PrivsynError, naming path and cure, when the disk refuses.  The
        reference's ``check`` covers its zone, name, step and key as well as the file's content.
        """
        label = "-".join((safe_name(step, "step"), safe_name(key[:16], "key"), safe_name(name, "name")))
        folder = self.private_root / "store" / self.dataset
        target = folder / f"{label}.parquet"
        with in_words(target):
            folder.mkdir(mode=0o700, exist_ok=True)
            if parts:
                target = folder / label
                with replacing_folder(target) as temporary:
                    _write_parts(temporary, table, schema.remove_metadata(), parts)
            else:
                with replacing(target) as temporary:
                    _write_parquet(temporary, table, schema.remove_metadata())
        unsigned = ArtifactRef(name=name, step=step, zone=zone, key=key, path=str(target), check="")
        return unsigned.model_copy(update={"check": self._sign(unsigned, self._mac_of(target, self.mac))})

    def read_table(self, ref: ArtifactRef) -> pa.Table:
        """The whole table."""
        tables = []
        for path in part_files(Path(ref.path)):
            with in_words(path), pq.ParquetFile(path) as file:
                tables.append(file.read())
        return tables[0] if len(tables) == 1 else pa.concat_tables(tables)

    def read_batches(self, ref: ArtifactRef, rows: int = 1 << 16) -> Iterator[pa.RecordBatch]:
        """The table in batches of at most ``rows`` rows: bounded memory for any number of rows."""
        for path in part_files(Path(ref.path)):
            with in_words(path), open_parquet(path) as file:
                yield from file.iter_batches(batch_size=rows)

    def stored(self, ref: ArtifactRef) -> StoredTable:
        """The table in its files, for who reads it as a stream or counts it file by file."""
        return StoredTable(part_files(Path(ref.path)), lambda: self.read_batches(ref))

    def verify(self, ref: ArtifactRef, *, afresh: bool = False) -> bool:
        """Whether the file is there, in this store, byte for byte the one that was written, and the
        reference (zone, name, step, key) the one that was given out for it.

        ``afresh``: look at every byte although this store did so before and the file has not changed since.
        """
        path = Path(ref.path)
        if not path.exists() or not path.resolve().is_relative_to(self.private_root):
            return False
        if not all(file.is_file() and not (path.is_dir() and file.is_symlink()) for file in part_files(path)):
            return False
        mac = self._mac_of(path, self.mac if afresh else self._known_mac)
        return hmac.compare_digest(self._sign(ref, mac), ref.check)

    def _mac_of(self, path: Path, mac: Callable[[Path], str]) -> str:
        """The HMAC of a table: its file's, or one over the names and HMACs of all that is in its folder."""
        if not path.is_dir():
            return mac(path)
        parts = "\0".join(f"{file.name}\0{mac(file)}" for file in part_files(path))
        return hmac.new(self._key, f"parts\0{parts}".encode(), hashlib.sha256).hexdigest()

    def _sign(self, ref: ArtifactRef, mac: str) -> str:
        label = "\0".join(("reference", ref.zone, ref.name, ref.step, ref.key, mac))
        return hmac.new(self._key, label.encode(), hashlib.sha256).hexdigest()

    def _known_mac(self, path: Path) -> str:
        """The file's HMAC, from memory if the file is the one that was looked at."""
        with in_words(path):
            before, began = _stamp(path), time.time()
            known = self._seen.get(path)
            if known is not None and known[0] == before:
                return known[1]
            mac = self.mac(path)
            if _stamp(path) == before and max(before[3:]) / 1e9 < began - SETTLED:
                self._seen[path] = (before, mac)
        return mac

    def remove_leftovers(self) -> None:
        """Remove what killed runs left of tables that never became whole; hold the data set's lock."""
        remove_parts(self.private_root / "store" / self.dataset)

    # publishing

    def publish(self, run: str, build: Callable[[Path], None], *, replace: bool = False) -> Path:
        """Let ``build`` fill a folder, then make it ``released_root/run`` in one rename.

        Leftovers of crashed attempts at the same run are removed first.  When ``build`` fails nothing is
        released and what was published stays.  Raises RequestError when the run is published already
        and ``replace`` is false; PrivsynError when the disk refuses.
        """
        target = self.released_root / safe_name(run, "run")
        with self._publishing(run, target):
            if target.exists() and not replace:
                raise RequestError(f"{target} is published already", "Choose another name, or ask to replace it", "run")
            building = self.released_root / f".building-{run}-{secrets.token_hex(8)}"
            building.mkdir(mode=0o755)
            try:
                build(building)
                _seal(building)
                self._swap(building, target, run)
            except BaseException:
                shutil.rmtree(building, ignore_errors=True)
                raise
        return target

    def check_place(self, run: str) -> None:
        """RequestError where a link or a file stands in the place of the run's released folder."""
        place = self.released_root / safe_name(run, "run")
        if place.is_symlink() or (place.exists() and not place.is_dir()):
            raise RequestError(
                f"{place} is a link or a file where the release's folder belongs",
                "Move it away: a release is written in the released folder itself, never behind a link",
                "released",
            )

    def recover(self, run: str) -> None:
        """Remove what killed attempts to publish this run left; put back what a killed replacement took away."""
        with self._publishing(run, self.released_root / safe_name(run, "run")):
            pass

    @contextlib.contextmanager
    def _publishing(self, run: str, target: Path) -> Iterator[None]:
        """Hold the run's place in the released root, cleaned of leftovers."""
        with in_words(target), filelock.FileLock(self.private_root / "locks" / f".publish-{run}.lock"):
            self._inside_released(target)
            self._clean(run, target)
            yield

    def add_released(self, ref: ArtifactRef, folder: Path, name: str) -> Path:
        """Copy a released table into a folder that :meth:`publish` builds, or into one of the private root.

        ``name`` may have folders in it; a table in parts becomes a folder of that name without its ending.  Raises
        ZoneError for a private table and for a place elsewhere; PrivsynError when the table is not the one that was
        written.  Returns the place.
        """
        if ref.zone is not Zone.RELEASED:
            raise ZoneError(f"{ref.name} of step {ref.step} is private and cannot be released")
        source = Path(ref.path)
        name = name.removesuffix(".parquet") if source.is_dir() else name
        copies = {p: f"{name}/{p.name}" if source.is_dir() else name for p in part_files(source)}
        for copy in copies.values():
            self._check_place(folder / copy, copy)
        if not self.verify(ref, afresh=True):
            problem = f"{ref.name} of step {ref.step} is not the file that was written"
            raise PrivsynError(problem, "Run the release again")
        for path, copy in copies.items():
            place = folder / copy
            with in_words(place):
                place.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(path, place)
                place.chmod(0o644)
        return folder / name

    def _check_place(self, target: Path, name: str) -> None:
        """ZoneError unless ``target`` really lies in a folder being built or in the private root."""
        plain = all(_RELEASED_FILE.fullmatch(part) for part in name.split("/"))
        place = target.resolve()
        if plain and not target.is_symlink():
            if self.private_root in place.parents:
                return
            if self.released_root in place.parents:
                building = place.relative_to(self.released_root).parts[0]
                if building.startswith(".building-"):
                    return
        raise ZoneError(f"{name} would not lie in a folder that is being built")

    @contextlib.contextmanager
    def lock(self, name: str, timeout: float = -1) -> Iterator[None]:
        """Hold a lock between processes; the system releases it when the process dies.

        ``timeout`` in seconds, negative: wait for ever.  Raises PrivsynError when it passes.
        """
        path = self.private_root / "locks" / f"{safe_name(name, 'lock')}.lock"
        held = filelock.FileLock(path, timeout=timeout)
        try:
            with in_words(path):
                held.acquire()
        except filelock.Timeout as error:
            raise PrivsynError(f"another process holds {path}", "Wait for it to end, then start again") from error
        try:
            yield
        finally:
            held.release()

    def _inside_released(self, path: Path) -> None:
        """Refuse a link, and a path that a link leads out of the released root."""
        if path.is_symlink() or self.released_root not in path.resolve().parents:
            raise ZoneError(f"{path} does not lie in the released folder itself")

    def _clean(self, run: str, target: Path) -> None:
        """Remove what crashed builds of this run left behind; put back what a crashed replacement took away."""
        leftover = re.compile(rf"\.(building|replaced)-{re.escape(run)}-[0-9a-f]{{16}}")
        for path in list(self.released_root.iterdir()):
            found = leftover.fullmatch(path.name)
            if not found or path.is_symlink():
                continue
            if found[1] == "replaced" and not target.exists():
                path.rename(target)
            else:
                shutil.rmtree(path)

    def _swap(self, building: Path, target: Path, run: str) -> None:
        old = self.released_root / f".replaced-{run}-{secrets.token_hex(8)}"
        if target.exists():
            target.rename(old)
        try:
            building.rename(target)
        except OSError:
            if old.exists():
                old.rename(target)
            raise
        sync(self.released_root)
        shutil.rmtree(old, ignore_errors=True)


def safe_name(name: str, field: str) -> str:
    """``name`` if it is safe as part of a path: small letters, digits, - and _; RequestError otherwise."""
    if not SAFE_NAME.fullmatch(name):
        cure = "Use small letters, digits, - and _, at most 81, a letter or digit first"
        raise RequestError(f"{name!r} is not a name for a file", cure, field)
    return name


def part_files(path: Path) -> tuple[Path, ...]:
    """The files of a table: itself, or everything in its folder by name."""
    return tuple(sorted(path.iterdir())) if path.is_dir() else (path,)


def _write_parts(
    folder: Path, table: pa.Table | Iterable[pa.RecordBatch], schema: pa.Schema, rows: Sequence[int]
) -> None:
    batches = table.to_batches() if isinstance(table, pa.Table) else table
    for number, part in groupby(cut(batches, rows), key=lambda numbered: numbered[0]):
        _write_parquet(folder / f"part-{number:05}.parquet", (batch for _, batch in part), schema)


def _write_parquet(path: Path, table: pa.Table | Iterable[pa.RecordBatch], schema: pa.Schema) -> None:
    batches = table.combine_chunks().to_batches() if isinstance(table, pa.Table) else table
    with pq.ParquetWriter(path, schema, compression="zstd", store_schema=False) as writer:
        for batch in batches:
            if not batch.schema.equals(schema, check_metadata=False):
                raise ValueError(f"the table's columns are not the schema's: {batch.schema.names} and {schema.names}")
            writer.write_batch(batch.replace_schema_metadata(None))


def _seal(folder: Path) -> None:
    """Readable for everyone, plain files and folders only, on disk for good."""
    for path in [*folder.rglob("*"), folder]:
        if path.is_symlink() or not (path.is_file() or path.is_dir()):
            raise ZoneError(f"{path.name} is neither a file nor a folder and cannot be released")
        path.chmod(0o755 if path.is_dir() else 0o644)
        sync(path)


def _stamp(path: Path) -> Stamp:
    """What tells a file from another and from itself after a change; times in nanoseconds."""
    s = path.stat()
    return s.st_dev, s.st_ino, s.st_size, s.st_mtime_ns, s.st_ctime_ns


def _feed(digest: hmac.HMAC, path: Path) -> None:
    with path.open("rb") as file:
        while block := file.read(_BUFFER):
            digest.update(block)
