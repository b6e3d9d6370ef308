"""The login of Prefect's server, required by its API and its page.

Anyone with the login can run programs as the worker's account, so protect it like that account.
"""

from __future__ import annotations

import os
import secrets
import stat
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

from privsyn.base.errors import RequestError
from privsyn.base.settings import Settings
from privsyn.base.wording import mention
from privsyn.storage.disk import translate_os_errors

SERVER, CLIENT = "PREFECT_SERVER_API_AUTH_STRING", "PREFECT_API_AUTH_STRING"
"""Prefect's variables: the login that its server requires, and the login that its programs send."""

LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
"""Loopback names of this computer in a web address."""

_USER = "privsyn"
_ANEW = "Remove it and start the server anew: it makes a new one"

OF_OTHERS = stat.S_IRWXG | stat.S_IRWXO
"""The rights of other users on a file."""


def locate_login_file(settings: Settings, environment: Mapping[str, str]) -> Path:
    """Return the file of the login: PRIVSYN_LOGIN_FILE, or ``login`` in PREFECT_HOME."""
    return settings.login_file or Path(environment["PREFECT_HOME"]) / "login"


def make_login() -> str:
    """Return a random login: a user and 256 random bits."""
    return f"{_USER}:{secrets.token_urlsafe(32)}"


def build_server_login(settings: Settings, environment: Mapping[str, str]) -> dict[str, str]:
    """Return a server's variables with its login: from the environment, or from the file, which is made if missing.

    Raises RequestError if the file is empty or other users may read it, PrivsynError if it cannot be made.
    """
    stated_login = environment.get(SERVER) or environment.get(CLIENT)
    if stated_login:
        return {SERVER: stated_login, CLIENT: stated_login}
    file = locate_login_file(settings, environment)
    with translate_os_errors(file):
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        _make(file)
    login = _read(file, private=settings.login_file is None)
    return {SERVER: login, CLIENT: login}


def build_client_login(settings: Settings, environment: Mapping[str, str], api: str) -> dict[str, str]:
    """Return the variable with a program's login for the server at ``api``; empty if no login is known.

    The login of this computer's server is used only on this computer: another server must not learn it.
    """
    stated_login = environment.get(CLIENT)
    if stated_login:
        return {CLIENT: stated_login}
    file = locate_login_file(settings, environment)
    is_own_file = settings.login_file is None
    if is_own_file and (not is_here(api) or not file.is_file()):
        return {}
    return {CLIENT: _read(file, private=is_own_file)}


def make_login_error(api: str, *, brought: str | None) -> RequestError:
    """Return the error that the server at ``api`` does not accept the login ``brought`` (None: no login)."""
    return RequestError(
        f"the Prefect server at {api} " + ("refuses this login" if brought else "asks for a login"),
        "Set it to the server's login, or set " + mention("settings.login_file") + " to the file that holds it",
        CLIENT,
    )


def is_here(api: str) -> bool:
    """Return whether a web address names this computer by a loopback name."""
    host = urlsplit(api).hostname or ""
    return (f"[{host}]" if ":" in host else host) in LOOPBACK


def _make(file: Path) -> None:
    """Create the file atomically, for its owner only; an existing file is kept, even if two servers start at once."""
    if file.exists():
        return
    part = file.with_name(f".{file.name}.{secrets.token_hex(8)}.part")
    try:
        with os.fdopen(os.open(part, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "w", encoding="ascii") as opened:
            opened.write(make_login() + "\n")
        with suppress(FileExistsError):
            os.link(part, file)
    finally:
        part.unlink(missing_ok=True)


def _read(file: Path, *, private: bool) -> str:
    """Return the login in the file.  Raises RequestError if it is not valid, or readable by others if ``private``."""
    try:
        login, mode = file.read_text(encoding="utf-8").strip(), file.stat().st_mode
    except (OSError, UnicodeDecodeError) as error:
        raise RequestError(
            f"{file} cannot be read ({type(error).__name__})",
            _ANEW if private else "Name a copy of the server's file `login`",
            "settings.login_file",
        ) from None
    cure, field = _ANEW, "settings.login_file"
    if private and mode & OF_OTHERS:
        raise RequestError(f"other users may read {file}", cure, field)
    if not login or "\n" in login:
        raise RequestError(f"{file} does not hold one line", cure, field)
    return login
