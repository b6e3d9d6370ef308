"""The budget report: what each data set has spent and has left, from the ledger, on a run's page.

The ledger holds no private value, so all of it may be shown to those who may see the server.
"""

from __future__ import annotations

from typing import cast

from prefect import flow
from prefect.artifacts import create_markdown_artifact, create_table_artifact
from prefect.context import FlowRunContext
from pydantic import BaseModel, ConfigDict, Field

from privsyn.api.ledger import CALENDAR_HEADINGS, HEADINGS, Budgets, LedgerView
from privsyn.base.errors import LedgerError, LedgerMissingError, PrivsynError
from privsyn.base.settings import Settings
from privsyn.base.wording import draw_bar
from privsyn.flows.metrics import note_verification
from privsyn.flows.private_errors import hide_private_errors
from privsyn.flows.run_page import ignore_page_errors
from privsyn.flows.states import make_failed_state
from privsyn.ledgers.audit import AT_CAP_DELTA

BAR = 20
"""Characters of a data set's bar."""


class BudgetReport(BaseModel):
    """The report: one row per data set, and whether the ledger adds up."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    ledger: str = Field(description="Its address, without a password.")
    rows: list[dict[str, str]] = Field(description="One row a data set.")
    calendar: list[dict[str, str]] = Field(default=[], description="One row a period of each data set.")
    problems: list[str] = Field(description="What the audit found; empty when all adds up.")


@flow(
    name="budget-report",
    description="What each data set has spent of its lifetime budget, and what is left. Reads the ledger only.",
    persist_result=False,
)
def budget_report(dataset: str | None = None) -> BudgetReport:
    """Show the spent part of each data set's lifetime budget, with the audit's verdict.

    Args:
        dataset: One data set; default: all.

    Fails with a LedgerError when the ledger does not add up, after showing it.  A missing ledger is not an error, and
    is not created.
    """
    try:
        with hide_private_errors("budget report"):
            report = read_budgets(Settings().ledger, dataset)
            if FlowRunContext.get() is not None:
                create_markdown_artifact(
                    markdown=describe_budgets(report), key="budget-report", description="Budgets and the audit"
                )
                if report.rows:
                    create_table_artifact(table=report.rows, key="budgets", description="Epsilons at each cap's delta")
                if report.calendar:
                    states = [row["state"] for row in report.calendar]
                    counted = f"{states.count('missed')} missed, {states.count('refused')} refused"
                    words = f"The last periods of each data set: {counted}"
                    create_table_artifact(table=report.calendar, key="calendar", description=words)
                with ignore_page_errors("gauge"):
                    note_verification(report.problems, Settings())
            if report.problems:
                raise LedgerError(
                    f"the ledger {report.ledger} does not add up: {report.problems[0]}", "See docs/operations/ledger.md"
                )
            return report
    except PrivsynError as error:
        return cast(BudgetReport, make_failed_state(error))


def read_budgets(address: str, dataset: str | None = None) -> BudgetReport:
    """Return the report of the ledger at ``address``.  Raises RequestError for an unknown data set."""
    view = LedgerView(Settings(ledger=address))
    try:
        ledger = view.opened(dataset)
    except LedgerMissingError as missing:
        return BudgetReport(ledger=missing.ledger, rows=[], problems=[])
    summaries = ledger.summary(dataset)
    rows = [
        {
            **dict(zip(HEADINGS, cells, strict=True)),
            "budget": f"{draw_bar(s.rho / s.cap_rho, BAR)} {s.use}",
            "since": s.created[:10],
        }
        for s, cells in zip(summaries, Budgets(tuple(summaries)).rows, strict=True)
    ]
    calendar = [dict(zip(CALENDAR_HEADINGS, row, strict=True)) for row in view.calendar(dataset).rows]
    return BudgetReport(ledger=ledger.name, rows=rows, calendar=calendar, problems=ledger.verify())


def describe_budgets(report: BudgetReport) -> str:
    """Return the report as markdown."""
    if not report.rows:
        return f"The ledger {report.ledger} has no data set yet: the first release makes its entry."
    verdict = "\n".join(f"- **PROBLEM:** {problem}" for problem in report.problems)
    verdict = verdict or "The chain of entries and every sum were recomputed: no problem found."
    head = list(report.rows[0])
    lines = [" | ".join(head), "|".join("---" for _ in head), *(" | ".join(row.values()) for row in report.rows)]
    table = "\n".join(f"| {line} |" for line in lines)
    return f"# Privacy budgets\n\n{table}\n\n{AT_CAP_DELTA}\n\n{verdict}\n\nLedger: `{report.ledger}`\n"
