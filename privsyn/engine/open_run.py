"""Opening a run: a candidate is admitted, its price reserved, and what it began is noted until it is finished."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager, nullcontext
from datetime import datetime
from importlib.metadata import version

from privsyn.base.errors import PrivsynError
from privsyn.base.interrupts import defer_interrupts
from privsyn.engine import admission
from privsyn.engine.candidate import Candidate
from privsyn.engine.execute import Run
from privsyn.engine.improved_run import name_asked_epsilon
from privsyn.engine.keys import keep_run_name, key_result
from privsyn.engine.lost_tables import restore_lost_tables
from privsyn.ledgers.calendar_periods import find_beginning, format_moment
from privsyn.ledgers.noted_history import note_ledger
from privsyn.sources.public_table import locate_public_file
from privsyn.storage.disk import remove_parts, translate_os_errors
from privsyn.storage.records import write_json
from privsyn.tasks.privacy.accountant import cap_accountant


@contextmanager
def open_run(candidate: Candidate) -> Iterator[Run]:
    """Open the run of a candidate that every check admits, with its whole price reserved; a released period is closed.

    Raises RequestError, BudgetRefusedError or LedgerError before anything is spent.  A run that fails gives back what
    it has not drawn; one that is killed is taken up by the next that asks for the same.
    """
    with (
        defer_interrupts(),
        admission.hold_lock(candidate),
        closing(candidate.engine),
        nullcontext() if candidate.makers is None else closing(candidate.makers),
    ):
        admission.admit(candidate, (*admission.LEDGER_CHECKS, *admission.TABLE_CHECKS))
        _give_back_begun_run(candidate)
        _restore_lost_tables(candidate)
        admission.admit(candidate, admission.RUN_CHECKS)
        _warn_of_old_files(candidate)
        _reserve(candidate)
        run = candidate.run
        _note_generation(candidate, finished=candidate.generation.finished)
        try:
            _write_private_note(candidate)
            yield run
        except BaseException:
            run.give_back()
            raise
        note_ledger(run.ledger, run.records, run.dataset)
        _note_generation(candidate, finished=True)
        run.discard_transient_tables()
        if run.plan.period is not None:
            run.ledger.release_period(run.dataset, run.plan.period, run.name)
            note_ledger(run.ledger, run.records, run.dataset)


def _give_back_begun_run(candidate: Candidate) -> None:
    """Give back the charges of a run that began the period, of a table that has changed since and is not encoded.

    It has drawn nothing, and the period is released from the table as it is.
    """
    run = candidate.begun_run
    if run is not None and not run.is_encoded:
        run.give_back()


def _restore_lost_tables(candidate: Candidate) -> None:
    """Restore noisy tables that were paid for and are lost, unless new noise is asked for, and say which."""
    for step in [] if candidate.fresh else restore_lost_tables(candidate.run):
        candidate.warn(f"The noisy table of the step {step} was lost, and is restored from its released folder.")


def _warn_of_old_files(candidate: Candidate) -> None:
    """Say before a period is paid for that no file was written since it began, or since the last one was released.

    Its rows may not have arrived.  The files' times are looked at, and nothing in them.
    """
    period, dataset = candidate.plan.period, candidate.spec.dataset
    newest = candidate.newest_file if period is not None and candidate.charges else None
    if period is None or newest is None:
        return
    begins = find_beginning(period, candidate.calendar)
    rows = candidate.ledger.periods(dataset)
    released = {row.run for row in rows if row.released and row.period != period}
    last = next((row for row in reversed(rows) if not row.released and row.run in released), None)
    written = f"The newest file of {dataset!r} was written at {format_moment(newest)}, before"
    if last is not None and newest < (moment := datetime.fromisoformat(last.created)):
        candidate.warn(
            f"{written} the release of {last.period} began at {format_moment(moment)}: no file has changed since. The "
            f"rows of {period} may not have arrived, and it is released once."
        )
    elif newest < begins:
        candidate.warn(
            f"{written} the period {period} began at {format_moment(begins)}: its rows may not have arrived, and it is "
            "released once."
        )


def _reserve(candidate: Candidate) -> None:
    """Reserve what is not yet drawn, and begin the period, in one transaction."""
    run, spec, period = candidate.run, candidate.spec, candidate.plan.period
    _note_request(candidate, finished=False)  # its room may be its own
    keep_run_name(run.records, run.name, key_result(run.keys, run.steps))
    if period is not None:
        run.records.save(f"data-of-{run.name}", {"fingerprint": candidate.fingerprints[0]})
    try:
        admission.admit(candidate, admission.CHARGE_CHECKS)
        run.ledger.register(run.dataset, spec.budget, cap_accountant(spec.effective_accountant))
        note_ledger(run.ledger, run.records, run.dataset)
        table = candidate.known_table if candidate.charges else None
        with name_asked_epsilon(spec):
            run.ledger.reserve(
                run.dataset, run.name, candidate.charges, spec.privacy.delta, period, table, candidate.payer
            )
    except PrivsynError:
        _note_request(candidate, finished=True)
        raise
    note_ledger(run.ledger, run.records, run.dataset)  # before any noise is drawn for these charges


def _note_generation(candidate: Candidate, *, finished: bool) -> None:
    generation, records = candidate.generation, candidate.records
    records.save(generation.counter, {"last": max(generation.last, generation.number)})
    record = {"generation": generation.number, "finished": finished, "fresh": candidate.fresh}
    records.save(generation.record, record)
    _note_request(candidate, finished=finished)


def _note_request(candidate: Candidate, *, finished: bool) -> None:
    candidate.records.save(candidate.request_record, {"dataset": candidate.spec.dataset, "finished": finished})


def _write_private_note(candidate: Candidate) -> None:
    """Write the run's private folder: where the data came from and which stored tables belong to the run."""
    run, spec = candidate.run, candidate.spec
    folder = run.private_folder
    with translate_os_errors(folder):
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    remove_parts(folder)
    fingerprint, *file_fingerprints = candidate.fingerprints
    note = {
        "run": run.name,
        "data": candidate.source.pin(spec.place),
        "fingerprint": fingerprint,
        "file_fingerprints": file_fingerprints,
        "files": list(candidate.source.names),
        "keys": dict(run.keys),
        "steps": {step.name: step.version for step in run.steps},
        "version": version("privsyn-flows"),
        "spec": spec.public(),
        "asks": dict(run.plan.asks),
    }
    if spec.prior is not None:
        note["prior"] = str(locate_public_file(spec.prior))
    write_json(folder / "run.json", note)
