"""The public plan of a run: its request, its steps, and everything that follows from them without data."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from privsyn.base.errors import RequestError
from privsyn.base.wording import Text, refer_to_action
from privsyn.data_contracts.artifacts import Zone
from privsyn.data_contracts.domain import Domain
from privsyn.data_contracts.promise import Guarantee
from privsyn.data_contracts.receipts import Query, compute_sigma
from privsyn.engine.inputs import Inputs
from privsyn.engine.request import Request
from privsyn.engine.step import ReleaseStep, Step, check_shares, release_steps
from privsyn.tasks.privacy.accountant import Accountant, cap_accountant, convert_epsilon_to_rho, convert_rho_to_epsilon

MOST_NOISE = 1e8
"""Largest standard deviation of a table's total, in records: beyond it, `rows: auto` may be too many to make."""

REDRAW: Text = refer_to_action("redraw") + " to draw new noise at new cost"
"""The instruction for asking for new noise."""


@dataclass(frozen=True)
class Stage:
    """One look at the private rows, before it is taken.

    ``rho``: its budget; ``queries``: its queries with their noise; None if they depend on released tables.
    """

    step: ReleaseStep
    rho: Fraction
    queries: tuple[Query, ...] | None

    def sigma_if(self, request: Request, queries: int) -> float:
        """Return the standard deviation of a count's noise, in records, if ``queries`` marginals shared the budget."""
        return compute_sigma(self.rho / queries, request.records, request.pricing)


@dataclass(frozen=True)
class Plan:
    """A request, its steps, what is asked beyond the spec, and what follows: domain, queries, noise and price.

    It holds nothing that could read a row.  The run, the note, ``spec check`` and the tests use the same plan.

    Attributes:
        request: The public request.
        steps: Its steps, in order.
        asks: What is asked beyond the spec, public and JSON-ready.
        period: The period to release, which the ledger allows only one run; None: no period.
        name: The beginning of the run's name; empty: the data set's name.
        output: The kind of output, as a policy names it; None: a table.
        redraw: The instruction for asking for new noise.
    """

    request: Request
    steps: tuple[Step, ...]
    asks: Mapping[str, Any] = field(default_factory=dict, kw_only=True)
    period: str | None = field(default=None, kw_only=True)
    name: str = field(default="", kw_only=True)
    output: str | None = field(default=None, kw_only=True)
    redraw: Text = field(default=REDRAW, kw_only=True)

    @property
    def domain(self) -> Domain:
        """The fine domain: every released column and the number of its codes."""
        return self.request.encoding.domain

    @property
    def rho(self) -> Fraction:
        """The highest price of the whole request."""
        return self.request.total_rho

    @property
    def stages(self) -> tuple[Stage, ...]:
        """Every look at the private rows, in order."""
        return tuple(Stage(s, s.rho(self.request), self._list_known_queries(s)) for s in release_steps(self.steps))

    def queries(self, step: ReleaseStep, inputs: Inputs) -> list[Query]:
        """Return the queries of ``step`` from public and released inputs, with the noise that their price buys."""
        planned = step.plan(*step.open(self.request, inputs), step.rho(self.request))
        return [query.under(self.request.pricing) for query in planned]

    def released_inputs(self, step: Step) -> tuple[str, ...]:
        """Return the inputs of ``step`` that are released tables: all that its plan, and post-processing, may read."""
        zones = {f"{s.name}.{name}": contract.zone for s in self.steps for name, contract in s.outputs.items()}
        return tuple(name for name in step.inputs if zones.get(name) is Zone.RELEASED)

    def _list_known_queries(self, step: ReleaseStep) -> tuple[Query, ...] | None:
        if not {step.cuts}.issuperset(self.released_inputs(step)):
            return None  # a table of cut cells does not change the planned noise
        return tuple(self.queries(step, Inputs({})))

    def check(self) -> None:
        """Raise RequestError if the promise or the cap cannot be accounted, or the prior's file is wrong.

        Raises ValueError if the steps' shares do not sum to the whole budget.
        """
        spec = self.request.spec
        check_shares(self.steps)
        allowed = account_rho(spec.privacy, "privacy", spec.effective_accountant)
        account_rho(spec.budget, "budget", cap_accountant(spec.effective_accountant))
        if spec.improves is not None:
            _check_sum(self.request, allowed)
        _ = self.request.prior

    def check_noise(self) -> None:
        """Raise RequestError if the first look would be uninformative: its total could be any number of rows."""
        planned = [query for stage in self.stages for query in stage.queries or ()]
        if max((q.sigma * math.sqrt(q.cells) for q in planned), default=0.0) > MOST_NOISE:
            spec = self.request.spec
            epsilon = (spec.improves or spec.privacy).epsilon
            raise RequestError(
                f"epsilon {epsilon:g} means noise of more than {MOST_NOISE:,.0f} records; "
                "nothing was read, nothing was spent",
                "Choose a larger epsilon",
                "privacy.epsilon" if spec.improves is None else "improve.epsilon",
            )


def _check_sum(request: Request, allowed: Fraction) -> None:
    """Raise RequestError if the looks of an improved release together cost more than ``privacy`` allows."""
    privacy = request.spec.privacy
    if request.total_rho > allowed and convert_rho_to_epsilon(
        request.total_rho, privacy.delta, request.spec.effective_accountant
    ) > (privacy.epsilon):
        raise RequestError(
            f"epsilon {privacy.epsilon:g} is less than this release and the releases that it improves cost together",
            "Leave the spec as it was written for the improvement",
            "privacy.epsilon",
        )


def account_rho(promise: Guarantee, field: str, accountant: Accountant) -> Fraction:
    """Return the rho of a promise.  Raises RequestError that names ``field`` if it cannot be accounted."""
    try:
        return convert_epsilon_to_rho(promise.epsilon, promise.delta, accountant)
    except (ValueError, OverflowError):
        raise RequestError(
            f"epsilon {promise.epsilon:g} with delta {promise.delta:g} cannot be accounted",
            "Choose a larger epsilon or delta",
            field,
        ) from None


def compute_digest(queries: Sequence[Query]) -> bytes:
    """Return a digest (SHA-256, hex) of planned queries; noise drawn for them fits no other queries."""
    facts = [[q.attributes, q.cells, q.sensitivity, q.sigma.hex(), q.pricing] for q in queries]
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest().encode()
