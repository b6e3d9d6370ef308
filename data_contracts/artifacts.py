"""References to artifacts: what steps hand each other instead of tables."""

from __future__ import annotations

from enum import StrEnum

from pydantic import BaseModel, ConfigDict


class Zone(StrEnum):
    """Who may see an artifact."""

    PRIVATE = "private"
    RELEASED = "released"


class StepKind(StrEnum):
    """The three kinds of step; each is treated by its own rules."""

    TRANSFORM = "transform"
    """Private rows to private rows; draws nothing, costs nothing."""
    RELEASE = "release"
    """Exact counts to noisy counts with receipts; the only way from private to released."""
    POSTPROCESS = "postprocess"
    """Released to released; free."""


class ArtifactRef(BaseModel):
    """One table on disk: small, free of private values, safe in Prefect's database and UI.

    ``key`` is the lineage key of the step that made it.  ``check`` proves that the file is whole:
    an HMAC under the private zone's key, so that not even a hash of private data leaves the zone.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    step: str
    zone: Zone
    key: str
    path: str
    check: str
