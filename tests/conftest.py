"""Fixtures shared by all tests: an own output folder and ledger, PostgreSQL, and no telemetry."""

from __future__ import annotations

import gc
import json
import multiprocessing
import os
import shutil
import ssl
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import typer.testing

from tests.support import postgres, repeated_noise
from tests.support.kept import Kept

# Where it is installed, JSON Schema builds a parser of international addresses for a second; no schema here has any.
sys.modules["rfc3987_syntax"] = None  # type: ignore[assignment]
os.environ.update(DO_NOT_TRACK="1", PREFECT_SERVER_ANALYTICS_ENABLED="false", GX_ANALYTICS_ENABLED="false")
# The tables of tests are small, and as many processes as cores test at once: threads in each only wait for each other.
os.environ.setdefault("OMP_NUM_THREADS", "1")  # of NumPy's linear algebra and of Arrow

MEMORY = Path("/dev/shm")  # noqa: S108 - pytest's own folders, made for their owner only
if "TMPDIR" not in os.environ and os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free > 4 * 2**30:
    # Releases wait for the disk at every file that they keep: hundreds of small ones do so for minutes.
    os.environ["TMPDIR"] = tempfile.tempdir = str(MEMORY)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests with a browser or a Prefect server come first: one of the parallel workers has them all and starts one."""
    items.sort(
        key=lambda item: (
            item.get_closest_marker("browser") is None and "prefect_server" not in getattr(item, "fixturenames", ())
        )
    )


def pytest_collectstart() -> None:
    """What is loaded from now on stays, and little of it is garbage: the collector waits for the end."""
    gc.disable()


def pytest_collection_finish() -> None:
    """What is loaded by now stays: the garbage collector need not walk through it after every few hundred objects."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)
    gc.enable()


@pytest.fixture(scope="session", autouse=True)
def noise_of_a_session() -> Iterator[None]:
    """Noise is drawn again as it was: no test fails by chance."""
    with pytest.MonkeyPatch.context() as patch:
        repeated_noise.put_in(patch)
        yield


@pytest.fixture(autouse=True)
def prefect_environment_as_before() -> Iterator[None]:
    """A command that sets variables of Prefect for its own process sets them for one test only."""
    before = {name: value for name, value in os.environ.items() if name.startswith("PREFECT_")}
    yield
    for name in [name for name in os.environ if name.startswith("PREFECT_") and name not in before]:
        del os.environ[name]
    os.environ.update(before)


@pytest.fixture(scope="session", autouse=True)
def one_command_line() -> Iterator[None]:
    """The commands of an app are put together once, and not at every call of a test."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(typer.testing, "_get_command", cache(typer.testing._get_command))
        yield


@pytest.fixture(scope="session", autouse=True)
def one_check_of_a_schema() -> Iterator[None]:
    """A flow's schema is checked against the schema of schemas once, and not at every deployment of a test."""
    if (module := sys.modules.get("prefect.utilities.schema_tools.validation")) is None:
        yield
        return
    check, right = module._VALIDATOR.check_schema, set[str]()

    def check_once(schema: Any, **options: Any) -> None:
        text = json.dumps(schema, sort_keys=True, default=repr)
        if text not in right:
            check(schema, **options)
            right.add(text)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module._VALIDATOR, "check_schema", check_once)
        yield


@pytest.fixture(autouse=True)
def noise_of_a_test(request: pytest.FixtureRequest) -> Iterator[None]:
    """Tests marked ``drawn_noise`` get OpenDP's draws."""
    if request.node.get_closest_marker("drawn_noise") is None:
        yield
        return
    with pytest.MonkeyPatch.context() as patch:
        repeated_noise.take_out(patch)
        yield


@pytest.fixture
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with PRIVSYN_OUT and PRIVSYN_LEDGER pointing into it."""
    for name in ("PRIVSYN_RELEASED", "PRIVSYN_PRIVATE", "PRIVSYN_THREADS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PRIVSYN_OUT", str(tmp_path / "out"))
    monkeypatch.setenv("PRIVSYN_LEDGER", str(tmp_path / "ledger.sqlite"))
    return tmp_path


@pytest.fixture
def save(tmp_path: Path) -> Callable[[pa.Table, str], str]:
    """Write a table as Parquet into the test's folder and return its path."""

    def write(table: pa.Table, name: str = "people.parquet") -> str:
        path = tmp_path / name
        pq.write_table(table, path)
        return str(path)

    return write


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Kept:
    """Where a module's tests begin with one release, each with the folder as that release left it."""
    return Kept(tmp_path_factory.mktemp("kept") / "home")


@contextmanager
def _prefect_server() -> Iterator[str]:
    from prefect.settings import get_current_settings
    from prefect.testing.utilities import prefect_test_harness

    with pytest.MonkeyPatch.context() as environment:
        environment.setenv(
            "PREFECT_SERVER_SERVICES_TASK_RUN_RECORDER_FLUSH_INTERVAL", "1"
        )  # seconds, whole: less is no pause at all
        # Every client reads all certificates of the world, and asks this server without any.
        environment.setattr(ssl, "create_default_context", cache(ssl.create_default_context))
        with prefect_test_harness(server_startup_timeout=120):
            yield str(get_current_settings().api.url)


SERVER = ExitStack()
"""What stops the Prefect server that runs."""

RUNNING = pytest.StashKey[str | None]()
"""Its address, or None."""


@pytest.fixture
def prefect_server(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """A Prefect server with a database of its own; its API's address.

    Its start takes seconds: it runs on as long as the next test asks for it, too, and not idly after that.  Flow runs
    draw their page's picture in this process.
    """
    from tests.support import run_page_pictures

    run_page_pictures.put_in(monkeypatch)
    stash = request.session.stash
    if stash.get(RUNNING, None) is None:
        stash[RUNNING] = SERVER.enter_context(_prefect_server())
    return str(stash[RUNNING])


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """Stop the Prefect server, once the test's own fixtures are gone, unless the next test asks for it."""
    if "prefect_server" not in getattr(nextitem, "fixturenames", ()):
        SERVER.close()
        item.session.stash[RUNNING] = None


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[str]:
    """A PostgreSQL server's URL: one that this starts, or the one in PRIVSYN_TEST_POSTGRES."""
    pytest.importorskip("psycopg", reason="no PostgreSQL driver: install privsyn-flows[postgres]")
    if not postgres.GIVEN and postgres.programs() is None:
        pytest.skip(
            "no PostgreSQL: install Debian's package postgresql, or set PRIVSYN_TEST_POSTGRES to a server's URL"
        )
    with postgres.server() as url:
        yield url


@pytest.fixture(scope="session")
def one_postgres_database(postgres_server: str) -> Iterator[str]:
    """The URL of the database that tests have one after another."""
    with postgres.database(postgres_server) as url:
        yield url


@pytest.fixture
def postgres_database(postgres_server: str, one_postgres_database: str) -> Iterator[str]:
    """An empty PostgreSQL database; its URL."""
    yield one_postgres_database
    postgres.clear(postgres_server, one_postgres_database)


@pytest.fixture(params=["sqlite", "postgresql"])
def ledger_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where a new ledger may be made, once in each kind of database."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/ledger.sqlite"
    return str(request.getfixturevalue("postgres_database"))


@pytest.fixture(scope="session")
def children() -> Any:
    """Processes forked from a server that has made one small release: what is slow the first time is done."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["__main__", "tests.support.warm"])
    return context
