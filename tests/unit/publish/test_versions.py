"""What earlier versions wrote still opens; what later ones write is refused in words."""

from __future__ import annotations

import json
import shutil
import sqlite3
from contextlib import closing
from fractions import Fraction
from pathlib import Path

import pytest

from privsyn.base.errors import BudgetRefusedError, LedgerError, PeriodReleasedError, RequestError
from privsyn.base.settings import Settings
from privsyn.data_contracts.promise import Guarantee
from privsyn.evaluation.coded_tables import open_release
from privsyn.ledgers.ledger import ChargeLine, Ledger
from privsyn.storage.released_files import VersionError, read_certificate, read_manifest, read_manifest_if_readable
from privsyn.tasks.privacy.accountant import convert_epsilon_to_rho
from tests.support.places import FIXTURES

RELEASED = FIXTURES / "released_0_2_0"
CAP = Guarantee(epsilon=2.0, delta=1e-9)


@pytest.fixture
def old_ledger(tmp_path: Path) -> Path:
    """A ledger as version 0.2.0 made it: one release, one charge that was abandoned and one that was given back."""
    path = tmp_path / "ledger.sqlite"
    with closing(sqlite3.connect(path)) as database:
        database.executescript((FIXTURES / "ledger_0_2_0.sql").read_text(encoding="utf-8"))
    return path


def test_a_ledger_of_0_2_0_opens_verifies_and_goes_on(old_ledger: Path) -> None:
    Ledger(old_ledger)  # gives it the guard against replaced rows
    before = old_ledger.read_bytes()
    ledger = Ledger(old_ledger)
    assert (ledger.periods(), ledger.period("people", "2026-11"), ledger.verify()) == ([], None, [])
    assert old_ledger.read_bytes() == before  # looking changes nothing
    (summary,) = ledger.summary()
    assert summary.rho == convert_epsilon_to_rho(1.0, 1e-9, "tight") + Fraction(1, 1000)
    assert (summary.cap, summary.cap_rho, summary.entries) == (CAP, convert_epsilon_to_rho(2.0, 1e-9, "tight"), 10)
    ledger.register("people", CAP)  # the cap that it holds
    ledger.check()
    charge = ChargeLine("one_way_marginals", "c" * 64, Fraction(1, 1000))
    ledger.reserve("people", "people-2026-11-11111111", [charge], period="2026-11")
    ledger.settle("people", "c" * 64)
    ledger.release_period("people", "2026-11", "people-2026-11-11111111")
    assert ledger.verify() == []
    assert ledger.summary()[0].rho == summary.rho + Fraction(1, 1000)
    with pytest.raises(PeriodReleasedError):
        ledger.reserve("people", "people-22222222", [charge], period="2026-11")
    with pytest.raises(BudgetRefusedError):
        ledger.reserve("people", "people-22222222", [ChargeLine("one_way_marginals", "d" * 64, summary.remaining_rho)])


@pytest.mark.parametrize("version", [0, 2, 99])
def test_a_ledger_of_another_version_is_refused_in_words(old_ledger: Path, version: int) -> None:
    with closing(sqlite3.connect(old_ledger)) as database, database:
        database.execute("UPDATE ledger SET version = ?", (version,))
    before = old_ledger.read_bytes()
    with pytest.raises(LedgerError, match=f"schema version {version}, and this program knows 1") as refused:
        Ledger(old_ledger)
    assert "Use the version of privsyn-flows that wrote it" in str(refused.value)
    assert old_ledger.read_bytes() == before


def test_the_certificate_and_manifest_of_0_2_0_are_read() -> None:
    certificate, manifest = read_certificate(RELEASED), read_manifest(RELEASED)
    assert certificate.run == manifest.run == "people-3de898c8"
    assert sum(Fraction(s.rho_budget) for s in certificate.stages) == Fraction(certificate.rho_budget)
    assert manifest.files["certificate.json"].bytes == (RELEASED / "certificate.json").stat().st_size


@pytest.mark.parametrize(("name", "read"), [("manifest", read_manifest), ("certificate", read_certificate)])
@pytest.mark.parametrize("version", [0, 2, 10**30, -1])
def test_another_version_of_a_released_file_is_refused_in_words(
    tmp_path: Path, name: str, read: object, version: int
) -> None:
    path = tmp_path / f"{name}.json"
    content = {**json.loads((RELEASED / path.name).read_text()), "schema_version": version, "new": "field"}
    path.write_text(json.dumps(content))
    assert callable(read)
    with pytest.raises(VersionError, match=f"{name}.json has schema version {version}, and this program knows 1"):
        read(tmp_path)
    assert read_manifest_if_readable(tmp_path) is None


@pytest.mark.parametrize(
    "content", ["", "[]", "null", "{", '{"schema_version": 1}', '{"schema_version": "1"}', "\ud800", "[" * 100_000]
)
def test_what_is_no_manifest_is_refused_in_words(tmp_path: Path, content: str) -> None:
    (tmp_path / "manifest.json").write_bytes(content.encode("utf-8", "surrogatepass"))
    with pytest.raises(RequestError) as refused:
        read_manifest(tmp_path)
    assert "manifest" in str(refused.value)
    assert str(refused.value).isprintable()


def test_evaluating_a_release_of_a_later_version_is_refused_in_words(tmp_path: Path) -> None:
    folder = tmp_path / "out" / "released" / "people-3de898c8"
    shutil.copytree(RELEASED, folder)
    content = {**json.loads((folder / "manifest.json").read_text()), "schema_version": 2}
    (folder / "manifest.json").write_text(json.dumps(content))
    with pytest.raises(RequestError, match=r"^release: .* schema version 2"):
        open_release("people-3de898c8", Settings(out=tmp_path / "out"))
