"""Charges that a run asks for: which are new, whether they fit under the cap, and their entries."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, Literal, cast

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from privsyn.base.budget_words import format_share
from privsyn.base.errors import BudgetRefusedError, LedgerError, RequestError
from privsyn.base.wording import mention
from privsyn.data_contracts.promise import Guarantee
from privsyn.ledgers.audit import Dataset, Entry, charge_states, format_canonically, hash_entry, sum_spent_rho
from privsyn.ledgers.schema import entries_table, ledger_table
from privsyn.tasks.privacy.accountant import Accountant, convert_rho_to_epsilon

Event = Literal["reserve", "spent", "abandon", "cancel"]


@dataclass(frozen=True)
class ChargeLine:
    """One charge that a run asks for: a release step, its lineage key, its exact price.

    ``detail["accountant"]``: the accountant that the price is proved for; without it, zCDP.
    """

    step: str
    key: str
    rho: Fraction
    detail: dict[str, Any] = field(default_factory=dict)


def fit_charges(
    dataset: Dataset, entries: Sequence[Entry], lines: Sequence[ChargeLine], delta: float | None
) -> list[ChargeLine]:
    """Return the lines that are new charges, once each.  Raises BudgetRefusedError if they exceed the cap."""
    if any(line.rho <= 0 for line in lines):
        raise ValueError("every line of a reservation has a positive rho")
    for line in lines:
        if not dataset.takes(_name_accountant(line)):
            raise make_no_price_error(dataset, _name_accountant(line))
    charged = {key: state.rho for key, state in charge_states(entries).items() if state.holds}
    new: dict[str, ChargeLine] = {}
    for line in lines:
        if line.key not in charged:
            new[line.key], charged[line.key] = line, line.rho
        elif charged[line.key] != line.rho:
            raise LedgerError(
                f"the charge {line.key[:16]} of {dataset.name!r} is in the ledger at another price",
                "The lineage key must cover the step's budget; report this",
            )
    price, spent = sum((line.rho for line in new.values()), Fraction(0)), sum_spent_rho(entries)
    if spent + price > dataset.rho:
        raise make_over_budget_error(dataset, spent, price, delta or dataset.cap.delta, _name_accountant(lines[0]))
    return list(new.values())


def list_unheld(entries: Sequence[Entry], lines: Sequence[ChargeLine]) -> list[ChargeLine]:
    """Return the lines whose keys are not paid for."""
    charged = {key for key, state in charge_states(entries).items() if state.holds}
    return [line for line in lines if line.key not in charged]


def _name_accountant(line: ChargeLine) -> str:
    return str(line.detail.get("accountant", "tight"))


def append_entry(connection: Connection, dataset: Dataset, run: str, line: ChargeLine, event: Event) -> None:
    """Append one entry to the chain; the caller's transaction holds the ledger's lock."""
    count, head = connection.execute(sa.select(ledger_table.c.entries, ledger_table.c.head)).one()
    values: dict[str, Any] = {
        "id": int(count) + 1,
        "dataset": dataset.name,
        "run": run,
        "step": line.step,
        "key": line.key,
        "event": event,
        "rho": as_text(line.rho),
        "detail": format_canonically(line.detail),
        "created": format_now(),
        "prev_hash": str(head),
    }
    values["hash"] = hash_entry(values, dataset)
    connection.execute(entries_table.insert().values(**values))
    connection.execute(ledger_table.update().values(entries=values["id"], head=values["hash"]))


def as_text(rho: Fraction) -> str:
    """Return an exact rho in the ledger's form, "numerator/denominator"."""
    return f"{rho.numerator}/{rho.denominator}"


def format_now() -> str:
    """Return the current moment in UTC, in the ledger's form."""
    return dt.datetime.now(dt.UTC).isoformat(timespec="microseconds")


def make_another_cap_error(registered: Dataset, cap: Guarantee) -> RequestError:
    """Return the error for a spec whose lifetime cap is not the ledger's."""
    return RequestError(
        f"the ledger holds epsilon {registered.cap.epsilon:g}, delta {registered.cap.delta:g} as the lifetime cap of "
        f"{registered.name!r} since {registered.created}, but the spec asks for epsilon {cap.epsilon:g}, delta "
        f"{cap.delta:g}",
        "A cap is set once: write the ledger's cap, or give truly different people's data another name",
        "budget",
    )


def make_no_price_error(dataset: Dataset, accountant: str) -> RequestError:
    """Return the error for a charge whose accountant has no price in the data set's cap."""
    return RequestError(
        f"the cap of {dataset.name!r} is counted in Gaussian differential privacy, for which noise under accountant "
        f"{accountant!r} has no price; nothing was spent",
        "Write accountant: gaussian, which also fits the preset `paper`, or leave it out without that preset",
        "accountant",
    )


def make_over_budget_error(
    dataset: Dataset, spent: Fraction, price: Fraction, delta: float, accountant: str
) -> BudgetRefusedError:
    """Return the error for a run that would exceed the cap, with what still fits at ``delta`` under ``accountant``."""
    cap, remaining = dataset.cap, max(dataset.rho - spent, Fraction(0))

    def both(rho: Fraction) -> str:
        return f"{format_share(rho, dataset.rho)} (rho {float(rho):.4g}, epsilon {dataset.epsilon(rho):.4g})"

    fits = float(f"{convert_rho_to_epsilon(remaining, delta, cast(Accountant, accountant)) * 0.9995:.3e}")
    cure = (
        f"At delta {delta:g} at most epsilon {fits:.4g} still fits: lower " + mention("privacy.epsilon") + " to that"
        if fits > 0
        else "Nothing is left; the data set cannot be looked at again"
    )
    return BudgetRefusedError(
        f"the budget of {dataset.name!r} does not allow this: spent so far {both(spent)}, asked {both(price)}, "
        f"left {both(remaining)}, of the cap of rho {float(dataset.rho):.4g}, epsilon {cap.epsilon:g} at delta "
        f"{cap.delta:g}; "
        "nothing was spent",
        cure,
        "budget",
    )
