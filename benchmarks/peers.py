"""The peers as methods: each runs in a process, and an environment, of its own.

A peer gets the training rows in codes of the public bins with the public number of codes of each column, epsilon,
delta and a seed, and gives rows of such codes back.  Its environment is ``.venv-peers/NAME`` (``make peers``).  So much
time, so much memory, then it is stopped (by Linux's /proc).
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np

from benchmarks.peers_worker import NOT_INSTALLED
from privsyn.data_contracts.domain import Domain, choose_code_dtype
from privsyn.evaluation.comparison.method import Method, MethodInput, MethodResult
from privsyn.tasks.kernels.counting import CodeTable

Outcome = Literal["ended", "time", "memory"]
_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")
_LOOK_SECONDS, _MOST_LOOK_SECONDS, _LOOK_PART = 0.05, 1.0, 0.01


@dataclass(frozen=True)
class Limits:
    """Limits of one peer's run.

    seconds: stopped once wall and CPU time are both past it (a busy machine lengthens the wall time only);
    megabytes: stopped once the resident memory is past it (MB of 2**20 bytes).
    """

    seconds: float
    megabytes: float


@dataclass(frozen=True)
class Watched:
    """How a child ended, and what it used: wall and CPU seconds, peak resident memory in MB, its last words."""

    outcome: Outcome
    exit_code: int
    wall: float
    cpu: float
    peak_mb: float
    stderr: str


def watch(command: Sequence[str], limits: Limits, environment: Mapping[str, str], log: Path) -> Watched:
    """Run ``command`` in a process group of its own until it ends or passes a limit; then the group is killed.

    CPU seconds and memory are sums over the group.  ``log`` gets stdout and stderr.
    """
    start = time.perf_counter()
    with log.open("wb") as stream:
        child = subprocess.Popen(
            list(command), stdout=stream, stderr=stream, env=dict(environment), start_new_session=True
        )
        outcome: Outcome = "ended"
        cpu = peak = 0.0
        try:
            while child.poll() is None:
                used, resident = usage(child.pid)
                cpu, peak = max(cpu, used), max(peak, resident)
                if peak > limits.megabytes:
                    outcome = "memory"
                elif min(time.perf_counter() - start, cpu) > limits.seconds:
                    outcome = "time"
                if outcome != "ended":
                    break
                # looks read all of /proc, so of a long run they are rarer
                time.sleep(min(max(_LOOK_SECONDS, _LOOK_PART * (time.perf_counter() - start)), _MOST_LOOK_SECONDS))
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
            child.wait()
    words = log.read_text(encoding="utf-8", errors="replace")
    return Watched(outcome, child.returncode, time.perf_counter() - start, cpu, peak, words[-2_000:])


def usage(group: int) -> tuple[float, float]:
    """CPU seconds and resident MB of all processes of a group, those included that have ended and been waited for."""
    cpu = memory = 0.0
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            content = (entry / "stat").read_text(encoding="utf-8", errors="replace")
        except OSError:
            continue  # it has ended meanwhile
        fields = content.rpartition(")")[2].split()  # after the name, which may hold anything: state, ppid, pgrp, ...
        if int(fields[2]) == group:
            cpu += sum(map(int, fields[11:15])) / _TICKS  # utime, stime, and those of children waited for
            memory += int(fields[21]) * _PAGE / 2**20
    return cpu, memory


HERE = Path(__file__).parent
ENVIRONMENTS = HERE.parent / ".venv-peers"
LIMITS = Limits(seconds=20 * 60, megabytes=16 * 1024)
"""Limits of one run: 20 minutes and 16 GB."""
LONG = Limits(seconds=2 * 60 * 60, megabytes=16 * 1024)
"""Limits of a peer with settings that take hours: it is run only where it is named."""

ONE_THREAD = {
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1",
    "JAX_PLATFORMS": "cpu",
}


class PeerError(RuntimeError):
    """A peer that ended with an error of its own, or gave back something that is no table of codes."""


NOT_DONE = (TimeoutError, MemoryError, PeerError)
"""The errors that are a result of a run as well."""


def name_outcome(error: Exception) -> Literal["time", "memory", "failed"]:
    """Return what a comparison's store calls the end of a run by an error of NOT_DONE."""
    return "time" if isinstance(error, TimeoutError) else "memory" if isinstance(error, MemoryError) else "failed"


@dataclass(frozen=True)
class Used:
    """wall, cpu: seconds of the peer's own work, imports left out; peak_mb: of its whole process."""

    wall: float
    cpu: float
    peak_mb: float


@dataclass(frozen=True)
class Peer:
    """One peer: its name, its environment under ENVIRONMENTS, its package, what it is, and the limits of a run."""

    name: str
    environment: str
    package: str
    title: str
    description: str
    limits: Limits = LIMITS

    @property
    def python(self) -> Path:
        """The interpreter of its environment."""
        return ENVIRONMENTS / self.environment / "bin" / "python"

    @property
    def version(self) -> str:
        """The package's version, as the environment's folder names it; "" where it is not installed."""
        name = self.package.replace("-", "_")
        found = sorted(self.python.parents[1].glob(f"lib/python*/site-packages/{name}-*.dist-info"))
        return found[-1].name.removesuffix(".dist-info").rpartition("-")[2] if found else ""

    def run(self, trial: MethodInput, limits: Limits | None = None) -> tuple[MethodResult, Used]:
        """Make a table, within the peer's limits or those given.

        ImportError: not installed; TimeoutError, MemoryError: stopped at a limit, the message says what it had used;
        PeerError: it failed.
        """
        if not self.python.exists():
            raise ImportError(f"{self.name} is not installed: call `make peers`")
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            _write(trial, folder)
            command = [str(self.python), str(HERE / "peers_worker.py"), self.name, str(folder)]
            environment = {**os.environ, **ONE_THREAD, "PYTHONPATH": "", "PRIVSYN_CORE_DATA_ROOT": str(folder)}
            watched = watch(command, limits or self.limits, environment, folder / "log")
            self._check(watched)
            spent = json.loads((folder / "made.json").read_text(encoding="utf-8"))
            with np.load(folder / "made.npz") as made:
                table = self._table(made["codes"], trial.bins)
        return MethodResult(table), Used(spent["wall"], spent["cpu"], watched.peak_mb)

    def _check(self, watched: Watched) -> None:
        used = f"{watched.wall:.0f} s, {watched.cpu:.0f} CPU s, {watched.peak_mb:.0f} MB"
        if watched.outcome == "time":
            raise TimeoutError(used)
        if watched.outcome == "memory":
            raise MemoryError(used)
        if watched.exit_code == NOT_INSTALLED:
            raise ImportError(f"{self.name} is not installed: call `make peers`")
        if watched.exit_code != 0:
            lines = watched.stderr.strip().splitlines() or [f"exit code {watched.exit_code}"]
            raise PeerError(f"{lines[-1][:200]} ({used})")

    def _table(self, codes: np.ndarray, domain: Domain) -> CodeTable:
        if codes.ndim != 2 or codes.shape[1] != len(domain.attributes) or codes.min(initial=0) < 0:
            raise PeerError(f"gave back {codes.shape} codes for {len(domain.attributes)} columns, or negative ones")
        columns = tuple(np.ascontiguousarray(codes[:, i]) for i in range(codes.shape[1]))
        for attribute, size, column in zip(domain.attributes, domain.sizes, columns, strict=True):
            if column.max(initial=0) >= size:
                raise PeerError(f"gave back the code {column.max()} for {attribute}, which has {size}")
        return CodeTable(
            domain, tuple(c.astype(choose_code_dtype(s)) for c, s in zip(columns, domain.sizes, strict=True))
        )

    def method(self) -> Method:
        """Return the peer as an entry of a registry of methods."""
        run: Callable[[MethodInput], MethodResult] = lambda trial: self.run(trial)[0]  # noqa: E731
        return Method(self.name, self.title, self.description, f"{self.package} {self.version}".strip(), run)


def _write(trial: MethodInput, folder: Path) -> None:
    """Write the training rows in codes of the public bins, and the request, for the worker."""
    rows = trial.to_bins(trial.rows)
    codes = np.stack([c.astype(np.int32) for c in rows.columns], axis=1)
    np.savez(folder / "real.npz", codes=codes, sizes=np.array(rows.domain.sizes, np.int64))
    request = {"epsilon": trial.epsilon, "delta": trial.delta, "seed": trial.seed}
    (folder / "request.json").write_text(json.dumps(request), encoding="utf-8")


_ALL = (
    Peer("aim-dpmm", "dpmm", "dpmm", "AIM (dpmm)", "adaptive choice of pairs, graphical model of at most 4 MB"),
    Peer("mst-smartnoise", "smartnoise", "smartnoise-synth", "MST (smartnoise)", "a tree of pairs, graphical model"),
    Peer("privsyn-core", "smartnoise", "privsyn-core", "privsyn-core", "public PrivSyn code, as it is"),
    Peer("mst-dpmm", "dpmm", "dpmm", "MST (dpmm)", "a tree of pairs, over the package's own copy of mbi"),
    Peer("aim-smartnoise", "smartnoise", "smartnoise-synth", "AIM (smartnoise)", "AIM over mbi 1.1 and jax"),
    Peer("mst-opendp", "opendp", "opendp", "MST (OpenDP)", "a tree of pairs: OpenDP's contingency tables"),
    Peer("aim-opendp", "opendp", "opendp", "AIM (OpenDP)", "OpenDP's contingency tables, pairs, at most 4 MB"),
    Peer("aim-80-dpmm", "dpmm", "dpmm", "AIM (dpmm, 80 MB)", "as AIM (dpmm), its model at the default size", LONG),
    Peer("aim-80-opendp", "opendp", "opendp", "AIM (OpenDP, 80 MB)", "its own settings: triples, 80 MB", LONG),
)

PEERS = {peer.name: peer for peer in _ALL}
"""Every peer by its name, in the order in which they are run."""
SHORT = tuple(name for name, peer in PEERS.items() if peer.limits is not LONG)
"""Peers that are run at every table, whether or not they are named."""


_MORE = (
    Peer("privbayes-dpmm", "dpmm", "dpmm", "PrivBayes (dpmm)", "a Bayesian network of degree 2, graphical model"),
    Peer(
        "mwem-smartnoise", "smartnoise", "smartnoise-synth", "MWEM (smartnoise)", "multiplicative weights, few columns"
    ),
    Peer("privsyn-tab-bench", "dpmm", "tab_bench", "PrivSyn (tab_bench)", "PrivSyn from the benchmark's own source"),
    Peer("margnet", "margnet", "torch", "MargNet", "a network trained on marginals that it chooses"),
)

REFEREES = PEERS | {peer.name: peer for peer in _MORE}
"""The peers, and packages that only methods of the same name are held against."""

_OF_VALUES = (
    Peer("mst-dpsynth", "dpsynth", "dpsynth", "MST (dpsynth)", "Google's MST, bins of equal mass"),
    Peer("swift-dpsynth", "dpsynth", "dpsynth", "SWIFT (dpsynth)", "Google's SWIFT, bins of equal mass"),
    Peer("aim-dpsynth", "dpsynth", "dpsynth", "AIM (dpsynth)", "Google's AIM, bins of equal mass, 80 MB"),
    Peer("copula-sdv", "sdv", "sdv", "Gaussian copula (SDV)", "no privacy"),
)
OF_VALUES = {peer.name: peer for peer in _OF_VALUES}
"""Peers that are given values, not codes, by benchmarks/relations_worker.py alone."""


def echo() -> Peer:
    """Return a peer that gives the rows back, in any environment with numpy and pandas.

    To check the way there and back.
    """
    return replace(_ALL[0], name="echo")
