"""Stopping by Ctrl-C or SIGTERM at a place where it does no harm.

Python raises KeyboardInterrupt wherever the main thread is.  Inside the machinery of imports that can leave the lock of
all imports held for good: raised in one of its callbacks, the exception is dropped, and the program goes on until the
first thread that imports anything waits for ever.  So signals are noted first.  They are delivered outside imports,
and while a run is open where the run looks: between steps, queries and batches.
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
"""Seconds after which a signal is delivered wherever a run is, if it has not looked, or an import, if it lasts."""

_AGAIN = 0.1
"""Seconds after which a signal is tried again that came in an import."""

Item = TypeVar("Item")


class _Deferred:
    """The signals that are held back, and the handlers that get them in the end.

    ``grace``: seconds that a look is waited for; 0: none is, only the end of an import.
    """

    def __init__(self, grace: float) -> None:
        numbers = (signal.SIGINT, signal.SIGTERM)
        self.handlers = {n: h for n in numbers if callable(h := signal.getsignal(n)) and not isinstance(h, int)}
        self.grace, self.since, self.closed = grace, 0.0, False
        self.waiting: list[int] = []
        self.changed: SimpleQueue[None] = SimpleQueue()  # a handler may put while the main thread puts: it has no lock
        self.ended = threading.Event()
        self.watcher = threading.Thread(target=self.resend, name="deferred interrupts", daemon=True)

    def note(self, number: int, frame: FrameType | None) -> None:
        """Note a first signal; deliver at once if nothing is to be waited for, or another one waits already."""
        first = not self.waiting
        if first:
            self.since = time.monotonic()
            self.waiting.append(number)
        if self.closed:
            return
        if (first and self.grace > 0) or _is_importing(frame, lately=time.monotonic() - self.since < GRACE):
            self.changed.put(None)
            return
        self.waiting.clear()
        self.handlers[signal.Signals(number)](number, frame)

    def deliver(self) -> None:
        """Call the handlers of the signals that came."""
        while self.waiting:
            number = self.waiting.pop(0)
            self.handlers[signal.Signals(number)](number, None)

    def resend(self) -> None:
        """Send a signal again that still waits, until it is delivered; ends with the block."""
        while not self.ended.is_set():
            self.changed.get()
            delay = self.grace or _AGAIN
            while not self.ended.wait(delay) and self.waiting:
                signal.pthread_kill(threading.main_thread().ident or 0, self.waiting[0])
                delay = _AGAIN

    def close(self) -> None:
        """Give the handlers back, with the signals that wait."""
        self.closed = True
        self.ended.set()
        self.changed.put(None)
        self.watcher.join()  # what it sent is noted by now
        for number, handler in self.handlers.items():
            signal.signal(number, handler)
        self.deliver()


def _is_importing(frame: FrameType | None, *, lately: bool) -> bool:
    """Return whether the main thread is inside the machinery of imports or, ``lately``, in a module that it loads."""
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            return True
        frame = frame.f_back if lately else None
    return False


_deferred: _Deferred | None = None


@contextmanager
def defer_interrupts(grace: float = GRACE) -> Iterator[None]:
    """Hold SIGINT and SIGTERM back until :func:`check_interrupts`, a second signal, ``grace`` seconds, or the end.

    ``grace`` 0: only while something is imported.  Inside another such block the longer grace holds.  Signals that are
    ignored, or end the process at once, stay as they are.  In a thread other than the main one, which gets no signal,
    it does nothing.
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
    """Give a forked child its handlers back: it has no thread that sends a signal again."""
    global _deferred
    if _deferred is not None:
        for number, handler in _deferred.handlers.items():
            signal.signal(number, handler)
        _deferred = None


os.register_at_fork(after_in_child=_give_back_in_child)


def check_interrupts() -> None:
    """Deliver a signal that came: KeyboardInterrupt, by Python's own handler.  Costs next to nothing."""
    if _deferred is not None and _deferred.waiting and threading.current_thread() is threading.main_thread():
        _deferred.deliver()


def watch_interrupts(items: Iterable[Item]) -> Iterator[Item]:
    """Yield the items, delivering a signal that came between two of them."""
    for item in items:
        check_interrupts()
        yield item
