"""Whether a Prefect server is configured, told without loading Prefect where nothing speaks of one."""

from __future__ import annotations

import os
from pathlib import Path

VARIABLES = ("PREFECT_API_URL", "PREFECT_PROFILE", "PREFECT_PROFILES_PATH")


def is_server_configured() -> bool:
    """Return whether PREFECT_API_URL is set: in the environment, in Prefect's active profile, or in its settings files.

    Prefect itself is asked only where one of these could name a server.
    """
    if os.environ.get("PREFECT_API_URL"):
        return True
    if not any(map(os.environ.get, VARIABLES)) and not any(map(_names_server, _list_files())):
        return False
    from prefect.settings import PREFECT_API_URL

    return bool(PREFECT_API_URL.value())


def _list_files() -> tuple[Path, ...]:
    """Return where Prefect's settings may stand besides the environment."""
    home = Path(os.environ.get("PREFECT_HOME") or Path.home() / ".prefect")
    return (home / "profiles.toml", Path("prefect.toml"), Path("pyproject.toml"), Path(".env"))


def _names_server(file: Path) -> bool:
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, ValueError):
        return False
    return "PREFECT_API_URL" in text or "prefect.api" in text or (file.name == "prefect.toml" and "url" in text)
