"""The accountant of a request that names none, and what a release would use of its data set's cap, as text.

It is the accountant of the data set's registered cap; DEFAULT_ACCOUNTANT for a data set that is new to the ledger.  A
request that this private folder began under EARLIER_DEFAULT keeps it, so that it is finished and not charged again.  An
accountant that the request names is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fractions import Fraction
from pathlib import Path
from typing import Any, Final, Literal, Protocol, Self, TypeVar

from privsyn.base.errors import LedgerError, LedgerMissingError
from privsyn.base.settings import Settings
from privsyn.base.wording import describe_epsilon, describe_use, format_share
from privsyn.data_contracts.presets import DEFAULT_ACCOUNTANT
from privsyn.data_contracts.release_spec import ReleaseSpec
from privsyn.engine.keys import name_request
from privsyn.engine.plan import Plan, account_rho
from privsyn.ledgers.audit import DatasetSummary
from privsyn.ledgers.ledger import Ledger
from privsyn.storage.records import Records, RequestRecord, locate_private_records
from privsyn.tasks.privacy.accountant import Accountant, cap_accountant, convert_rho_to_epsilon

EARLIER_DEFAULT: Final[Literal["gaussian"]] = "gaussian"
"""The default accountant of version 0.3.0."""


class AccountedSpec(Protocol):
    """A public request of any kind, as pydantic models are: a data set and its accountant."""

    @property
    def dataset(self) -> str:
        """The ledger's name of the data set."""

    @property
    def accountant(self) -> Accountant | None:
        """The accountant; None: the request names none."""

    @property
    def model_fields_set(self) -> set[str]:
        """Names of the fields that were given."""

    def model_copy(self, *, update: Mapping[str, Any] | None = None) -> Self:
        """Return a copy with other values of some fields."""


Spec = TypeVar("Spec", bound=AccountedSpec)


def settle_accountant(spec: Spec, settings: Settings, plan: Callable[[Spec], Plan], *, fresh: bool = False) -> Spec:
    """Return the request with its accountant, chosen if it names none; nothing is written.

    ``plan``: returns the request's public plan; ``fresh``: new noise is asked for.  Raises LedgerError for a ledger
    that cannot be read.
    """
    if spec.accountant is not None:
        return spec
    known = read_dataset_summary(spec.dataset, settings)
    settled = _set_accountant(spec, DEFAULT_ACCOUNTANT if known is None else known.accountant)
    if known is None or settled.accountant == EARLIER_DEFAULT:
        return settled
    earlier = _set_accountant(spec, EARLIER_DEFAULT)
    seen, seen_earlier = (_read_record(request, settings.private_root, plan) for request in (settled, earlier))
    keeps = seen is None and seen_earlier is not None and not (fresh and seen_earlier.finished)
    return earlier if keeps else settled


def assume_accountant(spec: ReleaseSpec, settings: Settings | None) -> tuple[ReleaseSpec, str]:
    """Return the request with the accountant that a release would use now, and the reason, for a forecast or a check.

    ``settings``: the settings with the ledger (None: no ledger).  A ledger that cannot be read counts as one without
    the data set.
    """
    if spec.accountant is not None:
        return spec, "the spec says so"
    if settings is None:
        return _set_accountant(spec, DEFAULT_ACCOUNTANT), "no ledger was asked"
    try:
        known = read_dataset_summary(spec.dataset, settings)
    except LedgerError:
        return _set_accountant(spec, DEFAULT_ACCOUNTANT), "the ledger cannot be read"
    if known is None:
        return _set_accountant(spec, DEFAULT_ACCOUNTANT), f"{spec.dataset!r} is new to the ledger"
    return _set_accountant(spec, known.accountant), f"the ledger counts the cap of {spec.dataset!r} by it"


def read_dataset_summary(dataset: str, settings: Settings) -> DatasetSummary | None:
    """Return the ledger's summary of a data set; None for an unknown one.  No ledger is created."""
    try:
        summaries = Ledger(settings.ledger, create=False).summary(dataset)
    except LedgerMissingError:
        return None
    return summaries[0] if summaries else None


def _set_accountant(spec: Spec, accountant: Accountant) -> Spec:
    """Return the request with ``accountant`` as a default: the field counts as not given."""
    settled = spec.model_copy(update={"accountant": accountant})
    settled.model_fields_set.discard("accountant")
    return settled


def _read_record(spec: Spec, private_root: Path, plan: Callable[[Spec], Plan]) -> RequestRecord | None:
    """Return this private folder's record of a request; None if it was never seen."""
    if not locate_private_records(private_root, spec.dataset).is_dir():
        return None
    return Records(private_root, spec.dataset).load_as(name_request(plan(spec)), RequestRecord)


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
