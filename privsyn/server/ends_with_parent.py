"""Run a Python module as a program that ends when its parent process ends for any reason."""

from __future__ import annotations

import os
import runpy
import signal
import sys
import threading
import time

CHECK_SECONDS = 0.5
"""Seconds between two checks of the parent."""

STOP_SECONDS = 5.0
"""Seconds between SIGTERM and the forced exit, after the parent has ended."""


def watch(parent: int) -> None:
    """End this process, by SIGTERM and then by force, when ``parent`` is no longer its parent.

    Comparing process IDs works on every system.  Linux's death signal also comes when only the thread that started the
    process ends.
    """
    while os.getppid() == parent:
        time.sleep(CHECK_SECONDS)
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(STOP_SECONDS)
    os._exit(1)


def build_watched_command() -> list[str]:
    """Return the beginning of a command: Python, this file, and this process as the parent; a module follows.

    The file is run by its path, so that its folder, with modules of common names, stays off the module path.
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
