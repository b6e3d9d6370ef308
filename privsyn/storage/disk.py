"""Writing files whole or not at all, and translating errors of the operating system."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import shutil
from collections.abc import Iterator
from pathlib import Path

from privsyn.base.errors import PrivsynError

OF_THE_DISK = (errno.ENOSPC, errno.EDQUOT, errno.EIO)
"""Errors that another path would not cure."""

_CURES = {
    errno.ENOSPC: "Free some space and run again: finished steps are kept",
    errno.EDQUOT: "Free some space and run again: finished steps are kept",
    errno.EACCES: "Give this user the right to read and write there",
    errno.EPERM: "Give this user the right to read and write there",
    errno.EROFS: "Choose a folder that can be written",
    errno.ENOENT: "Check that the path is right",
}


@contextlib.contextmanager
def replace_file(target: Path, *, for_good: bool = True) -> Iterator[Path]:
    """Yield a temporary path beside ``target`` that replaces it when the block succeeds; ``for_good``: sync to disk.

    Without ``for_good`` the file survives the process, but not a power failure.
    """
    temporary = target.with_name(f".{target.name}.{secrets.token_hex(8)}.part")
    os.close(os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    try:
        yield temporary
        if for_good:
            sync(temporary)
        temporary.replace(target)
        if for_good:
            sync(target.parent)
    finally:
        temporary.unlink(missing_ok=True)


@contextlib.contextmanager
def replace_folder(target: Path, *, for_good: bool = True) -> Iterator[Path]:
    """Replace a folder of plain files as :func:`replace_file` replaces a file.

    The old folder is removed just before.
    """
    temporary = target.with_name(f".{target.name}.{secrets.token_hex(8)}.part")
    temporary.mkdir(mode=0o700)
    try:
        yield temporary
        for path in (*temporary.iterdir(), temporary) if for_good else ():
            sync(path)
        if target.exists():
            shutil.rmtree(target)
        temporary.rename(target)
        if for_good:
            sync(target.parent)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def remove_parts(folder: Path) -> None:
    """Remove incomplete files and folders of killed writers; the caller holds the lock."""
    with translate_os_errors(folder):
        for path in folder.glob(".*.part"):
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)


def sync(path: Path) -> None:
    """Sync a file's content, or a folder's list of names, to disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextlib.contextmanager
def translate_os_errors(path: Path) -> Iterator[None]:
    """Translate an error of the operating system to PrivsynError: one paragraph with the path and the cure.

    Only errors with a system error number are translated; others (a lock's timeout, our own) pass unchanged.
    """
    try:
        yield
    except OSError as error:
        if error.errno is None:
            raise
        cure = _CURES.get(error.errno, "Check the disk and the path, then run again")
        raise PrivsynError(f"{error.filename or path}: {os.strerror(error.errno)}", cure) from error
