"""The base of what evaluations and comparisons write."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class ResultModel(BaseModel):
    """A frozen model that is also its JSON file: unknown fields, NaN and infinities are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class PrivateResult(ResultModel):
    """A result that is a function of private rows: it prints no figure, so that none gets into a log or a notebook."""

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: PRIVATE>"

    __str__ = __repr__
