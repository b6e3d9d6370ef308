"""What each small private record holds: one model a kind, by which a damaged record is told from a whole one.

Belongs here: the shapes of the records that a run keeps of itself.  Does not belong here: reading and writing them
(flows/storage/records.py); the record of a step (flows/shell.py) and of a certificate (data_contracts/certificate.py),
which have models of their own.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from data_contracts.publication import Format

Count = Annotated[int, Field(ge=0)]


class _Record(BaseModel):
    """A name that is not known is a damaged one."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class RequestRecord(_Record):
    """A request that was seen before, and whether its last run was finished or refused."""

    dataset: str
    finished: bool


class GenerationRecord(_Record):
    """Which noise of a request is the current one."""

    generation: Count
    finished: bool
    fresh: bool


class CounterRecord(_Record):
    """The last generation that was given out for a table of codes."""

    last: Count


class RunRecord(_Record):
    """The run's public name."""

    run: str


class DataRecord(_Record):
    """The fingerprint of the data that a period's run was begun with."""

    fingerprint: str


class LedgerRecord(_Record):
    """Which ledger the data set is charged to, and how far its history went; versions before kept ``created`` only."""

    created: str
    entries: Count = 0
    periods: Count = 0
    head: str | None = None
    periods_head: str | None = None


class FormatsRecord(_Record):
    """The formats that were added to a run's release."""

    formats: list[Format]


class VersionsRecord(_Record):
    """The versions that made a released folder's files, in their order."""

    files: dict[str, str]
    versions: list[Annotated[tuple[str, str], Field(strict=False)]]
