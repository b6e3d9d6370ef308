"""Find a release: a local one by its run's name or its path, or one at a URL."""

from __future__ import annotations

from pathlib import Path

from privsyn.base.data_url import is_object_url
from privsyn.base.errors import RequestError
from privsyn.base.paths import expand_path
from privsyn.base.settings import Settings
from privsyn.base.wording import mention
from privsyn.storage.stores import find_store


def find_release(release: str, settings: Settings, field: str) -> Path:
    """Return a release's folder, by its run's name in the released root or by its path; for a URL, a copy.

    Raises RequestError if there is none.
    """
    if is_object_url(release):
        return find_store(release, field).fetch_released(release, field)
    path = expand_path(release, field)
    for folder in (settings.released_root / path, path):
        if (folder / "manifest.json").is_file():
            return folder.absolute()
    raise RequestError(
        f"there is no release {release!r}: no folder with a manifest.json, and no run of that name in "
        f"{settings.released_root}",
        "Name the folder of a release, or a run of the output folder (" + mention("settings.out") + ")",
        field,
    )
