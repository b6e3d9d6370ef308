"""Admission of a release: small checks in a fixed order; each may refuse it.

A refused release has opened only what the earlier checks needed, has drawn nothing and spent nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import ParamSpec

from privsyn.base.errors import BudgetRefusedError, LedgerError, RequestError
from privsyn.engine import checks
from privsyn.engine.draw import Draw
from privsyn.engine.policy_checks import check_policy
from privsyn.engine.proposal import Books, Proposal, has_makers, open_books, open_store, open_table
from privsyn.ledgers.known_tables import KnownTable
from privsyn.sources.private_table import Source
from privsyn.storage.records import Records
from privsyn.storage.store import Store

Handed = ParamSpec("Handed")

REQUEST_CHECKS: tuple[Callable[[Proposal], None], ...] = (
    checks.check_new_name,  # a second name for one table has a reason
    check_policy,  # the operator allows it
    checks.check_begun,  # the period has begun, or its early release has a reason
    checks.check_package,  # the mechanism's package is installed
    checks.check_engine,  # the settings of the counting engine are secure
    checks.check_promise,  # promise and cap can be accounted, and the public prior is the stated file
    checks.check_rules,  # some row fulfils the rules, and some rows the totals
    checks.check_noise,  # the first look is informative
)
"""Checks of public facts, before anything is locked or opened."""

LEDGER_CHECKS: tuple[Callable[[Proposal, Books], None], ...] = (
    checks.check_ledger,  # it is the right ledger, consistent, writable and has this cap
    checks.check_period,  # the period is not released yet
    checks.check_payer,  # no other private folder paid for it, if the request was never seen
    checks.check_room,  # the price fits under the cap, if the request was never seen
)
"""Checks under the data set's lock, before opening the table, which fails if it is missing or has other columns."""

TABLE_CHECKS: tuple[Callable[[Proposal, Books, Source], None], ...] = (
    checks.check_public_folder,  # workers that make rows find no private file in their folder
)
"""Checks of the table's place and structure, before its fingerprint is taken."""

DATA_CHECKS: tuple[Callable[[Proposal, Books, Source, tuple[str, ...]], None], ...] = (
    checks.check_public_inputs,  # nothing that the spec calls public is a private table
)
"""Checks of the table's fingerprints, before its draw is chosen (which refuses to improve another table's releases)."""

RUN_CHECKS: tuple[Callable[[Draw], None], ...] = (
    checks.check_redraw,  # nothing that an earlier version was paid for is drawn again unasked
    checks.check_place,  # the released folder can be written
    checks.check_workers,  # workers that count, and others that make rows, are running if needed
    checks.check_rows,  # every row can be read
)
"""Checks of the run that would be opened; steps that it has already drawn are reused without checks."""

CHARGE_CHECKS: tuple[Callable[[Proposal, Books, KnownTable], None], ...] = (
    checks.check_second_price,  # no other private folder paid for it
    checks.check_duplicate,  # the table has no second name, so its people have one budget
)
"""Checks of a run that needs charges, before they are reserved."""


def admit(passed: Iterable[Callable[Handed, None]], *handed: Handed.args, **named: Handed.kwargs) -> None:
    """Run each check in turn on the given arguments.

    A check raises RequestError, BudgetRefusedError or LedgerError to refuse.
    """
    for check in passed:
        check(*handed, **named)


def check_request(proposal: Proposal) -> None:
    """Refuse a proposal that would be refused for its request, ledger or table; charge and draw nothing.

    For a command that starts a server for its run, so that errors appear first.  The rows of a request that was seen
    before are left to the run, which knows whether they are already encoded.
    """
    with open_desk(proposal) as (books, source):
        if proposal.spec.public_inputs:
            admit(DATA_CHECKS, proposal, books, source, source.fingerprints(books.store))
        if books.load_request() is None:
            source.check_rows()


@contextmanager
def open_desk(proposal: Proposal) -> Iterator[tuple[Books, Source]]:
    """Open lock, ledger and table for a proposal's admission, each after the checks before it."""
    admit(REQUEST_CHECKS, proposal)
    store = open_store(proposal)
    with _hold_lock(proposal, store):
        books = open_books(proposal, store)
        with _note_refused_period(proposal, books):
            admit(LEDGER_CHECKS, proposal, books)
            source = open_table(proposal, store)
            admit(TABLE_CHECKS, proposal, books, source)
            yield books, source


@contextmanager
def _note_refused_period(proposal: Proposal, books: Books) -> Iterator[None]:
    """Note in the ledger that the budget refuses a period; the refusal stands even if the note cannot be added."""
    try:
        yield
    except BudgetRefusedError:
        if proposal.plan.period is not None:
            with suppress(LedgerError):
                books.ledger.refuse_period(proposal.spec.dataset, proposal.plan.period)
        raise


@contextmanager
def _hold_lock(proposal: Proposal, store: Store) -> Iterator[None]:
    """Hold the data set's lock, and remove leftovers of killed runs.

    The lock makes concurrent releases of one data set wait for each other: one draws, the other finds the result.  The
    operating system holds it, so a killed process leaves none behind; Prefect's own lock files can then only be
    leftovers of a killed run.
    """
    settings, dataset = proposal.settings, proposal.spec.dataset
    with store.lock(f"release-{dataset}"):
        store.remove_leftovers()
        if has_makers(proposal.spec.engine, settings):
            store.remove_leftovers(settings.dask_public_folder)
        Records(settings.private_root, dataset).remove_leftovers()
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
