"""A PostgreSQL server of the tests' own, from Debian's package, on a socket in a folder of its own."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import sqlalchemy as sa

GIVEN = os.environ.get("PRIVSYN_TEST_POSTGRES", "")
"""A server to use instead: a URL whose user may create databases."""

SETTINGS = {"listen_addresses": "", "fsync": "off", "max_connections": "300", "shared_buffers": "16MB"}
"""Reached through its socket only; nothing in it has to survive the machine."""


def programs() -> Path | None:
    """The folder of initdb and postgres, of the newest version that is installed; None where there is none."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda p: int(p.parent.parent.name))
    named = shutil.which("initdb")
    return found[-1].parent if found else Path(named).parent if named else None


@contextmanager
def server() -> Iterator[str]:
    """Start a server, and stop it at the end; its URL.  PostgreSQL refuses root: then it is another user's."""
    if GIVEN:
        yield GIVEN
        return
    folder = Path(tempfile.mkdtemp(prefix="pg-", dir="/tmp"))  # short: a socket has 107 characters
    binaries = programs()
    if binaries is None:
        raise FileNotFoundError("initdb")
    who = _user(folder)
    initdb = [binaries / "initdb", "-D", folder / "data", "-U", "privsyn", "-A", "trust", "-E", "UTF8", "--no-sync"]
    options = [part for name, value in SETTINGS.items() for part in ("-c", f"{name}={value}")]
    try:
        subprocess.run([*initdb, "--locale=C"], check=True, capture_output=True, cwd=folder, **who)
        with (folder / "log").open("w") as log:
            command = [binaries / "postgres", "-D", folder / "data", "-k", folder, *options]
            process = subprocess.Popen(command, stdout=log, stderr=log, cwd=folder, **who)
        try:
            yield _ready(f"postgresql://privsyn@/postgres?host={folder}", process, folder / "log")
        finally:
            process.terminate()  # waits for nobody: every test closes its connections
            process.wait(30)
    finally:
        shutil.rmtree(folder)


@contextmanager
def database(url: str) -> Iterator[str]:
    """A new, empty database on the server; its URL."""
    name = f"privsyn_{uuid.uuid4().hex}"
    engine = sa.create_engine(sa.make_url(url).set(drivername="postgresql+psycopg"), isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.exec_driver_sql(f"CREATE DATABASE {name}")
    try:
        yield sa.make_url(url).set(database=name).render_as_string(hide_password=False)
    finally:
        with engine.connect() as connection:
            connection.exec_driver_sql(f"DROP DATABASE {name} WITH (FORCE)")
        engine.dispose()


def _user(folder: Path) -> dict[str, Any]:
    """Whom the server runs as, for subprocess; the folder becomes that user's."""
    if os.geteuid() != 0:
        return {}
    names = {entry.pw_name: entry for entry in pwd.getpwall()}
    other = names.get("postgres") or names["nobody"]
    os.chown(folder, other.pw_uid, other.pw_gid)
    return {"user": other.pw_uid, "group": other.pw_gid, "extra_groups": []}


def _ready(url: str, process: subprocess.Popen[bytes], log: Path) -> str:
    engine = sa.create_engine(sa.make_url(url).set(drivername="postgresql+psycopg"), poolclass=sa.NullPool)
    for _ in range(600):
        try:
            engine.connect().close()
        except sa.exc.OperationalError:
            if process.poll() is not None:
                break
            time.sleep(0.1)
        else:
            return url
    raise RuntimeError("the PostgreSQL server of the tests does not start: " + log.read_text()[-2_000:])
