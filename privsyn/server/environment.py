"""The environment of Prefect's programs: address, database, folder, no analytics, and the configured server.

The folder, PREFECT_HOME, and its SQLite files are restricted to one account, even if they exist.
The server's history has the parameters of runs, such as paths of private tables, and the login is beside it.
"""

from __future__ import annotations

import os
import socket
import sys
import time
import urllib.error
import urllib.request
from base64 import b64encode
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from privsyn.base.errors import PrivsynError, RequestError
from privsyn.base.settings import Settings, locate_user_data
from privsyn.server.login import CLIENT, OF_OTHERS, build_client_login, make_login_error
from privsyn.storage.disk import translate_os_errors

if TYPE_CHECKING:
    from prefect.client.orchestration import SyncPrefectClient

POOL = "privsyn"
"""The process pool whose workers run the deployments."""

EVENT_DAYS = 7
"""Days that Prefect keeps events by default."""

HOST, PORT, API = "PREFECT_SERVER_API_HOST", "PREFECT_SERVER_API_PORT", "PREFECT_API_URL"
DATABASE = "PREFECT_SERVER_DATABASE_CONNECTION_URL"

UMASK = 0o077
"""The umask of a server, so that only its account can read its files."""

_DATABASE = "prefect.db"
_BESIDE = ("", "-wal", "-shm", "-journal")
"""Endings of the files of an SQLite database."""


@dataclass(frozen=True)
class Address:
    """The server's listening address (``host``, ``port``) and its public address (``api``)."""

    host: str
    port: int
    api: str

    @classmethod
    def of(cls, variables: Mapping[str, str]) -> Address:
        """Return the address from the environment; default: port 4200 of this computer."""
        host, text = variables.get(HOST) or "127.0.0.1", variables.get(PORT) or "4200"
        if not text.isdecimal() or not 0 < int(text) < 65536:
            raise RequestError(f"{text!r} is not a valid port", "Write a number from 1 to 65535", PORT)
        return cls(host, int(text), (variables.get(API) or _format_api(host, text)).rstrip("/"))

    @property
    def page(self) -> str:
        """The address for a browser."""
        return self.api.removesuffix("/api")

    @property
    def here(self) -> Address:
        """The same server's address for programs on its computer, without a proxy."""
        return Address(self.host, self.port, _format_api(self.host, str(self.port)))

    def check_free(self) -> None:
        """Raise RequestError if another program listens there, or if the address is not on this computer."""
        try:
            family, kind, _, _, place = socket.getaddrinfo(self.host, self.port, type=socket.SOCK_STREAM)[0]
            with socket.socket(family, kind) as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as the server does
                probe.bind(place)
        except socket.gaierror:
            raise RequestError(f"{self.host!r} is not an address of this computer", "Correct it", HOST) from None
        except OSError as error:
            raise RequestError(
                f"port {self.port} of {self.host} is not free ({os.strerror(error.errno or 0)})",
                f"Stop the program that uses it (perhaps a server started earlier), or set {PORT} to another port for "
                "every command",
                PORT,
            ) from None

    def answers(self) -> bool:
        """Return whether a Prefect server answers there and is healthy."""
        try:
            with urllib.request.urlopen(f"{self.api}/health", timeout=5) as answer:  # noqa: S310 - http or https only
                return bool(answer.status == 200)
        except (OSError, ValueError):
            return False

    def admits(self, login: str) -> bool:
        """Return whether the server accepts ``login``; true if it does not answer, which is reported elsewhere."""
        header = {"Authorization": "Basic " + b64encode(login.encode()).decode("ascii")} if login else {}
        request = urllib.request.Request(f"{self.api}/admin/version", headers=header)  # noqa: S310 - http or https only
        try:
            with urllib.request.urlopen(request, timeout=5):  # noqa: S310
                return True
        except urllib.error.HTTPError as error:
            return error.code != 401
        except (OSError, ValueError):
            return True

    def wait(self, seconds: float = 60.0) -> None:
        """Wait for a server to start.  Raises PrivsynError after ``seconds``, or at once if not a web address."""
        if not self.api.startswith(("http://", "https://")):
            raise RequestError(f"{self.api!r} is not a web address", "Write one as http://127.0.0.1:4200/api", API)
        end = time.monotonic() + seconds
        while not self.answers():
            if time.monotonic() > end:
                raise PrivsynError(
                    f"no Prefect server answers at {self.api}",
                    f"Start one with `privsyn server`, or set {API} to the address of the one to use",
                )
            time.sleep(0.2)


def _format_api(host: str, port: str) -> str:
    near = "127.0.0.1" if host == "0.0.0.0" else f"[{host}]" if ":" in host else host  # noqa: S104 - compared
    return f"http://{near}:{port}/api"


def build_prefect_environment(settings: Settings, variables: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return ``variables`` (default: os.environ) with the settings that Prefect's programs need.

    The server's history and Prefect's profiles are in the user's data folder, beside the ledger, so that removing a
    clone loses neither; PRIVSYN_DATABASE_URL puts the history into PostgreSQL.
    """
    environment = dict(os.environ if variables is None else variables)
    address = Address.of(environment)
    programs = f"{Path(sys.executable).parent}{os.pathsep}{environment.get('PATH', os.defpath)}"
    wanted = {
        "DO_NOT_TRACK": "1",
        "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
        "PREFECT_SERVER_UI_SHOW_PROMOTIONAL_CONTENT": "false",
        "PREFECT_HOME": str(locate_user_data() / "prefect"),
        "PREFECT_WORKER_QUERY_SECONDS": "2",
        "PREFECT_SERVER_METRICS_ENABLED": "true",
        "PREFECT_FLOWS_HEARTBEAT_FREQUENCY": "30",
        "PREFECT_SERVER_SERVICES_TASK_RUN_RECORDER_FLUSH_INTERVAL": "1",
        HOST: address.host,
        PORT: str(address.port),
        API: address.api,
    }
    if settings.server_database is not None:
        wanted[DATABASE] = settings.server_database
    if settings.history_days is not None:
        seconds, events = settings.history_days * 86_400, min(settings.history_days, EVENT_DAYS) * 86_400
        wanted |= {
            "PREFECT_SERVER_SERVICES_DB_VACUUM_ENABLED": "events,flow_runs",
            "PREFECT_SERVER_SERVICES_DB_VACUUM_RETENTION_PERIOD": str(seconds),
            "PREFECT_SERVER_EVENTS_RETENTION_PERIOD": f"PT{events}S",
        }
    return {
        **wanted,
        **{name: value for name, value in environment.items() if value or name not in wanted},
        "PATH": programs,
    }


def build_client_auth_env(settings: Settings, environment: Mapping[str, str], address: Address) -> dict[str, str]:
    """Return the variable with a program's login for ``address``.  Raises RequestError if the server refuses it."""
    login = build_client_login(settings, environment, address.api)
    if not address.admits(login.get(CLIENT, "")):
        raise make_login_error(address.api, brought=login.get(CLIENT))
    return login


def open_client(settings: Settings, environment: Mapping[str, str], address: Address) -> SyncPrefectClient:
    """Return a client that is logged in to the server at ``address``.  Sets os.environ, where Prefect reads."""
    os.environ.update({**environment, **build_client_auth_env(settings, environment, address)})
    from prefect.client.orchestration import get_client
    from prefect.context import refresh_global_settings_context

    refresh_global_settings_context()
    return get_client(sync_client=True)


VARIABLES = ("PREFECT_API_URL", "PREFECT_PROFILE", "PREFECT_PROFILES_PATH")


def is_server_configured() -> bool:
    """Return whether PREFECT_API_URL is set: in the environment, in Prefect's active profile, or in its settings files.

    Prefect is loaded only if one of these may name a server.
    """
    if os.environ.get("PREFECT_API_URL"):
        return True
    if not any(map(os.environ.get, VARIABLES)) and not any(map(_names_server, _list_files())):
        return False
    from prefect.settings import PREFECT_API_URL

    return bool(PREFECT_API_URL.value())


def _list_files() -> tuple[Path, ...]:
    home = Path(os.environ.get("PREFECT_HOME") or Path.home() / ".prefect")
    return (home / "profiles.toml", Path("prefect.toml"), Path("pyproject.toml"), Path(".env"))


def _names_server(file: Path) -> bool:
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, ValueError):
        return False
    return "PREFECT_API_URL" in text or "prefect.api" in text or (file.name == "prefect.toml" and "url" in text)


def make_home_private(home: Path, database: str = "") -> None:
    """Create or restrict the folder: mode 0700, and 0600 for the SQLite files of the server's history.

    ``database``: the URL of the history, if set; its file in another folder is restricted too, but not that folder.
    Raises RequestError if the folder or a file belongs to another account and is open to other users.
    """
    with translate_os_errors(home):
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        _restrict(home, 0o700)
        for file in _list_databases(home, database):
            with suppress(FileNotFoundError):
                _restrict(file, 0o600)


def _list_databases(home: Path, database: str) -> Iterator[Path]:
    files = [home / _DATABASE]
    if database.startswith("sqlite"):
        stated = database.partition("?")[0].partition(":///")[2]
        files += [home / stated] if stated and not stated.startswith((":", "file:")) else []
    for file in dict.fromkeys(files):
        yield from (file.with_name(file.name + ending) for ending in _BESIDE)


def _restrict(path: Path, mode: int) -> None:
    """Set ``mode`` on the path if other users have any rights on it."""
    if not path.stat().st_mode & OF_OTHERS:
        return
    try:
        path.chmod(mode)
    except PermissionError:
        raise RequestError(
            f"{path} belongs to another account and is open to other users, and it has to be private",
            "Name a folder of this account, or let its owner take it from others (`chmod go=`)",
            "PREFECT_HOME",
        ) from None
