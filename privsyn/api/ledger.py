"""A view of the ledger: what each data set has spent and has left, every charge, and the audit's verdict.

Viewing never creates a ledger: a missing one is reported as missing, and holds no charge.

Who verifies a ledger is told whether private folders still have the noisy tables that were paid for, and gets a second
opinion on every certificate in a separate file.  This reads released folders and the ledger, no private table.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from privsyn.api.ledger_comparison import compare_with_certificates, list_certified_folders, list_receipts_files
from privsyn.base.arguments import check_arguments
from privsyn.base.errors import LedgerMissingError, PrivsynError, RequestError
from privsyn.base.places import expand_path
from privsyn.base.registry import need_package
from privsyn.base.settings import Settings
from privsyn.base.wording import API, Text, Vocabulary, mention
from privsyn.data_contracts.certificate import Certificate
from privsyn.data_contracts.receipts import Query
from privsyn.engine.progress import format_html_table, format_paragraph
from privsyn.engine.step_tables import StepRefs, format_record_name
from privsyn.ledgers.audit import AT_CAP_DELTA, DatasetSummary, Entry
from privsyn.ledgers.database import hide_password
from privsyn.ledgers.known_tables import find_reason, find_same_tables
from privsyn.ledgers.ledger import Ledger
from privsyn.ledgers.released_periods import LAST, CalendarDay, build_calendar
from privsyn.storage.records import locate_private_records, read_note
from privsyn.storage.released_files import read_certificate
from privsyn.storage.store import TableSeals, open_seals
from privsyn.tasks.estimation.noisy import read_receipts
from privsyn.tasks.privacy.second_opinion import SecondOpinion, form_second_opinion, list_libraries


@dataclass(frozen=True)
class CertificateOpinion:
    """The second opinion on one certificate; ``tables``: release step -> the receipts file, or "certificate"."""

    run: str
    dataset: str
    tables: dict[str, str]
    opinion: SecondOpinion


@dataclass(frozen=True)
class SecondOpinions:
    """The second opinions on all certificates, and the libraries that gave them."""

    libraries: dict[str, str]
    certificates: tuple[CertificateOpinion, ...]

    @property
    def problems(self) -> list[str]:
        """Return a sentence for each certificate that a library contradicts."""
        return [f"{one.run}: {problem}" for one in self.certificates for problem in one.opinion.problems]

    def format_json(self) -> str:
        """Return the content of the file."""
        content = {
            "libraries": self.libraries,
            "problems": self.problems,
            "certificates": [
                {"run": one.run, "dataset": one.dataset, "receipts": one.tables, **one.opinion.as_json()}
                for one in self.certificates
            ],
        }
        return json.dumps(content, indent=2) + "\n"


def form_second_opinions(
    ledger: Ledger, settings: Settings, dataset: str | None = None, against: Sequence[Path] = ()
) -> SecondOpinions:
    """Return the prices that OpenDP and dp-accounting compute from the receipts of every known certificate.

    ``dataset`` and ``against``: as in ``ledger verify``.  Raises RequestError if the extra ``second-opinion`` is not
    installed.
    """
    with need_package("dp-accounting", "a second opinion", "second-opinion", ""):
        libraries = list_libraries()
    opinions = []
    for folder in list_certified_folders(ledger, settings, dataset, against):
        try:
            certificate = read_certificate(folder)
        except RequestError:
            continue  # the comparison with the ledger reports it
        if dataset in (None, certificate.dataset):
            opinions.append(_judge_certificate(folder, certificate))
    return SecondOpinions(libraries, tuple(opinions))


def _judge_certificate(folder: Path, certificate: Certificate) -> CertificateOpinion:
    files, tables, queries = list_receipts_files(folder), dict[str, str](), list[Query]()
    for stage in certificate.stages:
        file = files.get(stage.step)
        tables[stage.step] = "certificate" if file is None else file.relative_to(folder).as_posix()
        if file is not None:
            queries += read_receipts(pq.read_table(file))
            continue
        for group in stage.groups:
            queries += [Query((), group.cells, group.sensitivity, group.sigma)] * group.queries
    opinion = form_second_opinion(queries, certificate.epsilon, certificate.delta, certificate.accountant)
    return CertificateOpinion(certificate.run, certificate.dataset, tables, opinion)


RELEASE_AGAIN = "the same release again restores them, for nothing, from its released folder if that is whole"
OF_A_PERIOD = (
    "a released period is not released again, so only a backup brings them back here; its released folder has them, too"
)


def list_lost_noise(entries: Sequence[Entry], settings: Settings) -> list[str]:
    """Return a sentence for each run whose private folder lacks a noisy table that was paid for.

    It looks into the private folder of the settings and, if they can be reached, into those that the ledger remembers.
    Nothing is written there.
    """
    remembered = (Path(str(e.detail["private_root"])) for e in entries if "private_root" in e.detail)
    roots = {root.resolve(): root for root in (*remembered, settings.private_root)}
    sealed = ((root, open_seals(root)) for root in roots.values())
    return [note for root, seals in sealed if seals is not None for note in _list_of_folder(root, seals, entries)]


def _list_of_folder(root: Path, seals: TableSeals, entries: Sequence[Entry]) -> list[str]:
    notes, spent = [], {e.key: e for e in entries if e.event == "spent"}
    of_periods = {e.key for e in entries if e.event == "reserve" and "period" in e.detail}
    for path in sorted((root / "runs").glob("*/run.json")):
        note = read_note(path)
        keys = note.get("keys")
        charges = [spent[key] for key in map(str, keys.values()) if key in spent] if isinstance(keys, Mapping) else []
        lost = [charge.step for charge in charges if not _has_tables(root, seals, charge)]
        if lost:
            cure = OF_A_PERIOD if any(charge.key in of_periods for charge in charges) else RELEASE_AGAIN
            notes.append(
                f"{note.get('run')}: {root} lacks what was paid for, the noisy tables of {', '.join(lost)}: {cure}"
            )
    return notes


def _has_tables(root: Path, seals: TableSeals, charge: Entry) -> bool:
    """Return whether the tables of a charge are there, as they were written."""
    try:
        path = locate_private_records(root, charge.dataset) / f"{format_record_name(charge.key)}.json"
        recorded = StepRefs.model_validate_json(path.read_bytes())
        tables = [seals.place_here(ref, charge.dataset) for ref in recorded.tables.values()]
        return all(seals.verify(ref, afresh=True) for ref in tables)
    except (OSError, ValueError, PrivsynError):
        return False


HEADINGS = ("data set", "budget", "epsilon used", "at delta", "rho used", "entries")
CALENDAR_HEADINGS = ("data set", "period", "state", "run", "since (UTC)")


@dataclass(frozen=True)
class Verified:
    """The result of a verification: ``problems``, and ``notes``, which are not problems."""

    ledger: str
    datasets: int
    entries: int
    certificates: int
    charges_without_certificate: int
    charges_not_compared: int
    problems: tuple[str, ...]
    notes: tuple[Text, ...]

    @property
    def verified(self) -> bool:
        """Whether no problem was found."""
        return not self.problems

    @property
    def counted(self) -> str:
        """The verified things, in words."""
        counts = f"{self.datasets} data sets, {self.entries} entries, {self.certificates} certificates"
        lacking = self.charges_without_certificate
        return counts + (f"; {lacking} spent charges without a certificate" if lacking else "")

    def as_json(self, vocabulary: Vocabulary = API) -> dict[str, Any]:
        """Return the same, JSON-ready, in the words of ``vocabulary``."""
        counts = {
            "datasets": self.datasets,
            "entries": self.entries,
            "certificates": self.certificates,
            "charges_without_certificate": self.charges_without_certificate,
            "charges_not_compared": self.charges_not_compared,
        }
        lists = {"problems": list(self.problems), "notes": [vocabulary.text(n) for n in self.notes]}
        return {"verified": self.verified, "ledger": self.ledger, **counts, **lists}

    def __repr__(self) -> str:
        verdict = "verified" if self.verified else "NOT verified"
        lines = (*(f"PROBLEM: {p}" for p in self.problems), *(f"Note: {API.text(n)}" for n in self.notes))
        return "\n".join((f"{verdict}: {self.ledger}, {self.counted}", *lines))


@dataclass(frozen=True)
class Budgets:
    """The budgets of some data sets, one row each under ``HEADINGS``; notebooks show a table."""

    summaries: tuple[DatasetSummary, ...]

    @property
    def rows(self) -> list[tuple[str, ...]]:
        """The cells, as text."""
        return [
            (
                s.dataset,
                s.use,
                f"{s.epsilon:.4g} of {s.cap.epsilon:g}",
                f"{s.cap.delta:g}",
                f"{float(s.rho):.6g} of {float(s.cap_rho):.6g}",
                str(s.entries),
            )
            for s in self.summaries
        ]

    def __str__(self) -> str:
        table = _format_text_table(HEADINGS, self.rows)
        return f"{table}\n{AT_CAP_DELTA}" if self.rows else table

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return format_html_table(HEADINGS, self.rows) + (format_paragraph(AT_CAP_DELTA) if self.rows else "")


@dataclass(frozen=True)
class Calendar:
    """The status of the periods of some data sets, one row each under ``CALENDAR_HEADINGS``; notebooks show a table.

    ``current``: the period has begun and is not over; ``refused``: the cap had no room for it; ``missed``: neither.
    """

    days: tuple[CalendarDay, ...]

    @property
    def rows(self) -> list[tuple[str, ...]]:
        """The cells, as text."""
        return [(day.dataset, day.period, day.state, day.run, day.since) for day in self.days]

    def __str__(self) -> str:
        return _format_text_table(CALENDAR_HEADINGS, self.rows)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return format_html_table(CALENDAR_HEADINGS, self.rows)


def _format_text_table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    cells = [headings, *rows]
    widths = [max(len(row[i]) for row in cells) for i in range(len(headings))]
    return "\n".join("  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)) for row in cells)


@dataclass(frozen=True)
class LedgerView:
    """A read-only view of the privacy ledger; ``privsyn.ledger`` opens it.

    Privacy: a ledger holds names, times and prices, and no private value.  Nothing here reads a private table or spends
    budget.
    """

    settings: Settings

    @check_arguments
    def show(self, dataset: str | None = None) -> Budgets:
        """Return the spent and remaining parts of each data set's lifetime cap, or of ``dataset`` alone.

        Raises RequestError for a data set that the ledger does not know, LedgerError for a ledger that cannot be read.
        A ledger that does not exist yet has no data sets.
        """
        return Budgets(tuple(self.summaries(dataset)))

    @check_arguments
    def entries(self, dataset: str) -> list[dict[str, Any]]:
        """Return every charge of ``dataset``, in order, JSON-ready.

        Raises LedgerMissingError without a ledger, else as ``show``.
        """
        return self.opened(dataset).export(dataset)

    @check_arguments
    def verify(self, dataset: str | None = None, against: Sequence[str | Path] = ()) -> Verified:
        """Recompute the ledger's chain, states and sums, and compare it with certificates.

        The certificates are in the folders under the released root, in other output folders that the ledger remembers,
        and in ``against``: released folders, or folders of them, anywhere.  It finds a ledger that is older than any of
        them, even if ledger and private folder were restored together.  Notes count charges whose folders cannot be
        reached from here and ask for these folders.  They also name runs whose private folder lacks a noisy table that
        was paid for.

        Raises LedgerMissingError without a ledger, and RequestError as ``show`` and for a folder of ``against`` without
        a certificate.
        """
        ledger = self.opened(dataset)
        places = [expand_path(place, "ledger.against").absolute() for place in against]
        compared = compare_with_certificates(ledger, self.settings, dataset, places)
        problems = (*ledger.verify(), *compared.problems)
        counts = (len(ledger.summary(dataset)), len(ledger.entries(dataset)), compared.certificates)
        notes = (
            *compared.notes,
            *list_lost_noise(ledger.entries(dataset), self.settings),
            *_list_second_names(ledger, self.settings),
            *_list_unfinished(ledger, dataset),
        )
        lacking = (compared.charges_without_certificate, compared.charges_not_compared)
        return Verified(ledger.name, *counts, *lacking, problems, notes)

    @check_arguments
    def form_second_opinions(self, dataset: str | None = None, against: Sequence[str | Path] = ()) -> SecondOpinions:
        """Return the prices that OpenDP and dp-accounting compute for every certificate that ``verify`` compares.

        Raises RequestError if the extra ``second-opinion`` is not installed, and as ``verify``.
        """
        places = [expand_path(place, "ledger.against").absolute() for place in against]
        return form_second_opinions(self.opened(dataset), self.settings, dataset, places)

    @check_arguments
    def calendar(self, dataset: str | None = None, last: int = LAST) -> Calendar:
        """Return the status of the ``last`` periods of each length, for every data set or the named one.

        A data set that has begun no period has no rows.  Errors as ``show``.
        """
        if last < 1:
            raise RequestError(f"{last} is not a number of periods", "Write one from 1 on", "calendar.last")
        summaries, now = self.summaries(dataset), datetime.now(UTC)
        if not summaries:
            return Calendar(())
        ledger = self.opened(dataset)
        rows, refusals = ledger.periods(dataset), ledger.refusals(dataset)
        by_dataset = (build_calendar(summary.dataset, rows, refusals, now, last) for summary in summaries)
        return Calendar(tuple(day for days in by_dataset for day in days))

    @check_arguments
    def summaries(self, dataset: str | None = None) -> Sequence[DatasetSummary]:
        """Return the exact figures of every data set, or of the named one; errors as ``show``."""
        try:
            return self.opened(dataset).summary(dataset)
        except LedgerMissingError:
            if dataset is not None:
                raise _make_unknown_error(dataset, "none yet") from None
            return ()

    @check_arguments
    def as_json(self, dataset: str | None = None) -> dict[str, Any]:
        """Return the audit's verdict, and one object per data set with its exact sums and every entry."""
        summaries = self.summaries(dataset)
        if not summaries:
            return {"verified": True, "problems": [], "datasets": []}
        ledger = self.opened(dataset)
        problems = ledger.verify()
        datasets = [
            {
                "dataset": s.dataset,
                "created": s.created,
                "cap": {"epsilon": s.cap.epsilon, "delta": s.cap.delta, "rho": str(s.cap_rho)},
                "accountant": s.accountant,
                "spent": {"epsilon": s.epsilon, "rho": str(s.rho)},
                "left": {"epsilon": s.remaining_epsilon, "rho": str(s.remaining_rho)},
                "entries": ledger.export(s.dataset),
                "periods": [asdict(row) for row in ledger.periods(s.dataset)],
            }
            for s in summaries
        ]
        return {"verified": not problems, "problems": problems, "datasets": datasets}

    def __repr__(self) -> str:
        return f"<Ledger {hide_password(self.settings.ledger)}: show(), entries(dataset), verify()>"

    @check_arguments
    def opened(self, dataset: str | None = None) -> Ledger:
        """Return the ledger itself, which must exist (LedgerMissingError) and know the data set (RequestError)."""
        ledger = Ledger(self.settings.ledger, create=False)
        if dataset is not None and not ledger.summary(dataset):
            raise _make_unknown_error(dataset, ", ".join(s.dataset for s in ledger.summary()) or "none yet")
        return ledger


def _make_unknown_error(dataset: str, known_names: str) -> RequestError:
    return RequestError(f"the ledger does not know {dataset!r}", f"Known data sets: {known_names}", "ledger.dataset")


def _list_second_names(ledger: Ledger, settings: Settings) -> list[Text]:
    """Return data sets with the same table and separate budgets: the promise to its people is the sum of their caps."""
    marks, stated = ledger.marks(), [m for m in ledger.marks() if m.kind == "reason"]
    pairs = {tuple(sorted((m.dataset, m.subject))) for m in stated} | set(
        find_same_tables(settings.private_root, ledger.entries())
    )
    return [
        f"{one!r} and {other!r} have released the same table, or a file of it, each under a cap of its own: "
        + (f"{reason!r}" if (reason := find_reason(marks, one, other)) else "nobody stated a reason")
        for one, other in sorted(pairs)
    ]


def _list_unfinished(ledger: Ledger, dataset: str | None) -> list[Text]:
    """Return periods that a run has begun and not released; the run holds them until it finishes."""
    stand = {(row.dataset, row.period): row for row in ledger.periods(dataset)}.values()
    return [
        f"the period {row.period} of {row.dataset!r} was begun by {row.run} and is not released: release it with "
        + mention("release.period")
        + f" {row.period}"
        for row in stand
        if not row.released
    ]
