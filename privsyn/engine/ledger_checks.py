"""The ledger before a run: it is the right one, has room for the request, and its period is not released."""

from __future__ import annotations

import secrets

from privsyn.base.errors import BudgetRefusedError, LedgerError, PeriodReleasedError, RequestError
from privsyn.base.wording import mention
from privsyn.data_contracts.release_spec import ReleaseSpec
from privsyn.engine.request import Request
from privsyn.ledgers.ledger import Ledger, Line
from privsyn.ledgers.noted_history import open_noted_ledger, refuse_older
from privsyn.storage.records import Records
from privsyn.tasks.privacy.accountant import cap_accountant, convert_epsilon_to_rho


def refuse_released_period(ledger: Ledger, dataset: str, period: str | None, *, fresh: bool) -> None:
    """Raise PeriodReleasedError for a period that has its release, before the data is looked for."""
    if period is None:
        return
    if fresh:
        raise RequestError(
            "a period is drawn once, so it cannot have new noise", "Leave out one of them", "release.fresh"
        )
    stands = ledger.period(dataset, period)
    if stands is not None and stands.released:
        raise PeriodReleasedError(dataset, period, stands.run)


def check_ledger(ledger: Ledger, records: Records, spec: ReleaseSpec) -> None:
    """Check that this private zone's releases were charged to this ledger, and that it has the spec's cap.

    Raises LedgerError for another ledger (an empty one would forget what was spent), for an older copy of the right
    one (privsyn/ledgers/noted_history.py) and for one that does not add up or takes no entry, RequestError for another
    cap. A new data set is registered later, when nothing but the reservation is left to refuse.
    """
    ledger.check()
    known = ledger.summary(spec.dataset)
    before = open_noted_ledger(records)
    if before is not None and (not known or known[0].created != before.created):
        raise LedgerError(
            f"the releases of {spec.dataset!r} in this private folder were charged to another ledger, not to "
            f"{ledger.name}",
            "Set " + mention("settings.ledger") + " to that ledger, or restore it from a backup; nothing was read",
        )
    if before is not None:
        refuse_older(ledger, before, spec.dataset)
    if known:
        ledger.register(spec.dataset, spec.budget)


def check_room(ledger: Ledger | None, spec: ReleaseSpec) -> None:
    """Refuse a request that cannot fit before the data is opened; a new data set has its whole cap.

    ``ledger``: None where the data set is new to it, or no ledger is there yet.
    """
    asked = Request(spec).rounds[-1]
    if ledger is not None and ledger.summary(spec.dataset):
        line = Line("release", f"room-{secrets.token_hex(8)}", asked, {"accountant": spec.accountant})
        ledger.check_room(spec.dataset, [line], spec.privacy.delta)
    elif asked > convert_epsilon_to_rho(spec.budget.epsilon, spec.budget.delta, cap_accountant(spec.accountant)):
        raise BudgetRefusedError(
            f"privacy ({spec.privacy.epsilon:g}, {spec.privacy.delta:g}) costs more than the whole lifetime cap "
            f"({spec.budget.epsilon:g}, {spec.budget.delta:g}); nothing was read, nothing was spent",
            "Lower privacy.epsilon or privacy.delta, or set another cap while the data set is new",
            "budget",
        )
