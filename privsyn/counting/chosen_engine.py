"""The engine that the field ``engine`` of a spec names."""

from __future__ import annotations

from privsyn.base.settings import Settings
from privsyn.counting.dask_engine import DaskEngine
from privsyn.counting.engine import Engine
from privsyn.counting.local_engine import LocalEngine
from privsyn.data_contracts.engine_choice import EngineChoice


def choose_engine(choice: EngineChoice, settings: Settings) -> Engine:
    """Return the engine of a run, which opens nothing before a run needs to count, and is to be closed at its end.

    Raises RequestError if the settings of a cluster cannot be trusted.
    """
    return LocalEngine() if choice.kind == "local" else DaskEngine(choice.workers, settings)
