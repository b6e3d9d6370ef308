"""The operator's policy: what releases of each data set may ask for, whoever asks."""

from __future__ import annotations

from typing import Literal, get_args

from pydantic import Field

from privsyn.data_contracts.frozen_model import FrozenModel
from privsyn.data_contracts.promise import Guarantee, Unit
from privsyn.data_contracts.publication import Format

Every = Literal["quarter-hour", "hour", "day", "week", "month", "quarter", "year"]
"""The length of a schedule's period, from the shortest to the longest."""

LENGTHS: tuple[Every, ...] = get_args(Every)
"""All values of Every, in order."""


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
