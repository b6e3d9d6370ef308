"""The job of a run: its steps, and what its request says beyond the spec."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from privsyn.base.wording import Text
from privsyn.data_contracts.release_spec import ReleaseSpec
from privsyn.engine.execute import REDRAW
from privsyn.engine.plan import Plan
from privsyn.engine.request import Request
from privsyn.engine.step import Step, check_shares
from privsyn.sources.private_table import Source, SupportsArrowStream
from privsyn.storage.table_files import Place


@dataclass(frozen=True)
class Job:
    """The steps of a run, and the parts of its request that are not in the spec.

    ``steps``: in order, their shares summing to the budget; ``asks``: the request beyond the spec, public and
    JSON-ready; ``order``: the columns' order (None: the source's); ``name``: how the run's name begins (empty: the data
    set's name); ``output``: what is released, as a policy names it (None: a table); ``redraw``: how new noise is asked
    for; ``period``: the period of the data set that the run releases, which the ledger lets one run do (None: none);
    ``new_dataset``: why a table that is known under another name gets a second one (None: nobody said); ``opened``: how
    the private table is opened (None: as a table of the spec's columns).
    """

    steps: Sequence[Step]
    asks: Mapping[str, Any] = field(default_factory=dict)
    order: tuple[str, ...] | None = None
    name: str = ""
    output: Literal["figures", "itemsets"] | None = None
    redraw: Text = REDRAW
    period: str | None = None
    new_dataset: str | None = None
    opened: Callable[[Place | SupportsArrowStream, ReleaseSpec], Source] | None = None

    def plan(self, request: Request) -> Plan:
        """Return the public plan of ``request``.

        Raises RequestError if its promise cannot be accounted.  Raises ValueError if the steps' shares are not the
        whole budget.
        """
        check_shares(self.steps, request)
        return Plan.of(request, self.steps)
