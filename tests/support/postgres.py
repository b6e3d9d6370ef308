"""A PostgreSQL server of the tests' own, from Debian's package, on a socket in a folder of its own."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from tests.support.places import ROOT
from tests.support.tampering import raw

GIVEN = os.environ.get("PRIVSYN_TEST_POSTGRES", "")
"""A server to use instead: a URL whose user may create databases."""

SETTINGS = {"listen_addresses": "", "fsync": "off", "max_connections": "300", "shared_buffers": "16MB"}
"""Reached through its socket only; nothing in it has to survive the machine."""


def programs() -> Path | None:
    """The folder of initdb and postgres, of the newest version that is installed; None where there is none."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda p: int(p.parent.parent.name))
    named = shutil.which("initdb")
    return found[-1].parent if found else Path(named).parent if named else None


@dataclass
class Cluster:
    """A server in a folder of its own, which may be stopped and started.  PostgreSQL refuses root: then another's."""

    folder: Path
    binaries: Path
    settings: Mapping[str, str]
    who: dict[str, Any]
    process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """The URL of its superuser, through its socket."""
        port = f"&port={self.settings['port']}" if "port" in self.settings else ""
        return f"postgresql://privsyn@/postgres?host={self.folder}{port}"

    def start(self) -> None:
        """Start it, and wait until it answers."""
        options = [part for name, value in self.settings.items() for part in ("-c", f"{name}={value}")]
        command = [self.binaries / "postgres", "-D", self.folder / "data", "-k", self.folder, *options]
        with (self.folder / "log").open("a") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log, cwd=self.folder, **self.who)
        _ready(self.url, self.process, self.folder / "log")

    def stop(self, number: int = signal.SIGTERM) -> None:
        """Stop it; SIGTERM waits for who is connected, SIGINT ends their connections."""
        if self.process is not None:
            self.process.send_signal(number)
            self.process.wait(30)
            self.process = None


@contextmanager
def cluster(authentication: str = "trust", **settings: str) -> Iterator[Cluster]:
    """A new server with these settings besides, which is stopped and removed at the end."""
    folder = Path(tempfile.mkdtemp(prefix="pg-", dir="/tmp"))  # short: a socket has 107 characters
    binaries = programs()
    if binaries is None:
        raise FileNotFoundError("initdb")
    made = Cluster(folder, binaries, {**SETTINGS, **settings}, _user(folder))
    initdb = [binaries / "initdb", "-D", folder / "data", "-U", "privsyn", "-E", "UTF8", "--no-sync"]
    checks = ["--auth-local=trust", f"--auth-host={authentication}", "--locale=C"]
    try:
        subprocess.run([*initdb, *checks], check=True, capture_output=True, cwd=folder, **made.who)
        made.start()
        try:
            yield made
        finally:
            made.stop()  # waits for nobody: every test closes its connections
    finally:
        shutil.rmtree(folder)


@contextmanager
def server() -> Iterator[str]:
    """Start a server, and stop it at the end; its URL."""
    if GIVEN:
        yield GIVEN
        return
    with cluster() as made:
        yield made.url


@contextmanager
def owner(url: str) -> Iterator[str]:
    """The URL of a role that owns this database and may make roles, and is no superuser, as on a managed database."""
    name = f"owner_{uuid.uuid4().hex[:8]}"
    database_name = sa.make_url(url).database
    with raw(url) as connection:
        before = connection.exec_driver_sql("SELECT current_user").scalar_one()
        connection.exec_driver_sql(f"CREATE ROLE {name} LOGIN CREATEROLE PASSWORD 'owner'")
        connection.exec_driver_sql(f"ALTER DATABASE {database_name} OWNER TO {name}")
    yield sa.make_url(url).set(username=name, password="owner").render_as_string(False)  # noqa: S106
    with raw(url) as connection:
        connection.exec_driver_sql(f"ALTER DATABASE {database_name} OWNER TO {before}")
        connection.exec_driver_sql(f"DROP OWNED BY {name} CASCADE")
        connection.exec_driver_sql(f"DROP ROLE {name}")


def psql(url: str, script: Path, **variables: str) -> None:
    """Run a script of psql's as the user of ``url``; skips where there is no psql."""
    binaries = programs()
    if binaries is None or not (binaries / "psql").exists():
        pytest.skip("no psql: install Debian's package postgresql")
    options = [f"--set={name}={value}" for name, value in variables.items()]
    command = [binaries / "psql", *options, "--quiet", f"--file={script}", url]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@contextmanager
def worker(url: str, schema: str = "public") -> Iterator[str]:
    """The URL of a role made by deployments/ledger_role.sql, as ``url``'s user; the ledger's tables are there."""
    role, secret = f"worker_{uuid.uuid4().hex[:8]}", "it's a secret"
    for _ in range(2):  # twice is once
        psql(url, ROOT / "deployments" / "ledger_role.sql", role=role, password=secret, schema=schema)
    yield sa.make_url(url).set(username=role, password=secret).render_as_string(False)
    with raw(url) as connection:
        connection.exec_driver_sql(f"GRANT {role} TO CURRENT_USER")
        connection.exec_driver_sql(f"DROP OWNED BY {role} CASCADE")
        connection.exec_driver_sql(f"DROP ROLE {role}")


@contextmanager
def database(url: str) -> Iterator[str]:
    """A new, empty database on the server; its URL."""
    name = f"privsyn_{uuid.uuid4().hex}"
    with autocommit(url) as connection:
        connection.exec_driver_sql(f"CREATE DATABASE {name}")
    try:
        yield sa.make_url(url).set(database=name).render_as_string(hide_password=False)
    finally:
        with autocommit(url) as connection:
            connection.exec_driver_sql(f"DROP DATABASE {name} WITH (FORCE)")


def clear(url: str, database_url: str) -> None:
    """Leave a database as a new one is: making one takes the server as long as many a test."""
    name = sa.make_url(database_url).database
    with autocommit(url) as connection:
        others = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = "
        connection.exec_driver_sql(f"{others} '{name}'")
        connection.exec_driver_sql(f"ALTER DATABASE {name} RESET ALL")
    with autocommit(database_url) as connection:
        kept = "nspname NOT LIKE 'pg\\_%%' AND nspname <> 'information_schema'"
        for schema in connection.exec_driver_sql(f"SELECT nspname FROM pg_namespace WHERE {kept}").scalars().all():
            connection.exec_driver_sql(f'DROP SCHEMA "{schema}" CASCADE')
        connection.exec_driver_sql("CREATE SCHEMA public AUTHORIZATION pg_database_owner")
        connection.exec_driver_sql("GRANT USAGE ON SCHEMA public TO PUBLIC")


@contextmanager
def autocommit(url: str) -> Iterator[Any]:
    """A connection whose statements are no transaction, as those on whole databases must be."""
    engine = sa.create_engine(sa.make_url(url).set(drivername="postgresql+psycopg"), isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        yield connection
    engine.dispose()


def _user(folder: Path) -> dict[str, Any]:
    """Whom the server runs as, for subprocess; the folder becomes that user's."""
    if os.geteuid() != 0:
        return {}
    names = {entry.pw_name: entry for entry in pwd.getpwall()}
    other = names.get("postgres") or names["nobody"]
    os.chown(folder, other.pw_uid, other.pw_gid)
    return {"user": other.pw_uid, "group": other.pw_gid, "extra_groups": []}


def _ready(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    engine = sa.create_engine(sa.make_url(url).set(drivername="postgresql+psycopg"), poolclass=sa.NullPool)
    for _ in range(600):
        try:
            engine.connect().close()
        except sa.exc.OperationalError:
            if process.poll() is not None:
                break
            time.sleep(0.1)
        else:
            return
    raise RuntimeError("the PostgreSQL server of the tests does not start: " + log.read_text()[-2_000:])
