"""Server, worker, deployments and notifications as an operator has them: PostgreSQL, real processes, a webhook."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from base64 import b64encode
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import psutil
import pyarrow.parquet as pq
import pytest
import sqlalchemy as sa

from privsyn.data_contracts.release_spec import ReleaseSpec
from privsyn.flows.states import LEDGER_FAILED
from privsyn.ledgers.ledger import Ledger
from tests.support import postgres
from tests.support.places import ROOT
from tests.support.prefect_ui import find_free_port
from tests.support.specs import make_spec, people, people_with
from tests.support.tampering import raw
from tests.support.user_folder import imported_modules, write_modules_of_common_names
from tests.support.webhook import Told, webhook

CANARY = "zanzibar"
PRIVSYN = str(Path(sys.executable).with_name("privsyn"))

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


@dataclass
class Site:
    """A running server with its worker, its database, and what its webhook was told."""

    folder: Path
    url: str
    api: str
    environment: dict[str, str]
    process: subprocess.Popen[bytes] | None = None
    told: Told = field(default_factory=Told)
    health_port: int = 0

    @property
    def headers(self) -> dict[str, str]:
        """Of a request with the server's login."""
        login = (self.folder / ".local" / "share" / "privsyn" / "prefect" / "login").read_bytes().strip()
        return {"Content-Type": "application/json", "Authorization": "Basic " + b64encode(login).decode("ascii")}

    def ask(self, path: str, content: Any = None) -> Any:
        """One request to the server's REST API."""
        data = None if content is None else json.dumps(content).encode()
        request = Request(self.api + path, data, self.headers)  # noqa: S310
        with urlopen(request, timeout=60) as answer:  # noqa: S310 - this computer's
            return json.load(answer)

    def deploy(self) -> str:
        """What `privsyn deploy` says."""
        done = subprocess.run(
            [PRIVSYN, "deploy"], cwd=ROOT, env=self.environment, capture_output=True, text=True, timeout=300
        )
        assert done.returncode == 0, done.stderr
        return done.stderr

    def deployment(self, flow: str, name: str) -> dict[str, Any]:
        return dict(self.ask(f"/deployments/name/{flow}/{name}"))

    def run(self, flow: str, name: str, **parameters: Any) -> dict[str, Any]:
        """Start a deployment and wait until it has ended; the flow run."""
        made = self.ask(f"/deployments/{self.deployment(flow, name)['id']}/create_flow_run", {"parameters": parameters})
        return dict(self.eventually(lambda: self.ended(made["id"])))

    def ended(self, run: str) -> dict[str, Any] | None:
        found = self.ask(f"/flow_runs/{run}")
        return found if found["state_type"] in ("COMPLETED", "FAILED", "CRASHED", "CANCELLED") else None

    def eventually(self, look: Callable[[], Any]) -> Any:
        for _ in range(600):
            if found := look():
                return found
            assert self.process is None or self.process.poll() is None
            time.sleep(0.5)
        raise AssertionError("it does not happen")

    def artifact(self, key: str) -> str:
        return str(self.ask(f"/artifacts/{key}/latest")["data"])

    def stop(self) -> str:
        """Interrupt it as Ctrl-C does; what it printed."""
        assert self.process is not None
        self.process.send_signal(signal.SIGINT)
        assert self.process.wait(60) == 0
        self.process = None
        return (self.folder / "server.log").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def site(postgres_server: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("site")
    with postgres.database(postgres_server) as url, webhook() as told:
        port = find_free_port()
        kept = {n: v for n, v in os.environ.items() if not n.startswith(("PRIVSYN_", "PREFECT_"))}
        environment = {
            **kept,
            "HOME": str(folder),
            "PREFECT_SERVER_API_PORT": str(port),
            "PRIVSYN_DATABASE_URL": url,
            "PRIVSYN_OUT": str(folder / "out"),
            "PRIVSYN_NOTIFY": told.url,
        }
        write_modules_of_common_names(folder)  # where the worker is started
        made = Site(folder, url, f"http://127.0.0.1:{port}/api", environment, told=told, health_port=find_free_port())
        with (folder / "server.log").open("wb") as log:
            command = [PRIVSYN, "server", "--health-port", str(made.health_port)]
            made.process = subprocess.Popen(command, cwd=folder, env=environment, stdout=log, stderr=log)
        try:
            made.deploy()
            yield made
        finally:
            if made.process is not None:
                made.stop()


@pytest.fixture(scope="module")
def spec(site: Site) -> ReleaseSpec:
    path = site.folder / "people.parquet"
    pq.write_table(people_with(CANARY, 400), path)
    return make_spec(data=str(path), synthesis={"iterations": 2})


def content(spec: ReleaseSpec, **changes: Any) -> dict[str, Any]:
    return {**spec.model_dump(mode="json", exclude_defaults=True), **changes}


def everything(url: str) -> str:
    """Every row of every table of the database, as text."""
    with raw(url) as connection:
        names = sa.inspect(connection).get_table_names()
        rows = [str(list(connection.exec_driver_sql(f'SELECT * FROM "{name}"'))) for name in names]
    return "\n".join(rows)


def test_a_release_is_charged_to_the_ledger_in_the_same_database(site: Site, spec: ReleaseSpec) -> None:
    ended = site.run("release", "any-table", spec=content(spec))
    assert ended["state_name"] == "Completed"
    summary = Ledger(site.url, create=False).summary("people")[0]
    assert summary.entries == 6  # three release steps: reserved, spent
    assert Ledger(site.url).verify() == []
    stored = everything(site.url)
    assert ended["id"] in stored
    assert imported_modules(site.folder) == []
    assert CANARY in Path(spec.data).read_bytes().decode("latin-1")
    assert CANARY not in stored


def test_a_refused_release_is_told_with_the_ledger_s_figures(site: Site, spec: ReleaseSpec) -> None:
    asked = content(spec, dataset="poor", privacy={"epsilon": 20.0, "delta": 1e-9})
    ended = site.run("release", "any-table", spec=asked)
    assert (ended["state_type"], ended["state_name"]) == ("FAILED", "Refused")
    text = site.eventually(lambda: site.told.about("poor"))[0]
    assert "was refused by the budget" in text
    assert ended["state"]["message"] in text
    assert ended["id"] in text  # the link to the run's page


def started(site: Site, name: str, **state: Any) -> str:
    """A run that no worker has, in a state; its ID."""
    flow = site.deployment("release", "any-table")["flow_id"]
    made = site.ask("/flow_runs/", {"flow_id": flow, "name": name, "state": {"type": "SCHEDULED", **state}})
    return str(made["id"])


def test_what_people_should_not_have_to_look_for_is_told(site: Site, spec: ReleaseSpec) -> None:
    pq.write_table(people(150), site.folder / "scarce.parquet")
    scarce = content(
        spec, dataset="scarce", data=str(site.folder / "scarce.parquet"), privacy={"epsilon": 6.0, "delta": 1e-9}
    )
    assert site.run("release", "any-table", spec=scarce)["state_name"] == "Completed"
    _everything_is_told(site)


def _everything_is_told(site: Site) -> None:
    started(site, "tardy", state_details={"scheduled_time": "2026-01-01T00:00:00Z"})
    for name, kind, title in (
        ("ended", "FAILED", None),
        ("torn", "CRASHED", None),
        ("forged", "FAILED", LEDGER_FAILED),
    ):
        state = {"type": kind, "name": title, "message": f"the run {name}"}
        site.ask(f"/flow_runs/{started(site, name)}/set_state", {"state": state, "force": True})
    for words in ("tardy is late", "ended failed", "torn crashed", "forged found a ledger", "budget of scarce is low"):
        assert site.eventually(lambda words=words: site.told.about(words))
    (scarce,) = site.told.about("budget of scarce is low")
    assert scarce.count("like the last one") == 1


def test_the_worker_says_that_it_asks_for_runs(site: Site) -> None:
    def answers() -> bool:
        with suppress(OSError):
            return urlopen(f"http://127.0.0.1:{site.health_port}/health", timeout=10).status == 200
        return False

    assert site.eventually(answers)


def test_the_gauges_are_among_the_server_s_metrics(site: Site) -> None:
    request = Request(f"{site.api}/metrics", headers=site.headers)  # noqa: S310
    with urlopen(request, timeout=60) as answer:  # noqa: S310 - this computer's
        said = answer.read().decode()
    for sample in (
        'privsyn_run_failures_total{dataset="poor",flow="release",state="Refused"} 1.0',
        'privsyn_last_success_timestamp_seconds{dataset="scarce"}',
        'privsyn_budget_left_releases{dataset="scarce"} ',
    ):
        assert sample in said, sample


def test_the_webhook_s_address_is_kept_as_a_secret(site: Site) -> None:
    assert "secret-token" not in everything(site.url)
    assert "secret-token" not in json.dumps(site.ask("/block_documents/filter", {}))


def test_the_budget_report_shows_the_ledger(site: Site, spec: ReleaseSpec) -> None:
    assert site.run("budget-report", "all-data-sets")["state_name"] == "Completed"
    (row,) = [r for r in json.loads(site.artifact("budgets")) if r["data set"] == "people"]
    summary = Ledger(site.url).summary("people")[0]
    assert row["epsilon used"] == f"{summary.epsilon:.4g} of {summary.cap.epsilon:g}"
    assert "no problem found" in site.artifact("budget-report")


def test_a_comparison_shows_no_figure(site: Site, spec: ReleaseSpec) -> None:
    quick = {"range_queries": 20, "nist_schemas": 5, "nist_queries": 5, "attack_rows": 20}
    asked = {"spec": content(spec), "methods": ["independent"], "epsilons": [1.0], "seeds": 1, "settings": quick}
    assert site.run("compare", "methods-on-a-table", **asked)["state_name"] == "Completed"
    (results,) = (site.folder / "out" / "private" / "compare").glob("*/results.json")
    figures = [m["value"] for r in json.loads(results.read_text())["runs"] for m in r["metrics"]]
    shown = [repr(f)[:8] for f in figures if isinstance(f, float) and len(repr(f)) > 8]
    assert len(shown) > 3
    stored = everything(site.url)
    assert str(results.parent) in stored
    assert [f for f in shown if f in stored] == []
    assert CANARY not in stored


def program(site: Site, words: str) -> psutil.Process:
    """The program of the server's command whose command line has these words; waited for."""
    assert site.process is not None
    command = psutil.Process(site.process.pid)

    def found() -> psutil.Process | None:
        return next((p for p in command.children() if words in " ".join(p.cmdline())), None)

    return site.eventually(found)  # type: ignore[no-any-return]


def process_of(run: str) -> psutil.Process:
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if process.environ().get("PREFECT__FLOW_RUN_ID") == run:
                return process
    raise AssertionError("the run has no process")


def test_what_is_killed_starts_again_takes_nothing_with_it_and_leaves_no_run_running(
    site: Site, spec: ReleaseSpec
) -> None:
    server, worker = program(site, "create_app"), program(site, "work_pool")
    asked = {"spec": content(spec), "methods": ["independent"], "epsilons": [1.0], "seeds": 1_000}
    deployment = site.deployment("compare", "methods-on-a-table")["id"]
    made = site.ask(f"/deployments/{deployment}/create_flow_run", {"parameters": asked})["id"]
    site.eventually(lambda: site.ask(f"/flow_runs/{made}")["state_name"] == "Running")
    run = process_of(made)
    worker.kill()
    run.kill()
    assert site.eventually(lambda: site.ended(made))["state_name"] == "Crashed"
    assert "Its process is gone" in site.ask(f"/flow_runs/{made}")["state"]["message"]
    assert program(site, "work_pool").pid != worker.pid
    assert program(site, "create_app") == server and server.is_running()
    worker = program(site, "work_pool")
    server.kill()

    def answers() -> bool:
        with suppress(OSError):
            return bool(site.ask("/flow_runs/count", {}))
        return False

    site.eventually(answers)
    assert program(site, "create_app").pid != server.pid
    assert worker.is_running()


def test_an_interrupt_stops_both_and_nothing_is_lost(site: Site, spec: ReleaseSpec) -> None:
    """Last: it stops the server, and starts it again.  A run that is cut short says so."""
    asked = {"spec": content(spec), "methods": ["independent"], "epsilons": [1.0], "seeds": 1_000}
    deployment = site.deployment("compare", "methods-on-a-table")["id"]
    made = site.ask(f"/deployments/{deployment}/create_flow_run", {"parameters": asked})
    site.eventually(lambda: site.ask(f"/flow_runs/{made['id']}")["state_name"] == "Running")
    count = site.ask("/flow_runs/count", {})
    assert "privsyn: stopped." in site.stop()
    with socket.socket() as probe:
        assert probe.connect_ex(("127.0.0.1", int(site.environment["PREFECT_SERVER_API_PORT"]))) != 0
    with (site.folder / "server.log").open("wb") as log:
        command = [PRIVSYN, "server", "--no-worker"]
        site.process = subprocess.Popen(command, cwd=site.folder, env=site.environment, stdout=log, stderr=log)
    site.eventually(lambda: "The page:" in (site.folder / "server.log").read_text())
    assert site.ask("/flow_runs/count", {}) == count
    ended = site.eventually(lambda: site.ended(made["id"]))  # by the server, once it has started
    assert ended["state_name"] == "Crashed"
