"""The released root: published runs, one folder each, that appear whole or not at all.

The private and the released root, which must not overlap, and folders of the private root.
"""

from __future__ import annotations

import contextlib
import re
import secrets
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import filelock

from privsyn.base.errors import RequestError
from privsyn.base.places import make_safe_name
from privsyn.base.settings import Settings
from privsyn.storage.disk import sync, translate_os_errors

_RELEASED_FILE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,120}")


class ZoneError(PermissionError):
    """A private artifact was about to enter the released root."""


class ReleasedRoot:
    """The released folders of one root; ``locks``: the folder of the private root with their locks."""

    def __init__(self, root: Path, locks: Path) -> None:
        """Create the root if it is missing.  Raises PrivsynError if that fails."""
        self.root, self._locks = root, locks
        with translate_os_errors(root):
            root.mkdir(parents=True, exist_ok=True)

    def publish(self, run: str, build: Callable[[Path], None], *, replace: bool = False) -> Path:
        """Let ``build`` fill a folder, then make it ``root/run`` in one rename.

        Leftovers of crashed attempts at the same run are removed first.  If ``build`` fails, nothing is released, and
        an earlier publication stays.  Raises RequestError if the run is already published and ``replace`` is false,
        PrivsynError if the disk refuses.
        """
        target = self.root / make_safe_name(run)
        with self._hold_place(run, target):
            if target.exists() and not replace:
                raise RequestError(f"{target} is already published", "Choose another name, or ask to replace it")
            building = self.root / f".building-{run}-{secrets.token_hex(8)}"
            building.mkdir(mode=0o755)
            try:
                build(building)
                _seal(building)
                self._swap(building, target, run)
            except BaseException:
                shutil.rmtree(building, ignore_errors=True)
                raise
        return target

    def check_place(self, run: str) -> None:
        """Raise RequestError if the path of the run's released folder is a link or a file."""
        place = self.root / make_safe_name(run)
        if place.is_symlink() or (place.exists() and not place.is_dir()):
            raise RequestError(
                f"{place} is a link or a file, but the release's folder belongs there",
                "Move it away: a release is written in the released folder itself, never behind a link",
                "settings.released",
            )

    def recover(self, run: str) -> None:
        """Remove leftovers of killed attempts to publish this run; restore what a killed replacement moved away."""
        with self._hold_place(run, self.root / make_safe_name(run)):
            pass

    @contextlib.contextmanager
    def _hold_place(self, run: str, target: Path) -> Iterator[None]:
        """Lock the run's place in the released root, and clean it of leftovers."""
        with translate_os_errors(target), filelock.FileLock(self._locks / f".publish-{run}.lock"):
            if target.is_symlink() or self.root not in target.resolve().parents:
                raise ZoneError(f"{target} does not lie in the released folder itself")
            self._clean(run, target)
            yield

    def is_building(self, place: Path) -> bool:
        """Return whether the resolved ``place`` is inside a folder of this root that :meth:`publish` is building."""
        return self.root in place.parents and place.relative_to(self.root).parts[0].startswith(".building-")

    def _clean(self, run: str, target: Path) -> None:
        """Remove leftovers of crashed builds of this run; restore what a crashed replacement moved away."""
        leftover = re.compile(rf"\.(building|replaced)-{re.escape(run)}-[0-9a-f]{{16}}")
        for path in list(self.root.iterdir()):
            match = leftover.fullmatch(path.name)
            if not match or path.is_symlink():
                continue
            if match[1] == "replaced" and not target.exists():
                path.rename(target)
            else:
                shutil.rmtree(path)

    def _swap(self, building: Path, target: Path, run: str) -> None:
        old = self.root / f".replaced-{run}-{secrets.token_hex(8)}"
        if target.exists():
            target.rename(old)
        try:
            building.rename(target)
        except OSError:
            if old.exists():
                old.rename(target)
            raise
        sync(self.root)
        shutil.rmtree(old, ignore_errors=True)


def is_released_name(name: str) -> bool:
    """Return whether ``name``, possibly with folders, is a plain name of a file in a released folder."""
    return all(_RELEASED_FILE.fullmatch(part) for part in name.split("/"))


def _seal(folder: Path) -> None:
    """Make the folder readable for everyone and sync it; only plain files and folders are allowed."""
    for path in [*folder.rglob("*"), folder]:
        if path.is_symlink() or not (path.is_file() or path.is_dir()):
            raise ZoneError(f"{path.name} is neither a file nor a folder and cannot be released")
        path.chmod(0o755 if path.is_dir() else 0o644)
        sync(path)


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
