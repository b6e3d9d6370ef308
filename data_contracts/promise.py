"""The promise of a release: the unit of protection, and its epsilon and delta."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field, GetJsonSchemaHandler, model_validator
from pydantic_core import CoreSchema

from privsyn.data_contracts.frozen_model import FieldError, FrozenModel, Schema

MOST_RECORDS = 10_000
"""The most records of a person, or members of a household."""


class Unit(FrozenModel):
    """The unit of protection: one person with a bounded number of records, or one household.  It has no default."""

    OMITTED_AT_DEFAULT: ClassVar[frozenset[str]] = frozenset({"household_id"})

    records_per_person: int | None = Field(
        default=None,
        ge=1,
        le=MOST_RECORDS,
        description="Public bound on the records of one person. It is not enforced, and multiplies every sensitivity.",
    )
    person_id: str | None = Field(
        default=None, description="Column that identifies the person. Rows without it are left out."
    )
    max_records: int | None = Field(
        default=None,
        ge=1,
        le=MOST_RECORDS,
        description="Most records kept of a person, or members of a household. All counts are of the kept rows.",
    )

    household_id: str | None = Field(
        default=None,
        description="Column that identifies the household, in place of `person_id`. Needs `order`, the column of "
        "roles (docs/panels.md).",
    )

    @classmethod
    def __get_pydantic_json_schema__(cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler) -> Schema:
        """Return the JSON schema without defaults: a form sends those, and then misses no unit where all are empty."""
        schema = super().__get_pydantic_json_schema__(core_schema, handler)
        for field in handler.resolve_ref_schema(schema)["properties"].values():
            field.pop("default", None)
        return schema

    @model_validator(mode="after")
    def _check_form(self) -> Unit:
        if self.person_id is not None and self.household_id is not None:
            raise FieldError(
                "one person is a part of a household, and the promise is about one of the two",
                "Give `household_id` alone: its promise is about the household with everybody in it",
            )
        if (self.records_per_person is None) == (self.identifier is None):
            raise FieldError(
                "give either `records_per_person: K` (a public bound) or `person_id: COLUMN` (or `household_id: "
                "COLUMN`) with `max_records: K`"
            )
        if (self.identifier is None) != (self.max_records is None):
            raise FieldError(f"`{self.by or 'person_id'}` and `max_records` go together")
        return self

    @property
    def by(self) -> str | None:
        """The field that names the identifier: `person_id`, `household_id`, or None."""
        return "household_id" if self.household_id is not None else "person_id" if self.person_id is not None else None

    @property
    def one(self) -> str:
        """The subject of the promise: a person or a household."""
        return "person" if self.household_id is None else "household"

    @property
    def identifier(self) -> str | None:
        """The column that identifies each row's person or household."""
        return self.person_id if self.household_id is None else self.household_id

    def describe_kept(self) -> str:
        """Return the clause that says how many rows of a person a cap kept."""
        most = self.records
        return f"at most {most} row{'s' if most > 1 else ''} of a {self.one} {'were' if most > 1 else 'was'} kept"

    @property
    def records(self) -> int:
        """k: the most records that adding or removing one person changes."""
        k = self.records_per_person if self.identifier is None else self.max_records
        assert k is not None  # noqa: S101 - narrowed by the validator
        return k

    def describe(self) -> str:
        """Return one phrase for certificates and release notes."""
        many = "one record" if self.records == 1 else f"at most {self.records} records"
        how = "declared in the spec" if self.identifier is None else f"enforced by the column {self.identifier!r}"
        return f"one person with {many} ({how})"


class Guarantee(FrozenModel):
    """An (epsilon, delta) differential-privacy promise for adding or removing one person."""

    epsilon: float = Field(gt=0, le=1e6, description="Bound on the privacy loss; above 10 it protects little.")
    delta: float = Field(
        gt=0,
        lt=1,
        description="Failure probability, far below one over the number of people: 0.000000001 (a form takes no 1e-9).",
    )
