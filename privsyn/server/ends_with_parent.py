"""Run a Python module as a program that ends when its parent process ends, for whatever reason."""

from __future__ import annotations

import os
import runpy
import signal
import sys
import threading
import time

CHECK_SECONDS = 0.5
"""Seconds between two looks at the parent."""

STOP_SECONDS = 5.0
"""Seconds for ending by itself, once the parent has ended."""


def watch(parent: int) -> None:
    """End this process, politely and then at once, when ``parent`` is no longer its parent.

    A look at a number works on every system, unlike Linux's death signal, which also comes when only the thread that
    started the process has ended.
    """
    while os.getppid() == parent:
        time.sleep(CHECK_SECONDS)
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(STOP_SECONDS)
    os._exit(1)


def build_watched_command() -> list[str]:
    """Return the beginning of a command: Python, this file, and this process as the parent; a module follows.

    By its file, whose folder stays off the path: it has modules of common names.
    """
    return [sys.executable, "-P", __file__, str(os.getpid())]


def main() -> None:
    """``ends_with_parent PARENT MODULE ARGUMENTS``: run MODULE as ``python -m`` does, and watch PARENT meanwhile."""
    parent, module = int(sys.argv[1]), sys.argv[2]
    threading.Thread(target=watch, args=(parent,), name="watch-parent", daemon=True).start()
    sys.argv = sys.argv[2:]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
