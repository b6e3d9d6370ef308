"""A file of rows that a spec calls public: where it lay, and what its content was, when the spec was read."""

from __future__ import annotations

from pydantic import Field

from privsyn.data_contracts.frozen_model import FrozenModel


class PublicFile(FrozenModel):
    """One file, the field that named it, and the SHA-256 of its content."""

    field: str = Field(min_length=1, max_length=200, description="The field that named it.")
    path: str = Field(min_length=1, description="Where it lay.")
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$", description="SHA-256 of its content.")
