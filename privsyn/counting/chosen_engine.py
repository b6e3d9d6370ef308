"""The engine that the field ``engine`` of a spec names."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from privsyn.base.settings import Settings
from privsyn.counting.dask_engine import DaskEngine
from privsyn.counting.engine import Engine
from privsyn.counting.local_engine import LocalEngine
from privsyn.data_contracts.engine_choice import EngineChoice


@contextmanager
def open_engine(choice: EngineChoice, settings: Settings) -> Iterator[Engine]:
    """Open the engine of a run, and close it at its end.  It opens nothing before a run needs to count.

    Raises RequestError if the settings of a cluster cannot be trusted.
    """
    engine: Engine = LocalEngine() if choice.kind == "local" else DaskEngine(choice.workers, settings)
    try:
        yield engine
    finally:
        engine.close()
