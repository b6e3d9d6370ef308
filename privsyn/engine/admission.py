"""The desk at which a release is admitted: small checks over one candidate, in one order, each of which may refuse it.

A refused candidate has read no more than the checks up to there, has drawn nothing and spent nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from privsyn.base.errors import RequestError
from privsyn.engine import checks
from privsyn.engine.candidate import Candidate
from privsyn.engine.policy_checks import check_policy

Check = Callable[[Candidate], None]
"""Raises RequestError, BudgetRefusedError or LedgerError for a candidate that is not admitted."""

REQUEST_CHECKS: tuple[Check, ...] = (
    checks.check_reason,  # a second name for one table is asked for in words, if at all
    check_policy,  # the operator allows it
    checks.check_begun,  # the period has begun, or is asked for early in words
    checks.check_package,  # what the mechanism needs is installed
    checks.check_engine,  # the settings of the counting engine can be trusted
    checks.check_promise,  # promise and cap can be accounted, and the public prior is the stated file
    checks.check_rules,  # some row keeps the rules, and rows the totals
    checks.check_noise,  # the first look would say something
)
"""By public things alone, before anything is locked or opened."""

LEDGER_CHECKS: tuple[Check, ...] = (
    checks.check_ledger,  # it is the right one, whole, writable and has this cap
    checks.check_period,  # the period is not released yet
    checks.check_payer,  # no other private folder was paid for it, for a request that was never seen
    checks.check_room,  # the price fits under the cap, for a request that was never seen
)
"""Under the data set's lock, before the table is looked for."""

TABLE_CHECKS: tuple[Check, ...] = (
    checks.check_columns,  # the table is there, with the spec's columns
    checks.check_public_folder,  # workers that make rows find no private file in their folder
    checks.check_public_inputs,  # nothing that the spec calls public is a private table
)
"""Of the table: its structure, and what its fingerprint tells."""

RUN_CHECKS: tuple[Check, ...] = (
    checks.check_improved,  # the releases that it improves were made of this table and request
    checks.check_redraw,  # nothing that an earlier version was paid for is drawn anew unasked
    checks.check_place,  # the released folder can be written
    checks.check_workers,  # somebody is there to count, somebody else to make rows, where that is asked for
    checks.check_rows,  # every row can be read
)
"""Of the run that would be opened; what it has drawn already is taken up, and asked about no more."""

CHARGE_CHECKS: tuple[Check, ...] = (
    checks.check_paid_tables,  # what was paid for is there
    checks.check_second_price,  # no other private folder was paid for it
    checks.check_duplicate,  # the table has no second name, so that its people have one budget
)
"""Of what is to be charged, before it is reserved."""


def admit(candidate: Candidate, passed: Iterable[Check]) -> None:
    """Ask each check in turn."""
    for check in passed:
        check(candidate)


def check_request(candidate: Candidate) -> None:
    """Refuse a candidate that would be refused for its request, ledger or table; charge and draw nothing.

    For a command that starts a server for its run: what is wrong is said before that.  The rows of a request that was
    seen before are left to the run, which knows whether they are encoded already.
    """
    with hold_lock(candidate):
        admit(candidate, (*LEDGER_CHECKS, *TABLE_CHECKS))
        if candidate.seen is None:
            candidate.source.check_rows()


@contextmanager
def hold_lock(candidate: Candidate) -> Iterator[None]:
    """Hold the data set's lock for a candidate whose request is admitted, and remove what killed runs left.

    The lock makes concurrent releases of one data set wait for each other: one draws, the other finds the result.  The
    operating system holds it, so a killed process leaves none behind; Prefect's own lock files can then only be
    left-overs of a killed run.
    """
    admit(candidate, REQUEST_CHECKS)
    store, dataset = candidate.store, candidate.spec.dataset
    with store.lock(f"release-{dataset}"):
        store.remove_leftovers()
        if candidate.makers is not None:
            store.remove_leftovers(candidate.settings.dask_public_folder)
        candidate.records.remove_leftovers()
        _clear_stale_locks(store.private_root / "prefect" / "locks" / dataset)
        yield


def _clear_stale_locks(folder: Path) -> None:
    if not folder.is_dir():
        return
    for left_over in folder.glob("*.lock"):
        try:
            left_over.unlink()
        except OSError as error:
            raise RequestError(f"cannot remove the stale lock {left_over}", "Check the folder's permissions") from error
