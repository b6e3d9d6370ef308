"""Transactions of the server's history in SQLite: those that read and then write wait for each other."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
import sqlalchemy as sa
from prefect.server.database import dependencies
from prefect.server.database.configurations import AioSqliteConfiguration
from prefect.settings import PREFECT_API_DATABASE_CONNECTION_URL, temporary_settings

from privsyn.server.history import WaitingSqlite, use_waiting_sqlite

WRITERS, ROUNDS = 3, 20


async def count_refused(configuration: AioSqliteConfiguration) -> tuple[int, int]:
    """Three tasks read a number, let others run, and write it one higher: how often SQLite refused, and the number."""
    engine = await configuration.engine()
    async with engine.connect() as connection:
        await connection.execute(sa.text("CREATE TABLE counter (n INTEGER)"))
        await connection.execute(sa.text("INSERT INTO counter VALUES (0)"))
        await connection.commit()
    refused = 0

    async def write() -> None:
        nonlocal refused
        for _ in range(ROUNDS):
            session = await configuration.session(engine)
            try:
                async with session, configuration.begin_transaction(session):
                    n = (await session.execute(sa.text("SELECT n FROM counter"))).scalar_one()
                    await asyncio.sleep(0.002)
                    await session.execute(sa.text("UPDATE counter SET n = :n"), {"n": n + 1})
            except sa.exc.OperationalError as error:
                assert "database is locked" in str(error)
                refused += 1

    await asyncio.gather(*(write() for _ in range(WRITERS)))
    async with engine.connect() as connection:
        reached = int((await connection.execute(sa.text("SELECT n FROM counter"))).scalar_one())
    await engine.dispose()
    return refused, reached


def test_three_writers_lose_nothing_and_with_prefect_s_own_they_do(tmp_path: Path) -> None:
    ours = asyncio.run(count_refused(WaitingSqlite(connection_url=f"sqlite+aiosqlite:///{tmp_path}/ours.db")))
    assert ours == (0, WRITERS * ROUNDS)
    refused, reached = asyncio.run(
        count_refused(AioSqliteConfiguration(connection_url=f"sqlite+aiosqlite:///{tmp_path}/plain.db"))
    )
    assert refused > 0 and reached + refused == WRITERS * ROUNDS


@pytest.mark.parametrize(
    ("url", "kind"),
    [("sqlite+aiosqlite:////tmp/x.db", WaitingSqlite), ("postgresql+asyncpg://u@h/d", None)],
    ids=["sqlite", "postgresql"],
)
def test_only_a_history_in_sqlite_is_changed(url: str, kind: type | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(dependencies.MODELS_DEPENDENCIES, "database_config", None)
    with temporary_settings({PREFECT_API_DATABASE_CONNECTION_URL: url}):
        use_waiting_sqlite()
    found = dependencies.MODELS_DEPENDENCIES["database_config"]
    assert (None if found is None else type(found)) is kind
