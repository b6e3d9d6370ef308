"""The accountant of a request that names none.

It is that of the data set's registered cap; for a data set that is new to the ledger, DEFAULT_ACCOUNTANT.  A request
that this private folder has under EARLIER_DEFAULT keeps that one, so that what was begun is finished, and not charged
again.  What a request names is left alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, Literal, Protocol, Self, TypeVar

from privsyn.base.errors import LedgerError, LedgerMissingError
from privsyn.base.settings import Settings
from privsyn.data_contracts.presets import DEFAULT_ACCOUNTANT
from privsyn.data_contracts.release_spec import ReleaseSpec
from privsyn.engine.keys import name_request
from privsyn.engine.plan import Plan
from privsyn.ledgers.dataset_summary import DatasetSummary
from privsyn.ledgers.ledger import Ledger
from privsyn.storage.record_kinds import RequestRecord
from privsyn.storage.records import Records, locate_private_records
from privsyn.tasks.privacy.accountant import Accountant

EARLIER_DEFAULT: Final[Literal["gaussian"]] = "gaussian"
"""The accountant of version 0.3.0 for requests that name none."""


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
    """Return the request under its accountant, which is found if it names none; nothing is written.

    ``plan``: its public plan under an accountant; ``fresh``: new noise is asked for.  Raises LedgerError for a ledger
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
    """Return the request under the accountant that a release would have now, and why, for a forecast or a check.

    ``settings``: where the ledger is (None: none is asked).  A ledger that cannot be read is taken for one that does
    not know the data set.
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
        return _set_accountant(spec, DEFAULT_ACCOUNTANT), f"the ledger does not know {spec.dataset!r}"
    return _set_accountant(spec, known.accountant), f"the ledger counts the cap of {spec.dataset!r} by it"


def read_dataset_summary(dataset: str, settings: Settings) -> DatasetSummary | None:
    """Return what the ledger knows of a data set; None for a name that is new to it.  No ledger is made."""
    try:
        summaries = Ledger(settings.ledger, create=False).summary(dataset)
    except LedgerMissingError:
        return None
    return summaries[0] if summaries else None


def _set_accountant(spec: Spec, accountant: Accountant) -> Spec:
    """Return the request under ``accountant``, which nobody asked for: the field counts as not given."""
    settled = spec.model_copy(update={"accountant": accountant})
    settled.model_fields_set.discard("accountant")
    return settled


def _read_record(spec: Spec, private_root: Path, plan: Callable[[Spec], Plan]) -> RequestRecord | None:
    """Return what this private folder has recorded of a request; None of one that it has not seen."""
    if not locate_private_records(private_root, spec.dataset).is_dir():
        return None
    return Records(private_root, spec.dataset).load_as(name_request(plan(spec)), RequestRecord)
