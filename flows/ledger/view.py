"""Showing the ledger: figures and charges as tables for people, or as JSON.

Belongs here: presentation only.  Does not belong here: the ledger's rules (flows/ledger/ledger.py).  Looking never
makes a ledger: a file that does not exist yet is said to be missing, and holds no charge.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from flows.errors import LedgerMissingError, RequestError
from flows.ledger.ledger import DatasetSummary, Ledger
from flows.settings import Settings


def _unknown(dataset: str, known: str) -> RequestError:
    return RequestError(f"the ledger does not know {dataset!r}", f"Known data sets: {known}", "DATASET")


def opened(url: str, dataset: str | None) -> Ledger:
    """The ledger, which must exist (LedgerMissingError) and, where one is named, know the data set (RequestError)."""
    return _summaries(url, dataset)[0]


@dataclass(frozen=True)
class Verified:
    """What a verification looked at and found; ``notes`` are no problems."""

    ledger: str
    datasets: int
    entries: int
    certificates: int
    problems: tuple[str, ...]
    notes: tuple[str, ...]

    def as_json(self) -> dict[str, Any]:
        """The same, JSON-ready."""
        counts = {"datasets": self.datasets, "entries": self.entries, "certificates": self.certificates}
        found = {"problems": list(self.problems), "notes": list(self.notes)}
        return {"verified": not self.problems, "ledger": self.ledger, **counts, **found}


def verify_ledger(settings: Settings, dataset: str | None) -> Verified:
    """Recompute the ledger's chain, states and sums, and compare it with the certificates under the released root."""
    from flows.ledger.certificates import compare_with_disk  # it loads what publishing needs

    ledger = opened(settings.ledger, dataset)
    entries, summaries = ledger.entries(dataset), ledger.summary(dataset)
    compared = compare_with_disk(entries, summaries, settings, dataset)
    problems = (*ledger.verify(), *compared.problems)
    counts = (len(summaries), len(entries), compared.certificates)
    return Verified(ledger.name, *counts, problems, (*compared.notes, *_unfinished(ledger, dataset)))


def _unfinished(ledger: Ledger, dataset: str | None) -> list[str]:
    """Periods that a run has begun and not released; it holds them until it is finished."""
    stand = {(row.dataset, row.period): row for row in ledger.periods(dataset)}.values()
    return [
        f"the period {row.period} of {row.dataset!r} was begun by {row.run} and is not released: release it with "
        f"--period {row.period}"
        for row in stand
        if not row.released
    ]


def print_verified(verified: Verified, console: Console) -> None:
    """Every problem and note on a line of its own, then what was looked at."""
    for problem in verified.problems:
        console.print(f"PROBLEM: {problem}", style="red", markup=False, soft_wrap=True)
    for note in verified.notes:
        console.print(f"Note: {note}", style="yellow", markup=False, soft_wrap=True)
    if not verified.problems:
        console.print("[green]Verified:[/] every hash, state and sum, and every certificate against its charges.")
    looked_at = f"{verified.datasets} data sets, {verified.entries} entries, {verified.certificates} certificates"
    console.print(f"Ledger: {verified.ledger}; {looked_at}", style="dim", markup=False, soft_wrap=True)


def _summaries(url: str, dataset: str | None) -> tuple[Ledger, list[DatasetSummary]]:
    ledger = Ledger(url, create=False)
    found = ledger.summary(dataset)
    if dataset is not None and not found:
        known = ", ".join(s.dataset for s in ledger.summary()) or "none yet"
        raise _unknown(dataset, known)
    return ledger, found


def ledger_as_json(url: str, dataset: str | None) -> dict[str, Any]:
    """The audit's verdict, and one object a data set with its exact sums and every entry."""
    try:
        ledger, summaries = _summaries(url, dataset)
    except LedgerMissingError:
        if dataset is not None:
            raise _unknown(dataset, "none yet") from None
        return {"verified": True, "problems": [], "datasets": []}
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


def print_ledger(url: str, dataset: str | None, console: Console) -> bool:
    """The figures of each data set, for a named one also every entry; says and returns the audit's verdict."""
    try:
        ledger, summaries = _summaries(url, dataset)
    except LedgerMissingError as missing:
        if dataset is not None:
            raise _unknown(dataset, "none yet") from None
        console.print(f"The ledger {missing.ledger} does not exist yet: the first release makes it.", soft_wrap=True)
        return True
    problems = ledger.verify()
    if summaries:
        console.print(_figures(summaries))
    else:
        console.print("The ledger is empty: no data set has been released yet.")
    if dataset is not None:
        console.print(_entries(ledger, dataset))
        if ledger.periods(dataset):
            console.print(_periods(ledger, dataset))
    for problem in problems:
        console.print(f"PROBLEM: {problem}", style="red", markup=False, soft_wrap=True)
    if not problems:
        console.print("[green]Verified:[/] chain and sums recomputed, no problem found.")
    console.print(f"Ledger: {ledger.name}", style="dim", markup=False, soft_wrap=True)
    return not problems


def _figures(summaries: list[DatasetSummary]) -> Table:
    headings = ("data set", "epsilon used", "of cap", "room for epsilon", "at delta", "rho used", "entries")
    table = Table(*headings, title="Privacy ledger", caption=_counted(summaries), caption_justify="left")
    for s in summaries:
        table.add_row(
            s.dataset,
            f"{s.epsilon:.4g}",
            f"{s.cap.epsilon:g}",
            f"{s.remaining_epsilon:.4g}",
            f"{s.cap.delta:g}",
            f"{float(s.rho):.6g} of {float(s.cap_rho):.6g}",
            str(s.entries),
        )
    return table


def _counted(summaries: list[DatasetSummary]) -> Text:
    """Which accountant turns whose rho into epsilon."""
    names = {a: ", ".join(s.dataset for s in summaries if s.accountant == a) for a in ("gaussian", "tight")}
    return Text("\n".join(f"epsilon by accountant {a}: {sets}" for a, sets in names.items() if sets))


def _entries(ledger: Ledger, dataset: str) -> Table:
    table = Table("#", "when (UTC)", "run", "step", "event", "rho", title=f"Entries of {dataset}")
    for row in ledger.export(dataset):
        step, moment = str(row["step"]).replace("_", " "), str(row["created"])[:19].replace("T", " ")
        numerator, denominator = map(int, str(row["rho"]).split("/"))
        table.add_row(
            str(row["id"]), moment, str(row["run"]), step, str(row["event"]), f"{numerator / denominator:.6g}"
        )
    return table


def _periods(ledger: Ledger, dataset: str) -> Table:
    """Where each period stands, in the order in which they were begun."""
    table = Table("period", "run", "state", "since (UTC)", title=f"Periods of {dataset}")
    for row in {row.period: row for row in ledger.periods(dataset)}.values():
        state = "released" if row.released else "begun, not finished"
        table.add_row(row.period, row.run, state, row.created[:19].replace("T", " "))
    return table
