"""Stopping a run by Ctrl-C or SIGTERM at a place of the run's choosing.

Python raises KeyboardInterrupt wherever the main thread is.  Raised inside an import it can leave that module's lock
held for good, and threads that import the module then wait for ever, with the main thread waiting for them.  While a
run is open its signals are therefore noted, and delivered where the run looks: between steps, queries and batches.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TypeVar

GRACE = 3.0
"""Seconds after which a signal is delivered wherever the run is, if it has not looked."""

Item = TypeVar("Item")


class _Deferred:
    """The signals that are held back, and the handlers that get them in the end."""

    def __init__(self) -> None:
        numbers = (signal.SIGINT, signal.SIGTERM)
        self.handlers = {n: h for n in numbers if callable(h := signal.getsignal(n)) and not isinstance(h, int)}
        self.waiting: list[int] = []
        self.changed, self.ended = threading.Event(), threading.Event()

    def note(self, number: int, frame: FrameType | None) -> None:
        """Note a first signal; deliver at once if another one waits already."""
        if self.waiting:
            self.waiting.clear()
            self.handlers[signal.Signals(number)](number, frame)
            return
        self.waiting.append(number)
        self.changed.set()

    def deliver(self) -> None:
        """Call the handlers of the signals that came."""
        while self.waiting:
            number = self.waiting.pop(0)
            self.handlers[signal.Signals(number)](number, None)

    def insist(self) -> None:
        """Send a signal again that was not looked at within GRACE, so that it is delivered; ends with the run."""
        while self.changed.wait() and not self.ended.is_set():
            self.changed.clear()
            if not self.ended.wait(GRACE) and self.waiting:
                signal.pthread_kill(threading.main_thread().ident or 0, self.waiting[0])


_deferred: _Deferred | None = None


@contextmanager
def defer_interrupts() -> Iterator[None]:
    """Hold SIGINT and SIGTERM back until :func:`check_interrupts`, a second signal, GRACE seconds, or the end.

    Signals that are ignored, or end the process at once, stay as they are.  In a thread other than the main one, which
    gets no signal, and inside another such block it does nothing.
    """
    global _deferred
    if _deferred is not None or threading.current_thread() is not threading.main_thread():
        yield
        return
    deferred = _Deferred()
    threading.Thread(target=deferred.insist, name="deferred interrupts", daemon=True).start()
    try:
        _deferred = deferred
        for number in deferred.handlers:
            signal.signal(number, deferred.note)
        yield
    finally:
        _deferred = None
        for number, handler in deferred.handlers.items():
            signal.signal(number, handler)
        deferred.ended.set()
        deferred.changed.set()
        deferred.deliver()


def check_interrupts() -> None:
    """Deliver a signal that came: KeyboardInterrupt, by Python's own handler.  Costs next to nothing."""
    if _deferred is not None and _deferred.waiting and threading.current_thread() is threading.main_thread():
        _deferred.deliver()


def watch_interrupts(items: Iterable[Item]) -> Iterator[Item]:
    """Yield the items, delivering a signal that came between two of them."""
    for item in items:
        check_interrupts()
        yield item
