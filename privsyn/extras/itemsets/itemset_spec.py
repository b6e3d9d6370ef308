"""The itemset spec: one frozen model that is the YAML file of ``privsyn itemsets``.

The universe of items and every bound are public: nothing here may be taken from the transactions.
"""

from __future__ import annotations

from collections import Counter
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, field_validator, model_validator

from privsyn.data_contracts.csv_options import CsvOptions
from privsyn.data_contracts.frozen_model import FieldError, FrozenModel
from privsyn.data_contracts.promise import Guarantee
from privsyn.data_contracts.public_counts import PublicFile
from privsyn.data_contracts.release_spec import DATASET, MAX_COLUMNS

MAX_ITEMS = 100_000
"""The most items of a universe."""


class ListLayout(FrozenModel):
    """One row a transaction, its items in one column."""

    kind: Literal["list"]
    column: str = Field(min_length=1, description="The column with the items: a list, or text with a separator.")
    separator: str = Field(default=";", min_length=1, max_length=10, description="Text between two items.")


class WideLayout(FrozenModel):
    """One row a transaction, one column an item: true, or a number other than 0, if the transaction has it."""

    kind: Literal["wide"]


class PairsLayout(FrozenModel):
    """One row an item of a transaction, in any order."""

    kind: Literal["pairs"]
    transaction: str = Field(
        min_length=1,
        description="The column that names the transaction. A transaction belongs to one person: if two tills use "
        "the same number, include the till. Rows without a transaction are left out.",
    )
    item: str = Field(min_length=1, description="The column that names the item.")


class ItemsetSpec(FrozenModel):
    """Everything that a release of frequent itemsets depends on, except the private table itself."""

    OMITTED_AT_DEFAULT: ClassVar[frozenset[str]] = frozenset({"accountant", "public_files"})

    dataset: str = Field(pattern=DATASET, description="The ledger's name for the private data set.")
    data: str = Field(description="CSV or Parquet: a file, or a folder of files with the same columns.")
    layout: Annotated[ListLayout | WideLayout | PairsLayout, Field(discriminator="kind")] = Field(
        description="How the table holds transactions: `{kind: list, column: C}`, `{kind: wide}` or "
        "`{kind: pairs, transaction: C, item: C}`. Columns that it does not name are not read."
    )
    items: tuple[str, ...] = Field(
        default=(), description="The universe of items, from a public source. Items outside it are not counted."
    )
    items_file: str = Field(default="", description="In place of `items`: a text file with one item a line.")
    transactions_per_person: int = Field(
        ge=1,
        le=10_000,
        description="Public bound on the transactions of one person. All noise grows with it.",
    )
    max_items: int = Field(
        ge=1,
        le=10_000,
        description="Most items kept of a transaction, from public knowledge. The noise of item counts grows with "
        "its square root, rounded up, and the noise of pairs in proportion.",
    )
    top: int | None = Field(default=None, ge=1, le=5_000, description="Release about this many most frequent itemsets.")
    at_least: float | None = Field(
        default=None,
        gt=0,
        lt=1,
        description="In place of `top`: release the itemsets in at least this share of transactions.",
    )
    largest: int = Field(default=5, ge=1, le=8, description="Most items of an itemset.")
    largest_basis: int = Field(
        default=8,
        ge=3,
        le=12,
        description="Most items of a basis, whose 2^items cells are counted (PrivBasis: 12).",
    )
    most_frequent_items: int = Field(
        default=100, ge=2, le=1_000, description="At most this many items are looked at together: a bound on work."
    )
    privacy: Guarantee = Field(description="What this release may cost: its (epsilon, delta)-differential privacy.")
    budget: Guarantee = Field(description="The data set's lifetime cap: set once, kept by the ledger.")
    accountant: Literal["gaussian", "tight", "paper"] | None = Field(
        default=None, description="How (epsilon, delta) becomes rho, and rho noise; as for `privsyn release`."
    )
    csv: CsvOptions = Field(default=CsvOptions(), description="CSV only: how the files are written.")
    public_files: tuple[PublicFile, ...] = Field(
        default=(),
        max_length=1,
        description="Filled in when the spec's file is read: the file of items. Never published.",
    )

    @field_validator("items", mode="before")
    @classmethod
    def _as_text(cls, items: Any) -> Any:
        is_list = isinstance(items, list | tuple)
        return [str(i) if isinstance(i, int) and not isinstance(i, bool) else i for i in items] if is_list else items

    @field_validator("items")
    @classmethod
    def _check_universe(cls, items: tuple[str, ...]) -> tuple[str, ...]:
        if len(items) > MAX_ITEMS:
            raise FieldError(f"has {len(items):,} items; at most {MAX_ITEMS:,} can be counted")
        repeated = [item for item, times in Counter(items).items() if times > 1]
        if repeated:
            raise FieldError(f"names the item {repeated[0]!r} more than once", "Remove one")
        if "" in items:
            raise FieldError("an item needs a name", "The empty text is not one")
        return items

    @model_validator(mode="after")
    def _check_sizes(self) -> ItemsetSpec:
        if (self.top is None) == (self.at_least is None):
            raise FieldError("give either `top` (how many itemsets) or `at_least` (a share of the transactions)")
        if self.items_file and self.items:
            raise FieldError("cannot be given together with `items`", "Leave one of them out", ("items_file",))
        if not self.items_file and len(self.items) < 2:
            raise FieldError("has fewer than two items", "List the universe, from a public source", ("items",))
        if self.layout.kind == "wide" and len(self.items) > MAX_COLUMNS:
            raise FieldError(
                f"is wide, but a table has at most {MAX_COLUMNS:,} columns",
                "Store the transactions as lists or pairs",
                ("layout",),
            )
        if self.layout.kind == "pairs" and self.layout.transaction == self.layout.item:
            raise FieldError("names one column twice", "Name the item's column", ("layout", "item"))
        return self

    @property
    def unit_of_protection(self) -> str:
        """The unit of protection as one phrase for the certificate and the note; a record is a transaction."""
        most = self.transactions_per_person
        many = "one transaction" if most == 1 else f"at most {most} transactions"
        return f"one person with {many} (declared in the spec)"

    def public(self) -> dict[str, Any]:
        """Return the spec as JSON without paths, for a released folder."""
        return self.model_dump(mode="json", exclude={"data", "items_file", "public_files"})
