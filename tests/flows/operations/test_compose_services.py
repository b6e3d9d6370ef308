"""The compose file's services, run on this computer: their commands, settings, secrets and order, without containers.

PostgreSQL asks for passwords, as it does there.  Addresses, ports, folders and the user differ.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from base64 import b64encode
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pyarrow.parquet as pq
import pytest
import sqlalchemy as sa
from ruamel.yaml import YAML

from privsyn.ledgers.ledger import Ledger
from privsyn.server.deployments_file import write_starter_files
from tests.support import postgres
from tests.support.places import ROOT
from tests.support.prefect_ui import find_free_port
from tests.support.specs import COLUMNS, make_spec, people
from tests.support.tampering import raw

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

SERVICES: dict[str, Any] = YAML(typ="safe").load((ROOT / "deployments" / "compose.yaml").read_text())["services"]
IMAGE = dict(
    re.findall(
        r"([A-Z_]+)=(\S+)",
        re.findall(r"^ENV (.*?[^\\])\n", (ROOT / "deployments" / "Containerfile").read_text(), re.S | re.M)[0],
    )
)
PASSWORDS = {"database_password": "the owner's", "worker_password": "the worker's"}
LOGIN = "privsyn:secret"
DOWN_SECONDS = 6.0


@dataclass
class Site:
    """Where the services run, and the ports that stand for those in the containers."""

    folder: Path
    database: postgres.Cluster
    page: int = field(default_factory=find_free_port)
    health: int = field(default_factory=find_free_port)
    running: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    @property
    def database_port(self) -> str:
        return self.database.settings["port"]

    def place(self, text: str, service: str) -> str:
        """A text of the compose file with this computer's addresses and folders."""
        for old, new in {
            "@database/": f"@127.0.0.1:{self.database_port}/",
            "--host=database": f"--host=127.0.0.1 --port={self.database_port}",
            "/run/secrets": str(self.folder / "secrets"),
            "/ledger_role.sql": str(ROOT / "deployments" / "ledger_role.sql"),
            "//server:4200": f"//127.0.0.1:{self.page}",
            "${PRIVSYN_PORT:-4200}": str(self.page),
            "0.0.0.0": "127.0.0.1",  # noqa: S104 - not opened here
            "8080": str(self.health),
            "/var/lib/privsyn": str(self.folder / service),
            "$$": "$",
        }.items():
            text = text.replace(old, new)
        return re.sub(r"\$\{\w+:-(\w*)\}", r"\1", text)

    def begin(self, name: str) -> subprocess.Popen[bytes]:
        """Start one service."""
        service = SERVICES[name]
        words = [*service.get("entrypoint", []), *service["command"]]
        command = [self.place(word, name) for word in words]
        if command[0] == "privsyn":
            command[0] = str(Path(sys.executable).with_name("privsyn"))
        given = {**IMAGE, **service.get("environment", {})} if service["image"] == "privsyn-flows" else {}
        programs = postgres.programs()
        path = {"PATH": f"{programs}{os.pathsep}{os.environ['PATH']}"}
        environment = path | {key: self.place(str(value), name) for key, value in given.items()}
        if name == "server":
            environment["PREFECT_SERVER_API_PORT"] = str(self.page)  # in the container it is 4200
        with (self.folder / f"{name}.log").open("ab") as log:
            return subprocess.Popen(command, env=environment, cwd=self.folder, stdout=log, stderr=log)

    def finish(self, name: str) -> None:
        """Run one service that ends, which must end well."""
        assert self.begin(name).wait(300) == 0, self.log(name)

    def log(self, name: str) -> str:
        return (self.folder / f"{name}.log").read_text(encoding="utf-8")

    def keep(self, name: str, address: str) -> None:
        """Start one service that runs on, and wait until its health check is content."""
        self.running[name] = self.begin(name)
        self.eventually(lambda: self.answers(address), lambda: self.log(name))

    def answers(self, address: str) -> bool:
        try:
            with urlopen(address, timeout=5) as answer:  # noqa: S310
                return bool(answer.status == 200)
        except OSError:
            return False

    def eventually(self, look: Callable[[], Any], told: Callable[[], str]) -> Any:
        for _ in range(600):
            assert all(process.poll() is None for process in self.running.values()), told()
            if found := look():
                return found
            time.sleep(0.5)
        raise AssertionError(told())

    def ask(self, path: str, content: Any = None) -> Any:
        headers = {"Content-Type": "application/json", "Authorization": "Basic " + b64encode(LOGIN.encode()).decode()}
        data = None if content is None else json.dumps(content).encode()
        request = Request(f"http://127.0.0.1:{self.page}/api{path}", data, headers)
        with urlopen(request, timeout=60) as answer:  # noqa: S310 - this computer's
            return json.load(answer)

    def start_release(self, **changes: Any) -> str:
        spec = make_spec(
            {n: COLUMNS[n] for n in ("age", "region")}, data=str(self.folder / "data" / "people.parquet"), **changes
        )
        deployment = self.ask("/deployments/name/release/any-table")["id"]
        parameters = {"spec": spec.model_dump(mode="json", exclude_defaults=True)}
        return str(self.ask(f"/deployments/{deployment}/create_flow_run", {"parameters": parameters})["id"])

    def end(self, run: str) -> str:
        """The final state of a flow run."""

        def ended() -> str | None:
            try:
                state = str(self.ask(f"/flow_runs/{run}")["state_type"])
            except OSError:  # the server, while its database is away
                return None
            return state if state in ("COMPLETED", "FAILED", "CRASHED", "CANCELLED") else None

        return str(self.eventually(ended, lambda: self.log("server") + self.log("worker")))


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    pytest.importorskip("psycopg", reason="no PostgreSQL driver: install privsyn-flows[postgres]")
    programs = postgres.programs()
    if programs is None or not (programs / "psql").exists():
        pytest.skip("no PostgreSQL: install Debian's package postgresql")
    folder = tmp_path_factory.mktemp("compose")
    (folder / "data").mkdir()
    pq.write_table(people(300).select(["age", "region"]), folder / "data" / "people.parquet")
    (folder / "secrets").mkdir()
    for name, text in {**PASSWORDS, "login": LOGIN}.items():
        (folder / "secrets" / name).write_text(text + "\n")
    write_starter_files(folder)
    for service in SERVICES:
        (folder / service).mkdir()
    with postgres.cluster("scram-sha-256", listen_addresses="127.0.0.1", port=str(find_free_port())) as database:
        made = Site(folder, database)
        with raw(made.database.url) as connection:
            connection.exec_driver_sql("ALTER ROLE privsyn PASSWORD 'the owner''s'")
        with postgres.autocommit(made.database.url) as connection:
            connection.exec_driver_sql("CREATE DATABASE privsyn")
        try:
            made.finish("ledger")
            made.finish("ledger-role")
            made.keep("server", f"http://127.0.0.1:{made.page}/api/health")
            made.keep("worker", f"http://127.0.0.1:{made.health}/health")
            made.finish("deploy")
            yield made
        finally:
            for process in reversed(made.running.values()):
                process.terminate()
                process.wait(60)


def test_a_release_runs_through_all_services(site: Site) -> None:
    assert site.end(site.start_release()) == "COMPLETED", site.log("worker")
    with raw(sa.make_url(site.database.url).set(database="privsyn").render_as_string(False)) as connection:
        tables = "SELECT DISTINCT tableowner FROM pg_tables WHERE schemaname = '{}'"
        assert connection.exec_driver_sql(tables.format("public")).all() == [("privsyn",)]
        assert connection.exec_driver_sql(tables.format("prefect")).all() == [("privsyn_worker",)]
    ledger = Ledger(sa.make_url(site.database.url).set(database="privsyn").render_as_string(False))
    assert ledger.verify() == []
    assert [e.event for e in ledger.entries()].count("spent") == 3


def test_a_restart_of_the_database_ends_no_run(site: Site) -> None:
    """Six seconds, while one release runs and after which another is started."""

    def restart() -> None:
        site.database.stop(signal.SIGINT)
        time.sleep(DOWN_SECONDS)
        site.database.start()

    run = site.start_release(privacy={"epsilon": 0.5, "delta": 1e-9})
    site.eventually(lambda: site.ask(f"/flow_runs/{run}")["state_type"] == "RUNNING", lambda: site.log("worker"))
    thread = threading.Thread(target=restart)
    thread.start()
    thread.join()
    assert site.end(run) == "COMPLETED", site.log("worker")
    assert site.end(site.start_release(privacy={"epsilon": 0.25, "delta": 1e-9})) == "COMPLETED", site.log("worker")
    ledger = Ledger(sa.make_url(site.database.url).set(database="privsyn").render_as_string(False))
    assert ledger.verify() == []
    assert [e.event for e in ledger.entries()].count("spent") == 9


def test_a_parameter_that_no_flow_takes_is_refused_when_the_run_is_created(site: Site) -> None:
    for flow, name in (
        ("release", "any-table"),
        ("scheduled-release", "gss-monthly"),
        ("budget-report", "all-data-sets"),
    ):
        deployment = site.ask(f"/deployments/name/{flow}/{name}")
        assert deployment["parameter_openapi_schema"]["additionalProperties"] is False
        before = site.ask("/flow_runs/count", {})
        with pytest.raises(HTTPError) as refused:
            site.ask(f"/deployments/{deployment['id']}/create_flow_run", {"parameters": {"speck": 3}})
        assert refused.value.code == 409
        said = refused.value.read().decode()
        assert "speck" in said or "required" in said
        assert site.ask("/flow_runs/count", {}) == before


def test_the_command_that_is_printed_works_with_the_login(site: Site) -> None:
    """In a shell that has nothing of the settings."""
    (line,) = [line for line in site.log("deploy").splitlines() if "Start one on the page, or: " in line]
    command = line.partition("or: ")[2]
    assert "release/gss-weekly" in command and LOGIN not in command
    bare = {"PATH": os.environ["PATH"], "HOME": str(site.folder), "DO_NOT_TRACK": "1"}
    done = subprocess.run(["sh", "-c", command], env=bare, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stdout + done.stderr
    deployment = site.ask("/deployments/name/release/gss-weekly")["id"]
    runs = site.ask("/flow_runs/filter", {"deployments": {"id": {"any_": [deployment]}}})
    assert site.end(runs[0]["id"]) == "COMPLETED", site.log("worker")
