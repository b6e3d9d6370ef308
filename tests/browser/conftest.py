"""One browser and one server with a worker for all tests of the folder: they are the dearest, and end with it."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from privsyn.data_contracts.release_spec import ReleaseSpec
from privsyn.flows.release import release
from privsyn.ledgers.ledger import Ledger
from tests.support.prefect_ui import Page, Server, server
from tests.support.releases import few
from tests.support.specs import people

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser")
DRIVER = shutil.which("chromedriver")

MOST_EPSILON = 20
"""What the policy allows a release of the table."""

REBOUND = "rebound.example"
"""A name that leads to the loopback address, as one that somebody else bound anew does."""


POLICY = f"""\
datasets:
  people:
    paths: [people.parquet]
    budget: {{epsilon: 1000, delta: 0.01}}
    epsilon: {MOST_EPSILON}
    delta: 0.01
    outputs: [parquet, csv]
"""
"""The operator's policy: all that the tests ask for, but for one that asks for more."""


@pytest.fixture(scope="package")
def browser() -> Iterator[Any]:
    """Headless Chromium; skips without it."""
    webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed: pip install -e '.[dev]'")
    from selenium.webdriver.chrome.service import Service

    if BROWSER is None or DRIVER is None:
        pytest.skip("no browser: install Debian's packages chromium and chromium-driver")
    options = webdriver.ChromeOptions()
    options.binary_location = BROWSER
    for argument in (
        "--headless=new",
        "--no-sandbox",
        "--disable-dev-shm-usage",
        "--window-size=1300,1500",
        f"--host-resolver-rules=MAP {REBOUND} 127.0.0.1",
    ):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(executable_path=DRIVER))  # a given driver: no download
    yield driver
    driver.quit()


@dataclass(frozen=True)
class Place:
    """A server, its deployment of a small table, and the folder with all of it."""

    server: Server
    deployment: str
    folder: Path

    def ledger(self) -> list[dict[str, Any]]:
        """The entries of the server's ledger."""
        return Ledger(self.folder / "ledger.sqlite").export()

    def requested(self, **changes: Any) -> ReleaseSpec:
        """What the deployment asks for, with an option that every mechanism has."""
        return few(str(self.folder / "people.parquet"), synthesis={"seed": 7}, **changes)


@pytest.fixture(scope="package")
def place(browser: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """The server; it is started once there is a browser."""
    folder = tmp_path_factory.mktemp("ui")
    pq.write_table(people(300), folder / "people.parquet")
    (folder / "policy.yaml").write_text(POLICY, encoding="utf-8")
    with server(folder, PRIVSYN_POLICY=str(folder / "policy.yaml")) as running:
        made = Place(running, "", folder)
        spec = made.requested().model_dump(mode="json", exclude_defaults=True)
        deployment = {
            "name": "people",
            "flow_id": running.ask("/flows/", {"name": "release"})["id"],
            "entrypoint": "privsyn.flows.release.release",
            "work_pool_name": "privsyn",
            "parameters": {"spec": spec},
            "parameter_openapi_schema": release.parameters.model_dump(),
            "enforce_parameter_schema": True,
        }
        yield Place(running, running.ask("/deployments/", deployment)["id"], folder)


@pytest.fixture(scope="package")
def page(place: Place, browser: Any) -> Page:
    """The server's page, past its login."""
    found = Page(browser, place.server)
    found.log_in()
    return found
