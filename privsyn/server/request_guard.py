"""Check Host and Origin against DNS rebinding and CSRF: the server answers only its own names and pages.

In a browser on the same computer, a page of another origin can reach the server's port: Origin reveals it.  A page
whose name is rebound to the loopback address looks like the server's own: Host reveals it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from functools import partial
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from privsyn.server.environment import Address
from privsyn.server.login import LOOPBACK

UI_API = "PREFECT_SERVER_UI_API_URL"
"""Prefect's variable: the API's address for a browser, for example behind a proxy."""

ORIGINS = "PREFECT_SERVER_CORS_ALLOWED_ORIGINS"


def list_own_hosts(variables: Mapping[str, str]) -> list[str]:
    """Return the host names that the server accepts: loopback, its listening address, and its public addresses."""
    address = Address.of(variables)
    named = (urlsplit(url).hostname or "" for url in (address.api, variables.get(UI_API) or address.api))
    return sorted({*LOOPBACK, *(f"[{n}]" if ":" in n else n for n in (address.host, *named) if n)})


def list_own_origins(variables: Mapping[str, str]) -> list[str]:
    """Return the origins of the server's page, or PREFECT_SERVER_CORS_ALLOWED_ORIGINS if it is set."""
    if variables.get(ORIGINS):
        return [origin.strip() for origin in variables[ORIGINS].split(",")]
    address = Address.of(variables)
    others = {_format_origin(address.api), _format_origin(variables.get(UI_API) or address.api)}
    return sorted({*(f"http://{name}:{address.port}" for name in LOOPBACK), *others})


def _format_origin(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}".lower()


class OwnOrigins:
    """Answers 403 to a request or WebSocket with another page's origin.

    Programs send no origin.  Without this check, a browser's "simple" request (a POST without a content type) would be
    executed, and only its answer withheld from the page.
    """

    def __init__(self, app: ASGIApp, origins: list[str]) -> None:
        self._app, self._origins = app, frozenset(origins)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on requests without an origin or with the server's own."""
        origin = Headers(scope=scope).get("origin") if scope["type"] in ("http", "websocket") else None
        if origin is None or origin.lower() in self._origins or "*" in self._origins:
            await self._app(scope, receive, send)
        else:
            await PlainTextResponse("This server answers its own page only.", status_code=403)(scope, receive, send)


CLOSED = frozenset(
    f"{place}/{name}" for place in ("", "/api") for name in ("docs", "docs/oauth2-redirect", "redoc", "openapi.json")
)
"""Descriptions of the API that Prefect shows without a login; neither its page nor its programs need them."""


class OwnPage:
    """Closes CLOSED, and adds a content security policy that blocks all other servers.

    Prefect's page contacts an analytics host even with analytics off.  Some of its scripts and styles are inline, so
    the policy allows inline ones.
    """

    def __init__(self, app: ASGIApp, origins: list[str]) -> None:
        self._app = app
        sockets = [origin.replace("http", "ws", 1) for origin in origins]
        self._policy = "; ".join(
            [
                "default-src 'self'",
                "script-src 'self' 'unsafe-inline' 'unsafe-eval'",
                "style-src 'self' 'unsafe-inline'",
                "img-src 'self' data: blob:",
                "font-src 'self' data:",
                "worker-src 'self' blob:",
                " ".join(["connect-src 'self'", *origins, *sockets]),
                "object-src 'none'",
                "base-uri 'self'",
                "frame-ancestors 'none'",
            ]
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on open paths, with the policy."""
        if scope["type"] == "http" and scope["path"].rstrip("/") in CLOSED:
            await PlainTextResponse("Not found.", status_code=404)(scope, receive, send)
            return

        async def send_with_policy(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message)["Content-Security-Policy"] = self._policy
            await send(message)

        await self._app(scope, receive, send_with_policy)


class FormErrors:
    """Adds to every page the script that lists a run form's missing fields beside its button."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        text = files("privsyn.server").joinpath("run_form.js").read_text(encoding="utf-8")
        self._script = f"<script>\n{text}</script></head>".encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on everything; a page is sent when complete, with the script."""
        if scope["type"] != "http" or "text/html" not in Headers(scope=scope).get("accept", ""):
            await self._app(scope, receive, send)
            return
        scope = {**scope, "headers": [h for h in scope["headers"] if h[0] != b"accept-encoding"]}  # uncompressed
        start: list[Message] = []
        body = bytearray()

        async def send_with_script(message: Message) -> None:
            if message["type"] == "http.response.start" and scope["method"] == "GET" and _is_page(message):
                start.append(message)
            elif not start:
                await send(message)
            else:
                body.extend(message.get("body", b""))
                if not message.get("more_body", False):
                    page = bytes(body).replace(b"</head>", self._script, 1)
                    MutableHeaders(scope=start[0])["content-length"] = str(len(page))
                    await send(start[0])
                    await send({"type": "http.response.body", "body": page})

        await self._app(scope, receive, send_with_script)


def _is_page(start: Message) -> bool:
    headers = Headers(raw=start["headers"])
    return start["status"] == 200 and headers.get("content-type", "").startswith("text/html")


class RunsAtStart:
    """Calls a function once the application has started."""

    def __init__(self, app: ASGIApp, call: Callable[[], None]) -> None:
        self._app, self._call = app, call

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on everything."""
        if scope["type"] != "lifespan":
            await self._app(scope, receive, send)
            return

        async def send_and_call(message: Message) -> None:
            await send(message)
            if message["type"] == "lifespan.startup.complete":
                self._call()

        await self._app(scope, receive, send_and_call)


def guard_app(app: Any, hosts: list[str], origins: list[str]) -> ASGIApp:
    """Return the application behind all checks."""
    guarded = OwnOrigins(OwnPage(app, origins), origins)
    return TrustedHostMiddleware(guarded, allowed_hosts=hosts, www_redirect=False)


def build_uvicorn_command(factory: str, host: str, port: int, log_level: str) -> list[str]:
    """Return the module uvicorn and its arguments, as in Prefect, for an application of this module.

    The folder of installed packages comes first in its path, instead of uvicorn's default, the working folder, whose
    modules may have common names.
    """
    package = find_spec("starlette")
    installed = str(Path(package.origin).parents[1]) if package is not None and package.origin else ""
    at = ["--host", host, "--port", str(port), "--log-level", log_level, "--lifespan", "on"]
    return ["uvicorn", "--app-dir", installed, "--factory", f"{__name__}:{factory}", *at]


def create_app() -> ASGIApp:
    """Return Prefect's server for uvicorn, with its page, alerts and waiting SQLite transactions."""
    from prefect.server.api.server import create_app as prefect_app

    from privsyn.server.alert_service import start_alerts
    from privsyn.server.history import use_waiting_sqlite

    use_waiting_sqlite()
    served = RunsAtStart(prefect_app(final=True), partial(start_alerts, dict(os.environ)))
    return guard_app(FormErrors(served), list_own_hosts(os.environ), list_own_origins(os.environ))


def create_temporary_app() -> ASGIApp:
    """Return Prefect's temporary server, which has no page and so accepts no browser's origin."""
    from prefect.server.api.server import create_app as prefect_app

    from privsyn.server.history import use_waiting_sqlite

    use_waiting_sqlite()
    return guard_app(prefect_app(), list(LOOPBACK), [])
