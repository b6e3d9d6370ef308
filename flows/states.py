"""The states in which flow runs end, by name, and the labels about a release's budget.

The server needs only the names when it starts; code that makes releases is loaded where it is used.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from prefect import get_run_logger
from prefect.context import FlowRunContext
from prefect.states import State, StateType

from privsyn.base.errors import BudgetRefusedError, ContractError, LedgerError, PeriodReleasedError, PrivsynError
from privsyn.base.settings import Settings
from privsyn.base.wording import describe_use
from privsyn.flows.private_errors import FORM

if TYPE_CHECKING:
    from privsyn.ledgers.audit import DatasetSummary
    from privsyn.publish.folder import ReleaseSummary

REFUSED = "Refused"
"""The ledger's cap does not allow the release: nothing was read, nothing was spent."""

CONTRACT_FAILED = "ContractFailed"
"""A table broke its data contract: nothing was released from it."""

LEDGER_FAILED = "LedgerFailed"
"""The ledger does not verify, or it cannot be reached: nothing was looked at."""

CACHED = "Cached"
"""The period of a scheduled release has its release: the run was skipped, and the earlier release is its result."""

FAILURES = ("Failed", "TimedOut", "Crashed", REFUSED, CONTRACT_FAILED, LEDGER_FAILED)
"""Every state in which a run ends without a result, unless somebody cancelled it."""

SCHEDULED_FLOW = "scheduled-release"
RELEASE_FLOWS = ("release", SCHEDULED_FLOW)
FLOWS = (*RELEASE_FLOWS, "evaluate", "compare", "budget-report")
"""The names of all flows, for modules that must not import the flows themselves."""

DATASET = "privsyn.dataset"
BUDGET_LEFT_RHO, BUDGET_LEFT_EPSILON = "privsyn.budget.left.rho", "privsyn.budget.left.epsilon"
BUDGET_LEFT_RELEASES = "privsyn.budget.left.releases"
"""Labels of a release's flow run, from which the server has its gauges."""

BUDGET_LOW = "privsyn.budget.low"
"""The label of a release after which the budget is for fewer than FEW_RELEASES more: the alert's words."""

FEW_RELEASES = 3


def get_dataset(parameters: Mapping[str, Any] | None) -> str:
    """Return the data set of a run's or deployment's parameters; empty if they have no spec."""
    spec = (parameters or {}).get("spec")
    name = spec.get("dataset") if isinstance(spec, dict) else None
    return name if isinstance(name, str) else ""


def describe_budget(budget: DatasetSummary, price: Fraction, *, drawn: bool) -> dict[str, str | float | int]:
    """Return the labels of a release of this ``price`` (rho, above 0), which has ``drawn`` noise or found it.

    All of it is public: ledger and certificate have it.
    """
    remaining = budget.remaining_rho
    more = int(remaining / price)
    like = f"the last one (rho {float(price):.4g})"
    labels: dict[str, str | float | int] = {
        DATASET: budget.dataset,
        BUDGET_LEFT_RHO: float(remaining),
        BUDGET_LEFT_EPSILON: budget.remaining_epsilon,
        BUDGET_LEFT_RELEASES: more,
    }
    if drawn and more < FEW_RELEASES:
        labels[BUDGET_LOW] = (
            f"{budget.dataset}: {describe_use(budget.rho, budget.cap_rho, price, like)} ({budget.epsilon_words})."
        )
    return labels


_told: set[str] = set()
"""Lines about the ends of flow runs that this process has already logged at level ERROR."""


def _is_not_told(record: logging.LogRecord) -> bool:
    """Return False for log records of a failure that was already logged at level ERROR, True for all others."""
    if record.exc_info and isinstance(record.exc_info[1], PrivsynError):
        return False
    return record.levelno != logging.INFO or record.getMessage() not in _told


def make_failed_state(error: PrivsynError) -> State[Any]:
    """Return the FAILED state of a flow run that ``error`` ends; the flow returns it instead of a result.

    A raised error would be logged with a traceback of sixty lines; a state is one line at level ERROR.  Its message is
    the error's paragraph.  For a refusal it has the ledger's public figures (spent, asked, cap, left), for a contract
    the names of tables and expectations, and nothing read from rows.  The caller of the flow receives ``error`` as an
    exception.  Outside a flow run, raises ``error``.
    """
    if FlowRunContext.get() is None:
        raise error from None
    names = {BudgetRefusedError: REFUSED, ContractError: CONTRACT_FAILED, LedgerError: LEDGER_FAILED}
    name = next((name for kind, name in names.items() if isinstance(error, kind)), None)
    state: State[Any] = State(type=StateType.FAILED, name=name, message=error.paragraph(FORM), data=error)
    line = f"Finished in state {state}"  # once at level ERROR: Prefect's own line is at level INFO
    for logger in ("prefect.flow_runs", "prefect.engine"):  # in a worker's process Prefect raises the error once more
        logging.getLogger(logger).addFilter(_is_not_told)
    get_run_logger().error("%s", line)
    _told.add(line)
    return state


def make_released_state(summary: ReleaseSummary) -> Any:
    """Return the COMPLETED state of a release; its message has rows, promise, cost, place, and the drawn noise.

    The caller of the flow receives ``summary``.  Outside a flow run, returns it.
    """
    if FlowRunContext.get() is None:
        return summary
    drawn = ", ".join(step.replace("_", " ") for step in summary.drawn)
    how = f"drew {drawn}" if drawn else "drew nothing and cost nothing: all noise was cached"
    message = (
        f"{summary.rows:,} rows at epsilon {summary.epsilon:g}, delta {summary.delta:g}, for rho {summary.rho:.4g} at "
        f"most; {how}; {summary.released}"
    )
    return State(type=StateType.COMPLETED, message=message, data=summary)


def make_already_released_state(error: PeriodReleasedError, settings: Settings) -> Any:
    """Return the COMPLETED state of a flow run whose period was released before; its message names the release.

    The caller of the flow receives the earlier release's summary, or None if its folder is gone.  Outside a flow run,
    returns the summary itself.
    """
    from privsyn.publish.folder import read_summary

    summary = read_summary(error.run, settings)
    if FlowRunContext.get() is None:
        return summary
    message = f"{CACHED}: {error.paragraph(FORM)}"
    return State(type=StateType.COMPLETED, name=CACHED, message=message, data=summary)
