"""Plan a release from its spec, and propose it for admission."""

from __future__ import annotations

from functools import partial

from privsyn.base.settings import Settings
from privsyn.data_contracts.release_spec import ReleaseSpec
from privsyn.engine.choose_accountant import settle_accountant
from privsyn.engine.plan import Plan
from privsyn.engine.proposal import Proposal
from privsyn.engine.request import Request
from privsyn.ledgers.calendar_periods import check_period
from privsyn.pipelines.registry import build_steps
from privsyn.sources.open_source import AnyPlace

NO_REDRAW = "release another period: one period is drawn once"
"""The advice when the noise of a period's release is lost."""


def plan_release(spec: ReleaseSpec, period: str | None = None, *, column_order: tuple[str, ...] = ()) -> Plan:
    """Return the public plan of a release of ``spec``, for a period if one is given.  Opens no file.

    ``column_order``: see the request.  Raises RequestError if ``period`` is not a valid label.
    """
    request = Request(spec, column_order)
    steps = build_steps(request)
    if period is None:
        return Plan(request, steps)
    name, asks = f"{spec.dataset}-{period.lower()}", {"period": check_period(period)}
    return Plan(request, steps, asks=asks, period=period, name=name, redraw=NO_REDRAW)


def propose_release(
    spec: ReleaseSpec,
    settings: Settings,
    *,
    data: AnyPlace | None = None,
    fresh: bool = False,
    period: str | None = None,
    new_dataset: str | None = None,
    early: str | None = None,
    calendar: str | None = None,
) -> Proposal:
    """Return the proposal of a release of ``spec``, to be admitted.  Reads no file but the ledger.

    ``data``: the table in memory (None: the file that the spec names); ``early``, ``calendar``: see the proposal.

    Raises RequestError as :func:`plan_release` does, and LedgerError if the data set's cap decides the accountant
    and the ledger cannot be read.
    """
    spec_to_plan = spec if data is None else spec.read_at("")
    settled = settle_accountant(spec_to_plan, settings, partial(plan_release, period=period), fresh=fresh)
    plan = plan_release(settled, period)
    return Proposal(
        plan=plan, settings=settings, data=data, fresh=fresh, new_dataset=new_dataset, early=early, calendar=calendar
    )
