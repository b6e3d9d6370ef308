"""The settings of a command that calls a flow in its own process; runs of a worker take theirs from the environment."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from privsyn.base.settings import Settings

_given: ContextVar[Settings | None] = ContextVar("privsyn_settings", default=None)


@contextmanager
def use_settings(settings: Settings) -> Iterator[None]:
    """Use ``settings`` in flows that are called inside the block."""
    token = _given.set(settings)
    try:
        yield
    finally:
        _given.reset(token)


def get_settings() -> Settings:
    """Return the caller's settings, else the environment's."""
    return _given.get() or Settings()
