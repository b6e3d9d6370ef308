"""Settings of the installation, not of a release: where things are, and how much of the machine to use.

``PRIVSYN_DATABASE_URL`` is one PostgreSQL database for the ledger and Prefect's server.  No message shows the address,
because it may contain a password.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import platformdirs
from pydantic import Field, ValidationError
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from privsyn.base.errors import RequestError
from privsyn.base.places import expand_path, refuse_undecodable
from privsyn.base.wording import mention

if TYPE_CHECKING:
    from sqlalchemy.engine import URL

PREFIX = "PRIVSYN_"


class Settings(BaseSettings):
    """Settings from the environment; arguments override them."""

    model_config = SettingsConfigDict(env_prefix=PREFIX, env_ignore_empty=True, extra="ignore", frozen=True)

    out: Path = Field(default=Path("privsyn-out"), description="Folder that holds both zones.")
    released: Path | None = Field(default=None, description="Root of published runs; default: released/ in `out`.")
    private: Path | None = Field(default=None, description="Root of private artifacts; default: private/ in `out`.")
    released_store: str = Field(
        default="",
        description="Folder of an object store to which each released folder is copied, whole or not at all, such as "
        "s3://bucket/released; keys are in the environment.  Default: none.",
    )
    released_url: str = Field(
        default="",
        pattern=r"^(https?://\S+)?$",
        description="Web address under which the released root is served, for the links of the run page.",
    )
    database_url: str = Field(
        default="",
        repr=False,  # it may hold a password
        description="PostgreSQL URL of one database for the ledger and for Prefect's server.  Default: SQLite files.",
    )
    database_password_file: Path | None = Field(
        default=None, description="File with the password for the database URL, so that it need not stand in it."
    )
    ledger: str = Field(
        default_factory=lambda others: _choose_ledger(others),
        repr=False,
        description="PostgreSQL URL, SQLite URL or path.  Default: the database URL; without one ledger.sqlite in the "
        "user's data folder, so that a data set's cap does not depend on the output folder.",
    )
    dask: str = Field(
        default="",
        pattern=r"^((tcp|tls)://[^\s/@]{1,200}:\d{1,5})?$",
        description="Address of the Dask scheduler that the engine `dask` uses, such as tls://scheduler:8786.  "
        "Default: a cluster on this machine for each run.",
    )
    dask_ca: Path | None = Field(default=None, description="File with the cluster's authority (PEM).")
    dask_certificate: Path | None = Field(default=None, description="File with our certificate for the cluster (PEM).")
    dask_key: Path | None = Field(default=None, description="File with our certificate's key (PEM).")
    dask_public: str = Field(
        default="",
        pattern=r"^((tcp|tls)://[^\s/@]{1,200}:\d{1,5})?$",
        description="Address of a second Dask scheduler, whose workers make synthetic rows and are sent no private "
        "ones.  It is trusted: whoever controls it can run programs where the release runs.  Default: the workers that "
        "count make them.",
    )
    dask_public_folder: Path | None = Field(
        default=None,
        description="Folder of synthetic rows and nothing else, at the same path for the second scheduler's workers.",
    )
    dask_public_ca: Path | None = Field(default=None, description="File with the second cluster's authority (PEM).")
    dask_public_certificate: Path | None = Field(
        default=None, description="File with our certificate for the second cluster (PEM)."
    )
    dask_public_key: Path | None = Field(default=None, description="File with that certificate's key (PEM).")
    dask_wait_minutes: float = Field(
        default=10.0,
        gt=0,
        le=10_080,
        description="Most minutes that a run waits for a Dask cluster without any worker at work. Then the run ends "
        "with a message; the same request continues.",
    )
    policy: Path | None = Field(
        default=None, description="File of the operator's policy: what releases of each data set may ask for."
    )
    login_file: Path | None = Field(
        default=None,
        description="File with the login of Prefect's server, one line.  Default: login in PREFECT_HOME, which the "
        "server makes.",
    )
    history_days: int | None = Field(
        default=None,
        ge=1,
        le=36_500,
        description="Days that the server keeps runs that have ended, with logs and artifacts.  Default: for good.",
    )
    metrics: Path | None = Field(
        default=None,
        description="Folder of the node exporter's textfile collector, for the gauges of a server's runs.",
    )
    traces: str = Field(
        default="",
        pattern=r"^(https?://\S+)?$",
        description="Web address of an OpenTelemetry collector (OTLP over HTTP), such as "
        "http://127.0.0.1:4318/v1/traces, for spans of each release's steps.  Default: none are made.",
    )
    lineage: str = Field(
        default="",
        description="Web address of an OpenLineage receiver, or a file to which its events are added: names of data "
        "sets and of released folders.  Default: none are made.",
    )
    anonymeter: Path | None = Field(
        default=None,
        description="Python interpreter of an environment with the package anonymeter, whose attacks a private report "
        "with a hold-out table then has.  It is given private rows, through a pipe.  Default: no such attacks.",
    )
    threads: int = Field(default=0, ge=0, le=1024, description="Threads for counting and synthesis; 0: all cores.")

    @classmethod
    def settings_customise_sources(
        cls, settings_cls: type[BaseSettings], *sources: PydanticBaseSettingsSource, **named: PydanticBaseSettingsSource
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Read arguments and the environment only; looking for setting files takes time."""
        return named["init_settings"], named["env_settings"]

    def __init__(self, **values: Any) -> None:
        """``values`` override the environment.  Raises RequestError that names the wrong setting."""
        try:
            super().__init__(**values)
        except ValidationError as error:
            first = error.errors()[0]
            name = str(first["loc"][0]) if first["loc"] else "settings"
            description = type(self).model_fields[name].description if name in type(self).model_fields else ""
            raise RequestError(
                f"{first['input']!r} is not valid: {first['msg']}",
                f"Correct it or leave it out ({str(description).rstrip('.')})",
                f"settings.{name}",
            ) from None

    @property
    def released_root(self) -> Path:
        """Absolute path of the released root."""
        return self._choose_root(self.released, "released")

    @property
    def private_root(self) -> Path:
        """Absolute path of the private root."""
        return self._choose_root(self.private, "private")

    def _choose_root(self, chosen: Path | None, name: str) -> Path:
        """Return the root's own setting, or its folder in ``out``; RequestError that names an invalid setting."""
        field = f"settings.{name if chosen else 'out'}"
        if re.match(r"(s3|gs|abfs):/", str(chosen or self.out)):
            problem = "is in an object store, but releases are made in a local folder"
            cure = "Name a folder, and the store as " + mention("settings.released_store") + ": it gets a copy of each"
            raise RequestError(problem, cure, field)
        root = (expand_path(chosen, field) if chosen else expand_path(self.out, field) / name).absolute()
        refuse_undecodable(root, field)
        return root

    @property
    def server_database(self) -> str | None:
        """The database URL's address for Prefect's server; None if it is not set."""
        return check_server_url(self.database_url, self.database_password_file) if self.database_url else None


def load_settings(out: str | Path | None = None) -> Settings:
    """Return the environment's settings, with output folder ``out`` if given.  Raises RequestError like Settings."""
    return Settings() if out is None else Settings(out=expand_path(out, "settings.out").absolute())


def locate_user_data() -> Path:
    """Return the user's data folder, for what must outlive output folders: the ledger and the server's history."""
    return Path(platformdirs.user_data_dir("privsyn"))


def _choose_ledger(others: dict[str, Any]) -> str:
    if others.get("database_url"):
        return check_ledger_url(others["database_url"], others.get("database_password_file"))
    return str(locate_user_data() / "ledger.sqlite")


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
        try:
            text = password_file.read_text(encoding="utf-8").rstrip("\r\n")
        except (OSError, UnicodeDecodeError) as error:
            raise RequestError(
                f"{password_file} cannot be read ({type(error).__name__})", "Name a file", PASSWORD_FIELD
            ) from None
        if not text:
            raise RequestError(f"{password_file} is empty", "Write the password into it", PASSWORD_FIELD)
        url = url.set(password=text)
    return url.set(drivername="postgresql")
