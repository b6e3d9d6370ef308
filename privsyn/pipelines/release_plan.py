"""A release, from its spec: its public plan, and the proposal that asks to be admitted."""

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
"""What a release of a period says where its noise is lost."""


def plan_release(spec: ReleaseSpec, period: str | None = None, *, column_order: tuple[str, ...] = ()) -> Plan:
    """Return the public plan of a release of ``spec``, for a period or for none; no file is opened for it.

    ``column_order``: as the request's.  Raises RequestError if ``period`` is not a period's label.
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
    """Return a release of ``spec`` that asks to be admitted; of all files the ledger alone is read for it.

    ``data``: the table in memory (None: the file that the spec names); ``early``, ``calendar``: as the proposal's.

    Raises RequestError as :func:`plan_release`, and LedgerError where the accountant is that of the data set's cap
    and the ledger cannot be read.
    """
    spec_to_plan = spec if data is None else spec.read_at("")
    settled = settle_accountant(spec_to_plan, settings, partial(plan_release, period=period), fresh=fresh)
    plan = plan_release(settled, period)
    return Proposal(
        plan=plan, settings=settings, data=data, fresh=fresh, new_dataset=new_dataset, early=early, calendar=calendar
    )
