"""A child that is killed by itself at a call: what is written by then stays, and nothing else is."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import Any

ZONES = ("PRIVSYN_OUT", "PRIVSYN_LEDGER")


def run_killed(children: Any, call: Callable[..., Any], *arguments: Any, at: tuple[Any, str, str]) -> None:
    """Make the call in a child with these zones and this ledger; it dies ``at`` an owner's method, before or after."""
    environment = {name: os.environ[name] for name in ZONES}
    child = children.Process(target=_call_and_die, args=(environment, at, call, arguments))
    child.start()
    child.join()
    assert child.exitcode == -signal.SIGKILL


def _call_and_die(
    environment: dict[str, str], at: tuple[Any, str, str], call: Callable[..., Any], arguments: tuple[Any, ...]
) -> None:
    os.environ.update(environment)
    owner, name, when = at
    method = getattr(owner, name)

    def deadly(*given: Any, **more: Any) -> Any:
        if when == "after":
            method(*given, **more)
        os.kill(os.getpid(), signal.SIGKILL)

    setattr(owner, name, deadly)
    call(*arguments)
