"""From the spec's field to an engine.

Belongs here: which class stands for which kind, and giving it back at the end.  Does not belong here: the engines.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from data_contracts.engine import EngineChoice
from flows.engines.base import Engine
from flows.engines.dask import DaskEngine
from flows.engines.local import LocalEngine


@contextmanager
def engine_of(choice: EngineChoice) -> Iterator[Engine]:
    """The engine of a run, closed at its end.  It opens nothing before a run needs to count."""
    engine: Engine = LocalEngine() if choice.kind == "local" else DaskEngine(choice)
    try:
        yield engine
    finally:
        engine.close()
