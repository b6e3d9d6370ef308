"""The Dask engine: workers count partitions of the stored table, and their integers are added up.

A worker receives file names, row groups, the domain and the cliques, and sends exact counts back.  The counts are as
private as the rows, so the cluster belongs to the private zone.  A worker that dies loses nothing: another worker
counts its partitions again.  The sum is over partitions, not over workers' answers, so each count is in the sum once.
"""

from __future__ import annotations

import ipaddress
import secrets
import time
import uuid
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np

from privsyn.base.errors import PrivsynError, RequestError
from privsyn.base.interrupts import check_interrupts
from privsyn.base.registry import need_package
from privsyn.base.settings import Settings
from privsyn.base.wording import Text, mention
from privsyn.counting.engine import (
    Engine,
    PartFile,
    WritePart,
    add_up,
    count_partition,
    get_worker_version,
    list_partitions,
)
from privsyn.data_contracts.domain import Clique, Domain
from privsyn.storage.table_files import StoredTable
from privsyn.tasks.kernels.blocks import iterate_in_shape, iterate_passes
from privsyn.tasks.kernels.counting import Countable, choose_thread_count

TASK_ROWS = 1 << 22
"""Rows of a partition at most, unless one row group has more; smaller tables are cut so that every worker has some."""

_TASKS_A_WORKER = 4  # partitions of a small table for each worker, so that unequal speeds even out
_ADDED = 4  # counts added up in one call: a worker holds that many at once
_CONNECT = "15s"
_LOOK_EVERY = 0.5  # seconds of waiting for workers after which it is looked whether somebody asked to stop
_ASK_EVERY = 5.0  # seconds after which the scheduler is asked whether a worker is at work
_AT_WORK = ("executing", "long-running", "flight")  # states of a task that a worker has in hand
_OWN_CLUSTER: dict[str, Any] = {
    "distributed.scheduler.http.routes": [],
    "distributed.worker.http.routes": [],
    "distributed.admin.tick.interval": "1s",
    "distributed.admin.system-monitor.interval": "10s",
    "distributed.worker.profile.enabled": False,
}
"""Dask's configuration of this run's own cluster: no pages, and no figures for pages.

By default the scheduler and the nannies collect such figures in this process fifty times a second while it waits.
"""

_NO_LIMIT = 0  # of a worker's memory: with one, Dask would write exact counts to a temporary folder when short of it

_UNREACHABLE: dict[str, tuple[str, Text, str]] = {
    "settings.dask": (
        "a Dask worker cannot read the private store",
        "Mount the private folder at the same path on every worker",
        "",
    ),
    "settings.dask_public": (
        "a worker of the second cluster cannot read and write there",
        "Mount that folder, and nothing else of this computer, at the same path on every worker of "
        + mention("settings.dask_public")
        + ", with room in it, and run the workers as the user of the release",
        "settings.dask_public_folder",
    ),
}
"""By the setting of a cluster's address: problem, cure and field where its workers do not reach their files.

The cure for makers must not be the one for workers that count: nobody is to open the private folder to them.
"""


class DaskEngine:
    """Counts on the workers of one cluster: the operator's, or one of this run's own.

    A scheduler's answers are Python objects, so a scheduler can run programs here, whatever its workers are for.
    Beyond this machine, both sides therefore prove their identity by certificates.
    """

    def __init__(self, workers: int, settings: Settings, field: str = "dask") -> None:
        """``workers`` >= 0 of a cluster of one's own, 0: one per core; ``settings`` name the operator's cluster.

        ``field``: the setting with the cluster's address; the names of its certificates' settings begin with ``field``.
        Raises RequestError for an address beyond this machine without TLS, certificates that are not all there, and
        workers for a cluster that has its own.
        """
        self._field, self._address = f"settings.{field}", getattr(settings, field)
        self._workers, self._files = workers, _list_certificates(settings, field)
        self._most_idle = 60 * settings.dask_wait_minutes
        if self._address and workers:
            raise RequestError(
                "the operator's cluster has the workers that it has", "Leave out `workers`", "engine.workers"
            )
        self._scratch = settings.private_root / "dask"  # never a folder that others of the machine share
        self._cluster: Any = None
        self._client: Any = None
        self._scheduler: str | None = None  # its own name for itself, once it was reached

    def open(self) -> None:
        """Connect, or start a cluster of processes on this machine, with encrypted connections between them.

        Raises RequestError if Dask is not installed, no scheduler answers at the address, or the cluster has no worker.
        Raises RequestError also if a worker has another version of this program, which might count differently.
        Raises PrivsynError if a worker of this run's own cluster does not start.
        """
        if self._client is not None:
            return
        with need_package("distributed", "the engine `dask`", "dask", "engine.kind"):
            import dask
            import distributed
        if not self._address:
            with dask.config.set(_OWN_CLUSTER), _translate_start_errors():
                self._cluster = distributed.LocalCluster(
                    n_workers=self._workers or choose_thread_count(0), threads_per_worker=1, processes=True,
                    dashboard_address=None, scheduler_kwargs={"dashboard_address": "127.0.0.1:0"},
                    security=True, memory_limit=_NO_LIMIT, silence_logs=50, local_directory=str(self._scratch),
                )  # fmt: skip
        try:
            where, security = self._cluster or self._address, None
            if self._files:
                security = distributed.Security(require_encryption=True, **self._files)
            self._client = distributed.Client(where, timeout=_CONNECT, set_as_default=False, security=security)
            self._client.wait_for_workers(1, timeout=_CONNECT)
            self._scheduler = self._client.scheduler_info()["id"]
            versions = set(self._client.run(get_worker_version).values())
        except (OSError, TimeoutError, ImportError, ValueError) as error:
            self.close()
            if not self._address:
                raise _make_start_error(error) from None
            raise RequestError(
                f"no Dask scheduler with workers that have this program answers at {self._address} "
                f"({type(error).__name__}); nothing was read, nothing was spent",
                "Start the scheduler and its workers, with this program installed, or correct the address",
                self._field,
            ) from None
        if versions != {version("privsyn-flows")}:
            self.close()
            raise RequestError(
                f"the workers at {self._address} have another version of privsyn-flows; nothing was spent",
                "Install the same version everywhere",
                self._field,
            )

    def check_apart(self, counting: Engine) -> None:
        """Raise RequestError if the workers that count are of the same scheduler, as far as is known by now.

        Before both are open, by their addresses; then by what the schedulers call themselves, since one scheduler has
        several addresses.
        """
        if not isinstance(counting, DaskEngine):
            return
        if counting._address == self._address or (self._scheduler and counting._scheduler == self._scheduler):
            raise RequestError(
                "is the scheduler of the workers that read private rows, and takes work from all who know it",
                "Start a scheduler of its own, or leave it out",
                self._field,
            )

    def check_folder(self, folder: Path) -> None:
        """Have every worker read and write in an empty folder that this process reads, too.

        Raises RequestError that names the folder's setting if one of them cannot: before anything is spent.
        """
        self.open()
        probe = folder / "given"
        content = secrets.token_bytes(16)
        try:
            probe.write_bytes(content)
            workers = self._client.run(_copy_beside, str(probe))
            contents = [path.read_bytes() for path in folder.iterdir()]
            if contents != [content] * (1 + len(workers)):
                raise FileNotFoundError
        except (OSError, TimeoutError) as error:
            problem, cure, field = _UNREACHABLE[self._field]
            raise RequestError(f"{problem} ({type(error).__name__}); nothing was spent", cure, field) from None

    def rows(self, stored: StoredTable, domain: Domain, *, padded: bool = False) -> Countable:
        """Return the rows of a stored table, as the workers see them at the same path."""
        return _Rows(self, stored, domain, padded)

    def make_parts(self, write: WritePart, tasks: Sequence[tuple[Any, str]], threads: int) -> Iterator[PartFile]:
        """Yield the parts, made by the workers, which write them where this process reads them; one thread each."""
        self.open()
        name = uuid.uuid4().hex
        # a result and not scattered data: if the worker that holds it dies, it is sent to another
        shared = self._client.submit(_return_same, write, key=f"work-{name}")
        waiting = deque(
            self._client.submit(_call_write, shared, task, path, key=f"part-{name}-{i}")
            for i, (task, path) in enumerate(tasks)
        )
        with _translate_worker_errors(self._field):
            while waiting:
                yield self._wait_for(waiting.popleft())  # workers keep no part that is here

    def close(self) -> None:
        """Let the cluster at an address be, and end one of our own."""
        for part in (self._client, self._cluster):
            if part is not None:
                part.close()
        self._client = self._cluster = self._scheduler = None

    def count(self, stored: StoredTable, domain: Domain, cliques: list[Clique], *, padded: bool) -> list[np.ndarray]:
        """Return flat exact counts of each clique over all partitions, filtered values included."""
        self.open()
        workers = max(1, len(self._client.nthreads()))
        most = min(TASK_ROWS, -(-stored.num_rows // (_TASKS_A_WORKER * workers)))
        parts = list_partitions(stored.files, max(1, most))
        name = uuid.uuid4().hex  # tells nothing, and no result of an earlier look is taken for this one's
        level = [
            self._client.submit(count_partition, part, domain, cliques, padded=padded, key=f"count-{name}-{i}")
            for i, part in enumerate(parts)
        ]
        while len(level) > 1:
            name = uuid.uuid4().hex
            groups = [level[i : i + _ADDED] for i in range(0, len(level), _ADDED)]
            level = [self._client.submit(add_up, group, key=f"add-{name}-{i}") for i, group in enumerate(groups)]
        with _translate_worker_errors(self._field):
            counts: list[np.ndarray] = self._wait_for(level[0])
        return counts

    def _wait_for(self, future: Any) -> Any:
        """Return what a task has made, and raise what it raised.

        Raises PrivsynError once no worker has been at work for as long as the settings say: workers that are not there
        may never come.
        """
        at_work = last_asked = time.monotonic()
        while True:
            try:
                future.exception(timeout=_LOOK_EVERY)  # waits, and raises no error of the task
                return future.result(timeout=self._most_idle)
            except TimeoutError:
                if future.status == "error":  # the worker's own
                    raise
            check_interrupts()
            now = time.monotonic()
            if now - last_asked < _ASK_EVERY:
                continue
            last_asked = now
            if self._is_anybody_at_work():
                at_work = now
            elif now - at_work >= self._most_idle:
                raise PrivsynError(
                    f"no worker of the Dask cluster has been at work for {self._most_idle / 60:g} minutes",
                    "See that workers are there, or allow more as " + mention("settings.dask_wait_minutes")
                    + "; then run again: finished steps are kept, and nothing is charged twice",
                    self._field if self._address else "",
                )  # fmt: skip

    def _is_anybody_at_work(self) -> bool:
        """Return whether a worker that the scheduler hears of has a task in hand, whoever asked for it."""
        try:
            identity = self._client.sync(self._client.scheduler.identity, n_workers=-1, callback_timeout=_CONNECT)
        except (OSError, TimeoutError):
            return False
        tasks = [worker["metrics"].get("task_counts", {}) for worker in identity["workers"].values()]
        return any(counts.get(state) for counts in tasks for state in _AT_WORK)


@contextmanager
def _translate_start_errors() -> Iterator[None]:
    """Translate what Dask raises where a worker process of a cluster of one's own ends before it answers."""
    try:
        yield
    except Exception as error:  # by how it ends: RuntimeError, TimeoutError, OSError and others
        raise _make_start_error(error) from None


def _make_start_error(error: Exception) -> PrivsynError:
    return PrivsynError(
        f"a Dask worker on this machine did not start ({type(error).__name__}); nothing was spent",
        "Give this machine more memory or ask for fewer `workers`, or choose `engine: {kind: local}`, and run again",
    )


def _list_certificates(settings: Settings, field: str) -> dict[str, str]:
    """Return the arguments of Dask's ``Security`` that name the operator's files.

    Empty for a cluster on this machine without TLS.
    """
    address, names = getattr(settings, field), [f"{field}_{kind}" for kind in ("ca", "certificate", "key")]
    if not address.startswith("tls://"):
        if address and not _is_this_machine(address):
            ca, certificate, key = (mention(f"settings.{name}") for name in names)
            raise RequestError(
                "is beyond this machine, so the connection must be encrypted and both sides known",
                "Write tls://, and name the certificates: " + ca + ", " + certificate + ", " + key,
                f"settings.{field}",
            )
        return {}
    files = [getattr(settings, name) for name in names]
    for name, path in zip(names, files, strict=True):
        if path is None or not path.is_file():
            raise RequestError(
                "is not set" if path is None else f"there is no file {path}",
                "A cluster at tls:// is one that your certificates know",
                f"settings.{name}",
            )
    return dict(zip(("tls_ca_file", "tls_client_cert", "tls_client_key"), map(str, files), strict=True))


def _is_this_machine(address: str) -> bool:
    host = urlsplit(address).hostname or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


@dataclass(frozen=True, eq=False)
class _Rows:
    """Rows that workers count, pass by pass."""

    engine: DaskEngine
    stored: StoredTable
    domain: Domain
    padded: bool

    def counts(
        self, cliques: Iterable[Clique], *, threads: int = 0, padded_result: bool = False
    ) -> Iterator[np.ndarray]:
        """Yield the counts of each clique, in order; ``threads`` is for this machine, and takes no part."""
        rows = self.stored.num_rows
        for group in iterate_passes(self.domain, cliques, padded=self.padded):
            flat_counts = self.engine.count(self.stored, self.domain, group, padded=self.padded)
            yield from iterate_in_shape(
                flat_counts, self.domain, group, rows, padded=self.padded, filtered=padded_result
            )


def _return_same(write: WritePart) -> WritePart:
    return write


def _call_write(write: WritePart, task: Any, path: str) -> PartFile:
    """Make one part on a worker.  Dask logs errors and sends them on: words of others may hold a cell's value."""
    try:
        return write(task, path, 1)
    except (PrivsynError, OSError, MemoryError):
        raise
    except Exception as error:
        name = type(error).__name__
    raise PrivsynError(f"a Dask worker could not make a part ({name})", "Run with `engine: {kind: local}` to see why")


def _copy_beside(path: str) -> None:
    """Copy a small file, on a worker, to a new one beside it."""
    source = Path(path)
    source.with_name(uuid.uuid4().hex).write_bytes(source.read_bytes())


@contextmanager
def _translate_worker_errors(field: str) -> Iterator[None]:
    """Translate errors of workers, without their words; noise is kept, so that a second run costs nothing new.

    ``field``: the setting of their cluster's address.
    """
    from distributed import CancelledError
    from distributed.scheduler import KilledWorker

    try:
        yield
    except CancelledError:
        raise PrivsynError(
            "the connection to the Dask scheduler was lost",
            "Start the scheduler and its workers, then run again: nothing is charged twice",
            field,
        ) from None
    except KilledWorker:
        raise PrivsynError(
            "the Dask workers died, one after another",
            "Give them more memory, or choose `engine: {kind: local}`, and run again: nothing is charged twice",
        ) from None
    except OSError as error:
        problem, cure, place = _UNREACHABLE[field]
        again = cure + "; then run again: nothing is charged twice"
        raise PrivsynError(f"{problem} ({type(error).__name__})", again, place) from None
