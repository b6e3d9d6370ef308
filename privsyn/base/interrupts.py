"""Deliver Ctrl-C and SIGTERM where they do no harm.

Python raises KeyboardInterrupt wherever the main thread is.  Inside the import machinery, the exception can leave the
import lock held forever: Python drops an exception raised in a callback of that machinery.  The program then runs on,
and the first thread that imports anything waits forever.  So signals are noted first.  They are delivered outside
imports and, during a run, at the run's own checks between steps, queries and batches.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from queue import SimpleQueue
from types import FrameType
from typing import TypeVar

GRACE = 3.0
"""Seconds after which a signal is delivered even without a check by the run, or during a long import."""

_AGAIN = 0.1
"""Seconds before retrying a signal that arrived during an import."""

Item = TypeVar("Item")


class _Deferred:
    """Deferred signals, and the handlers that get them ``grace`` seconds later at most (0: after an import)."""

    def __init__(self, grace: float) -> None:
        numbers = (signal.SIGINT, signal.SIGTERM)
        self.handlers = {n: h for n in numbers if callable(h := signal.getsignal(n)) and not isinstance(h, int)}
        self.grace, self.since, self.closed = grace, 0.0, False
        self.waiting: list[int] = []
        self.changed: SimpleQueue[None] = SimpleQueue()  # lock-free: a handler may put while the main thread does
        self.ended = threading.Event()
        self.watcher = threading.Thread(target=self.resend, name="deferred interrupts", daemon=True)

    def note(self, number: int, frame: FrameType | None) -> None:
        """Note a first signal; deliver it at once if there is nothing to wait for, or another signal is waiting."""
        first = not self.waiting
        if first:
            self.since = time.monotonic()
            self.waiting.append(number)
        if self.closed:
            return
        if (first and self.grace > 0) or _is_importing(frame, or_loading=time.monotonic() - self.since < GRACE):
            self.changed.put(None)
            return
        self.waiting.clear()
        self.handlers[signal.Signals(number)](number, frame)

    def deliver(self) -> None:
        """Call the handlers of the waiting signals."""
        while self.waiting:
            number = self.waiting.pop(0)
            self.handlers[signal.Signals(number)](number, None)

    def resend(self) -> None:
        """Resend a waiting signal until it is delivered; ends with the block."""
        while not self.ended.is_set():
            self.changed.get()
            delay = self.grace or _AGAIN
            while not self.ended.wait(delay) and self.waiting:
                signal.pthread_kill(threading.main_thread().ident or 0, self.waiting[0])
                delay = _AGAIN

    def close(self) -> None:
        """Restore the handlers, and deliver the waiting signals."""
        self.closed = True
        self.ended.set()
        self.changed.put(None)
        self.watcher.join()  # its last signal is noted by now
        for number, handler in self.handlers.items():
            signal.signal(number, handler)
        self.deliver()


def _is_importing(frame: FrameType | None, *, or_loading: bool) -> bool:
    """Return whether the main thread is in the import machinery or, if ``or_loading``, in a module being loaded."""
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            return True
        frame = frame.f_back if or_loading else None
    return False


_deferred: _Deferred | None = None


@contextmanager
def defer_interrupts(grace: float = GRACE) -> Iterator[None]:
    """Defer SIGINT and SIGTERM until :func:`check_interrupts`, a second signal, ``grace`` seconds, or the block's end.

    ``grace`` 0: only during imports.  In nested blocks the longest grace applies.  Ignored signals, and signals that
    end the process at once, stay as they are.  Does nothing outside the main thread, which alone gets signals.
    """
    global _deferred
    if threading.current_thread() is not threading.main_thread():
        yield
    elif _deferred is not None:
        outer, _deferred.grace = _deferred.grace, max(_deferred.grace, grace)
        try:
            yield
        finally:
            _deferred.grace = outer
            _deferred.deliver()
    else:
        deferred = _Deferred(grace)
        deferred.watcher.start()
        try:
            _deferred = deferred
            for number in deferred.handlers:
                signal.signal(number, deferred.note)
            yield
        finally:
            _deferred = None
            deferred.close()


def _give_back_in_child() -> None:
    """Restore a forked child's handlers, because it has no thread to resend signals."""
    global _deferred
    if _deferred is not None:
        for number, handler in _deferred.handlers.items():
            signal.signal(number, handler)
        _deferred = None


os.register_at_fork(after_in_child=_give_back_in_child)


def check_interrupts() -> None:
    """Deliver a waiting signal: KeyboardInterrupt, by Python's own handler.  Costs almost nothing."""
    if _deferred is not None and _deferred.waiting and threading.current_thread() is threading.main_thread():
        _deferred.deliver()


def watch_interrupts(items: Iterable[Item]) -> Iterator[Item]:
    """Yield the items; deliver waiting signals between them."""
    for item in items:
        check_interrupts()
        yield item
