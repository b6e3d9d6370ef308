"""The models of the private records, one for each kind: a record that does not fit its model is damaged."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from privsyn.data_contracts.publication import Format

Count = Annotated[int, Field(ge=0)]


class _Record(BaseModel):
    """The base of all kinds: a record with an unknown field is damaged."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class RequestRecord(_Record):
    """An earlier request, and whether its last run was finished or refused."""

    dataset: str
    finished: bool


class GenerationRecord(_Record):
    """Record of a request's current generation of noise."""

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
    """Record of the ledger that a data set is charged to, and of how far its history went.

    Versions before kept ``created`` only.
    """

    created: str
    entries: Count = 0
    periods: Count = 0
    marks: Count = 0
    head: str | None = None
    periods_head: str | None = None
    marks_head: str | None = None


class RefusedInput(_Record):
    """A public input that was taken for a private table."""

    field: str
    last: str
    times: Count


class PublicInputsRecord(_Record):
    """The public inputs that were compared with the data set's private tables, by their fingerprints."""

    compared: Annotated[tuple[str, ...], Field(strict=False)] = ()
    refused: dict[str, RefusedInput] = {}


class FormatsRecord(_Record):
    """The formats that were added to a run's release."""

    formats: list[Format]


class VersionsRecord(_Record):
    """The versions that made a released folder's files, in their order."""

    files: dict[str, str]
    versions: list[Annotated[tuple[str, str], Field(strict=False)]]
