"""The promise of a release (unit of protection, epsilon, delta), and the operator's policy about such promises.

The policy says what releases of each data set may ask for, whoever asks.
"""

from __future__ import annotations

from typing import ClassVar, Literal, get_args

from pydantic import Field, GetJsonSchemaHandler, model_validator
from pydantic_core import CoreSchema

from privsyn.data_contracts.frozen_model import FieldError, FrozenModel, Schema
from privsyn.data_contracts.publication import Format

MOST_RECORDS = 10_000
"""The most records of a person, or members of a household."""

Every = Literal["quarter-hour", "hour", "day", "week", "month", "quarter", "year"]
"""The length of a schedule's period, from the shortest to the longest."""

LENGTHS: tuple[Every, ...] = get_args(Every)
"""All values of Every, in order."""


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


class DatasetPolicy(FrozenModel):
    """What releases of one data set may ask for; what is not allowed is refused before the data is opened."""

    paths: tuple[str, ...] = Field(
        default=(),
        description="Files, and folders with all that is below them, that its tables may be read from; relative to the "
        "policy file's folder. Links are followed first. The URL of a "
        "database allows its tables and queries, one with a table that table alone.",
    )
    public: tuple[str, ...] = Field(
        default=(),
        description="Files, and folders with everything below them, for things that a spec calls public: priors, "
        "tables of lookups and totals, items of itemsets, and dictionaries of a draft. Empty: none.",
    )
    priors: tuple[str, ...] = Field(default=(), description="The same, for priors alone.")
    in_memory: bool = Field(default=False, description="Whether tables that a program hands over may be released.")
    budget: Guarantee = Field(description="The largest lifetime cap.")
    epsilon: float = Field(gt=0, le=1e6, description="The largest epsilon of one release.")
    delta: float = Field(gt=0, lt=1, description="The largest delta of one release.")
    unit: Unit | None = Field(default=None, description="The unit of protection that is asked for; empty: any.")
    period: Every | None = Field(
        default=None,
        description="The shortest period that is released; with one, every release is of a period that has begun.",
    )
    early: bool = Field(
        default=False, description="Whether a period may be released before it begins, for a stated reason."
    )
    outputs: tuple[Literal[Format, "figures", "itemsets"], ...] = Field(
        default=("parquet",),
        description="File formats of the synthetic table, `figures`: noisy quality figures, and `itemsets`: frequent "
        "itemsets.",
    )


class Policy(FrozenModel):
    """What releases may ask for, by data set.  Unlisted data sets follow ``others``; by default they may do nothing."""

    datasets: dict[str, DatasetPolicy] = Field(
        default_factory=dict, description="By the data set's name in the ledger."
    )
    others: DatasetPolicy | None = Field(default=None, description="Any other data set; empty: none may be released.")

    def of(self, dataset: str) -> DatasetPolicy | None:
        """Return the data set's policy; None if nothing is allowed."""
        return self.datasets.get(dataset, self.others)

    def place_of(self, dataset: str) -> str:
        """Return the place of the data set's policy in the file."""
        return f"datasets.{dataset}" if dataset in self.datasets else "others"
