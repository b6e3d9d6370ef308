"""The memory of a process, and imports that do not make it look for garbage.

The usual figure (``ru_maxrss``) also counts the process that started this one; these do not.
"""

from __future__ import annotations

import ctypes
import functools
import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pyarrow as pa


def memory_mb(field: str, process: str = "self") -> float:
    """Return ``VmHWM`` (peak) or ``VmRSS`` (now) of a process in MB (2^20 bytes); NaN if unknown to the system."""
    try:
        lines = Path(f"/proc/{process}/status").read_text(encoding="utf-8").splitlines()
    except OSError:
        return float("nan")
    return next(float(line.split()[1]) / 1024 for line in lines if line.startswith(field))


def forget_peak_memory() -> None:
    """Reset the peak to the current value; no effect if the system does not support it."""
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")


def return_unused_memory() -> None:
    """Return free memory from Arrow and the C library to the system; no effect where they cannot.

    The C library keeps free memory in one arena per thread, more of it the more large arrays come and go.
    """
    pa.default_memory_pool().release_unused()
    _find_trim()(0)


@functools.cache
def _find_trim() -> Callable[[int], object]:
    with suppress(OSError, TypeError, AttributeError):  # absent on Windows and some systems
        trim: Callable[[int], object] = ctypes.CDLL(None).malloc_trim
        return trim
    return lambda keep: None


@contextmanager
def pause_gc() -> Iterator[None]:
    """Pause garbage collection: imports make hundreds of thousands of objects that all stay."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
