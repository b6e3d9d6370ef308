"""The spent and remaining parts of a data set's lifetime cap."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction

from privsyn.base.wording import describe_epsilon, describe_use
from privsyn.data_contracts.promise import Guarantee
from privsyn.ledgers.audit import Dataset, Entry, sum_spent_rho
from privsyn.tasks.privacy.accountant import CapAccountant, convert_rho_to_epsilon

AT_CAP_DELTA = (
    "Percentages are shares of the cap's price (rho). Prices add up over releases; epsilons, which are at the cap's "
    "delta, do not."
)
"""Note on used and remaining shares, wherever they are printed."""


@dataclass(frozen=True)
class DatasetSummary:
    """The spending of one data set; epsilons are by its ``accountant``, at the cap's delta, rounded up.

    ``last_rho``: the price of the last charged run; None without one.
    """

    dataset: str
    cap: Guarantee
    cap_rho: Fraction
    rho: Fraction
    entries: int
    created: str
    accountant: CapAccountant
    last_rho: Fraction | None = None

    @property
    def use(self) -> str:
        """The used share of the cap, and how many more releases like the last one fit, as text."""
        return describe_use(self.rho, self.cap_rho, self.last_rho)

    @property
    def epsilon_words(self) -> str:
        """The spent part of the cap as an epsilon, beside the cap's own."""
        return describe_epsilon(self.epsilon, self.cap.epsilon, self.cap.delta)

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
    """Return the summary of a data set from its entries."""
    history = list(entries)
    return DatasetSummary(
        dataset.name,
        dataset.cap,
        dataset.rho,
        sum_spent_rho(history),
        len(history),
        dataset.created,
        dataset.accountant,
        _price_last_run(history),
    )


def _price_last_run(history: Sequence[Entry]) -> Fraction | None:
    """Return the price (rho) of the last charged run; None without one."""
    for run in dict.fromkeys(entry.run for entry in reversed(history) if entry.event == "reserve"):
        paid = sum_spent_rho(entry for entry in history if entry.run == run)
        if paid > 0:
            return paid
    return None
