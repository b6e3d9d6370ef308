"""Showing the ledger: figures and charges as tables for people, or as JSON.

Belongs here: presentation only.  Does not belong here: the ledger's rules (flows/ledger.py).
"""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.table import Table

from flows.errors import RequestError
from flows.ledger import DatasetSummary, Ledger


def _summaries(url: str, dataset: str | None) -> tuple[Ledger, list[DatasetSummary]]:
    ledger = Ledger(url)
    found = ledger.summary(dataset)
    if dataset is not None and not found:
        known = ", ".join(s.dataset for s in ledger.summary()) or "none yet"
        raise RequestError(f"the ledger does not know {dataset!r}", f"Known data sets: {known}", "DATASET")
    return ledger, found


def ledger_as_json(url: str, dataset: str | None) -> list[dict[str, Any]]:
    """One object a data set with its exact sums and every entry."""
    ledger, summaries = _summaries(url, dataset)
    return [
        {
            "dataset": s.dataset,
            "created": s.created,
            "cap": {"epsilon": s.cap.epsilon, "delta": s.cap.delta, "rho": str(s.cap_rho)},
            "spent": {"epsilon": s.epsilon, "rho": str(s.rho)},
            "left": {"epsilon": s.remaining_epsilon, "rho": str(s.remaining_rho)},
            "entries": ledger.export(s.dataset),
        }
        for s in summaries
    ]


def print_ledger(url: str, dataset: str | None, console: Console) -> None:
    """The figures of each data set; for a named one also every entry.  Ends with the audit's verdict."""
    ledger, summaries = _summaries(url, dataset)
    if not summaries:
        console.print(f"The ledger {ledger.name} is empty: no data set has been released yet.", soft_wrap=True)
        return
    headings = ("data set", "epsilon used", "of cap", "room for epsilon", "at delta", "rho used", "entries")
    table = Table(*headings, title="Privacy ledger")
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
    console.print(table)
    if dataset is not None:
        console.print(_entries(ledger, dataset))
    problems = ledger.verify()
    verdict = "\n".join(f"[red]PROBLEM:[/] {p}" for p in problems)
    console.print(verdict or "[green]Verified:[/] chain and sums recomputed, no problem found.")
    console.print(f"Ledger: {ledger.name}", style="dim", soft_wrap=True)


def _entries(ledger: Ledger, dataset: str) -> Table:
    table = Table("#", "when (UTC)", "run", "step", "event", "rho", title=f"Entries of {dataset}")
    for row in ledger.export(dataset):
        step, moment = str(row["step"]).replace("_", " "), str(row["created"])[:19].replace("T", " ")
        numerator, denominator = map(int, str(row["rho"]).split("/"))
        table.add_row(
            str(row["id"]), moment, str(row["run"]), step, str(row["event"]), f"{numerator / denominator:.6g}"
        )
    return table
