"""A role that may only add to the ledger puts a ledger of its own before it: charges go to the real one all the same.

The attack is what PostgreSQL lets any role do: set its own search path, and fill a schema that it owns.

It does not see a ledger in SQLite, nor an owner of the ledger who changes it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import pytest
import sqlalchemy as sa

from privsyn.api.ledger import LedgerView
from privsyn.base.errors import BudgetRefusedError, LedgerError, RequestError
from privsyn.base.settings import Settings
from privsyn.data_contracts.promise import Guarantee
from privsyn.ledgers import database
from privsyn.ledgers.ledger import ChargeLine, Ledger
from privsyn.ledgers.schema import CHAINED_TABLES, FIRST_TABLES, SCHEMA_VERSION
from tests.support import postgres
from tests.support.releases import few, run
from tests.support.specs import people
from tests.support.tampering import raw

CAP = Guarantee(epsilon=1.0, delta=1e-9)
TABLES = ("ledger", *FIRST_TABLES, *CHAINED_TABLES, *(chain.name for chain in CHAINED_TABLES.values()))


@dataclass
class Roles:
    """A ledger's URL for the owner of its tables, and for the role that may only add."""

    owner: str
    worker: str


@pytest.fixture
def roles(postgres_database: str) -> Iterator[Roles]:
    with postgres.owner(postgres_database) as owner:
        Ledger(owner).make_tables()
        with postgres.worker(owner) as worker:
            yield Roles(owner, worker)


def put_shadow(worker: str) -> None:
    """An empty ledger in the role's own schema, first in its search path."""
    with raw(worker) as connection:
        for table in TABLES:
            connection.exec_driver_sql(f"CREATE TABLE prefect.{table} (LIKE public.{table} INCLUDING ALL)")
        connection.exec_driver_sql(f"INSERT INTO prefect.ledger VALUES (1, {SCHEMA_VERSION}, 0, '{'0' * 64}')")
        for chain in CHAINED_TABLES.values():
            connection.exec_driver_sql(f"INSERT INTO prefect.{chain.name} VALUES (1, 0, '{'0' * 64}')")
        connection.exec_driver_sql(
            "CREATE FUNCTION prefect.privsyn_append_only() RETURNS trigger LANGUAGE plpgsql AS "
            "$$ BEGIN RAISE EXCEPTION 'the ledger is append-only'; END $$"
        )
        for table in (*FIRST_TABLES, *CHAINED_TABLES):
            for name, verbs, level in (("change", "UPDATE OR DELETE", "ROW"), ("truncate", "TRUNCATE", "STATEMENT")):
                connection.exec_driver_sql(
                    f"CREATE TRIGGER {table}_no_{name} BEFORE {verbs} ON prefect.{table} FOR EACH {level} "
                    "EXECUTE FUNCTION prefect.privsyn_append_only()"
                )
        connection.exec_driver_sql("ALTER ROLE CURRENT_USER SET search_path = prefect, public, pg_catalog")


def spend_all(ledger: Ledger, key: str) -> None:
    """Charge nine tenths of the cap."""
    ledger.register("people", CAP)
    rho = ledger.summary("people")[0].cap_rho * Fraction(9, 10)
    ledger.reserve("people", f"run-{key[0]}", [ChargeLine("one_way_marginals", key, rho)])
    ledger.claim("people", key, "draw")
    ledger.settle("people", key)


def use_session_path(patch: pytest.MonkeyPatch) -> None:
    """Names as they were before: the tables are those that the session's search path has first."""

    def first_in_path(url: sa.URL) -> tuple[sa.URL, str]:
        with raw(url.render_as_string(False)) as connection:
            found = "SELECT relnamespace::regnamespace::text FROM pg_class WHERE oid = 'ledger'::regclass"
            return url, str(connection.exec_driver_sql(found).scalar_one())

    patch.setattr(database, "take_schema", first_in_path)


def test_30_charges_go_to_the_real_ledger_and_the_shadow_is_reported(roles: Roles) -> None:
    spend_all(Ledger(roles.worker), "a" * 64)
    put_shadow(roles.worker)
    with pytest.raises(BudgetRefusedError):
        spend_all(Ledger(roles.worker), "b" * 64)
    role = sa.make_url(roles.worker).username
    for url in (roles.owner, roles.worker):
        problems = Ledger(url).verify()
        assert problems[0].startswith(f"the role {role} has a ledger of its own in the schema prefect")
        assert f"the search path of {role} has tables of the schema prefect in the place of the ledger's" in problems[1]
        assert len(Ledger(url).entries()) == 2


def test_30_mutant_names_without_a_schema_give_a_second_budget(roles: Roles, monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted mutant: the tables are found by the search path, and the cap is spent twice."""
    spend_all(Ledger(roles.worker), "a" * 64)
    put_shadow(roles.worker)
    with monkeypatch.context() as before:
        use_session_path(before)
        spend_all(Ledger(roles.worker), "b" * 64)  # no refusal
    assert [entry.run for entry in Ledger(roles.owner).entries()] == ["run-a", "run-a"]


def test_30_a_certificate_remembers_that_it_was_charged_elsewhere(
    roles: Roles, places: Path, save: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where an older program on the same database was deceived, its certificates name an entry that is not there."""
    monkeypatch.setenv("PRIVSYN_LEDGER", roles.worker)
    spec = few(save(people(200)))
    honest = run(spec).run
    put_shadow(roles.worker)
    monkeypatch.setenv("PRIVSYN_OUT", str(places / "second"))
    with monkeypatch.context() as before:
        use_session_path(before)
        deceived = run(spec).run
    with raw(roles.owner) as connection:
        connection.exec_driver_sql(f"ALTER ROLE {sa.make_url(roles.worker).username} RESET search_path")
    monkeypatch.setenv("PRIVSYN_LEDGER", roles.owner)
    found = LedgerView(Settings()).verify(against=[places / "out" / "released"]).problems
    assert any(p.startswith(f"{deceived}: ") and "not there as it was" in p for p in found), found
    assert not any(p.startswith(f"{honest}: ") and "not there as it was" in p for p in found) or honest == deceived


def test_30_functions_and_operators_are_postgresql_s_own(roles: Roles) -> None:
    put_shadow(roles.worker)
    opened = database.Database(roles.worker)
    for transaction in (opened.read, opened.write):
        with transaction() as connection:
            assert connection.exec_driver_sql("SHOW search_path").scalar_one() == "pg_catalog"


def test_30_a_guard_that_does_nothing_is_no_guard(roles: Roles) -> None:
    spend_all(Ledger(roles.owner), "a" * 64)
    with raw(roles.owner) as connection:
        connection.exec_driver_sql(
            "CREATE OR REPLACE FUNCTION public.privsyn_append_only() RETURNS trigger LANGUAGE plpgsql AS "
            "$$ BEGIN RETURN NEW; END $$"
        )
    assert "a trigger that keeps the tables append-only is missing or switched off" in Ledger(roles.owner).verify()


def test_30_what_the_owner_has_put_aside_is_no_shadow(roles: Roles) -> None:
    with raw(roles.owner) as connection:
        connection.exec_driver_sql("CREATE SCHEMA aside")
        for table in TABLES:
            connection.exec_driver_sql(f"CREATE TABLE aside.{table} (LIKE public.{table})")
    assert Ledger(roles.owner).verify() == []


def test_30_a_ledger_that_lies_in_another_schema_is_named_and_not_begun_anew(roles: Roles) -> None:
    """An earlier version made it where the session's search path led."""
    own = sa.make_url(roles.owner)
    with raw(roles.owner) as connection:
        connection.exec_driver_sql("CREATE SCHEMA study")
        for table in TABLES:
            connection.exec_driver_sql(f"ALTER TABLE public.{table} SET SCHEMA study")
        connection.exec_driver_sql(f"ALTER ROLE {own.username} SET search_path = study, public")
    for create in (True, False):
        with pytest.raises(LedgerError, match=r"there are some in study.*\?schema=study at the end"):
            Ledger(roles.owner, create=create)
    named = own.update_query_dict({"schema": "study"}).render_as_string(False)
    spend_all(Ledger(named), "a" * 64)
    assert Ledger(named).verify() == []
    assert "schema=study" in Ledger(named).name
    for wrong in ("pg_catalog", "a b", "Study", 'x"y'):
        with pytest.raises(RequestError, match="is not a plain name"):
            Ledger(own.update_query_dict({"schema": wrong}).render_as_string(False))


def test_30_a_ledger_in_a_schema_of_its_own_has_a_role_too(postgres_database: str) -> None:
    with postgres.owner(postgres_database) as owner:
        with raw(owner) as connection:
            connection.exec_driver_sql("CREATE SCHEMA study")
        named = sa.make_url(owner).update_query_dict({"schema": "study"})
        Ledger(named.render_as_string(False)).make_tables()
        with postgres.worker(owner, schema="study") as worker:
            url = sa.make_url(worker).update_query_dict({"schema": "study"}).render_as_string(False)
            spend_all(Ledger(url), "a" * 64)
            assert Ledger(url).verify() == []
            with raw(worker) as connection:
                assert not sa.inspect(connection).has_table("ledger", schema="public")
