"""MGD's configuration: generalization hierarchies and target marginals (MGD paper, section 4.3).

Belongs here: what a person may configure, and its validation.  Does not belong here: distances and costs
(tasks/metrics/).
"""

from __future__ import annotations

from pydantic import Field

from data_contracts.columns import FrozenModel


class MgdSpec(FrozenModel):
    """Hierarchies by column, and the target marginals; without any, all one-ways and the smaller pairs."""

    worst_bins: int = Field(default=5, ge=0, le=1_000, description="Bins shown in a marginal's drill-down.")
