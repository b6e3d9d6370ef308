"""The ledger as tables for a terminal: figures, charges, and what a verification found."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from privsyn.api.ledger import HEADINGS, Budgets, LedgerView, Verified
from privsyn.base.errors import LedgerMissingError
from privsyn.cli.common import COMMAND_LINE
from privsyn.ledgers.dataset_summary import AT_CAP_DELTA, DatasetSummary
from privsyn.ledgers.ledger import Ledger

_VERIFIED = ("Verified: ", "green")


def print_verified(verified: Verified, console: Console) -> None:
    """Print every problem and note on a line of its own, then what was looked at."""
    for problem in verified.problems:
        console.print(f"PROBLEM: {problem}", style="red", soft_wrap=True)
    for note in verified.notes:
        console.print(f"Note: {COMMAND_LINE.text(note)}", style="yellow", soft_wrap=True)
    if not verified.problems:
        what = "every hash, state and sum, and every certificate against its charges"
        lacking = verified.charges_not_compared
        what += f"; {lacking} spent charges were compared with nothing (see the notes)." if lacking else "."
        console.print(Text.assemble(_VERIFIED, what), soft_wrap=True)
    console.print(f"Ledger: {verified.ledger}; {verified.counted}", style="dim", soft_wrap=True)


def print_ledger(view: LedgerView, dataset: str | None, console: Console) -> bool:
    """Return the figures of each data set, for a named one also every entry; says and returns the audit's verdict."""
    summaries = view.summaries(dataset)
    try:
        ledger = Ledger(view.settings.ledger, create=False)
    except LedgerMissingError as missing:
        console.print(f"The ledger {missing.ledger} does not exist yet: the first release makes it.", soft_wrap=True)
        return True
    problems = ledger.verify()
    if summaries:
        console.print(_build_figures(summaries))
    else:
        console.print("The ledger is empty: no data set has been released yet.")
    if dataset is not None:
        console.print(_build_entries(ledger, dataset))
        if ledger.periods(dataset):
            console.print(_build_periods(ledger, dataset))
    for problem in problems:
        console.print(f"PROBLEM: {problem}", style="red", soft_wrap=True)
    if not problems:
        console.print(Text.assemble(_VERIFIED, "chain and sums recomputed, no problem found."))
    console.print(f"Ledger: {ledger.name}", style="dim", soft_wrap=True)
    return not problems


def _build_figures(summaries: Sequence[DatasetSummary]) -> Table:
    table = Table(*HEADINGS, title="Privacy ledger", caption=_build_counted(summaries), caption_justify="left")
    for row in Budgets(tuple(summaries)).rows:
        table.add_row(*row)
    return table


def _build_counted(summaries: Sequence[DatasetSummary]) -> Text:
    """Return at which delta epsilons stand, and which accountant turns whose rho into them."""
    names = {a: ", ".join(s.dataset for s in summaries if s.accountant == a) for a in ("gaussian", "tight")}
    lines = (AT_CAP_DELTA, *(f"epsilon by accountant {a}: {sets}" for a, sets in names.items() if sets))
    return Text("\n".join(lines))


def _build_entries(ledger: Ledger, dataset: str) -> Table:
    table = Table("#", "when (UTC)", "run", "step", "event", "rho", title=f"Entries of {dataset}")
    for row in ledger.export(dataset):
        step, moment = str(row["step"]).replace("_", " "), str(row["created"])[:19].replace("T", " ")
        numerator, denominator = map(int, str(row["rho"]).split("/"))
        table.add_row(
            str(row["id"]), moment, str(row["run"]), step, str(row["event"]), f"{numerator / denominator:.6g}"
        )
    return table


def _build_periods(ledger: Ledger, dataset: str) -> Table:
    """Return where each period stands, in the order in which they were begun."""
    table = Table("period", "run", "state", "since (UTC)", title=f"Periods of {dataset}")
    for row in {row.period: row for row in ledger.periods(dataset)}.values():
        state = "released" if row.released else "begun, not finished"
        table.add_row(row.period, row.run, state, row.created[:19].replace("T", " "))
    return table
