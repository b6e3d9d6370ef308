"""Opening a run: it takes the data set's lock, checks ledger and data, works out the keys and reserves the budget.

Order: policy -> lock -> the right ledger, whole, writable and with this cap -> (a period) is it released? -> (a request
never seen before) is there room? -> structure of the data -> fingerprint -> no public input is a private
table -> keys -> (rows that are not encoded yet) can
every row be read? -> is the table known under another name? -> reserve what is not yet drawn and begin the period, in
one transaction -> steps -> (a period) it is released.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from importlib.metadata import version
from pathlib import Path

from privsyn.base.errors import PrivsynError, RequestError
from privsyn.base.interrupts import defer_interrupts
from privsyn.base.settings import Settings
from privsyn.counting.chosen_engine import open_engine
from privsyn.data_contracts.release_spec import ReleaseSpec
from privsyn.engine.earlier_runs import refuse_silent_redraw
from privsyn.engine.execute import ReportProgress, Run
from privsyn.engine.generations import keep_run_name, read_generation, request_name, run_name
from privsyn.engine.improved_run import read_earlier_keys
from privsyn.engine.inputs import PrivateAccess
from privsyn.engine.job import Job
from privsyn.engine.keys import compute_lineage_keys
from privsyn.engine.ledger_checks import check_ledger, check_room, refuse_released_period
from privsyn.engine.names_of_tables import check_reason, find_names, map_fingerprints
from privsyn.engine.policy_checks import check_policy
from privsyn.engine.public_inputs import PrivateTables
from privsyn.engine.request import Request
from privsyn.engine.request_checks import check_package, check_rules
from privsyn.ledgers.known_tables import KnownTable
from privsyn.ledgers.ledger import Ledger
from privsyn.ledgers.noted_history import note_ledger, open_noted_ledger
from privsyn.ledgers.released_periods import PeriodRow
from privsyn.sources.open_source import open_source
from privsyn.sources.private_table import Source, SupportsArrowStream
from privsyn.sources.public_table import locate_public_file
from privsyn.storage.disk import remove_parts, translate_os_errors
from privsyn.storage.record_kinds import DataRecord, RequestRecord
from privsyn.storage.records import Records, write_json
from privsyn.storage.store import Store
from privsyn.tasks.privacy.accountant import cap_accountant
from privsyn.tasks.privacy.noise import NoiseSource, OpenDPNoise


@contextmanager
def open_run(
    spec: ReleaseSpec,
    settings: Settings,
    *,
    fresh: bool,
    report: ReportProgress,
    job: Job,
    noise: NoiseSource | None = None,
    data: SupportsArrowStream | None = None,
) -> Iterator[Run]:
    """Open a run of ``spec``; RequestError or BudgetRefusedError before anything is read or spent.

    ``data``: a table in memory in place of ``spec.data``; None: the table is at ``spec.data``.

    The lock makes concurrent releases of one data set wait for each other: one draws, the other finds the
    result.  The operating system holds it, so a killed process leaves none behind; Prefect's own lock files can
    then only be left-overs of a killed run, and are removed.
    """
    check_reason(job.new_dataset)
    spec = spec if data is None else spec.model_copy(update={"data": ""})
    agreed = _hold_lock(spec, settings, fresh=fresh, job=job)
    with defer_interrupts(), agreed as (store, records, ledger), open_engine(spec.engine, settings) as engine:
        request_record = request_name(spec, job)
        source = (job.opened or open_source)(spec.data if data is None else data, spec)
        fingerprint, *file_fingerprints = source.fingerprints(store)
        own = (fingerprint, *file_fingerprints)
        PrivateTables(source, own, store, ledger, settings.private_root).refuse_as_public(spec, records)
        plan = job.plan(Request(spec, job.order or _list_released_order(source, spec), settings.threads))
        private = PrivateAccess(source.batches, lambda: source.fingerprint(store) == fingerprint, engine)
        source_of_noise = noise or OpenDPNoise()

        given = read_earlier_keys(plan, fingerprint, type(source_of_noise), settings, store, records, ledger)

        def keys_of(number: int, data: str) -> dict[str, str]:
            return compute_lineage_keys(
                plan.request, data, number, type(source_of_noise), job.steps, job.period, given=given
            )

        def build_run(number: int, data: str) -> Run:
            keys = keys_of(number, data)
            return Run(
                plan=plan,
                private=private,
                keys=keys,
                name=run_name(records, job.name or spec.dataset, keys[job.steps[-1].name]),
                store=store,
                records=records,
                ledger=ledger,
                noise=source_of_noise,
                report=report,
                redraw=job.redraw,
            )

        def note(*, finished: bool) -> None:
            records.save(generation.counter, {"last": max(generation.last, generation.number)})
            records.save(generation.record, {"generation": generation.number, "finished": finished, "fresh": fresh})
            records.save(request_record, {"dataset": spec.dataset, "finished": finished})

        if job.period is not None:
            begun = ledger.period(spec.dataset, job.period)
            fingerprint = _choose_data(records, begun, fingerprint, partial(build_run, 0))
        generation = read_generation(records, keys_of(0, fingerprint), job.steps)
        run = build_run(generation.number, fingerprint)
        if fresh and not generation.killed_fresh and (generation.finished or run.has_drawn(given)):
            generation = replace(generation, number=generation.last + 1, finished=False)
            run = build_run(generation.number, fingerprint)
        if not fresh and not run.has_drawn_all():
            refuse_silent_redraw(run, settings, fingerprint, job.asks)
        while fresh and run.lost_step() not in (None, *given):
            generation = replace(generation, number=generation.number + 1, finished=False)
            run = build_run(generation.number, fingerprint)
        store.released.check_place(run.name)
        if not all(run.is_whole(step) for step in run.release_steps):
            engine.open()
        if not run.is_whole(job.steps[0]):
            source.check_rows()
        keep_run_name(records, run.name, run.keys[job.steps[-1].name])
        records.save(request_record, {"dataset": spec.dataset, "finished": False})  # its room may be its own
        if job.period is not None:
            records.save(f"data-of-{run.name}", {"fingerprint": fingerprint})
        try:
            lines = run.missing_budget()
            table = _find_known_table(run, settings, (fingerprint, *file_fingerprints), job) if lines else None
            if table is not None:
                ledger.check_table(spec.dataset, table)  # before its name is entered
            ledger.register(spec.dataset, spec.budget, cap_accountant(spec.accountant))
            note_ledger(ledger, records, spec.dataset)
            ledger.reserve(spec.dataset, run.name, lines, spec.privacy.delta, job.period, table)
        except PrivsynError:
            records.save(request_record, {"dataset": spec.dataset, "finished": True})
            raise
        note_ledger(ledger, records, spec.dataset)  # before any noise is drawn for these charges
        note(finished=generation.finished)
        try:
            _write_private_note(run, source, (fingerprint, *file_fingerprints), job)
            yield run
        except BaseException:
            run.give_back()
            raise
        note_ledger(ledger, records, spec.dataset)
        note(finished=True)
        if job.period is not None:
            ledger.release_period(spec.dataset, job.period, run.name)
            note_ledger(ledger, records, spec.dataset)


def check_request(
    spec: ReleaseSpec, settings: Settings, *, fresh: bool, job: Job, data: SupportsArrowStream | None = None
) -> None:
    """Refuse a release that :func:`open_run` would refuse for its spec, ledger or table; charge and draw nothing.

    For a command that starts a server for its run: what is wrong is said before that.  The rows of a request that was
    seen before are left to :func:`open_run`, which knows whether they are encoded already.
    """
    check_reason(job.new_dataset)
    with _hold_lock(spec, settings, fresh=fresh, job=job) as (store, records, ledger):
        source = (job.opened or open_source)(spec.data if data is None else data, spec)
        if spec.public_inputs:
            own = source.fingerprints(store)
            PrivateTables(source, own, store, ledger, settings.private_root).refuse_as_public(spec, records)
        if records.load_as(request_name(spec, job), RequestRecord) is None:
            source.check_rows()


@contextmanager
def _hold_lock(
    spec: ReleaseSpec, settings: Settings, *, fresh: bool, job: Job
) -> Iterator[tuple[Store, Records, Ledger]]:
    """Hold the data set's lock, once the promises can be accounted and the ledger agrees; no data is looked for."""
    check_policy(spec, job, settings)
    check_package(spec)
    plan = job.plan(check_rules(Request(spec)))
    plan.check_noise()
    store = Store(settings.private_root, settings.released_root, spec.dataset)
    records = Records(settings.private_root, spec.dataset)
    with store.lock(f"release-{spec.dataset}"):
        store.remove_leftovers()
        records.remove_leftovers()
        _clear_stale_locks(settings.private_root / "prefect" / "locks" / spec.dataset)
        ledger = Ledger(settings.ledger, create=open_noted_ledger(records) is None)
        check_ledger(ledger, records, spec)
        refuse_released_period(ledger, spec.dataset, job.period, fresh=fresh)
        seen = records.load_as(request_name(spec, job), RequestRecord)
        unbegun = job.period is not None and ledger.period(spec.dataset, job.period) is None
        if seen is None or (seen.finished and (fresh or unbegun)):
            check_room(ledger, spec)
        yield store, records, ledger


def _choose_data(records: Records, begun: PeriodRow | None, current: str, build_run: Callable[[str], Run]) -> str:
    """Return the fingerprint of the data that a begun period is to be released from.

    A run that has encoded its rows is finished from those, though the table has changed since: its noise may be drawn.
    One that has not has drawn nothing; its charges are given back, and the period is released from the table as it is.
    """
    noted = records.load_as(f"data-of-{begun.run}", DataRecord) if begun is not None else None
    if begun is None or noted is None or noted.fingerprint == current:
        return current
    run = build_run(noted.fingerprint)
    if run.name != begun.run:  # another request's: the ledger decides
        return current
    if run.is_whole(run.steps[0]):
        return noted.fingerprint
    run.give_back()
    return current


def _list_released_order(source: Source, spec: ReleaseSpec) -> tuple[str, ...]:
    released = spec.released_columns
    return tuple(name for name in source.columns if name in released)


def _find_known_table(run: Run, settings: Settings, fingerprints: Sequence[str], job: Job) -> KnownTable:
    """Return the run's table as this private folder and the ledger may know it under another name."""
    known = map_fingerprints(settings.private_root, run.ledger.entries())
    own = frozenset(known.get(run.dataset, ()))
    elsewhere = find_names(known, set(fingerprints) - own) - {run.dataset}
    mark = partial(run.store.mark, "table")
    return KnownTable(fingerprints, mark, elsewhere, own, check_reason(job.new_dataset))


def _write_private_note(run: Run, source: Source, fingerprints: Sequence[str], job: Job) -> None:
    """Write the run's private folder: where the data came from and which stored tables belong to the run."""
    folder = run.private_folder
    with translate_os_errors(folder):
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    remove_parts(folder)
    note = {
        "run": run.name,
        "data": run.request.spec.data,
        "fingerprint": fingerprints[0],
        "file_fingerprints": list(fingerprints[1:]),
        "files": list(source.names),
        "keys": dict(run.keys),
        "version": version("privsyn-flows"),
        "spec": run.request.spec.public(),
        "asks": dict(job.asks),
    }
    stated = run.request.spec.prior
    if stated is not None:
        note["prior"] = str(locate_public_file(stated))
    write_json(folder / "run.json", note)


def _clear_stale_locks(folder: Path) -> None:
    if not folder.is_dir():
        return
    for left_over in folder.glob("*.lock"):
        try:
            left_over.unlink()
        except OSError as error:
            raise RequestError(f"cannot remove the stale lock {left_over}", "Check the folder's permissions") from error
