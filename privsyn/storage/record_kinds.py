"""The models of the private records, one for each kind; a record that does not fit its model is damaged."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from privsyn.data_contracts.publication import Format

Count = Annotated[int, Field(ge=0)]


class _Record(BaseModel):
    """The base of all kinds; a record with an unknown field is damaged."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class RequestRecord(_Record):
    """An earlier request, and whether its last run finished or was refused."""

    dataset: str
    finished: bool


class GenerationRecord(_Record):
    """Record of a request's current generation of noise."""

    generation: Count
    finished: bool
    fresh: bool


class CounterRecord(_Record):
    """The last generation assigned to a table of codes."""

    last: Count


class RunRecord(_Record):
    """The run's public name."""

    run: str


class DataRecord(_Record):
    """The fingerprint of the data with which a period's run began."""

    fingerprint: str


class LedgerRecord(_Record):
    """Record of the ledger that a data set is charged to, and of its history's length.

    Early versions kept only ``created``.
    """

    created: str
    entries: Count = 0
    periods: Count = 0
    marks: Count = 0
    head: str | None = None
    periods_head: str | None = None
    marks_head: str | None = None


class RefusedInput(_Record):
    """A public input that equals a private table."""

    field: str
    last: str
    times: Count


class PublicInputsRecord(_Record):
    """The fingerprints of the public inputs that were compared with the data set's private tables."""

    compared: Annotated[tuple[str, ...], Field(strict=False)] = ()
    refused: dict[str, RefusedInput] = {}


class FormatsRecord(_Record):
    """The formats added to a run's release."""

    formats: list[Format]


class VersionsRecord(_Record):
    """The versions that wrote a released folder's files, in order."""

    files: dict[str, str]
    versions: list[Annotated[tuple[str, str], Field(strict=False)]]
