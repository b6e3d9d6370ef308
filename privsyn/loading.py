"""Loading large packages without work that nobody needs."""

from __future__ import annotations

import gc
import importlib.util
import sys
from collections.abc import Iterator
from contextlib import contextmanager


def postpone(name: str) -> None:
    """Let the submodule ``name`` be loaded when it is used, unless it is loaded already; the standard library's way."""
    package, _, attribute = name.rpartition(".")
    spec = importlib.util.find_spec(name)  # imports the package
    if name in sys.modules or spec is None or spec.loader is None:
        return
    spec.loader = importlib.util.LazyLoader(spec.loader)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    setattr(sys.modules[package], attribute, module)


@contextmanager
def no_collection() -> Iterator[None]:
    """No collection of garbage meanwhile: an import makes hundreds of thousands of objects, and all of them stay."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
