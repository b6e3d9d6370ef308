"""Whether anything opened or read a file: the kernel is asked (inotify), which sees Python, Arrow and all else."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

_ACCESS, _OPEN = 0x1, 0x20


@contextmanager
def watched(*paths: Path) -> Iterator[Callable[[], int]]:
    """Watch the files; the function says how many bytes of events (opened, read) there have been since."""
    libc = ctypes.CDLL(None, use_errno=True)
    handle = libc.inotify_init1(os.O_NONBLOCK)
    if handle < 0:
        pytest.skip("this kernel has no inotify")
    try:
        for path in paths:
            if libc.inotify_add_watch(handle, os.fsencode(path), _ACCESS | _OPEN) < 0:
                raise OSError(ctypes.get_errno(), "inotify_add_watch", str(path))
        yield lambda: _events(handle)
    finally:
        os.close(handle)


def _events(handle: int) -> int:
    try:
        return len(os.read(handle, 1 << 16))
    except BlockingIOError:
        return 0
