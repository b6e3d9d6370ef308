"""Recovering a ledger: the newest copy agrees with the certificates; an older one is caught by them, and refused."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from privsyn.api.ledger import LedgerView
from privsyn.base.errors import BudgetRefusedError, LedgerError, PrivsynError
from privsyn.base.settings import Settings
from privsyn.data_contracts.release_spec import ReleaseSpec
from privsyn.ledgers.backup import back_up
from privsyn.ledgers.ledger import ChargeLine, Ledger
from privsyn.storage.records import Records
from privsyn.tasks.privacy.noise import OpenDPNoise
from tests.support import postgres
from tests.support.kept import Kept
from tests.support.opened import watched
from tests.support.releases import few, release_in_process, run
from tests.support.specs import changed, make_spec, people
from tests.support.tampering import raw


def put_back(copy: Path, ledger: Path) -> None:
    ledger.unlink()
    shutil.copy(copy, ledger)


@pytest.fixture
def paid(kept: Kept, monkeypatch: pytest.MonkeyPatch) -> tuple[ReleaseSpec, Path]:
    """A spec that was released, and its ledger."""
    spec = few(kept.begin_with(monkeypatch, people(200)))
    kept.once(lambda: run(spec))
    return spec, kept.home / "ledger.sqlite"


def at(epsilon: float, spec: ReleaseSpec, **changes: Any) -> ReleaseSpec:
    privacy = {"epsilon": epsilon, "delta": 1e-9}
    return changed(spec, privacy=privacy, **changes)


def test_the_newest_copy_agrees_and_an_older_one_is_caught(places: Path, save: Callable[..., str]) -> None:
    table, ledger = save(people(200).select(["age", "region", "happy"])), places / "ledger.sqlite"
    columns = {
        n: c for n, c in make_spec().model_dump(mode="json")["columns"].items() if n in ("age", "region", "happy")
    }
    first, second = (make_spec(columns, data=table, privacy={"epsilon": e, "delta": 1e-9}) for e in (1.0, 0.5))
    release_in_process(first, Settings())
    back_up(str(ledger), places / "older")
    again = release_in_process(second, Settings()).run
    back_up(str(ledger), places / "newest")
    for copy, problems in (("newest", False), ("older", True)):
        put_back(places / copy, ledger)
        found = LedgerView(Settings()).verify().problems
        assert any(again in problem for problem in found) is problems
        assert bool(found) is problems


def test_a_release_refuses_an_older_copy_before_it_reads_and_takes_the_newest(
    places: Path, save: Callable[..., str]
) -> None:
    """The cap allows two releases; what an older copy has forgotten would allow a third, over other data."""
    spec = few(save(people(200)), budget={"epsilon": 1.3, "delta": 1e-9})
    ledger, second = places / "ledger.sqlite", at(0.7, spec)
    run(spec)
    shutil.copy(ledger, places / "older")
    run(second)
    shutil.copy(ledger, places / "newest")
    others = Ledger(ledger)  # another private zone's entries, which only add
    others.register("others", spec.budget)
    others.reserve("others", "run", [ChargeLine("one_way_marginals", "a" * 64, Fraction(1, 1000))])
    shutil.copy(ledger, places / "more")
    save(people(201))
    put_back(places / "older", ledger)
    before = Ledger(ledger).entries()
    with watched(Path(spec.data)) as events:
        for request, fresh in ((second, False), (second, True), (at(0.7, spec, selection={"max_cells": 50}), False)):
            with pytest.raises(LedgerError, match=r"older copy.*newest copy.*privsyn\.ledger\(\)\.verify\(\)"):
                run(request, fresh=fresh)
        assert events() == 0, "the private table was opened"
    assert Ledger(ledger).entries() == before
    for copy in ("newest", "more"):
        put_back(places / copy, ledger)
        save(people(201))
        with pytest.raises(BudgetRefusedError):
            run(second)
        save(people(200))
        assert run(second).drawn == ()
    put_back(places / "newest", ledger)
    with pytest.raises(LedgerError, match="older copy"):  # the other zone's entry was seen, and is gone
        run(second)


def test_a_ledger_with_another_history_of_the_same_length_is_refused(paid: tuple[ReleaseSpec, Path]) -> None:
    spec, ledger = paid
    places = ledger.parent
    shutil.copy(ledger, places / "older")
    run(at(0.5, spec))
    put_back(places / "older", ledger)
    other = Ledger(ledger)
    lines = [
        ChargeLine(step, step[0] * 64, Fraction(1, 1000)) for step in ("one_way_marginals", "indif_scores", "measure")
    ]
    other.reserve("people", "another-run", lines)
    for line in lines:
        other.settle("people", line.key)
    assert other.verify() == []
    with pytest.raises(LedgerError, match="another history"):
        run(spec)


def test_forgotten_periods_are_missed_and_a_record_of_before_is_taken_as_it_is(paid: tuple[ReleaseSpec, Path]) -> None:
    (spec, ledger), store = paid, Records(Settings().private_root, "people")
    places = ledger.parent
    shutil.copy(ledger, places / "older")
    release_in_process(spec, Settings(), period="2026-11")
    noted = store.load("ledger")
    assert noted is not None and noted["periods"] == 2  # begun and released
    store.save("ledger", {**noted, "entries": 0})
    put_back(places / "older", ledger)
    with pytest.raises(LedgerError, match="older copy"):
        run(spec)
    store.save("ledger", {"created": noted["created"]})
    assert run(spec).drawn == ()


def test_a_note_that_is_missing_beside_other_records_is_damage(paid: tuple[ReleaseSpec, Path]) -> None:
    """Without the note, a ledger begun anew would be believed."""
    spec, ledger = paid
    (Settings().private_root / "records" / "people" / "ledger.json").unlink()
    for begin_anew in (False, True):
        if begin_anew:
            ledger.unlink()
        with watched(Path(spec.data)) as events:
            with pytest.raises(PrivsynError, match=r"ledger\.json is missing beside"):
                run(spec)
            assert events() == 0
        assert ledger.exists() is not begin_anew


def test_the_history_is_noted_before_any_noise_is_drawn(paid: tuple[ReleaseSpec, Path]) -> None:
    """A run that is cut short at its first noise already refuses the copy of before."""
    spec, ledger = paid
    places = ledger.parent
    shutil.copy(ledger, places / "older")

    class Killed(OpenDPNoise):
        def draw(self, sigma: float, cells: int) -> Any:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(at(0.5, spec), noise=Killed())
    put_back(places / "older", ledger)
    with pytest.raises(LedgerError, match="older copy"):
        run(spec)


@pytest.mark.slow
def test_a_dump_of_postgresql_restores_history_and_guards(
    postgres_server: str, postgres_database: str, tmp_path: Path
) -> None:
    ledger = Ledger(postgres_database)
    ledger.register("people", make_spec().budget)
    ledger.reserve("people", "run-1", [ChargeLine("one_way_marginals", "a" * 64, Fraction(1, 1000))])
    dump, programs = tmp_path / "dump", postgres.programs()
    if programs is None:
        pytest.skip("no pg_dump: install Debian's package postgresql")
    options = ["--format=custom", "--no-owner", f"--file={dump}", postgres_database]
    subprocess.run([programs / "pg_dump", *options], check=True)
    with postgres.database(postgres_server) as empty:
        subprocess.run(
            [programs / "pg_restore", "--no-owner", "--exit-on-error", f"--dbname={empty}", dump], check=True
        )
        restored = Ledger(empty, create=False)
        assert restored.export() == ledger.export()
        assert restored.verify() == []
        with pytest.raises(sa.exc.DBAPIError, match="append-only"), raw(empty) as connection:
            connection.exec_driver_sql("DELETE FROM entries")
        with pytest.raises(LedgerError, match="another price"):  # it remembers what was charged
            restored.reserve("people", "run-2", [ChargeLine("one_way_marginals", "a" * 64, Fraction(1, 500))])
