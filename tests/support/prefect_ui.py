"""Prefect's UI as a person sees it: a server and a worker of one's own, and a page that can be read and typed into."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from base64 import b64encode
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.support.places import ROOT

PATIENCE = 240
"""Seconds that a server, a run or a page may take on a busy machine."""


def eventually(look: Callable[[], Any], what: str, patience: float = PATIENCE) -> Any:
    """The first truthy answer of ``look``; a server that does not answer in time is asked again."""
    end = time.monotonic() + patience
    while time.monotonic() < end:
        with suppress(OSError):
            found = look()
            if found:
                return found
        time.sleep(0.3)
    raise AssertionError(f"{what} did not come")


@dataclass(frozen=True)
class Server:
    """Prefect's server with a worker: its address, its API, and the login that both ask for."""

    page: str
    folder: Path

    @property
    def login(self) -> str:
        """The login that the server made; empty before."""
        file = self.folder / "prefect" / "login"
        return file.read_text(encoding="utf-8").strip() if file.exists() else ""

    def ask(self, path: str, content: Any = None) -> Any:
        """GET, or POST of ``content``, as JSON; asked again where the server's database was locked (it did nothing)."""
        data = None if content is None else json.dumps(content).encode()
        shown = "Basic " + b64encode(self.login.encode()).decode("ascii")
        headers = {"content-type": "application/json", "authorization": shown}
        request = urllib.request.Request(f"{self.page}/api{path}", data, headers)  # noqa: S310 - http
        end = time.monotonic() + PATIENCE
        while True:
            try:
                with urllib.request.urlopen(request, timeout=120) as answer:  # noqa: S310
                    return json.load(answer)
            except urllib.error.HTTPError as error:
                if error.code != 503 or time.monotonic() > end:
                    raise
                time.sleep(1)

    def runs(self) -> list[dict[str, Any]]:
        """All flow runs, oldest first."""
        return list(self.ask("/flow_runs/filter", {"sort": "EXPECTED_START_TIME_ASC"}))

    def ended(self, run: str) -> str:
        """Wait for the flow run; the name of its last state."""
        final = {"COMPLETED", "FAILED", "CRASHED", "CANCELLED"}

        def state() -> Any:
            now = self.ask(f"/flow_runs/{run}")["state"]
            return now["name"] if now["type"] in final else None

        return str(eventually(state, f"the end of the run {run}"))


def find_free_port() -> int:
    """A port of the loopback address that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def server(folder: Path, working: Path = ROOT, **settings: str) -> Iterator[Server]:
    """`privsyn server` on a free port, with its history, ledger and files in ``folder``; stopped at the end.

    ``working``: the folder where it is started; ``settings``: further variables of its environment.
    """
    port = find_free_port()
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("PREFECT_", "PRIVSYN_"))}
    environment = {
        **kept,
        "PREFECT_HOME": str(folder / "prefect"),
        "PREFECT_SERVER_API_PORT": str(port),
        "PREFECT_SERVER_DATABASE_TIMEOUT": "60",  # seconds that a statement may wait for the file's lock
        "PRIVSYN_OUT": str(folder / "out"),
        "PRIVSYN_LEDGER": str(folder / "ledger.sqlite"),
        **settings,
    }
    with (folder / "server.log").open("wb") as log:
        command = [sys.executable, "-m", "privsyn.cli", "server"]
        process = subprocess.Popen(
            command,
            cwd=working,
            env=environment,
            stdout=log,
            stderr=log,
            preexec_fn=partial(signal.signal, signal.SIGINT, signal.SIG_DFL),  # a background job ignores it
        )
    found = Server(f"http://127.0.0.1:{port}", folder)

    def works() -> bool:
        assert process.poll() is None, (folder / "server.log").read_text()
        return bool(found.ask("/work_pools/privsyn/workers/filter", {}))

    try:
        eventually(works, "the worker")
        yield found
    finally:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            process.kill()


class Page:
    """A browser's page of the server."""

    def __init__(self, driver: Any, server: Server) -> None:
        self.driver, self.server = driver, server

    def open(self, path: str) -> None:
        """Go to a page of the UI."""
        self.driver.get(self.server.page + path)

    def log_in(self) -> None:
        """Answer the page that asks for the login, as a person does."""
        self.open("/login")
        box = eventually(lambda: self.driver.find_elements("css selector", "input"), "the question for the login")[0]
        box.send_keys(self.server.login)
        self.photograph(self.server.folder / "login.png")
        box.send_keys("\ue007")  # Enter
        eventually(lambda: "/login" not in self.driver.current_url, "the page behind the login")

    def text(self) -> str:
        """All words on the page."""
        return str(self.driver.find_element("tag name", "body").text)

    def says(self, *words: str) -> str:
        """Wait until the page has all of these words; all of its words."""

        def all_there() -> Any:
            text = self.text()
            return text if all(w in text for w in words) else None

        try:
            return str(eventually(all_there, "the words"))
        except AssertionError:
            text = self.text()
            missing = [w for w in words if w not in text]
            pytest.fail(f"the page lacks {missing}: {text[:3000]}")

    def field(self, *path: str) -> Any:
        """A field of the run form by its labels, from the outermost inwards."""
        look = """
            let found = null;
            for (const name of arguments[0]) {
                found = [...document.querySelectorAll('.schema-form-property')].find(e => {
                    const label = e.querySelector('.schema-form-property__label');
                    return label && label.innerText.replace(' (Optional)', '').trim() === name
                        && e.parentElement.closest('.schema-form-property') === found;
                });
                if (!found) return null;
            }
            return found;"""
        return eventually(lambda: self.driver.execute_script(look, list(path)), f"the field {path}")

    def write(self, value: str, *path: str) -> None:
        """Type into a field in the place of what is there."""
        box = self.field(*path).find_element("css selector", "input,textarea")
        box.clear()
        box.send_keys(value, "\ue004")  # Tab

    def choices(self, *path: str) -> list[str]:
        """The choices of a field's drop-down."""
        options = self.field(*path).find_elements("css selector", "select option")
        return [str(o.get_attribute("value")) for o in options]

    def choose(self, value: str, *path: str) -> None:
        """Choose from a field's drop-down."""
        self.field(*path).find_element("css selector", f"select option[value='{value}']").click()

    def shown(self, *path: str) -> str:
        """What stands in a field or is chosen in its drop-down; empty for nothing."""
        box = self.field(*path).find_element("css selector", "input,textarea,select")
        return str(box.get_attribute("value") or "")

    def submit(self) -> None:
        """Press the form's button."""
        self.driver.find_element("css selector", "button[type=submit]").click()

    def tab(self, name: str) -> None:
        """Open a tab of a flow run's page."""
        look = "return [...document.querySelectorAll('li.p-tab')].find(e => e.innerText.trim() === arguments[0])"
        eventually(lambda: self.driver.execute_script(look, name), f"the tab {name}").click()

    def drawn(self) -> list[int]:
        """Widths of the pictures that were drawn in an artifact."""
        return [int(w) for w in self.driver.execute_script("return [...document.images].map(i => i.naturalWidth)")]

    def photograph(self, path: Path) -> None:
        """What the page looks like, as PNG."""
        self.driver.save_screenshot(str(path))
