"""A backfill: a data set's missed periods, their price together, and whether it fits the cap."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from fractions import Fraction

from privsyn.base.calendar_periods import find_beginning, format_moment, list_periods
from privsyn.base.errors import BudgetRefusedError, RequestError
from privsyn.base.settings import Settings
from privsyn.base.wording import describe_use, format_share
from privsyn.data_contracts.release_spec import ReleaseSpec
from privsyn.engine.choose_accountant import assume_accountant, read_dataset_summary
from privsyn.engine.plan import account_rho
from privsyn.ledgers.ledger import Ledger
from privsyn.pipelines.registry import plan_release
from privsyn.tasks.privacy.accountant import cap_accountant


@dataclass(frozen=True)
class Backfill:
    """Periods in order, each with its status, and the price (rho) of a period that has not begun."""

    spec: ReleaseSpec
    states: dict[str, str]
    rho: Fraction
    cap_rho: Fraction
    spent: Fraction

    @property
    def due(self) -> list[str]:
        """The periods to release or finish."""
        return [period for period, state in self.states.items() if state != "released"]

    @property
    def price(self) -> Fraction:
        """The price of all due periods together; a begun period has paid already."""
        return self.rho * sum(state == "missed" for state in self.states.values())

    @property
    def words(self) -> str:
        """The price of all, and the used share of the cap afterwards."""
        missed = sum(state == "missed" for state in self.states.values())
        after = describe_use(self.spent + self.price, self.cap_rho, self.rho, "these")
        each, privacy = format_share(self.rho, self.cap_rho), self.spec.privacy
        return (
            f"{missed} release{'' if missed == 1 else 's'} of epsilon {privacy.epsilon:g} at delta {privacy.delta:g}: "
            f"{format_share(self.price, self.cap_rho)} of the cap, {each} each. After that: {after}."
        )

    def check(self) -> None:
        """Raise BudgetRefusedError unless all of them fit under the cap; nothing was read or spent."""
        if self.spent + self.price <= self.cap_rho:
            return
        missed = [period for period, state in self.states.items() if state == "missed"]
        fit = int(max(self.cap_rho - self.spent, Fraction(0)) / self.rho)
        raise BudgetRefusedError(
            f"the budget of {self.spec.dataset!r} has room for {fit} of these {len(missed)} releases; nothing was "
            "read, nothing was spent",
            f"End with {missed[fit - 1]}" if fit else "No further release like these fits",
            "backfill.to",
        )


def plan_backfill(
    spec: ReleaseSpec, settings: Settings, first: str, last: str, calendar: str | None = None
) -> Backfill:
    """Return the periods from ``first`` to ``last`` with their price, from the spec and the ledger alone.

    ``calendar``: the time zone in which they begin (None: this computer's).  Raises RequestError for labels that are no
    range of periods, and for a period that has not begun.
    """
    periods = list_periods(first, last)
    begins = find_beginning(periods[-1], calendar)
    if begins > datetime.now(UTC):
        raise RequestError(
            f"{periods[-1]} has not begun: it begins at {format_moment(begins)}",
            "End with an earlier one",
            "backfill.to",
        )
    spec, _ = assume_accountant(spec, settings)
    state = read_dataset_summary(spec.dataset, settings)
    states, rho = dict.fromkeys(periods, "missed"), plan_release(spec, periods[0]).rho
    if state is None:
        cap_rho = account_rho(spec.budget, "budget", cap_accountant(spec.effective_accountant))
        return Backfill(spec, states, rho, cap_rho, Fraction(0))
    for row in Ledger(settings.ledger, create=False).periods(spec.dataset):
        if row.period in states:
            states[row.period] = "released" if row.released else "begun"
    return Backfill(spec, states, rho, state.cap_rho, state.rho)


def list_rows(backfill: Backfill) -> Sequence[tuple[str, str, str]]:
    """Return one row per period: its label, its status, and the action."""
    done = {"released": "nothing", "begun": "is finished, and costs nothing more", "missed": "is released"}
    return [(period, state, done[state]) for period, state in backfill.states.items()]
