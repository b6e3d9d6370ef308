"""The part of its data set's lifetime cap that a release would use, as text, before it is charged."""

from __future__ import annotations

from fractions import Fraction

from privsyn.base.budget_words import describe_epsilon, describe_use, format_share
from privsyn.data_contracts.release_spec import ReleaseSpec
from privsyn.engine.plan import account_rho
from privsyn.ledgers.dataset_summary import DatasetSummary
from privsyn.tasks.privacy.accountant import cap_accountant, convert_rho_to_epsilon


def describe_use_after(spec: ReleaseSpec, price: Fraction, state: DatasetSummary | None) -> tuple[str, str]:
    """Return the used share of the cap after a release of ``price`` (rho), and the same as an epsilon, as text.

    ``state``: the ledger's summary of the data set; None: its name is new, and the cap is the spec's.
    """
    accountant = cap_accountant(spec.effective_accountant) if state is None else state.accountant
    cap = spec.budget if state is None else state.cap
    cap_rho = account_rho(spec.budget, "budget", accountant) if state is None else state.cap_rho
    spent = Fraction(0) if state is None else state.rho
    if spent + price > cap_rho:
        asked, left = format_share(price, cap_rho), format_share(cap_rho - spent, cap_rho)
        use = f"this release asks for {asked}, but {left} is left: the ledger will refuse it"
    else:
        use = describe_use(spent + price, cap_rho, price, "this one")
    return use, describe_epsilon(convert_rho_to_epsilon(spent + price, cap.delta, accountant), cap.epsilon, cap.delta)
