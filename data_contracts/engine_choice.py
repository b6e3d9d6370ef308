"""The engine that counts private rows.

Every engine gives the same integers, so the field is not part of a step's key, a manifest or a request's record.  A
cluster's address is not in a spec: this program trusts its scheduler, so only the operator names one (a setting).
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from privsyn.data_contracts.field_error import FieldError
from privsyn.data_contracts.frozen_model import FrozenModel


class EngineChoice(FrozenModel):
    """Where private rows are counted.  Every engine gives the same integers, noise and result."""

    kind: Literal["local", "dask"] = Field(
        default="local",
        description="`local`: in this process, on all its cores. `dask`: by the workers of a Dask cluster. A "
        "change repeats nothing.",
    )
    workers: int = Field(
        default=0,
        ge=0,
        le=1_024,
        description="`dask`: worker processes on this machine for this run. 0: one per core, or the operator's "
        "cluster.",
    )

    @model_validator(mode="after")
    def _check_kind(self) -> EngineChoice:
        if self.kind == "local" and self.workers:
            raise FieldError("`workers` is for `kind: dask`")
        return self
