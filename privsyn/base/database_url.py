"""PRIVSYN_DATABASE_URL: one PostgreSQL database for the ledger and Prefect's server.

No message shows the address, because it may contain a password.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from privsyn.base.errors import RequestError
from privsyn.base.wording import mention

if TYPE_CHECKING:
    from sqlalchemy.engine import URL

FIELD, PASSWORD_FIELD = "settings.database_url", "settings.database_password_file"
URL_FORM = "Write postgresql://USER:PASSWORD@HOST/DATABASE"

SHARED_URL_OPTIONS = ("host", "port")
"""URL options that both drivers know by the same name."""
LEDGER_OPTION = "schema"
"""URL option of the ledger alone: the schema of its tables."""
RENAMED_URL_OPTIONS = {"sslmode": "ssl"}
"""Options with another name in the server's driver.  Put a certificate into PGSSLROOTCERT, which both read."""


def check_ledger_url(address: str, password_file: Path | None = None) -> str:
    """Return the ledger's address.  Raises RequestError that names the setting if the address is invalid."""
    return _parse_url(address, password_file).render_as_string(hide_password=False)


def check_server_url(address: str, password_file: Path | None = None) -> str:
    """Return the same database's address for Prefect's server and its driver (asyncpg)."""
    url = _parse_url(address, password_file).difference_update_query([LEDGER_OPTION])
    names = {name: RENAMED_URL_OPTIONS.get(name, name) for name in url.query}
    for name in names:
        if name not in (*SHARED_URL_OPTIONS, *RENAMED_URL_OPTIONS):
            raise RequestError(
                f"Prefect's server cannot take the option {name!r}",
                f"Leave it out, or set {mention('settings.ledger')} and PREFECT_SERVER_DATABASE_CONNECTION_URL instead",
                FIELD,
            )
    query = {names[name]: value for name, value in url.query.items()}
    return url.set(drivername="postgresql+asyncpg", query=query).render_as_string(hide_password=False)


def _parse_url(address: str, password_file: Path | None) -> URL:
    from sqlalchemy.engine import make_url  # here: it loads slowly, and most runs have no such address
    from sqlalchemy.exc import ArgumentError

    try:
        url = make_url(address)
    except (ArgumentError, ValueError):
        raise RequestError("this is not a database URL", URL_FORM, FIELD) from None
    if url.get_backend_name() != "postgresql" or not url.database:
        raise RequestError("this does not name a PostgreSQL database", URL_FORM, FIELD)
    if password_file is not None:
        url = url.set(password=_read_password(password_file))
    return url.set(drivername="postgresql")


def _read_password(path: Path) -> str:
    try:
        text = path.read_text(encoding="utf-8").rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        raise RequestError(f"{path} cannot be read ({type(error).__name__})", "Name a file", PASSWORD_FIELD) from None
    if not text:
        raise RequestError(f"{path} is empty", "Write the password into it", PASSWORD_FIELD)
    return text
