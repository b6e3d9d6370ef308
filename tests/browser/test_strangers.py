"""Who has not the server's login, tried in a real browser: pages of other origins, a name bound anew, a local user."""

from __future__ import annotations

import json
import threading
import urllib.error
import urllib.request
from base64 import b64encode
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.browser.conftest import REBOUND, Place

pytestmark = [pytest.mark.browser, pytest.mark.slow]

ATTACK = """
const [api, run, login, done] = arguments;
const headers = login ? {Authorization: "Basic " + btoa(login)} : {};
const tried = (name, promise) =>
    promise.then(r => [name, r.type === "opaque" ? "opaque" : r.status], () => [name, "failed"]);
const socket = new Promise((yes, no) => {
    const it = new WebSocket(api.replace("http", "ws") + "/events/out", ["prefect"]);
    it.onopen = () => { it.send(JSON.stringify({type: "auth", token: login || null})); };
    it.onmessage = () => yes({status: 101});
    it.onclose = it.onerror = no;
});
const body = JSON.stringify(run);
const json = {...headers, "Content-Type": "application/json"};
Promise.all([
    tried("read", fetch(api + "/admin/settings", {headers})),
    tried("json", fetch(api + run.path, {method: "POST", headers: json, body})),
    tried("simple", fetch(api + run.path, {method: "POST", mode: "no-cors", body: new Blob([body])})),
    tried("socket", socket),
]).then(all => done(Object.fromEntries(all)));
"""


class Elsewhere(BaseHTTPRequestHandler):
    """An empty page of another origin."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Nothing."""


@pytest.fixture(scope="module")
def elsewhere() -> Iterator[str]:
    """The address of a page of another origin on this computer."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Elsewhere) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()
        thread.join()


def command(marker: Path) -> dict[str, Any]:
    """A run whose command, run by the worker, would leave a file: it stands for reading the private key."""
    return {"state": {"type": "SCHEDULED"}, "job_variables": {"command": f"touch {marker}"}}


@pytest.mark.parametrize("login", [False, True], ids=["without the login", "even with it"])
@pytest.mark.parametrize("where", ["another origin", "a name bound anew"])
def test_a_stranger_s_page_reads_nothing_and_starts_nothing(
    place: Place, browser: Any, elsewhere: str, where: str, login: bool
) -> None:
    server = place.server
    page = elsewhere if where == "another origin" else server.page.replace("127.0.0.1", REBOUND) + "/"
    api = server.page + "/api" if where == "another origin" else f"{page}api"
    marker, before = place.folder / "taken", len(server.runs())
    run = {"path": f"/deployments/{place.deployment}/create_flow_run", **command(marker)}
    browser.get(page)
    found = browser.execute_async_script(ATTACK, api, run, server.login if login else "")
    refused = {"read": {"failed", 400}, "json": {"failed", 400}, "simple": {"opaque", 400}, "socket": {"failed"}}
    assert {name: answer for name, answer in found.items() if answer not in refused[name]} == {}
    assert len(server.runs()) == before
    assert not marker.exists()


def status(url: str, content: Any = None, login: str = "", **headers: str) -> int:
    """The status of an answer to a program."""
    data = None if content is None else json.dumps(content).encode()
    shown = {"Authorization": "Basic " + b64encode(login.encode()).decode()} if login else {}
    request = urllib.request.Request(url, data, {"Content-Type": "application/json", **shown, **headers})  # noqa: S310
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:  # noqa: S310 - this computer's
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code


def test_a_local_user_without_the_login_is_not_let_in(place: Place) -> None:
    api, run = f"{place.server.page}/api", f"/deployments/{place.deployment}/create_flow_run"
    for login in ("", "privsyn:", "privsyn:" + "x" * 43, place.server.login[:-1]):
        assert status(f"{api}/admin/settings", login=login) == 401
        assert status(api + run, command(place.folder / "taken"), login) == 401
        assert status(f"{api}/flow_runs/filter", {}, login) == 401
        assert status(f"{api}/metrics", login=login) == 401
    assert status(f"{api}/metrics", login=place.server.login) == 200  # Prefect's own, for Prometheus
    assert status(f"{api}/health") == 200  # what a watchman asks
    file = place.server.folder / "prefect" / "login"
    assert file.stat().st_mode & 0o777 == 0o600


FIELDS: dict[str, Any] = {
    "command": "x",
    "env": {"PRIVSYN_LEDGER": "/elsewhere/ledger.sqlite"},
    "env.PRIVSYN_LEDGER": "/elsewhere/ledger.sqlite",
    "working_dir": "/elsewhere",
    "name": "x",
    "labels": {"a": "b"},
    "stream_output": False,
}


@pytest.mark.parametrize("field", FIELDS)
def test_a_run_with_a_field_of_the_worker_s_is_refused_to_everybody(place: Place, field: str) -> None:
    before = len(place.server.runs())
    asked = {"state": {"type": "SCHEDULED"}, "job_variables": {field: FIELDS[field]}}
    url = f"{place.server.page}/api/deployments/{place.deployment}/create_flow_run"
    assert status(url, asked, place.server.login) == 422
    assert len(place.server.runs()) == before
