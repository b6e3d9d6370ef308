"""The draw that a release continues or begins: its run, and the generation of its noise."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from privsyn.counting.encoded_parts import EncodedParts
from privsyn.counting.part_files import Make
from privsyn.counting.partitions import Partition, list_parts
from privsyn.counting.row_work import RowWork
from privsyn.engine.execute import Run
from privsyn.engine.improved_run import read_earlier_keys
from privsyn.engine.inputs import PrivateAccess
from privsyn.engine.keys import Generation, compute_lineage_keys, key_result, name_run, read_generation
from privsyn.engine.opening import Books, Engines
from privsyn.engine.plan import Plan
from privsyn.engine.proposal import Proposal
from privsyn.ledgers.known_tables import REQUEST, STORE
from privsyn.sources.file_source import FileSource
from privsyn.sources.private_table import Source
from privsyn.storage.records import DataRecord
from privsyn.storage.store import Store
from privsyn.tasks.codecs import EncodingPlan
from privsyn.tasks.panels.choose_rows import RowsOfPersons
from privsyn.tasks.panels.row_order import RowOrder


@dataclass(frozen=True)
class RunMaker:
    """Makes the runs of a proposal, for any generation of noise.

    ``plan``: the proposal's, with its columns in the table's order; ``known_keys``: step -> key, for steps whose tables
    come from an earlier run that this one improves.
    """

    proposal: Proposal
    books: Books
    source: Source
    engines: Engines
    plan: Plan
    known_keys: Mapping[str, str]

    def compute_keys(self, generation: int, fingerprint: str) -> Mapping[str, str]:
        """Return the keys of the steps at this generation, for the data with this fingerprint."""
        plan, noise = self.plan, type(self.proposal.noise)
        return compute_lineage_keys(
            plan.request, fingerprint, generation, noise, plan.steps, plan.period, known_keys=self.known_keys
        )

    def build_run(self, generation: int, fingerprint: str) -> Run:
        """Return the run of this generation, for the data with this fingerprint."""
        plan, books, source, engines = self.plan, self.books, self.source, self.engines
        keys, order = self.compute_keys(generation, fingerprint), RowOrder(books.store.row_key)
        early = self.proposal.read_reason_for_early_period()
        noted = {STORE: self.books.store.identity, REQUEST: self.books.request}
        return Run(
            plan=plan,
            private=PrivateAccess(
                RowsOfPersons(source.batches, order),
                partial(_is_unchanged, source, books.store, fingerprint),
                engines.counts,
                partial(_encode_parts, source),
                {name: RowsOfPersons(further.batches, order) for name, further in source.further_tables.items()},
            ),
            keys=keys,
            name=name_run(books.records, plan.name or self.proposal.spec.dataset, key_result(keys, plan.steps)),
            store=books.store,
            records=books.records,
            ledger=books.ledger,
            noise=self.proposal.noise,
            report=self.proposal.report,
            public_work=None if engines.makes is None else self._open_public_work,
            charged_as={**noted, "early": early} if early else noted,
        )

    def _open_public_work(self) -> RowWork:
        """Return the work of post-processing in parts, by workers that see only a folder of unfinished rows."""
        settings = self.proposal.settings
        make_folder = partial(self.books.store.make_scratch, settings.dask_public_folder)
        return RowWork(self.engines.makes, make_folder, settings.threads, apart=True)


@dataclass(frozen=True)
class Draw:
    """The run that is opened if every check passes, and its data.

    ``fingerprints``: of the released data; ``generation``: of its noise.
    """

    proposal: Proposal
    source: Source
    engines: Engines
    fingerprints: tuple[str, ...]
    generation: Generation
    run: Run


def prepare_runs(
    proposal: Proposal, books: Books, source: Source, engines: Engines, fingerprints: tuple[str, ...]
) -> RunMaker:
    """Return the maker of a proposal's runs; ``fingerprints``: of the current table.

    Raises RequestError if the releases that it improves were made of another table or request.
    """
    released = proposal.spec.released_columns
    order = tuple(name for name in source.columns if name in released)
    request = proposal.plan.request.order_columns(order, proposal.settings.threads)
    plan, noise = replace(proposal.plan, request=request), type(proposal.noise)
    settings, store, records, ledger = proposal.settings, books.store, books.records, books.ledger
    given = read_earlier_keys(plan, fingerprints[0], noise, settings, store, records, ledger)
    return RunMaker(proposal, books, source, engines, plan, given)


def find_begun_run(maker: RunMaker, fingerprints: tuple[str, ...]) -> tuple[Run, str] | None:
    """Return the run that began the period, and its data's fingerprint, if the table has changed since.

    None if there is no such run here.
    """
    period, books = maker.plan.period, maker.books
    begun = None if period is None else books.ledger.period(maker.proposal.spec.dataset, period)
    noted = None if begun is None else books.records.load_as(f"data-of-{begun.run}", DataRecord)
    if begun is None or noted is None or noted.fingerprint == fingerprints[0]:
        return None
    run = maker.build_run(0, noted.fingerprint)
    return (run, noted.fingerprint) if run.name == begun.run else None  # another request began it: the ledger decides


def choose_draw(maker: RunMaker, fingerprints: tuple[str, ...]) -> Draw:
    """Return the draw of this data to continue or to begin.

    ``fresh`` takes the next generation, unless an unfinished ``fresh`` run was killed; it skips generations with lost
    tables.
    """
    proposal, steps, fingerprint = maker.proposal, maker.plan.steps, fingerprints[0]
    generation = read_generation(maker.books.records, maker.compute_keys(0, fingerprint), steps)
    run = maker.build_run(generation.number, fingerprint)
    if proposal.fresh and not generation.killed_fresh and (generation.finished or run.has_paid(maker.known_keys)):
        generation = replace(generation, number=generation.last + 1, finished=False)
        run = maker.build_run(generation.number, fingerprint)
    while proposal.fresh and run.lost_step() not in (None, *maker.known_keys):
        generation = replace(generation, number=generation.number + 1, finished=False)
        run = maker.build_run(generation.number, fingerprint)
    return Draw(proposal, maker.source, maker.engines, fingerprints, generation, run)


def _encode_parts(source: Source, encoding: EncodingPlan, with_numbers: bool) -> tuple[Make, list[Partition]] | None:
    """Return a function that encodes parts of the private table, and the parts; None for a table encoded at once."""
    if not isinstance(source, FileSource) or source.layout.format != "parquet":
        return None
    files = [file.absolute() for file in source.files if isinstance(file, Path)]
    parts = list_parts(files) if len(files) == len(source.files) else []
    return (EncodedParts(source.read, encoding, with_numbers).make, parts) if parts else None


def _is_unchanged(source: Source, store: Store, fingerprint: str) -> bool:
    """Return whether the table is now the same as the one to release."""
    same = source.fingerprint(store) == fingerprint
    source.close()  # a snapshot must not outlive its reader: a database keeps old rows for it
    return same
