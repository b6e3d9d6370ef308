"""Which requests reach Prefect's server: those of its own names and of its own page."""

from __future__ import annotations

from pathlib import Path

import pytest
from starlette.applications import Starlette
from starlette.middleware.gzip import GZipMiddleware
from starlette.responses import HTMLResponse, PlainTextResponse
from starlette.routing import Route, WebSocketRoute
from starlette.testclient import TestClient
from starlette.types import ASGIApp
from starlette.websockets import WebSocket, WebSocketDisconnect

from privsyn.server import request_guard
from privsyn.server.request_guard import FormErrors, guard_app, list_own_hosts, list_own_origins

VARIABLES = {"PREFECT_SERVER_API_PORT": "4200"}
PAGE, SOCKET = "http://127.0.0.1:4200", "ws://127.0.0.1:4200/out"


def inner() -> ASGIApp:
    async def answer(_: object) -> PlainTextResponse:
        return PlainTextResponse("inside")

    async def talk(socket: WebSocket) -> None:
        await socket.accept()
        await socket.send_text("inside")
        await socket.close()

    return Starlette(routes=[Route("/", answer, methods=["GET", "POST"]), WebSocketRoute("/out", talk)])


def client(app: ASGIApp) -> TestClient:
    return TestClient(app, base_url=PAGE)


@pytest.fixture
def server() -> TestClient:
    return client(guard_app(inner(), list_own_hosts(VARIABLES), list_own_origins(VARIABLES)))


@pytest.mark.parametrize("host", ["127.0.0.1:4200", "localhost:4200", "[::1]:4200", "LOCALHOST:9"])
def test_its_own_names_are_answered(server: TestClient, host: str) -> None:
    assert server.get("/", headers={"host": host}).text == "inside"


@pytest.mark.parametrize(
    "host", ["rebound.example:4200", "127.0.0.1.example", "127.0.0.1@evil", "", "[::2]", "localhost.", "127.0.0.1 evil"]
)
def test_another_name_is_not(server: TestClient, host: str) -> None:
    assert server.get("/", headers={"host": host}).status_code == 400
    assert client(inner()).get("/", headers={"host": host}).status_code == 200  # without the guard


@pytest.mark.parametrize("origin", [PAGE, "http://localhost:4200", None])
def test_its_own_page_and_programs_are_answered(server: TestClient, origin: str | None) -> None:
    headers = {} if origin is None else {"origin": origin}
    assert server.post("/", headers=headers).text == "inside"
    with server.websocket_connect(SOCKET, headers=headers) as socket:
        assert socket.receive_text() == "inside"


@pytest.mark.parametrize(
    "origin", ["null", "http://evil.example", "http://127.0.0.1:4201", "https://127.0.0.1:4200", ""]
)
def test_a_page_of_another_origin_is_not(server: TestClient, origin: str) -> None:
    assert server.post("/", headers={"origin": origin}).status_code == 403
    with pytest.raises(WebSocketDisconnect), server.websocket_connect(SOCKET, headers={"origin": origin}):
        pass
    assert client(inner()).post("/", headers={"origin": origin}).text == "inside"  # without the guard


def test_the_addresses_for_others_are_its_own_too() -> None:
    behind = {
        **VARIABLES,
        "PREFECT_SERVER_API_HOST": "0.0.0.0",  # noqa: S104 - not listened to
        "PREFECT_API_URL": "http://server:4200/api",
        "PREFECT_SERVER_UI_API_URL": "https://privsyn.example.org/api",
    }
    assert {"server", "privsyn.example.org", "127.0.0.1"} <= set(list_own_hosts(behind))
    assert {"http://server:4200", "https://privsyn.example.org", PAGE} <= set(list_own_origins(behind))
    assert list_own_origins(
        {**behind, "PREFECT_SERVER_CORS_ALLOWED_ORIGINS": "https://a.example, https://b.example"}
    ) == [
        "https://a.example",
        "https://b.example",
    ]


@pytest.mark.parametrize("factory", ["create_app", "create_temporary_app"])
def test_prefect_s_application_stands_behind_the_doors(factory: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("prefect.server.api.server.create_app", lambda **_: inner())
    for name in (
        "PREFECT_API_URL",
        request_guard.UI_API,
        request_guard.ORIGINS,
        "PREFECT_SERVER_API_HOST",
        "PREFECT_SERVER_API_PORT",
    ):
        monkeypatch.delenv(name, raising=False)
    app = client(getattr(request_guard, factory)())
    assert app.get("/").text == "inside"
    assert app.get("/", headers={"host": "rebound.example"}).status_code == 400
    assert app.get("/", headers={"origin": "http://evil.example"}).status_code == 403
    own_page = app.get("/", headers={"origin": PAGE}).status_code
    assert own_page == (200 if factory == "create_app" else 403)  # the temporary server has no page


def test_uvicorn_does_not_look_into_the_working_folder() -> None:
    command = request_guard.build_uvicorn_command("create_app", "127.0.0.1", 4200, "warning")
    folder = Path(command[command.index("--app-dir") + 1])
    assert (folder / "starlette").is_dir() and (folder / "prefect").is_dir()


@pytest.mark.parametrize("path", sorted(request_guard.CLOSED))
def test_descriptions_of_the_api_are_closed(path: str) -> None:
    async def answer(_: object) -> PlainTextResponse:
        return PlainTextResponse("inside")

    app = Starlette(routes=[Route(path, answer), Route(f"{path}x", answer)])
    guarded = client(guard_app(app, list_own_hosts(VARIABLES), list_own_origins(VARIABLES)))
    assert [guarded.get(asked).status_code for asked in (path, f"{path}/", f"{path}x")] == [404, 404, 200]


def test_a_browser_is_told_that_the_page_talks_to_its_own_server_only(server: TestClient) -> None:
    policy = server.get("/").headers["content-security-policy"]
    assert "default-src 'self'" in policy and "https:" not in policy
    (connect,) = [part for part in policy.split("; ") if part.startswith("connect-src")]
    assert {"'self'", PAGE, PAGE.replace("http", "ws")} <= set(connect.split())


def test_a_page_has_the_script_of_the_run_form_and_everything_else_goes_out_as_it_is() -> None:
    page = f"<html><head></head><body>{'x' * 2000}</body></html>"

    async def show(_: object) -> HTMLResponse:
        return HTMLResponse(page)

    async def answer(_: object) -> PlainTextResponse:
        return PlainTextResponse("</head>")

    packed = GZipMiddleware(Starlette(routes=[Route("/page", show), Route("/text", answer)]))  # as Prefect's
    browser = client(FormErrors(packed))
    shown = browser.get("/page", headers={"accept": "text/html", "accept-encoding": "gzip"})
    assert "privsyn-errors" in shown.text and shown.text.endswith(page[-2020:])
    assert int(shown.headers["content-length"]) == len(shown.content)
    assert browser.get("/page", headers={"accept": "*/*"}).text == page
    assert browser.get("/text", headers={"accept": "text/html"}).text == "</head>"
    assert browser.head("/page", headers={"accept": "text/html"}).status_code == 200
