"""A proposal: a requested release, with its public plan and how it is requested; and the resources that it opens.

One function opens each resource; the caller calls them in the order of the checks.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, nullcontext
from dataclasses import dataclass, field

from privsyn.base.errors import RequestError
from privsyn.base.registry import load_part
from privsyn.base.settings import Settings
from privsyn.counting.engine import ClusterEngine, Engine, LocalEngine
from privsyn.data_contracts.release_spec import EngineChoice, ReleaseSpec
from privsyn.engine.execute import ReportProgress
from privsyn.engine.keys import name_request
from privsyn.engine.plan import Plan
from privsyn.ledgers.known_tables import Payer, check_reason
from privsyn.ledgers.ledger import Ledger, open_noted_ledger
from privsyn.sources.open_source import AnyPlace, open_source
from privsyn.sources.private_table import Source
from privsyn.storage.records import Records, RequestRecord
from privsyn.storage.released_root import overlap
from privsyn.storage.store import Store
from privsyn.tasks.panels.row_order import RowOrder
from privsyn.tasks.privacy.noise import NoiseSource, OpenDPNoise

OpenTable = Callable[[AnyPlace, ReleaseSpec], Source]


def log_warning(sentence: str) -> None:
    """Log the sentence, by default on standard error."""
    logging.getLogger("privsyn").warning(sentence)


def ignore_progress(step: str, done: int, total: int) -> None:
    """Report nothing."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Proposal:
    """A requested release.

    Attributes:
        plan: Its public plan.
        settings: The settings to release with.
        fresh: New noise is asked for.
        data: A table in memory, or a place, instead of ``spec.data``; None: ``spec.data``.
        new_dataset: Why a table known under another name gets a second one; None: no reason is stated.
        early: Why the period is released before it begins; None: it is not.
        calendar: The time zone of the period's beginning; None: this computer's.
        opened: Opens the private table; None: it is opened as a table of the spec's columns.
        engine: Counts the rows; None: the engine that the spec names.
        noise: The source of noise.
        report: Called with progress.
        warn: Called with a sentence that the caller may not expect.
    """

    plan: Plan
    settings: Settings
    fresh: bool = False
    data: AnyPlace | None = None
    new_dataset: str | None = None
    early: str | None = None
    calendar: str | None = None
    opened: OpenTable | None = None
    engine: Engine | None = None
    noise: NoiseSource = field(default_factory=OpenDPNoise)
    report: ReportProgress = ignore_progress
    warn: Callable[[str], None] = log_warning

    @property
    def spec(self) -> ReleaseSpec:
        """The spec of the request."""
        return self.plan.request.spec

    def read_reason_for_new_name(self) -> str:
        """Return the stated reason for the table's second name, or nothing.

        Raises RequestError for an empty or a very long one.
        """
        return check_reason(self.new_dataset, "release.new_dataset", "why these people get a second budget")

    def read_reason_for_early_period(self) -> str:
        """Return the stated reason for an early release of a period, or nothing.  Raises RequestError as above."""
        return check_reason(self.early, "release.early", "why the period is released before it begins")


@dataclass(frozen=True)
class Books:
    """The storage of the data set: its step artifacts, its private records and its ledger.

    ``request``: the name of the request's record.
    """

    store: Store
    records: Records
    ledger: Ledger
    request: str

    def load_request(self) -> RequestRecord | None:
        """Return the record of the same request; None if it was never seen."""
        return self.records.load_as(self.request, RequestRecord)


@dataclass(frozen=True)
class Engines:
    """The engine that counts rows, and the engine that makes synthetic rows without access to private ones.

    ``makes``: None if the counting engine makes rows.  Neither opens anything before its first work.
    """

    counts: Engine
    makes: ClusterEngine | None

    @contextmanager
    def close_at_end(self) -> Iterator[None]:
        """Close both at the end of the block."""
        with closing(self.counts), nullcontext() if self.makes is None else closing(self.makes):
            yield

    def check_apart(self) -> None:
        """Raise RequestError if the workers that make rows may be those that count."""
        if self.makes is not None:
            self.makes.check_apart(self.counts)


def open_store(proposal: Proposal) -> Store:
    """Open the step artifacts of the data set.  Raises RequestError or PrivsynError as :class:`Store` does."""
    settings = proposal.settings
    return Store(settings.private_root, settings.released_root, proposal.spec.dataset, settings.released_store)


def open_books(proposal: Proposal, store: Store) -> Books:
    """Open the data set's storage; a ledger is created only if this private folder has charged nothing to it."""
    records = Records(proposal.settings.private_root, proposal.spec.dataset)
    ledger = Ledger(proposal.settings.ledger, create=open_noted_ledger(records) is None)
    return Books(store, records, ledger, name_request(proposal.plan))


def open_table(proposal: Proposal, store: Store) -> Source:
    """Open the private table.  Raises RequestError if it is missing, or its structure does not fit the spec."""
    place = proposal.spec.place if proposal.data is None else proposal.data
    if proposal.opened is not None:
        return proposal.opened(place, proposal.spec)
    return open_source(place, proposal.spec, RowOrder(store.row_key))


def find_payer(proposal: Proposal, books: Books) -> Payer | None:
    """Return who pays for the request; None if a second price is asked for, or for a period, which is drawn once."""
    if proposal.fresh or proposal.plan.period is not None:
        return None
    return Payer(books.store.identity, books.request, proposal.plan.redraw)


def choose_engines(proposal: Proposal) -> Engines:
    """Return the engines of a proposal.  Raises RequestError if a cluster's settings are not secure."""
    choice, settings = proposal.spec.engine, proposal.settings
    return Engines(proposal.engine or choose_engine(choice, settings), choose_makers(choice, settings))


def choose_engine(choice: EngineChoice, settings: Settings) -> Engine:
    """Return the engine of a run, which opens nothing before a run needs to count, and is to be closed at its end.

    Raises RequestError if the settings of a cluster cannot be trusted.
    """
    return LocalEngine() if choice.kind == "local" else _open_cluster(choice.kind, choice.workers, settings)


def has_makers(choice: EngineChoice, settings: Settings) -> bool:
    """Return whether workers without access to private rows make the synthetic ones."""
    return choice.kind != "local" and bool(settings.dask_public)


def choose_makers(choice: EngineChoice, settings: Settings) -> ClusterEngine | None:
    """Return the engine whose workers make synthetic rows and are sent no private ones; None where there is none.

    Raises RequestError if the settings of its cluster cannot be trusted, or its folder is not apart from both roots.
    """
    if not has_makers(choice, settings):
        return None
    folder = settings.dask_public_folder
    roots = (settings.private_root, settings.released_root)
    if folder is None or not folder.is_dir() or any(overlap(folder, root) for root in roots):
        raise RequestError(
            "is not a folder apart from the private and the released one",
            "Name one inside neither and containing neither, at the same path for the second scheduler's workers",
            "settings.dask_public_folder",
        )
    return _open_cluster(choice.kind, 0, settings, "dask_public")


def _open_cluster(kind: str, workers: int, settings: Settings, address: str = "dask") -> ClusterEngine:
    """Return the engine of a kind that a package adds; ``address``: the setting of its cluster."""
    engine: ClusterEngine = load_part("engines", kind, "engine.kind")(workers, settings, address)
    return engine
