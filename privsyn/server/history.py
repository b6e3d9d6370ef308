"""The server's history in SQLite: every transaction takes the write lock when it begins.

Prefect sets a write-ahead log and lets a statement wait 60 s for the lock, but begins most transactions as readers.
If another connection writes meanwhile, a reader cannot become a writer: SQLite answers "database is locked" without
waiting, and the state, log or event is lost.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

from prefect.server.database import dependencies
from prefect.server.database.configurations import AioSqliteConfiguration
from prefect.server.utilities.database import get_dialect
from prefect.settings import PREFECT_API_DATABASE_CONNECTION_URL


class WaitingSqlite(AioSqliteConfiguration):
    """Prefect's configuration of SQLite, with transactions that wait for each other."""

    @asynccontextmanager
    async def begin_transaction(self, session: Any, with_for_update: bool = False) -> AsyncGenerator[Any, None]:
        """Begin as a writer in every case."""
        async with super().begin_transaction(session, with_for_update=True) as transaction:
            yield transaction


def use_waiting_sqlite() -> None:
    """Make Prefect's server in this process use WaitingSqlite if its history is in SQLite; call before creating it."""
    url = PREFECT_API_DATABASE_CONNECTION_URL.value()
    if get_dialect(url).name == "sqlite":
        dependencies.MODELS_DEPENDENCIES["database_config"] = WaitingSqlite(connection_url=url)
