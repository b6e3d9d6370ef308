"""The candidate: a release that asks to be admitted, with all that its checks and its run are made of."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cached_property, partial
from pathlib import Path

from privsyn.base.errors import RequestError
from privsyn.base.settings import Settings
from privsyn.counting.dask_engine import DaskEngine
from privsyn.counting.encoded_parts import EncodedParts
from privsyn.counting.engine import Engine, LocalEngine
from privsyn.counting.part_files import Make
from privsyn.counting.partitions import Partition, list_parts
from privsyn.counting.row_work import RowWork
from privsyn.data_contracts.engine_choice import EngineChoice
from privsyn.data_contracts.release_spec import ReleaseSpec
from privsyn.engine.execute import ReportProgress, Run
from privsyn.engine.improved_run import read_earlier_keys
from privsyn.engine.inputs import PrivateAccess
from privsyn.engine.keys import Generation, compute_lineage_keys, key_result, name_request, name_run, read_generation
from privsyn.engine.names_of_tables import check_reason, find_names, map_fingerprints
from privsyn.engine.plan import Plan
from privsyn.ledgers.known_tables import KnownTable
from privsyn.ledgers.ledger import ChargeLine, Ledger
from privsyn.ledgers.noted_history import open_noted_ledger
from privsyn.ledgers.paid_elsewhere import REQUEST, STORE, Payer
from privsyn.ledgers.released_periods import PeriodRow
from privsyn.sources.file_source import FileSource
from privsyn.sources.open_source import AnyPlace, open_source
from privsyn.sources.private_table import Source
from privsyn.storage.record_kinds import DataRecord, RequestRecord
from privsyn.storage.records import Records
from privsyn.storage.store import Store
from privsyn.storage.zones import overlap
from privsyn.tasks.codecs import EncodingPlan
from privsyn.tasks.codecs.numbers import get_short_float
from privsyn.tasks.panels.choose_rows import RowsOfPersons
from privsyn.tasks.panels.row_order import RowOrder
from privsyn.tasks.privacy.noise import NoiseSource, OpenDPNoise

OpenTable = Callable[[AnyPlace, ReleaseSpec], Source]


def log_warning(sentence: str) -> None:
    """Log the sentence: on standard error, unless a program says otherwise."""
    logging.getLogger("privsyn").warning(sentence)


def ignore_progress(step: str, done: int, total: int) -> None:
    """Report nothing."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Candidate:
    """A release that asks to be admitted: its public plan, and how and from where it is asked.

    ``fresh``: new noise is asked for; ``data``: a table in memory in place of ``spec.data`` (None: it is there);
    ``new_dataset``: why a table that is known under another name gets a second one (None: nobody said); ``early``: why
    the period is released before it begins (None: it is not); ``calendar``: the time zone by which it begins (None:
    this computer's); ``opened``: how the private table is opened (None: as a table of the spec's columns); ``warn``:
    who is told, in a sentence, what the caller may not expect.

    What follows from these is worked out, once, when it is first asked for: so ledger, table and noise are opened in
    the order of the checks (privsyn/engine/admission.py), and nothing is before its check.
    """

    plan: Plan
    settings: Settings
    fresh: bool = False
    data: AnyPlace | None = None
    new_dataset: str | None = None
    early: str | None = None
    calendar: str | None = None
    opened: OpenTable | None = None
    noise: NoiseSource = field(default_factory=OpenDPNoise)
    report: ReportProgress = ignore_progress
    warn: Callable[[str], None] = log_warning

    @property
    def spec(self) -> ReleaseSpec:
        """The spec of what is asked for."""
        return self.plan.request.spec

    @property
    def reason_for_new_name(self) -> str:
        """The stated reason for the table's second name, or nothing.  Raises RequestError for one that says nothing."""
        return check_reason(self.new_dataset, "release.new_dataset", "why these people get a second budget")

    @property
    def reason_for_early_period(self) -> str:
        """The stated reason for a period before it begins, or nothing.  Raises RequestError as above."""
        return check_reason(self.early, "release.early", "why the period is released before it begins")

    @cached_property
    def store(self) -> Store:
        """The step artifacts of the data set."""
        settings = self.settings
        return Store(settings.private_root, settings.released_root, self.spec.dataset, settings.released_store)

    @cached_property
    def records(self) -> Records:
        """The private records of the data set."""
        return Records(self.settings.private_root, self.spec.dataset)

    @cached_property
    def ledger(self) -> Ledger:
        """The ledger, which is made only where this private folder has charged nothing to any."""
        return Ledger(self.settings.ledger, create=open_noted_ledger(self.records) is None)

    @cached_property
    def request_record(self) -> str:
        """The name of the record of this request."""
        return name_request(self.plan)

    @property
    def payer(self) -> Payer | None:
        """Who pays for the request; None where a second price is asked for, and of a period, which is drawn once."""
        if self.fresh or self.plan.period is not None:
            return None
        return Payer(self.store.identity, self.request_record, self.plan.redraw)

    @cached_property
    def seen(self) -> RequestRecord | None:
        """What is recorded of the same request before; None if it was never seen."""
        return self.records.load_as(self.request_record, RequestRecord)

    @cached_property
    def begun_period(self) -> PeriodRow | None:
        """Where the period stands that is to be released; None without one, and before it is begun."""
        period = self.plan.period
        return None if period is None else self.ledger.period(self.spec.dataset, period)

    @cached_property
    def engine(self) -> Engine:
        """Who counts the rows; it opens nothing before it has to count."""
        return choose_engine(self.spec.engine, self.settings)

    @cached_property
    def makers(self) -> DaskEngine | None:
        """The engine whose workers make synthetic rows and are sent no private ones; None: the one that counts."""
        return choose_makers(self.spec.engine, self.settings)

    @cached_property
    def source(self) -> Source:
        """The private table, whose structure fits the spec."""
        place = self.spec.place if self.data is None else self.data
        if self.opened is not None:
            return self.opened(place, self.spec)
        return open_source(place, self.spec, RowOrder(self.store.row_key))

    @property
    def newest_file(self) -> datetime | None:
        """When the newest file of the private table was written, in UTC; None of a table that is not in files here."""
        sources = (self.source, *self.source.further.values())
        files = [file for source in sources if isinstance(source, FileSource) for file in source.files]
        written = [file.stat().st_mtime for file in files if isinstance(file, Path)]
        return datetime.fromtimestamp(max(written), UTC) if written else None

    @cached_property
    def table_fingerprints(self) -> tuple[str, ...]:
        """The fingerprints of the private table as it is now: of the whole, then of its files."""
        return self.source.fingerprints(self.store)

    @cached_property
    def ordered_plan(self) -> Plan:
        """The plan of the run: its columns in the table's order, where the request has none, and the threads to use."""
        released = self.spec.released_columns
        order = tuple(name for name in self.source.columns if name in released)
        short = frozenset(
            name
            for source in (self.source, *self.source.further.values())
            for name, stored in source.types.items()
            if get_short_float(stored) is not None
        )
        return replace(self.plan, request=self.plan.request.order_columns(order, self.settings.threads, short))

    @cached_property
    def given(self) -> dict[str, str]:
        """Step -> key, of steps whose tables an earlier run has that this one improves."""
        fingerprint = self.table_fingerprints[0]
        return read_earlier_keys(
            self.ordered_plan, fingerprint, type(self.noise), self.settings, self.store, self.records, self.ledger
        )

    @cached_property
    def begun_run(self) -> Run | None:
        """The run that began the period, of a table that has changed since; None if there is no such run here."""
        begun = self.begun_period
        noted = None if begun is None else self.records.load_as(f"data-of-{begun.run}", DataRecord)
        if begun is None or noted is None or noted.fingerprint == self.table_fingerprints[0]:
            return None
        run = self._build_run(0, noted.fingerprint)
        return run if run.name == begun.run else None  # another request's: the ledger decides

    @cached_property
    def fingerprints(self) -> tuple[str, ...]:
        """The fingerprints of the data to release: those of the table, unless a begun period has encoded others.

        A run that has encoded its rows is finished from those, though the table has changed since: its noise may be
        drawn.
        """
        whole, *files = self.table_fingerprints
        begun, noted = self.begun_run, None
        if begun is not None and begun.is_encoded:
            noted = self.records.load_as(f"data-of-{begun.name}", DataRecord)
        return (whole if noted is None else noted.fingerprint, *files)

    @cached_property
    def _draw(self) -> tuple[Generation, Run]:
        """The draw to continue or to begin, and its run.

        ``fresh`` takes the next generation, unless it was killed before it finished one or that one's tables are lost.
        """
        steps, fingerprint = self.ordered_plan.steps, self.fingerprints[0]
        generation = read_generation(self.records, self._compute_keys(0, fingerprint), steps)
        run = self._build_run(generation.number, fingerprint)
        if self.fresh and not generation.killed_fresh and (generation.finished or run.has_drawn(self.given)):
            generation = replace(generation, number=generation.last + 1, finished=False)
            run = self._build_run(generation.number, fingerprint)
        while self.fresh and run.lost_step() not in (None, *self.given):
            generation = replace(generation, number=generation.number + 1, finished=False)
            run = self._build_run(generation.number, fingerprint)
        return generation, run

    @property
    def generation(self) -> Generation:
        """The generation of the request's noise that is continued or begun."""
        return self._draw[0]

    @property
    def run(self) -> Run:
        """The run that is opened if every check is passed."""
        return self._draw[1]

    @cached_property
    def charges(self) -> list[ChargeLine]:
        """The charges of the run: one a release step whose noise has not been drawn.

        Raises LostNoiseError if noise was paid for but its table is gone or changed.
        """
        return self.run.missing_budget()

    @cached_property
    def known_table(self) -> KnownTable:
        """The table as this private folder and the ledger may know it under another name."""
        names_by_fingerprint = map_fingerprints(self.settings.private_root, self.ledger.entries())
        own_fingerprints = frozenset(names_by_fingerprint.get(self.spec.dataset, ()))
        elsewhere = find_names(names_by_fingerprint, set(self.fingerprints) - own_fingerprints) - {self.spec.dataset}
        mark = partial(self.store.mark, "table")
        return KnownTable(self.fingerprints, mark, elsewhere, own_fingerprints, self.reason_for_new_name)

    def _compute_keys(self, generation: int, fingerprint: str) -> Mapping[str, str]:
        plan = self.ordered_plan
        return compute_lineage_keys(
            plan.request, fingerprint, generation, type(self.noise), plan.steps, plan.period, known_keys=self.given
        )

    def _build_run(self, generation: int, fingerprint: str) -> Run:
        plan, keys = self.ordered_plan, self._compute_keys(generation, fingerprint)
        order = RowOrder(self.store.row_key)
        return Run(
            plan=plan,
            private=PrivateAccess(
                RowsOfPersons(self.source.batches, order),
                self._is_unchanged,
                self.engine,
                self._encode_parts,
                {name: RowsOfPersons(source.batches, order) for name, source in self.source.further.items()},
            ),
            keys=keys,
            name=name_run(self.records, plan.name or self.spec.dataset, key_result(keys, plan.steps)),
            store=self.store,
            records=self.records,
            ledger=self.ledger,
            noise=self.noise,
            report=self.report,
            public_work=None if self.makers is None else self._open_public_work,
            charged_as=self._describe_charges(),
        )

    def _describe_charges(self) -> dict[str, str]:
        """Return what the ledger notes with each charge: the private folder's identity, the request, and any reason."""
        early = self.reason_for_early_period
        return {STORE: self.store.identity, REQUEST: self.request_record, **({"early": early} if early else {})}

    def make_public_folder(self) -> Path:
        """Make a folder that this process shares with the workers that make rows, and return it."""
        return self.store.make_scratch(self.settings.dask_public_folder)

    def _open_public_work(self) -> RowWork:
        """Return the work of post-processing in parts, by workers that see one folder of rows in the making."""
        return RowWork(self.makers, self.make_public_folder, self.settings.threads, apart=True)

    def _encode_parts(self, encoding: EncodingPlan, with_numbers: bool) -> tuple[Make, list[Partition]] | None:
        """Return what encodes parts of the private table; None of one that is encoded at once."""
        source = self.source
        if not isinstance(source, FileSource) or source.layout.format != "parquet":
            return None
        files = [file.absolute() for file in source.files if isinstance(file, Path)]
        parts = list_parts(files) if len(files) == len(source.files) else []
        return (EncodedParts(source.read, encoding, with_numbers).make, parts) if parts else None

    def _is_unchanged(self) -> bool:
        """Return whether the table is, when it is asked, what is to be released."""
        same = self.source.fingerprint(self.store) == self.fingerprints[0]
        self.source.close()  # a snapshot must not outlast what reads it: a database keeps old rows for it
        return same


def choose_engine(choice: EngineChoice, settings: Settings) -> Engine:
    """Return the engine of a run, which opens nothing before a run needs to count, and is to be closed at its end.

    Raises RequestError if the settings of a cluster cannot be trusted.
    """
    return LocalEngine() if choice.kind == "local" else DaskEngine(choice.workers, settings)


def choose_makers(choice: EngineChoice, settings: Settings) -> DaskEngine | None:
    """Return the engine whose workers make synthetic rows and are sent no private ones; None where there is none.

    Raises RequestError if the settings of its cluster cannot be trusted, or its folder is not apart from both roots.
    """
    if choice.kind == "local" or not settings.dask_public:
        return None
    folder = settings.dask_public_folder
    roots = (settings.private_root, settings.released_root)
    if folder is None or not folder.is_dir() or any(overlap(folder, root) for root in roots):
        raise RequestError(
            "is not a folder apart from the private and the released one",
            "Name one that lies in neither, holds neither, and is at the same path for the second scheduler's workers",
            "settings.dask_public_folder",
        )
    return DaskEngine(0, settings, "dask_public")
