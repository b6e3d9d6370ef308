"""What a data set has spent of its lifetime cap, and what is left."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction

from privsyn.data_contracts.promise import Guarantee
from privsyn.ledgers.audit import Dataset, Entry, sum_spent_rho
from privsyn.tasks.privacy.accountant import CapAccountant, convert_rho_to_epsilon

AT_CAP_DELTA = (
    "Epsilons are at the cap's delta: a release that was promised at another delta has another epsilon there, by the "
    "same noise. Prices (rho) add up over releases, epsilons do not."
)
"""Explains figures of what is used and left, wherever they are printed."""


@dataclass(frozen=True)
class DatasetSummary:
    """What one data set has spent; epsilons are by its ``accountant``, at the cap's delta, rounded up."""

    dataset: str
    cap: Guarantee
    cap_rho: Fraction
    rho: Fraction
    entries: int
    created: str
    accountant: CapAccountant

    @property
    def epsilon(self) -> float:
        """The spent part of the cap, as an epsilon."""
        return convert_rho_to_epsilon(self.rho, self.cap.delta, self.accountant)

    @property
    def remaining_rho(self) -> Fraction:
        """The remaining part of the cap, in rho."""
        return max(self.cap_rho - self.rho, Fraction(0))

    @property
    def remaining_epsilon(self) -> float:
        """The remaining part of the cap, as an epsilon."""
        return convert_rho_to_epsilon(self.remaining_rho, self.cap.delta, self.accountant)


def summarize_dataset(dataset: Dataset, entries: Iterable[Entry]) -> DatasetSummary:
    """Return the summary of a data set by its entries."""
    history = list(entries)
    spent = sum_spent_rho(history)
    return DatasetSummary(
        dataset.name, dataset.cap, dataset.rho, spent, len(history), dataset.created, dataset.accountant
    )
