"""The states in which a release's flow run ends, by name: Refused, ContractFailed, AlreadyReleased."""

from __future__ import annotations

from typing import Any

from prefect.context import FlowRunContext
from prefect.states import State, StateType

from privsyn.errors import BudgetRefusedError, ContractError, PeriodReleasedError, PrivsynError
from privsyn.flows.form_vocabulary import FORM
from privsyn.publish.folder import ReleaseSummary, summary_on_disk
from privsyn.settings import Settings

REFUSED = "Refused"
"""The ledger's cap does not allow the release: nothing was read, nothing was spent."""

CONTRACT_FAILED = "ContractFailed"
"""A table broke its data contract: nothing was released from it."""

ALREADY_RELEASED = "AlreadyReleased"
"""The period of a scheduled release has its release: there was nothing to do."""


def failed(error: PrivsynError) -> State[Any]:
    """The FAILED state of a flow run that ``error`` ends, for the flow to return in its result's place.

    An error that is raised would be logged with sixty lines of where it came from; a state is one line.
    Its message is the error's paragraph: of a refusal, the ledger's figures (spent, asked, cap, left), which are
    public; of a contract, names of tables and expectations.  It holds nothing read from rows.  The caller of the
    flow receives ``error`` as an exception.  Outside a flow run, raises ``error``.
    """
    if FlowRunContext.get() is None:
        raise error from None
    names = {BudgetRefusedError: REFUSED, ContractError: CONTRACT_FAILED}
    name = next((name for kind, name in names.items() if isinstance(error, kind)), None)
    return State(type=StateType.FAILED, name=name, message=error.paragraph(FORM), data=error)


def released(summary: ReleaseSummary) -> Any:
    """The COMPLETED state of a release; its message has rows, promise, cost, place, and what was drawn.

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


def already_released(error: PeriodReleasedError, settings: Settings) -> Any:
    """The COMPLETED state of a flow run whose period was released before; its message names that release.

    The caller of the flow receives the earlier release's summary, or None if its folder is not there any more.  Outside
    a flow run, returns the summary itself.
    """
    summary = summary_on_disk(error.run, settings)
    if FlowRunContext.get() is None:
        return summary
    return State(type=StateType.COMPLETED, name=ALREADY_RELEASED, message=error.paragraph(FORM), data=summary)
