"""A view of the ledger: what each data set has spent and has left, every charge, and the audit's verdict.

Viewing never creates a ledger: a missing one is reported as missing, and holds no charge.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from privsyn.api.kept_noise import list_lost_noise
from privsyn.api.ledger_comparison import compare_with_certificates
from privsyn.api.second_opinion import SecondOpinions, form_second_opinions
from privsyn.base.arguments import check_arguments
from privsyn.base.errors import LedgerMissingError, RequestError
from privsyn.base.notebook import format_html_table, format_paragraph
from privsyn.base.paths import expand_path
from privsyn.base.settings import Settings
from privsyn.base.wording import API, Text, Vocabulary, mention
from privsyn.engine.names_of_tables import find_same_tables
from privsyn.ledgers.database import hide_password
from privsyn.ledgers.dataset_summary import AT_CAP_DELTA, DatasetSummary
from privsyn.ledgers.known_tables import find_reason
from privsyn.ledgers.ledger import Ledger
from privsyn.ledgers.release_calendar import LAST, CalendarDay, build_calendar

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
