"""The checks of a proposal, one question each; privsyn/engine/admission.py runs them in order.

The gate of public inputs refuses a private table that a spec calls public, before anything is spent.
A prior, the tables of lookups and totals, and the items of itemsets all pass here.  Only whole tables are compared,
never rows: shared rows would reveal who is in the private table.  Whether two tables are equal also reveals something
about private rows, so comparisons are counted, and after a number of them no changed input is compared.
"""

from __future__ import annotations

import datetime as dt
import importlib.util
import secrets
import shutil
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from privsyn.base.calendar_periods import find_beginning, format_moment
from privsyn.base.errors import BudgetRefusedError, LedgerError, PeriodReleasedError, RequestError
from privsyn.base.places import FILE_SCHEMES, LAKE_SCHEMES, DataUrl, is_url
from privsyn.base.registry import make_missing_error
from privsyn.base.wording import Text, mention
from privsyn.data_contracts.columns import Zoned
from privsyn.data_contracts.domain import choose_code_dtype
from privsyn.data_contracts.frozen_model import FieldError
from privsyn.data_contracts.public_counts import PublicFile
from privsyn.data_contracts.release_spec import ReleaseSpec
from privsyn.data_contracts.rules import LookupRule
from privsyn.data_contracts.tables import build_code_schema
from privsyn.engine.draw import Draw, refuse_silent_redraw
from privsyn.engine.improved_run import name_asked_epsilon
from privsyn.engine.proposal import Books, Proposal, choose_engines, find_payer, has_makers
from privsyn.engine.request import Request
from privsyn.ledgers.known_tables import KnownTable, find_names, map_fingerprints
from privsyn.ledgers.ledger import ChargeLine, Ledger, open_noted_ledger, refuse_older
from privsyn.sources.private_table import Source
from privsyn.sources.row_digest import compute_lines_fingerprint, compute_rows_fingerprint
from privsyn.specs.messages import format_place
from privsyn.specs.public_files import open_shared_columns
from privsyn.storage.named_files import check_file, compute_sha256
from privsyn.storage.records import PublicInputsRecord, Records, RefusedInput
from privsyn.storage.store import Store
from privsyn.tasks.codecs.ordered import OrderedCodec
from privsyn.tasks.estimation.rungs import bound_domain
from privsyn.tasks.knowledge.totals import check_totals_possible
from privsyn.tasks.privacy.accountant import cap_accountant, convert_epsilon_to_rho
from privsyn.tasks.rules.repair import check_feasible
from privsyn.tasks.steps.decode_linked import check_persons_feasible

_RUN_BYTES = 16
"""Most bytes of a kept row among the runs of persons."""

RECORD = "public-inputs"
"""The private record of a data set's comparisons; removing it allows more of them."""

MOST_REFUSALS = 3
"""Public inputs of a data set that may equal a private table before no changed input is compared any more."""

MOST_COMPARED = 100
"""Most public inputs of a data set that are compared."""

PRIVATE_TABLE = "cannot be told from a private table (PRIVATE: pass it on to nobody; it was noted); nothing was spent"
"""The single message for every cause."""

_CURE = "Name a table that anybody may have: its content shows in the release"

_UNUSED_NAME = ""
"""A name of no data set, so that every known table is known under another name."""


def check_new_name(proposal: Proposal) -> None:
    """Refuse an empty or a very long reason for a table's second name."""
    proposal.read_reason_for_new_name()


def check_begun(proposal: Proposal) -> None:
    """Refuse a period that has not begun, unless a reason for an early release is stated.

    A period covers the rows that exist at its release; if released early, it is spent on another period's rows.
    """
    period, early = proposal.plan.period, proposal.read_reason_for_early_period()
    if period is None:
        if early:
            raise RequestError("is for a period", "Name the period, or leave it out", "release.early")
        return
    begins = find_beginning(period, proposal.calendar)
    if not early and begins > datetime.now(UTC):
        raise RequestError(
            f"{period} has not begun: it begins at {format_moment(begins)}; nothing was read, nothing was spent",
            "Release it from then on, or say in " + mention("release.early") + " why it is released before",
            "release.period",
        )


def check_package(proposal: Proposal) -> None:
    """Refuse a mechanism whose options need a package that is not installed."""
    wanted = proposal.spec.mechanism.package
    if wanted is None:
        return
    package, extra = wanted
    if importlib.util.find_spec(package) is None:
        raise make_missing_error(package, "", extra, "mechanism.rows_by")


def check_engine(proposal: Proposal) -> None:
    """Refuse clusters whose settings are not secure."""
    choose_engines(proposal).check_apart()


def check_promise(proposal: Proposal) -> None:
    """Refuse a promise or a cap that cannot be accounted, and a public prior whose file is not the stated one."""
    proposal.plan.check()


def check_rules(proposal: Proposal) -> None:
    """Refuse rules that no row can fulfil, and totals that no rows can fulfil."""
    check_keepable(proposal.plan.request)


def check_keepable(request: Request) -> None:
    """Raise RequestError that names the field unless some row fulfils the request's rules, and some rows its totals.

    The same is checked for further tables.

    A lookup whose table was not read, or a release whose cells were not read, is refused: a user who may start runs
    must not choose which file is published.
    """
    for i, rule in enumerate(request.spec.rules):
        if isinstance(rule, LookupRule) and rule.lookup.table:
            raise RequestError(
                "names a file, but a run needs the table itself",
                "Start the release from the spec's file, or give the table itself as `rows`",
                f"rules[{i}].lookup.table",
            )
    if request.spec.cells is not None and request.spec.cells.release:
        raise RequestError(
            "names a folder, but a run needs the cells themselves",
            "Start the release from the spec's file",
            "cells.release",
        )
    _check_rows(request, ())
    for name in request.spec.further_tables:
        _check_rows(request.table_pairs[name], ("tables", name))


def _check_rows(request: Request, place: tuple[str, ...]) -> None:
    """Raise RequestError unless some row fulfils the rules, and some rows the totals; ``place``: the spec's part."""
    try:
        check_feasible(request.encoding)
        check_persons_feasible(request.encoding)
        if (totals := request.public.totals) is not None:
            check_totals_possible(request.spec.totals, totals, request.encoding)
    except FieldError as error:
        raise RequestError(error.problem, error.cure, format_place((*place, *error.place))) from None


def check_noise(proposal: Proposal) -> None:
    """Refuse an epsilon at which the first look would be uninformative."""
    proposal.plan.check_noise()


def check_ledger(proposal: Proposal, books: Books) -> None:
    """Refuse a ledger that this private folder's releases were not charged to, or with another cap.

    Raises LedgerError for another ledger (an empty one would forget what was spent), and for an older copy of the right
    one (privsyn/ledgers/ledger.py).  Also for one that does not add up or cannot be written.  Raises
    RequestError for another cap.  A new data set is registered later, when only the reservation can still fail.
    """
    spec, ledger = proposal.spec, books.ledger
    ledger.check()
    known = ledger.summary(spec.dataset)
    before = open_noted_ledger(books.records)
    if before is not None and (not known or known[0].created != before.created):
        raise LedgerError(
            f"the releases of {spec.dataset!r} in this private folder were charged to another ledger, not to "
            f"{ledger.name}",
            "Set " + mention("settings.ledger") + " to that ledger, or restore it from a backup; nothing was read",
        )
    if before is not None:
        refuse_older(ledger, before, spec.dataset)
    if known:
        ledger.register(spec.dataset, spec.budget)


def check_period(proposal: Proposal, books: Books) -> None:
    """Raise PeriodReleasedError for a released period, before the data is opened."""
    period = proposal.plan.period
    if period is None:
        return
    if proposal.fresh:
        raise RequestError(
            "a period is drawn once, so it cannot have new noise", "Leave out one of them", "release.fresh"
        )
    stands = books.ledger.period(proposal.spec.dataset, period)
    if stands is not None and stands.released:
        raise PeriodReleasedError(proposal.spec.dataset, period, stands.run)


def check_payer(proposal: Proposal, books: Books) -> None:
    """Refuse a request that will certainly be charged and was last paid for from another private folder."""
    if books.load_request() is None:
        check_second_price(proposal, books)


def check_room(proposal: Proposal, books: Books) -> None:
    """Refuse a request that will certainly be charged and does not fit; a new data set has its whole cap."""
    seen, spec, period = books.load_request(), proposal.spec, proposal.plan.period
    is_unbegun = period is not None and books.ledger.period(spec.dataset, period) is None
    if seen is not None and not (seen.finished and (proposal.fresh or is_unbegun)):
        return
    price = proposal.plan.request.rounds[-1]
    if books.ledger.summary(spec.dataset):
        line = ChargeLine("release", f"room-{secrets.token_hex(8)}", price, {"accountant": spec.effective_accountant})
        with name_asked_epsilon(spec):
            books.ledger.check_room(spec.dataset, [line], spec.privacy.delta)
    else:
        check_whole_cap(proposal.plan.request)


def check_whole_cap(request: Request) -> None:
    """Raise BudgetRefusedError for a request that costs more than the whole cap of a new data set."""
    spec = request.spec
    if request.rounds[-1] > convert_epsilon_to_rho(
        spec.budget.epsilon, spec.budget.delta, cap_accountant(spec.effective_accountant)
    ):
        raise BudgetRefusedError(
            f"privacy ({spec.privacy.epsilon:g}, {spec.privacy.delta:g}) costs more than the whole lifetime cap "
            f"({spec.budget.epsilon:g}, {spec.budget.delta:g}); nothing was read, nothing was spent",
            "Lower privacy.epsilon or privacy.delta, or set another cap while the data set is new",
            "budget",
        )


def check_public_folder(proposal: Proposal, books: Books, source: Source) -> None:
    """Refuse a folder for workers that make rows if it contains the private table, the ledger or a key."""
    settings = proposal.settings
    if not has_makers(proposal.spec.engine, settings) or settings.dask_public_folder is None:
        return
    folder = settings.dask_public_folder.resolve()
    files: dict[Text, Iterable[Path | None]] = {
        "the private table": map(_locate_file, source.names),
        "the ledger": [_locate_file(books.ledger.name)],
    }
    for name in ("dask_key", "dask_public_key", "database_password_file", "login_file"):
        files["the file of " + mention(f"settings.{name}")] = [getattr(settings, name)]
    for description, paths in files.items():
        if any(path is not None and path.exists() and path.resolve().is_relative_to(folder) for path in paths):
            raise RequestError(
                "holds " + description + ", which its workers would reach; nothing was spent",
                "Name a folder of its own",
                "settings.dask_public_folder",
            )


def _locate_file(name: str) -> Path | None:
    """Return the local file of a private table or a ledger by its name, or None."""
    if not is_url(name):
        return Path(name)
    url = DataUrl.parse(name) if name.lower().startswith((*FILE_SCHEMES, *LAKE_SCHEMES)) else None
    return url.file if url is not None and url.is_file else None


def check_public_inputs(proposal: Proposal, books: Books, source: Source, fingerprints: tuple[str, ...]) -> None:
    """Refuse a public file that is the run's private table or a table of the ledger's data sets."""
    private_root = proposal.settings.private_root
    tables = PrivateTables(source, fingerprints, books.store, books.ledger, private_root)
    tables.refuse_as_public(proposal.spec, books.records)


def check_redraw(draw: Draw) -> None:
    """Refuse to draw again, unasked, what an earlier version of this program was paid for."""
    proposal, run = draw.proposal, draw.run
    if not proposal.fresh and not run.has_paid_all():
        refuse_silent_redraw(run, proposal.settings, draw.fingerprints[0], proposal.plan.asks)


def check_place(draw: Draw) -> None:
    """Refuse a run whose released folder's path is a link or a file."""
    draw.run.store.released.check_place(draw.run.name)


def check_workers(draw: Draw) -> None:
    """Refuse a run that has to count or to make rows without workers for it.

    Workers that make rows must reach the folder that they share with this process, and must not be those that count.
    """
    engines, run = draw.engines, draw.run
    if engines.makes is not None and not all(run.is_whole(step) for step in run.steps):
        folder = run.store.make_scratch(draw.proposal.settings.dask_public_folder)
        try:
            engines.makes.check_folder(folder)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
    if not all(run.is_whole(step) for step in run.release_steps):
        engines.counts.open()
    engines.check_apart()


def check_rows(draw: Draw) -> None:
    """Refuse a table that cannot be read to its end, or whose codes may not fit on the disk, before it is encoded."""
    if draw.run.is_encoded:
        return
    needed = draw.source.check_rows() * compute_row_bytes(draw.run.request)
    free = shutil.disk_usage(draw.run.store.private_root).free
    if needed > free:
        raise RequestError(
            f"its disk has {free / 1e9:.3g} GB free, and the encoded rows may need {needed / 1e9:.3g} GB. Nothing was "
            "spent (PRIVATE: these figures depend on the number of rows; show them to nobody)",
            "Free some space there, or put the private folder on a larger disk",
            "settings.private",
        )


def compute_row_bytes(request: Request) -> int:
    """Return the most bytes that the private folder needs for each row during a release of ``request``.

    Codes and numbers of the row are counted without compression, and codes three times: as encoded, in the most cells
    that a first look may choose, and in coarse codes.  A row of linked tables has the columns of all of them.
    """
    requests = list(request.table_pairs.values()) or [request]
    codes = sum(field.type.byte_width for r in requests for field in build_code_schema(bound_domain(r.encoding)))
    numbers = sum(
        choose_code_dtype(c.lattice.size).itemsize
        for r in requests
        for c in r.encoding.codecs
        if isinstance(c, OrderedCodec)
    )
    return 3 * codes + numbers + _RUN_BYTES * sum(r.encoding.panel is not None for r in requests)


def check_second_price(proposal: Proposal, books: Books, table: KnownTable | None = None) -> None:
    """Refuse a charge for a request that was last paid for from another private folder, unless it is asked for."""
    payer = find_payer(proposal, books)
    if payer is not None:
        books.ledger.check_payer(proposal.spec.dataset, payer)  # before the table's name is recorded


def check_duplicate(proposal: Proposal, books: Books, table: KnownTable) -> None:
    """Refuse a charge on a table that is known under another name, unless a reason is stated."""
    books.ledger.check_table(proposal.spec.dataset, table)  # before its name is recorded


@dataclass(frozen=True)
class PrivateTables:
    """The private tables that a public input must not equal: the run's, and the tables of the ledger's data sets.

    ``source``: the run's table; ``own``: the fingerprints of it and of its files.
    """

    source: Source
    own: Sequence[str]
    store: Store
    ledger: Ledger
    private_root: Path

    def refuse_as_public(self, spec: ReleaseSpec, records: Records) -> None:
        """Raise RequestError if a public input of the spec is a private table; the data set's lock is held.

        It detects equal bytes (a copy, a hard link), equal rows in another order or file format, and equal values in
        the shared measured columns.  It does not detect a subset of rows.
        """
        for stated in spec.public_inputs:
            path = _find(stated, spec)
            if path is None:
                continue
            if path.resolve().is_relative_to(self.private_root.resolve()):
                problem = "is in the private folder, where nothing is public; nothing was spent"
                raise RequestError(problem, _CURE, stated.field)
            digest = self.store.fingerprint([path])
            known = _note_comparison(records, stated.field, digest)
            if self._include(path, digest, spec):
                _note_refusal(records, known, stated.field, digest)
                raise RequestError(PRIVATE_TABLE, _CURE, stated.field)

    def _include(self, path: Path, digest: str, spec: ReleaseSpec) -> bool:
        """Return whether the file is a private table, by its bytes or its rows.  Every comparison is made."""
        known = find_names(map_fingerprints(self.private_root, self.ledger.entries()), {digest})
        table = KnownTable((digest,), partial(self.store.mark, "table"), known)
        try:
            self.ledger.check_table(_UNUSED_NAME, table)
            of_ledger = False
        except RequestError:
            of_ledger = True
        return any((digest in self.own, of_ledger, _has_equal_rows(path, spec, self.source)))


def _find(stated: PublicFile, spec: ReleaseSpec) -> Path | None:
    """Return the input's file; None if it is missing or has changed, since its rows are also in the spec.

    Raises RequestError for a missing prior.
    """
    if spec.prior is not None and stated.field.startswith("prior."):
        return check_file(spec.prior)
    path = Path(stated.path)
    try:
        return path if path.is_file() and compute_sha256(path) == stated.sha256 else None
    except (OSError, ValueError, RequestError):
        return None


def _note_comparison(records: Records, field: str, digest: str) -> PublicInputsRecord:
    """Record this comparison before it is made, and return the data set's comparisons.

    Raises RequestError for a new input after the last allowed comparison.
    """
    record = records.load_as(RECORD, PublicInputsRecord) or PublicInputsRecord()
    if digest in record.compared:
        return record
    if len(record.refused) >= MOST_REFUSALS or len(record.compared) >= MOST_COMPARED:
        raise RequestError(
            "is another public input than before, but no more of them are compared with the private table of this data "
            "set; nothing was spent",
            f"Ask the operator, who can allow more by removing {RECORD}.json of this data set from private/records",
            field,
        )
    record = PublicInputsRecord(compared=(*record.compared, digest), refused=record.refused)
    records.save(RECORD, record.model_dump(mode="json"))
    return record


def _note_refusal(records: Records, record: PublicInputsRecord, field: str, digest: str) -> None:
    now = dt.datetime.now(dt.UTC).isoformat(timespec="seconds")
    before = record.refused.get(digest)
    times = 1 if before is None else before.times + 1
    refused = {**record.refused, digest: RefusedInput(field=field, last=now, times=times)}
    records.save(RECORD, PublicInputsRecord(compared=record.compared, refused=refused).model_dump(mode="json"))


def _has_equal_rows(path: Path, spec: ReleaseSpec, source: Source) -> bool:
    """Return whether the file has the rows of the private table, in any order and format."""
    public = open_shared_columns(path, spec)
    if public is None:
        texts = [Path(name) for name in source.names if None in source.types.values()]
        return bool(texts) and compute_lines_fingerprint([path]) == compute_lines_fingerprint(texts)
    names = sorted(set(public.read) & set(source.read))
    moments = {name for name, column in spec.measured_columns.items() if isinstance(column, Zoned)}
    return compute_rows_fingerprint(public.batches(), names, moments) == compute_rows_fingerprint(
        source.batches(), names, moments
    )
