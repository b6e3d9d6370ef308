"""What the registry gets for the scheme of each store."""

from __future__ import annotations

from pathlib import Path

from privsyn.extras.stores.objects import StoredObject, list_objects
from privsyn.storage.stores import CopiedFolder


class ArrowStore:
    """Stores that Arrow reads, and servers by SFTP."""

    def list_files(self, place: str, field: str) -> tuple[StoredObject, ...]:
        """Return the objects of the URL (objects.py)."""
        return list_objects(place, field)

    def copy_released(self, folder: Path, place: str, field: str) -> CopiedFolder:
        """Copy a released folder (released_store.py)."""
        from privsyn.extras.stores.released_store import copy_released

        return copy_released(folder, place, field)

    def fetch_released(self, place: str, field: str) -> Path:
        """Fetch a released folder (released_store.py)."""
        from privsyn.extras.stores.released_store import fetch_released

        return fetch_released(place, field)


STORE = ArrowStore()
