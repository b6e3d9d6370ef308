"""The engine: where private rows are counted.

Every engine gives the same integers, so the field is not part of a step's key, of a manifest or of a request's record.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from privsyn.data_contracts.columns import FrozenModel
from privsyn.data_contracts.field_error import FieldError


class EngineChoice(FrozenModel):
    """Where private rows are counted; the same integers, noise and result wherever that is."""

    kind: Literal["local", "dask"] = Field(
        default="local",
        description="`local`: in this process, on all its cores; `dask`: by the workers of a Dask cluster. Another "
        "choice re-runs nothing.",
    )
    address: str | None = Field(
        default=None,
        pattern=r"^(tcp|tls|ws|wss)://[^\s]{1,200}$",
        description="`dask`: the scheduler's address, such as tls://scheduler:8786; its workers must see the private "
        "folder at the same path, and belong to whoever may see private rows. Empty: a cluster on this machine, for "
        "this run only.",
    )
    workers: int = Field(
        default=0, ge=0, le=1_024, description="`dask` without an address: worker processes; 0: one per core."
    )

    @model_validator(mode="after")
    def _fits_the_kind(self) -> EngineChoice:
        if self.kind == "local" and (self.address is not None or self.workers):
            raise FieldError("`address` and `workers` are for `kind: dask`")
        if self.address is not None and self.workers:
            raise FieldError("a cluster with an `address` has the workers that it has", "Leave out `workers`")
        return self
