"""Peers in an environment of their own: codes in are codes out, and a limit stops them and all that they started."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from benchmarks import bounds, peers
from benchmarks.peers import Limits, Peer, PeerError, Watched, echo, watch
from benchmarks.relations import PublicTable
from privsyn.data_contracts.domain import Domain
from privsyn.evaluation.comparison.method import MethodInput
from privsyn.tasks.codecs.cells import AttributeBins
from privsyn.tasks.kernels.counting import CodeTable
from privsyn.tasks.privacy.noise import SeededNoise

DOMAIN = Domain.of({"a": 3, "b": 1, "large": 300, "in two bins": 4})
CODES = (np.array([2, 0, 1, 2]), np.zeros(4), np.array([299, 0, 255, 256]), np.array([3, 0, 1, 2]))


def trial() -> MethodInput:
    types = (np.uint8, np.uint8, np.uint16, np.uint8)
    table = CodeTable(DOMAIN, tuple(c.astype(t) for c, t in zip(CODES, types, strict=True)))
    groups = {a: np.arange(n, dtype=np.int32) for a, n in zip(DOMAIN.attributes, DOMAIN.sizes, strict=True)}
    groups["in two bins"] = np.array([0, 0, 1, 1], np.int32)
    return MethodInput(table, {a: AttributeBins(g) for a, g in groups.items()}, 1.0, 1e-9, 1, SeededNoise(0))


@pytest.fixture(autouse=True)
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The environment "dpmm" is this one's interpreter; no other is there."""
    monkeypatch.setattr(peers, "ENVIRONMENTS", tmp_path)
    python = tmp_path / "dpmm" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n', encoding="utf-8")
    python.chmod(0o755)
    return tmp_path


def test_codes_of_the_public_bins_come_back_as_they_went() -> None:
    made, used = echo().run(trial())
    assert made.table.domain == trial().bins
    expected = trial().to_bins(trial().rows)
    for attribute in DOMAIN.attributes:
        assert made.table.column(attribute).dtype == expected.column(attribute).dtype
        assert (made.table.column(attribute) == expected.column(attribute)).all()
    assert used.wall >= 0
    assert used.peak_mb > 1


@pytest.mark.parametrize(
    ("codes", "problem"),
    [
        (np.array([[3, 0, 0, 0]]), "code 3 for a, which has 3"),
        (np.array([[0, 0, 0, 2]]), "code 2 for in two bins, which has 2"),
        (np.array([[0, -1, 0, 0]]), "negative"),
        (np.array([[0, 0, 0]]), "3\\) codes for 4 columns"),
        (np.array([0, 0, 0, 0]), "4 columns"),
    ],
)
def test_what_is_no_table_of_codes_is_refused(codes: np.ndarray, problem: str) -> None:
    with pytest.raises(PeerError, match=problem):
        echo()._table(codes, trial().bins)


def test_the_version_is_the_installed_package_s(environment: Path) -> None:
    peer = Peer("x", "dpmm", "some-package", "X", "")
    assert peer.version == ""
    (environment / "dpmm/lib/python3.11/site-packages/some_package-1.2.3.dist-info").mkdir(parents=True)
    assert peer.version == "1.2.3"


NO_LIMITS = Limits(seconds=1e6, megabytes=1e6)
SPIN = "while True: pass"


def run_watched(code: str, folder: Path, limits: Limits = NO_LIMITS) -> Watched:
    return watch([sys.executable, "-c", code], limits, os.environ, folder / "log")


def running(pid: int) -> bool:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"


def test_a_child_that_ends_by_itself(tmp_path: Path) -> None:
    ended = run_watched("import sys; print('out'); print('last words', file=sys.stderr); sys.exit(5)", tmp_path)
    assert (ended.outcome, ended.exit_code) == ("ended", 5)
    assert "last words" in ended.stderr
    assert "out" in ended.stderr


def test_waiting_alone_is_not_past_the_limit(tmp_path: Path) -> None:
    """Wall and CPU time must both be past it: a busy machine stops nothing."""
    waited = run_watched("import time; time.sleep(1.5)", tmp_path, Limits(seconds=1.0, megabytes=1e6))
    assert waited.outcome == "ended"
    assert waited.wall > 1.0


def test_a_child_that_eats_memory_is_stopped(tmp_path: Path) -> None:
    eaten = run_watched("b = bytearray(300 << 20)\n" + SPIN, tmp_path, Limits(seconds=1e6, megabytes=200))
    assert eaten.outcome == "memory"
    assert eaten.peak_mb > 200


def test_what_the_child_started_counts_and_goes_with_it(tmp_path: Path) -> None:
    code = (
        "import subprocess, sys\n"
        f"child = subprocess.Popen([sys.executable, '-c', '{SPIN}'])\n"
        f"open({str(tmp_path / 'pid')!r}, 'w').write(str(child.pid))\n"
        "child.wait()"
    )
    stopped = run_watched(code, tmp_path, Limits(seconds=0.3, megabytes=1e6))
    assert stopped.outcome == "time"  # the grandchild's CPU time alone can have reached the limit
    grandchild = int((tmp_path / "pid").read_text(encoding="utf-8"))
    for _ in range(100):  # a killed process may need a moment to be gone
        if not running(grandchild):
            break
        time.sleep(0.05)
    assert not running(grandchild)


def test_a_peer_gets_every_bound_as_typed_and_days_as_whole_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[PublicTable] = []

    def run(given: PublicTable, *_: object, **__: object) -> tuple[Any, ...]:
        seen.append(given)
        return given.table, 1.0, 2.5, 100.0

    monkeypatch.setattr(bounds, "run_binned", run)
    rows = bounds.make_table(50)
    rows.insert(0, "sex", np.random.default_rng(1).choice(["f", "m"], 50))
    table = pa.Table.from_pandas(rows, preserve_index=False)
    made = bounds.release_by_peer("mst-dpsynth", bounds.build_spec(1.0, 10), table, 0, minutes=1)
    pd.testing.assert_frame_equal(made, bounds.to_numbers(rows), check_dtype=False)
    assert made.attrs["cpu"] == 2.5
    columns = seen[0].columns
    assert (columns["pay"]["min"], columns["pay"]["max"]) == (0, 100_000)
    assert columns["since"] == {"kind": "integer", "min": -bounds.DAYS * 9, "max": bounds.DAYS}
