"""Disk full and permission denied at every write of a release: one clear sentence, and a re-run that pays once.

The writes are found while a release runs (tests/support/faults.py), so that none can be forgotten. Each attempt fails
at the first write that has not failed yet; the next one goes on where it stopped; the last one meets no such write any
more.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from privsyn.base.errors import PrivsynError
from privsyn.base.settings import Settings
from privsyn.data_contracts.release_spec import ReleaseSpec
from privsyn.engine.step import ReleaseStep
from privsyn.ledgers.ledger import Ledger
from privsyn.pipelines.one_shot import STEPS
from privsyn.publish.folder import ReleaseSummary, is_whole
from tests.support.faults import Site, at_every_write
from tests.support.releases import release_in_process
from tests.support.specs import COLUMNS, make_spec, people

Key = tuple[str, ...]
SAYS = {
    errno.ENOSPC: ("No space left on device", "the disk is full"),
    errno.EACCES: ("Permission denied", "cannot be opened for writing"),
}
TOO_MANY = 2_000


@pytest.fixture
def spec(places: Path, save: Callable[..., str]) -> ReleaseSpec:
    """Room for one release only."""
    guarantee = {"epsilon": 3.0, "delta": 1e-9}
    columns = {name: COLUMNS[name] for name in ("age", "region", "happy")}
    data = save(people(200).select(list(columns)))
    return make_spec(columns, data=data, privacy=guarantee, budget=guarantee, synthesis={"sweeps": 1})


def attempt(spec: ReleaseSpec, tried: dict[Key, Site], number: int, by: Callable[[Site], Key]) -> ReleaseSummary | str:
    """One run that fails at the first write whose kind is not in ``tried``; its summary, or what it said."""
    failed: list[Site] = []

    def fail(site: Site, path: str) -> None:
        if not failed and by(site) not in tried:
            failed.append(site)
            tried[by(site)] = site
            raise OSError(number, os.strerror(number), path)

    settings = Settings()
    try:
        with at_every_write([settings.out, Path(settings.ledger)], fail):
            summary = release_in_process(spec, settings)
    except PrivsynError as error:
        assert failed, error
        return str(error)
    assert not failed, f"nobody noticed {failed}"
    return summary


def check_between(settings: Settings) -> None:
    """After a failure: nothing but whole runs is visible, and no private table lies in the released root."""
    visible = [p for p in settings.released_root.glob("*") if not p.name.startswith(".")]
    assert all(is_whole(folder) for folder in visible)
    private = {p.read_bytes() for p in settings.private_root.rglob("*_rows.parquet")}
    assert not private & {p.read_bytes() for p in settings.released_root.rglob("*.parquet")}


def check_end(summary: ReleaseSummary, settings: Settings) -> None:
    """One whole release, one charge a release step, all spent; nothing half-written and no noise is left."""
    assert [p.name for p in settings.released_root.iterdir()] == [summary.run]
    assert is_whole(Path(summary.released))
    ledger = Ledger(settings.ledger)
    reserved = [e.key for e in ledger.entries() if e.event == "reserve"]
    spent = [key for key in dict.fromkeys(reserved) if ledger.state("people", key) == "spent"]
    assert len(spent) == sum(isinstance(step, ReleaseStep) for step in STEPS)
    assert {ledger.state("people", key) for key in reserved} <= {"spent", "cancelled"}
    assert ledger.summary("people")[0].rho == sum(e.rho for e in ledger.entries() if e.event == "spent")
    assert ledger.verify() == []
    left = [
        p for p in settings.private_root.rglob("*") if p.name.endswith(".part") or ("noise" in p.parts and p.is_file())
    ]
    assert left == []


def fail_everywhere(spec: ReleaseSpec, number: int, by: Callable[[Site], Key]) -> dict[Key, Site]:
    """Attempt after attempt until no write is new; what failed on the way."""
    tried: dict[Key, Site] = {}
    drawn: dict[str, bytes] = {}
    settings = Settings()
    for _ in range(TOO_MANY):
        result = attempt(spec, tried, number, by)
        if isinstance(result, ReleaseSummary):
            check_end(result, settings)
            return tried
        assert result.isprintable() and "unexpected" not in result and "Traceback" not in result
        assert any(word in result for word in SAYS[number]), (result, list(tried.values())[-1])
        check_between(settings)
        now = {p.name: p.read_bytes() for p in settings.private_root.glob("store/people/*-noisy.parquet")}
        assert drawn.items() <= now.items()  # what was drawn stays as it was drawn
        drawn = now
    raise AssertionError("it never ends")


@pytest.mark.parametrize(
    "number", [errno.ENOSPC, pytest.param(errno.EACCES, marks=pytest.mark.slow)], ids=errno.errorcode.get
)
def test_every_line_that_writes_may_fail_once(spec: ReleaseSpec, number: int) -> None:
    tried = fail_everywhere(spec, number, by=lambda site: site[:2])
    kinds = {kind for kind, *_ in tried}
    assert {"open", "fsync", "os.rename", "half written", "arrow write", "arrow close", "ledger"} <= kinds


@pytest.mark.slow
@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EACCES], ids=errno.errorcode.get)
def test_every_file_that_is_written_may_fail_once(spec: ReleaseSpec, number: int) -> None:
    """Each line for each file: every table of every step, every record."""
    tried = fail_everywhere(spec, number, by=lambda site: site)
    written = {name for kind, _, name in tried if kind == "os.rename"}
    for step in STEPS:
        assert any(name.startswith(f".{step.name}-") for name in written), step.name


def test_the_checks_find_a_write_that_fails_in_silence(spec: ReleaseSpec, monkeypatch: pytest.MonkeyPatch) -> None:
    """The planted mutant: a record that is not written, and nobody is told."""
    from privsyn.storage import records

    written = records.write_json

    def silent(path: Path, content: dict[str, Any]) -> None:
        try:
            written(path, content)
        except PrivsynError:
            return

    monkeypatch.setattr(records, "write_json", silent)
    with pytest.raises(AssertionError, match="nobody noticed"):
        fail_everywhere(spec, errno.ENOSPC, by=lambda site: site[:2])
