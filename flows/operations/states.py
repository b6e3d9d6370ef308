"""The states in which a release's flow run ends, by name: Refused, ContractFailed, AlreadyReleased.

Belongs here: turning an outcome that an operator acts on into a Prefect state of its own name, on which automations
and people can tell it from a fault.  Does not belong here: the outcomes themselves (flows/errors.py).
"""

from __future__ import annotations

from typing import Any

from prefect.context import FlowRunContext
from prefect.states import State, StateType

from flows.errors import BudgetRefusedError, ContractError, PeriodReleasedError
from flows.publish import summary_on_disk
from flows.settings import Settings

REFUSED = "Refused"
"""The ledger's cap does not allow the release: nothing was read, nothing was spent."""

CONTRACT_FAILED = "ContractFailed"
"""A table broke its data contract: nothing was released from it."""


ALREADY_RELEASED = "AlreadyReleased"
"""The period of a scheduled release has its release: there was nothing to do."""


def failed(error: BudgetRefusedError | ContractError) -> State[Any]:
    """The FAILED state of a flow run that ``error`` ends, for the flow to return in its result's place.

    Its message is the error's paragraph: of a refusal, the ledger's figures (spent, asked, cap, left), which are
    public; of a contract, names of tables and expectations.  It holds nothing read from rows.  Who called the flow
    gets ``error`` raised.  Raises ``error`` where there is no flow run to hold a state.
    """
    if FlowRunContext.get() is None:
        raise error from None
    name = REFUSED if isinstance(error, BudgetRefusedError) else CONTRACT_FAILED
    return State(type=StateType.FAILED, name=name, message=error.paragraph(), data=error)


def already_released(done: PeriodReleasedError, settings: Settings) -> Any:
    """The COMPLETED state of a flow run whose period was released before; its message names that release.

    Who called the flow gets the earlier release's summary, or None where its folder is not there any more; so does a
    caller without a flow run.
    """
    summary = summary_on_disk(done.run, settings)
    if FlowRunContext.get() is None:
        return summary
    return State(type=StateType.COMPLETED, name=ALREADY_RELEASED, message=done.paragraph(), data=summary)
