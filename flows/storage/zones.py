"""The two roots: that they are apart, and folders of the private one.

Belongs here: the check that private and released do not overlap, and making private folders for their owner only.
Does not belong here: artifacts (flows/storage/store.py), where the roots are (flows/settings.py).
"""

from __future__ import annotations

from pathlib import Path

from flows.errors import RequestError
from flows.settings import Settings
from flows.storage.disk import in_words


def roots(private: Path, released: Path) -> tuple[Path, Path]:
    """Both roots, resolved; RequestError when one lies inside the other."""
    private, released = Path(private).resolve(), Path(released).resolve()
    if private in (released, *released.parents) or released in private.parents:
        raise RequestError("the private and the released folder overlap", "Choose two separate folders", "private")
    return private, released


def make_private_root(root: Path) -> None:
    """Make the private root, or take over an existing one, for its owner only (mode 0700)."""
    with in_words(root):
        root.mkdir(mode=0o700, parents=True, exist_ok=True)
        root.chmod(0o700)


def private_folder(settings: Settings, *names: str) -> Path:
    """A folder in the private root, made with every folder on the way, for their owner only.

    RequestError where the roots overlap or a name is no plain name of a folder.
    """
    folder, _ = roots(settings.private_root, settings.released_root)
    make_private_root(folder)
    for name in names:
        if Path(name).name != name or "\0" in name or name in ("", ".", ".."):
            raise RequestError(f"{name!r} is no name for a folder", "Choose another name", "private")
        folder = folder / name
        with in_words(folder):
            folder.mkdir(mode=0o700, exist_ok=True)
    return folder
