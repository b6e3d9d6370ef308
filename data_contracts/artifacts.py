"""References to artifacts, which steps pass on instead of tables."""

from __future__ import annotations

from enum import StrEnum

from pydantic import BaseModel, ConfigDict


class Zone(StrEnum):
    """Who may see an artifact."""

    PRIVATE = "private"
    RELEASED = "released"


class StepKind(StrEnum):
    """The three kinds of step; each has its own rules."""

    TRANSFORM = "transform"
    """Private rows to private rows; draws no noise, costs nothing."""
    RELEASE = "release"
    """Exact counts to noisy counts with receipts; the only way from private to released."""
    POSTPROCESS = "postprocess"
    """Released to released; free."""


class LookKind(StrEnum):
    """What a release step measures; later steps ask for all earlier looks of one kind."""

    RUNGS = "rungs"
    """Intervals of doubling widths, to choose cells."""
    ONE_WAYS = "one-ways"
    SCORES = "scores"
    """How strongly pairs of columns are related."""
    TRENDS = "trends"
    """How pairs of ordered columns rise together."""
    MARGINALS = "marginals"
    """Joint counts in the codes of the recoding."""
    VALUES = "values"
    """Counts of single values inside cells."""
    TRIPLES = "triples"
    """The interaction of three columns beyond their pairs."""
    SETS = "sets"
    """Joint counts of named sets, in merged codes."""
    RESIDUALS = "residuals"
    """Distances between the current synthetic rows and the private ones."""
    TRANSITIONS = "transitions"
    """A row's codes by the next row's codes."""
    LINKED_ROWS = "linked rows"
    """Columns over all rows of all persons."""
    WITHOUT_ROWS = "without rows"
    """Persons or households without rows."""
    ITEMS = "items"
    """Items, and sets of items, of persons."""
    FIGURES = "figures"
    """Quality figures of a released table."""


class ArtifactRef(BaseModel):
    """One table on disk: small, free of private values, safe in Prefect's database and UI.

    ``key`` is the lineage key of the step that made it.  ``check`` proves that the file is complete: an HMAC under the
    private zone's key, so that not even a hash of private data leaves the zone.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    step: str
    zone: Zone
    key: str
    path: str
    check: str
