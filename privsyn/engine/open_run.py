"""Opening a run: admit a proposal, reserve its price, and record what it began until it is finished.

Paid noisy tables that are lost here are restored from released folders, which hold the same bytes.  A private folder
copied to another path also has them, under old paths in its records: these are found first.  A released folder has each
noisy table byte for byte, with its SHA-256 in the manifest.  A restored table is already released, so nothing is drawn,
charged or read from private rows for it.

The order of a release:

- checks of the request, of the ledger under its lock, and of the table (admission.py)
- its fingerprint, checks of the data, the keys and the draw
- lost tables are restored; checks of the run
- checks of the charge, then one reservation for all looks
- the record, the steps, the publishing
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from importlib.metadata import version
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from privsyn.base.calendar_periods import find_beginning, format_moment
from privsyn.base.errors import PrivsynError
from privsyn.base.interrupts import defer_interrupts
from privsyn.data_contracts.artifacts import ArtifactRef
from privsyn.engine import admission
from privsyn.engine.draw import Draw, RunMaker, choose_draw, find_begun_run, prepare_runs
from privsyn.engine.execute import Run
from privsyn.engine.improved_run import name_asked_epsilon
from privsyn.engine.keys import keep_run_name, key_result
from privsyn.engine.proposal import Books, Proposal, choose_engines, find_payer
from privsyn.engine.step import ReleaseStep
from privsyn.engine.step_tables import StepRefs, format_record_name, write_outputs
from privsyn.ledgers.known_tables import KnownTable, find_names, map_fingerprints
from privsyn.ledgers.ledger import note_ledger
from privsyn.sources.file_source import FileSource
from privsyn.sources.private_table import Source
from privsyn.storage.disk import remove_parts, translate_os_errors
from privsyn.storage.named_files import locate_public_file
from privsyn.storage.records import read_note, write_json
from privsyn.storage.released_files import read_manifest_if_readable
from privsyn.tasks.privacy.accountant import cap_accountant


def _restore_lost_tables(draw: Draw) -> None:
    """Restore paid noisy tables that are missing or changed, unless new noise is asked for, and name their steps.

    A table that no released folder holds whole stays lost.  A table that is at its place under this root was not lost.
    """
    run = draw.run
    lost = [] if draw.proposal.fresh else [step for step in run.list_lost_steps() if not _find_here(run, step)]
    for step in lost:
        if any(_restore(run, step, tables) for tables in _list_copies(run, step)):
            draw.proposal.warn(
                f"The noisy table of the step {step.name} was lost and is restored from its released folder."
            )


def _find_here(run: Run, step: ReleaseStep) -> bool:
    """Record the step's tables at their places under this root; False if they are not whole there."""
    recorded = _read_record(run, step)
    if recorded is None:
        return False
    refs = {name: run.store.place_here(ref, run.dataset) for name, ref in recorded.tables.items()}
    return _record(run, step, refs)


def _read_record(run: Run, step: ReleaseStep) -> StepRefs | None:
    try:
        return run.records.load_as(format_record_name(run.keys[step.name]), StepRefs)
    except PrivsynError:
        return None


def _record(run: Run, step: ReleaseStep, refs: Mapping[str, ArtifactRef]) -> bool:
    """Record the tables if they are the ones that the step wrote when its noise was drawn; return whether they are."""
    key = run.keys[step.name]
    if refs.keys() != step.outputs.keys() or not all(run.store.verify(ref) for ref in refs.values()):
        return False
    done = StepRefs(step=step.name, key=key, tables=dict(refs))
    run.records.save(format_record_name(key), done.model_dump(mode="json"))
    return True


def _list_copies(run: Run, step: ReleaseStep) -> Iterator[Mapping[str, bytes]]:
    """Yield the step's tables from its runs' released folders, each checked against the manifest."""
    for folder in _list_folders(run, step):
        manifest = read_manifest_if_readable(folder)
        if manifest is None or not manifest.differentially_private or manifest.run != folder.name:
            continue
        tables = {}
        for name in step.outputs:
            file = step.published[name].name if name in step.published else ""
            content = _read_plain_file(folder / file) if file in manifest.files else None
            if content is not None and hashlib.sha256(content).hexdigest() == manifest.files[file].sha256:
                tables[name] = content
        if tables.keys() == step.outputs.keys():
            yield tables


def _read_plain_file(path: Path) -> bytes | None:
    try:
        return None if path.is_symlink() else path.read_bytes()
    except OSError:
        return None


def _list_folders(run: Run, step: ReleaseStep) -> list[Path]:
    """Return the released folders of runs that share the step's noise, as named by the ledger and private notes."""
    key, roots = run.keys[step.name], {run.name: run.store.released_root}
    for note in sorted((run.store.private_root / "runs").glob("*/run.json")):
        keys = read_note(note).get("keys")
        if isinstance(keys, Mapping) and keys.get(step.name) == key:
            roots[note.parent.name] = run.store.released_root
    folders = [root / name for name, root in roots.items()]
    for entry in run.ledger.entries(run.dataset):
        if entry.event == "reserve" and (entry.step, entry.key) == (step.name, key):
            noted = entry.detail.get("released_root", run.store.released_root)
            folders += [run.store.released_root / entry.run, Path(noted) / entry.run]
    return list(dict.fromkeys(folders))


def _restore(run: Run, step: ReleaseStep, tables: Mapping[str, bytes]) -> bool:
    """Put the tables in their places; False if they differ from those recorded at the draw."""
    recorded = _read_record(run, step)
    if recorded is None:
        return _write_anew(run, step, tables)
    refs = {name: run.store.put_back(ref, tables[name]) for name, ref in recorded.tables.items() if name in tables}
    return _record(run, step, refs)


def _write_anew(run: Run, step: ReleaseStep, tables: Mapping[str, bytes]) -> bool:
    """Write and record tables without a record; only the manifest and the step's contract vouch for them."""
    try:
        outputs = {name: pq.read_table(pa.BufferReader(content)) for name, content in tables.items()}
        write_outputs(step, outputs, run.keys[step.name], run.store, run.records, validate=run.validate)
    except (PrivsynError, pa.ArrowException, ValueError):
        return False
    return run.is_whole(step)


@contextmanager
def open_run(proposal: Proposal) -> Iterator[Run]:
    """Open the run of an admitted proposal, with its whole price reserved; close its period when it is published.

    Raises RequestError, BudgetRefusedError or LedgerError before anything is spent.  A failed run gives back the
    charges that it has not drawn; the next run of the same request continues a killed one.
    """
    with defer_interrupts(), admission.open_desk(proposal) as (books, source):
        engines = choose_engines(proposal)
        with engines.close_at_end():
            fingerprints = source.fingerprints(books.store)
            admission.admit(admission.DATA_CHECKS, proposal, books, source, fingerprints)
            maker = prepare_runs(proposal, books, source, engines, fingerprints)
            draw = choose_draw(maker, _settle_begun_run(maker, fingerprints))
            _restore_lost_tables(draw)
            admission.admit(admission.RUN_CHECKS, draw)
            _warn_of_old_files(draw)
            _reserve(draw, books)
            run = draw.run
            _note_generation(draw, books, finished=draw.generation.finished)
            try:
                _write_private_note(draw)
                yield run
            except BaseException:
                run.give_back()
                raise
            note_ledger(run.ledger, run.records, run.dataset)
            _note_generation(draw, books, finished=True)
            run.discard_transient_tables()
            if run.plan.period is not None:
                run.ledger.release_period(run.dataset, run.plan.period, run.name)
                note_ledger(run.ledger, run.records, run.dataset)


def _settle_begun_run(maker: RunMaker, fingerprints: tuple[str, ...]) -> tuple[str, ...]:
    """Return the fingerprints of the data to release: the table's, unless the run that began the period encoded others.

    Such a run is finished from its encoded rows although the table has changed since, because its noise may be drawn.
    A run that is not encoded has drawn nothing; its charges are given back, and the current table is released.
    """
    begun = find_begun_run(maker, fingerprints)
    if begun is None:
        return fingerprints
    run, fingerprint = begun
    if run.is_encoded:
        return (fingerprint, *fingerprints[1:])
    run.give_back()
    return fingerprints


def _warn_of_old_files(draw: Draw) -> None:
    """Warn, before a period is paid for, if no file was written since it began or since the last release.

    Its rows may not have arrived.  Only the files' times are read.
    """
    proposal, run = draw.proposal, draw.run
    period, dataset = run.plan.period, run.dataset
    newest = _find_newest_time(draw.source) if period is not None and run.list_unsettled_charges() else None
    if period is None or newest is None:
        return
    begins = find_beginning(period, proposal.calendar)
    rows = run.ledger.periods(dataset)
    released = {row.run for row in rows if row.released and row.period != period}
    last = next((row for row in reversed(rows) if not row.released and row.run in released), None)
    written = f"The newest file of {dataset!r} was written at {format_moment(newest)}, before"
    if last is not None and newest < (moment := datetime.fromisoformat(last.created)):
        proposal.warn(
            f"{written} the release of {last.period} began at {format_moment(moment)}: no file has changed since. The "
            f"rows of {period} may not have arrived, and it is released once."
        )
    elif newest < begins:
        proposal.warn(
            f"{written} the period {period} began at {format_moment(begins)}: its rows may not have arrived, and it is "
            "released once."
        )


def _find_newest_time(source: Source) -> datetime | None:
    """Return when the private table's newest file was written (UTC); None for a table without local files."""
    tables = (source, *source.further_tables.values())
    files = [file for table in tables if isinstance(table, FileSource) for file in table.files]
    written = [file.stat().st_mtime for file in files if isinstance(file, Path)]
    return datetime.fromtimestamp(max(written), UTC) if written else None


def _reserve(draw: Draw, books: Books) -> None:
    """Reserve the charges that are not yet drawn, and begin the period, in one transaction."""
    run, proposal = draw.run, draw.proposal
    spec, period = proposal.spec, run.plan.period
    _note_request(draw, books, finished=False)  # a re-run may already hold its charges
    keep_run_name(run.records, run.name, key_result(run.keys, run.steps))
    if period is not None:
        run.records.save(f"data-of-{run.name}", {"fingerprint": draw.fingerprints[0]})
    try:
        charges = run.list_unsettled_charges()
        table = _name_table(draw) if charges else None
        if table is not None:
            admission.admit(admission.CHARGE_CHECKS, proposal, books, table)
        run.ledger.register(run.dataset, spec.budget, cap_accountant(spec.effective_accountant))
        note_ledger(run.ledger, run.records, run.dataset)
        with name_asked_epsilon(spec):
            payer = find_payer(proposal, books)
            run.ledger.reserve(run.dataset, run.name, charges, spec.privacy.delta, period, table, payer)
    except PrivsynError:
        _note_request(draw, books, finished=True)
        raise
    note_ledger(run.ledger, run.records, run.dataset)  # before any noise is drawn for these charges


def _name_table(draw: Draw) -> KnownTable:
    """Return the table with the names under which this private folder and the ledger may know it."""
    run, proposal = draw.run, draw.proposal
    by_name = map_fingerprints(proposal.settings.private_root, run.ledger.entries())
    own = frozenset(by_name.get(run.dataset, ()))
    elsewhere = find_names(by_name, set(draw.fingerprints) - own) - {run.dataset}
    reason = proposal.read_reason_for_new_name()
    return KnownTable(draw.fingerprints, partial(run.store.mark, "table"), elsewhere, own, reason)


def _note_generation(draw: Draw, books: Books, *, finished: bool) -> None:
    generation, records = draw.generation, books.records
    records.save(generation.counter, {"last": max(generation.last, generation.number)})
    record = {"generation": generation.number, "finished": finished, "fresh": draw.proposal.fresh}
    records.save(generation.record, record)
    _note_request(draw, books, finished=finished)


def _note_request(draw: Draw, books: Books, *, finished: bool) -> None:
    books.records.save(books.request, {"dataset": draw.run.dataset, "finished": finished})


def _write_private_note(draw: Draw) -> None:
    """Write the run's private note: the data's place, and the keys of the run's stored tables."""
    run, spec = draw.run, draw.proposal.spec
    folder = run.private_folder
    with translate_os_errors(folder):
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    remove_parts(folder)
    fingerprint, *file_fingerprints = draw.fingerprints
    note = {
        "run": run.name,
        "data": draw.source.pin(spec.place),
        "fingerprint": fingerprint,
        "file_fingerprints": file_fingerprints,
        "files": list(draw.source.names),
        "keys": dict(run.keys),
        "steps": {step.name: step.version for step in run.steps},
        "version": version("privsyn-flows"),
        "spec": spec.public(),
        "asks": dict(run.plan.asks),
    }
    if spec.prior is not None:
        note["prior"] = str(locate_public_file(spec.prior))
    write_json(folder / "run.json", note)
