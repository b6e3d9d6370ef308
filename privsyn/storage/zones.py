"""The private and the released root, which must not overlap, and folders of the private root."""

from __future__ import annotations

from pathlib import Path

from privsyn.base.errors import RequestError
from privsyn.base.settings import Settings
from privsyn.storage.disk import translate_os_errors


def get_roots(private: Path, released: Path) -> tuple[Path, Path]:
    """Return both roots, resolved.  Raises RequestError if one lies inside the other."""
    private, released = Path(private).resolve(), Path(released).resolve()
    if overlap(private, released):
        raise RequestError(
            "the private and the released folder overlap", "Choose two separate folders", "settings.private"
        )
    return private, released


def overlap(one: Path, other: Path) -> bool:
    """Return whether two folders are equal, or one is inside the other; links are followed."""
    one, other = one.resolve(), other.resolve()
    return one.is_relative_to(other) or other.is_relative_to(one)


def make_private_root(root: Path) -> None:
    """Make the private root, or take over an existing one, accessible only to its owner (mode 0700)."""
    with translate_os_errors(root):
        root.mkdir(mode=0o700, parents=True, exist_ok=True)
        root.chmod(0o700)


def locate_private_folder(settings: Settings, *names: str) -> Path:
    """Return a folder in the private root, created with its parents, accessible only to the owner.

    Raises RequestError if the roots overlap or a name is not a plain folder name.
    """
    folder, _ = get_roots(settings.private_root, settings.released_root)
    make_private_root(folder)
    for name in names:
        if Path(name).name != name or "\0" in name or name in ("", ".", ".."):
            raise RequestError(f"{name!r} is not a name for a folder", "Choose another name", "settings.private")
        folder = folder / name
        with translate_os_errors(folder):
            folder.mkdir(mode=0o700, exist_ok=True)
    return folder
