"""Opening a release run: the lock, the ledger's yes, the data's structure, the keys, the reservation.

Belongs here: everything between a validated spec and the first step, in the order that spends nothing
and reads nothing before the ledger agrees.  Does not belong here: running steps (flows/shell.py).

Order: lock -> the right ledger, whole, writable and with this cap -> (a period) is it released? -> (a request never
seen before) is there room? -> structure of the data -> fingerprint -> keys -> (rows that are not encoded yet) can every
row be read? -> reserve what is not yet drawn and begin the period, in one transaction -> steps -> (a period) it is
released.
"""

from __future__ import annotations

import hashlib
import json
import math
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any

from data_contracts.spec import Guarantee, ReleaseSpec
from flows.engines.choice import engine_of
from flows.errors import BudgetRefusedError, LedgerError, PeriodReleasedError, PrivsynError, RequestError
from flows.ledger.ledger import Ledger, Line
from flows.ledger.periods import PeriodRow
from flows.ledger.seen import RECORD, note_ledger, refuse_older
from flows.operations.periods import checked_period
from flows.rounds import steps_of
from flows.settings import Settings
from flows.shell import REDRAW, ReportProgress, Shell, lineage_keys
from flows.source import Source
from flows.step import Inputs, ReleaseStep, Request, Step
from flows.steps import ONE_WAY_MARGINALS, STEPS
from flows.storage.disk import in_words, remove_parts
from flows.storage.record_kinds import (
    CounterRecord,
    DataRecord,
    GenerationRecord,
    LedgerRecord,
    RequestRecord,
    RunRecord,
)
from flows.storage.records import Records, write_json
from flows.storage.store import Store
from tasks.privacy.accountant import Accountant, cap_accountant, rho_for
from tasks.privacy.noise import NoiseSource, OpenDPNoise

NO_REDRAW = "release another period: one period is drawn once"
"""What a release of a period says where its noise is lost."""

MOST_NOISE = 1e8
"""Largest standard deviation of a one-way's total, in records: beyond it `rows: auto` may be too many to make."""


@dataclass(frozen=True)
class Opened:
    """An open run: the shell, and the two roots."""

    shell: Shell
    private: Path
    released: Path

    @property
    def private_folder(self) -> Path:
        """The run's own folder in the private zone."""
        return self.private / "runs" / self.shell.run

    @property
    def private_report(self) -> Path:
        """Where ``privsyn evaluate`` writes the run's private report."""
        return self.private / "reports" / self.shell.run / "report.html"


@dataclass(frozen=True)
class Job:
    """What a run does with the private table: a release, unless told otherwise.

    ``asks``: what is asked beyond the spec, public and JSON-ready; ``shares``: release step -> share of the budget
    (None: the spec's split); ``order``: the columns' order (None: the source's); ``name``: how the run's name begins
    (empty: the data set's name); ``redraw``: how new noise is asked for; ``period``: the period of the data set that
    the run releases, which the ledger lets one run do (None: no period).
    """

    steps: Sequence[Step] = STEPS
    asks: Mapping[str, Any] = field(default_factory=dict)
    shares: Mapping[str, Fraction] | None = None
    order: tuple[str, ...] | None = None
    name: str = ""
    redraw: str = REDRAW
    period: str | None = None


def release_job(spec: ReleaseSpec, period: str | None = None) -> Job:
    """A release of ``spec``, for a period or for none; RequestError where ``period`` is no period's label."""
    steps = steps_of(spec)
    if period is None:
        return Job(steps)
    asks = {"period": checked_period(period)}
    return Job(steps, asks=asks, name=f"{spec.dataset}-{period.lower()}", redraw=NO_REDRAW, period=period)


@contextmanager
def open_run(
    spec: ReleaseSpec,
    settings: Settings,
    *,
    fresh: bool,
    report: ReportProgress,
    noise: NoiseSource | None = None,
    job: Job | None = None,
) -> Iterator[Opened]:
    """Open a run of ``spec``; RequestError or BudgetRefusedError before anything is read or spent.

    The lock makes concurrent releases of one data set wait for each other: one draws, the other finds the
    result.  It is the operating system's, so a killed process leaves none behind; holding it, Prefect's own
    lock files can only be left-overs of a killed run and are removed.
    """
    job = job or release_job(spec)
    agreed = _agreed(spec, settings, fresh=fresh, job=job)
    with agreed as (store, records, ledger), engine_of(spec.engine) as engine:
        request_name = _request_name(spec, job)
        source = Source.open(spec.data, spec)
        fingerprint = store.fingerprint(source.files)
        request = Request(
            spec, job.order or _released_order(source, spec), partial(source.batches), settings.threads,
            unchanged=lambda: store.fingerprint(source.files) == fingerprint, shares=job.shares,
            engine=engine,
        )  # fmt: skip
        source_of_noise = noise or OpenDPNoise()

        def keys_of(number: int, data: str) -> dict[str, str]:
            return lineage_keys(request, data, number, source_of_noise, job.steps, job.period)

        def shell_of(number: int, data: str) -> Shell:
            keys = keys_of(number, data)
            run = _run_name(records, job.name or spec.dataset, keys[job.steps[-1].name])
            money = (store, records, ledger, source_of_noise)
            return Shell(request, keys, run, *money, report, steps=job.steps, redraw=job.redraw)

        def note(*, finished: bool) -> None:
            records.save(generation.counter, {"last": max(generation.last, generation.number)})
            records.save(generation.record, {"generation": generation.number, "finished": finished, "fresh": fresh})
            records.save(request_name, {"dataset": spec.dataset, "finished": finished})

        if job.period is not None:
            begun = ledger.period(spec.dataset, job.period)
            fingerprint = _data_to_finish(records, begun, fingerprint, partial(shell_of, 0))
        generation = _generation(records, keys_of(0, fingerprint), job.steps)
        shell = shell_of(generation.number, fingerprint)
        if fresh and not generation.killed_fresh and (generation.finished or shell.has_drawn()):
            generation = replace(generation, number=generation.last + 1, finished=False)
            shell = shell_of(generation.number, fingerprint)
        while fresh and shell.lost_step():
            generation = replace(generation, number=generation.number + 1, finished=False)
            shell = shell_of(generation.number, fingerprint)
        store.check_place(shell.run)
        if not all(shell.is_whole(step) for step in shell.release_steps):
            engine.open()
        if not shell.is_whole(job.steps[0]):
            source.check_rows()
        records.save(request_name, {"dataset": spec.dataset, "finished": False})  # its room may be its own from here on
        if job.period is not None:
            records.save(f"data-of-{shell.run}", {"fingerprint": fingerprint})
        try:
            lines = shell.missing_budget()
            ledger.register(spec.dataset, spec.budget, cap_accountant(spec.accountant))
            note_ledger(ledger, records, spec.dataset)
            ledger.reserve(spec.dataset, shell.run, lines, spec.privacy.delta, job.period)
        except PrivsynError:
            records.save(request_name, {"dataset": spec.dataset, "finished": True})
            raise
        note_ledger(ledger, records, spec.dataset)  # before any noise is drawn for these charges
        note(finished=generation.finished)
        opened = Opened(shell, settings.private_root, settings.released_root)
        try:
            _write_private_note(opened, source, fingerprint)
            yield opened
        except BaseException:
            shell.give_back()
            raise
        note_ledger(ledger, records, spec.dataset)
        note(finished=True)
        if job.period is not None:
            ledger.release_period(spec.dataset, job.period, shell.run)
            note_ledger(ledger, records, spec.dataset)


def check_request(spec: ReleaseSpec, settings: Settings, *, fresh: bool, job: Job | None = None) -> None:
    """Refuse a release that :func:`open_run` would refuse for its spec, ledger or table; charge and draw nothing.

    For a command that starts a server for its run: what is wrong is said before that.  The rows of a request that was
    seen before are left to :func:`open_run`, which knows whether they are encoded already.
    """
    job = job or release_job(spec)
    with _agreed(spec, settings, fresh=fresh, job=job) as (_, records, _):
        source = Source.open(spec.data, spec)
        if records.load_as(_request_name(spec, job), RequestRecord) is None:
            source.check_rows()


@contextmanager
def _agreed(spec: ReleaseSpec, settings: Settings, *, fresh: bool, job: Job) -> Iterator[tuple[Store, Records, Ledger]]:
    """Hold the data set's lock, once the promises can be accounted and the ledger agrees; no data is looked for."""
    accounted(spec.privacy, "privacy", spec.accountant)
    accounted(spec.budget, "budget", cap_accountant(spec.accountant))
    if job.shares is None:
        _check_noise(Request(spec, (), lambda: ()))
    store = Store(settings.private_root, settings.released_root, spec.dataset)
    records = Records(settings.private_root, spec.dataset)
    with store.lock(f"release-{spec.dataset}"):
        store.remove_leftovers()
        records.remove_leftovers()
        _clear_stale_locks(settings.private_root / "prefect" / "locks" / spec.dataset)
        ledger = Ledger(settings.ledger, create=records.load_as(RECORD, LedgerRecord) is None)
        _check_ledger(ledger, records, spec)
        _refuse_released(ledger, spec.dataset, job.period, fresh=fresh)
        seen = records.load_as(_request_name(spec, job), RequestRecord)
        unbegun = job.period is not None and ledger.period(spec.dataset, job.period) is None
        if seen is None or (seen.finished and (fresh or unbegun)):
            _ask_room(ledger, spec)
        yield store, records, ledger


def _refuse_released(ledger: Ledger, dataset: str, period: str | None, *, fresh: bool) -> None:
    """PeriodReleasedError for a period that has its release, before the data is looked for."""
    if period is None:
        return
    if fresh:
        raise RequestError("a period is drawn once, so it cannot have new noise", "Leave out one of them", "fresh")
    stands = ledger.period(dataset, period)
    if stands is not None and stands.released:
        raise PeriodReleasedError(dataset, period, stands.run)


def _data_to_finish(records: Records, begun: PeriodRow | None, current: str, shell_of: Callable[[str], Shell]) -> str:
    """The fingerprint of the data that a begun period is to be released from.

    A run that has encoded its rows is finished from those, though the table has changed since: its noise may be drawn.
    One that has not has drawn nothing; its charges are given back, and the period is released from the table as it is.
    """
    noted = records.load_as(f"data-of-{begun.run}", DataRecord) if begun is not None else None
    if begun is None or noted is None or noted.fingerprint == current:
        return current
    shell = shell_of(noted.fingerprint)
    if shell.run != begun.run:  # another request's: the ledger decides
        return current
    if shell.is_whole(shell.steps[0]):
        return noted.fingerprint
    shell.give_back()
    return current


def accounted(promise: Guarantee, field: str, accountant: Accountant) -> Fraction:
    """The rho of a promise; RequestError that names ``field`` where it cannot be accounted."""
    try:
        return rho_for(promise.epsilon, promise.delta, accountant)
    except (ValueError, OverflowError):
        raise RequestError(
            f"epsilon {promise.epsilon:g} with delta {promise.delta:g} cannot be accounted",
            "Choose a larger epsilon or delta",
            field,
        ) from None


def _check_noise(request: Request) -> None:
    """Refuse a budget whose one-ways would say nothing of any table: their total could be any number of rows."""
    queries = ONE_WAY_MARGINALS.plan(request, Inputs({}))
    if max(q.sigma * math.sqrt(q.cells) for q in queries) > MOST_NOISE:
        raise RequestError(
            f"epsilon {request.spec.privacy.epsilon:g} means noise of more than {MOST_NOISE:,.0f} records; nothing was "
            "read, nothing was spent",
            "Choose a larger epsilon",
            "privacy.epsilon",
        )


def _check_ledger(ledger: Ledger, records: Records, spec: ReleaseSpec) -> None:
    """The ledger must be the one that this private zone's releases were charged to, with the spec's cap.

    Raises LedgerError for another ledger (an empty one would forget what was spent), for an older copy of the right
    one (flows/ledger/seen.py) and for one that does not add up or takes no entry, RequestError for another cap.  A new
    data set is registered later, when nothing but the reservation is left to refuse.
    """
    ledger.check()
    known = ledger.summary(spec.dataset)
    before = records.load_as(RECORD, LedgerRecord)
    if before is not None and (not known or known[0].created != before.created):
        raise LedgerError(
            f"the releases of {spec.dataset!r} in this private folder were charged to another ledger, not to "
            f"{ledger.name}",
            "Set PRIVSYN_LEDGER to that ledger, or restore it from a backup; nothing was read",
        )
    if before is not None:
        refuse_older(ledger, before, spec.dataset)
    if known:
        ledger.register(spec.dataset, spec.budget)


def _ask_room(ledger: Ledger, spec: ReleaseSpec) -> None:
    """Refuse a request that cannot fit before the data is opened; a new data set has its whole cap."""
    asked = Request(spec, (), lambda: ()).total_rho()
    if ledger.summary(spec.dataset):
        line = Line("release", f"room-{secrets.token_hex(8)}", asked, {"accountant": spec.accountant})
        ledger.check_room(spec.dataset, [line], spec.privacy.delta)
    elif asked > rho_for(spec.budget.epsilon, spec.budget.delta, cap_accountant(spec.accountant)):
        raise BudgetRefusedError(
            f"privacy ({spec.privacy.epsilon:g}, {spec.privacy.delta:g}) costs more than the whole lifetime cap "
            f"({spec.budget.epsilon:g}, {spec.budget.delta:g}); nothing was read, nothing was spent",
            "Lower privacy.epsilon or privacy.delta, or set another cap while the data set is new",
            "budget",
        )


def _request_name(spec: ReleaseSpec, job: Job) -> str:
    """Names the record of a request by what its noise is drawn for; says nothing of the data.

    Two requests of one name draw the same from the same data: they differ in post-processing and publishing only.
    """
    request = Request(spec, job.order or tuple(sorted(spec.released_columns)), lambda: (), shares=job.shares)
    keys = lineage_keys(request, "", 0, OpenDPNoise(), job.steps, job.period)
    drawn_for = [keys[step.name] for step in job.steps if isinstance(step, ReleaseStep)]
    asked = json.dumps([drawn_for, dict(job.asks)], sort_keys=True)
    return f"request-{hashlib.sha256(asked.encode()).hexdigest()}"


def _released_order(source: Source, spec: ReleaseSpec) -> tuple[str, ...]:
    released = spec.released_columns
    return tuple(name for name in source.columns if name in released)


@dataclass(frozen=True)
class _Generation:
    """Which noise of a request is the current one; saved once the ledger has reserved it.

    Numbers are given out once a table of codes (``counter``, ``last``), so that ``fresh`` shares no noise with
    any other request.  ``finished``: a run with this noise was published.  ``killed_fresh``: it was begun by
    ``fresh`` and not finished; the same command again, after a crash, takes it up and pays for no other draw.
    """

    record: str
    number: int
    finished: bool
    killed_fresh: bool
    counter: str
    last: int


def _generation(records: Records, keys: Mapping[str, str], steps: Sequence[Step]) -> _Generation:
    """The current generation of a request, named by the keys (at generation 0) of its first and last steps."""
    last_release = [step.name for step in steps if isinstance(step, ReleaseStep)][-1]
    record, counter = f"generation-{keys[last_release]}", f"generations-{keys[steps[0].name]}"
    found = records.load_as(record, GenerationRecord) or GenerationRecord(generation=0, finished=False, fresh=False)
    last = (records.load_as(counter, CounterRecord) or CounterRecord(last=0)).last
    killed_fresh = found.fresh and not found.finished
    return _Generation(record, found.generation, found.finished, killed_fresh, counter, last)


def _run_name(records: Records, beginning: str, last_key: str) -> str:
    """The run's public name: random, so that it tells nothing of the data; kept so that a re-run finds it."""
    name = f"run-{last_key}"
    record = records.load_as(name, RunRecord)
    if record is None:
        record = RunRecord(run=f"{beginning}-{secrets.token_hex(4)}")
        records.save(name, record.model_dump())
    return record.run


def _write_private_note(opened: Opened, source: Source, fingerprint: str) -> None:
    """The run's private folder: where the data came from and which stored tables belong to the run."""
    folder = opened.private_folder
    with in_words(folder):
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    remove_parts(folder)
    note = {
        "run": opened.shell.run,
        "data": opened.shell.request.spec.data,
        "fingerprint": fingerprint,
        "files": [str(f) for f in source.files],
        "keys": dict(opened.shell.keys),
    }
    write_json(folder / "run.json", note)


def _clear_stale_locks(folder: Path) -> None:
    if not folder.is_dir():
        return
    for left_over in folder.glob("*.lock"):
        try:
            left_over.unlink()
        except OSError as error:
            raise RequestError(f"cannot remove the stale lock {left_over}", "Check the folder's permissions") from error
