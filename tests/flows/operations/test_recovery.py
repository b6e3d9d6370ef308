"""Recovering a ledger: the newest copy agrees with the certificates; an older one is caught by them."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

import pytest
import sqlalchemy as sa

from flows.direct import release_directly
from flows.errors import LedgerError
from flows.ledger import Ledger, Line
from flows.ledger_view import verify_ledger
from flows.operations.ledger_backup import back_up
from flows.settings import Settings
from tests import postgres
from tests.specs import make_spec, people


def test_the_newest_copy_agrees_and_an_older_one_is_caught(places: Path, save: Callable[..., str]) -> None:
    table, ledger = save(people(200).select(["age", "region", "happy"])), places / "ledger.sqlite"
    columns = {
        n: c for n, c in make_spec().model_dump(mode="json")["columns"].items() if n in ("age", "region", "happy")
    }
    first, second = (make_spec(columns, data=table, privacy={"epsilon": e, "delta": 1e-9}) for e in (1.0, 0.5))
    release_directly(first, Settings())
    back_up(str(ledger), places / "older")
    run = release_directly(second, Settings()).run
    back_up(str(ledger), places / "newest")
    for copy, problems in (("newest", False), ("older", True)):
        ledger.unlink()
        shutil.copy(places / copy, ledger)
        found = verify_ledger(Settings(), None).problems
        assert any(run in problem for problem in found) is problems
        assert bool(found) is problems


def test_a_dump_of_postgresql_restores_history_and_guards(
    postgres_server: str, postgres_database: str, tmp_path: Path
) -> None:
    ledger = Ledger(postgres_database)
    ledger.register("people", make_spec().budget)
    ledger.reserve("people", "run-1", [Line("one_way_marginals", "a" * 64, Fraction(1, 1000))])
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
        engine = sa.create_engine(sa.make_url(empty).set(drivername="postgresql+psycopg"))
        with engine.connect() as connection, pytest.raises(sa.exc.DBAPIError, match="append-only"):
            connection.exec_driver_sql("DELETE FROM entries")
        engine.dispose()
        with pytest.raises(LedgerError, match="another price"):  # it remembers what was charged
            restored.reserve("people", "run-2", [Line("one_way_marginals", "a" * 64, Fraction(1, 500))])
