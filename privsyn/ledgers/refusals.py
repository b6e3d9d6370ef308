"""The ledger's refusals: another cap, an accountant without a price, and a budget that would be passed."""

from __future__ import annotations

from fractions import Fraction
from typing import cast

from privsyn.base.errors import BudgetRefusedError, RequestError
from privsyn.base.wording import mention
from privsyn.data_contracts.promise import Guarantee
from privsyn.ledgers.audit import Dataset
from privsyn.tasks.privacy.accountant import Accountant, convert_rho_to_epsilon


def make_another_cap_error(known: Dataset, cap: Guarantee) -> RequestError:
    """Return the refusal of a spec whose lifetime cap is not the ledger's."""
    return RequestError(
        f"the ledger holds epsilon {known.cap.epsilon:g}, delta {known.cap.delta:g} as the lifetime cap of "
        f"{known.name!r} since {known.created}, and the spec asks for epsilon {cap.epsilon:g}, delta {cap.delta:g}",
        "A cap is set once: write the ledger's cap, or give truly different people's data another name",
        "budget",
    )


def make_no_price_error(dataset: Dataset, accountant: str) -> RequestError:
    """Return the refusal of a charge under an accountant that the data set's cap cannot add up."""
    return RequestError(
        f"the cap of {dataset.name!r} is counted in Gaussian differential privacy, for which noise under accountant "
        f"{accountant!r} has no price; nothing was spent",
        "Write accountant: gaussian, which the preset `paper` takes too",
        "accountant",
    )


def make_over_budget_error(
    dataset: Dataset, spent: Fraction, asked: Fraction, delta: float, accountant: str
) -> BudgetRefusedError:
    """Return refusal of a run that would pass the cap, with what would still fit at ``delta`` under ``accountant``."""
    cap, left = dataset.cap, max(dataset.rho - spent, Fraction(0))

    def both(rho: Fraction) -> str:
        return f"rho {float(rho):.4g} (epsilon {dataset.epsilon(rho):.4g})"

    fits = float(f"{convert_rho_to_epsilon(left, delta, cast(Accountant, accountant)) * 0.9995:.3e}")
    cure = (
        f"At delta {delta:g} at most epsilon {fits:.4g} still fits: lower " + mention("privacy.epsilon") + " to that"
        if fits > 0
        else "Nothing is left; the data set cannot be looked at again"
    )
    return BudgetRefusedError(
        f"the budget of {dataset.name!r} does not allow this: spent so far {both(spent)}, asked {both(asked)}, "
        f"cap {both(dataset.rho)}, left {both(left)}, epsilons at the cap's delta {cap.delta:g}; nothing was spent",
        cure,
        "budget",
    )
