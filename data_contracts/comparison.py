"""The comparison: every run of every method on one table, as one frozen model that is also its JSON file.

Belongs here: the shape of the results.  Does not belong here: making them (flows/comparison/compare.py), showing them
(flows/comparison/view.py).  Everything in it is a function of the real table without noise: a ``Comparison`` is
private, and so is every table and picture of it.
"""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict

from data_contracts.evaluation import Metric
from data_contracts.evaluation_spec import EvaluationSpec

NOTICE = (
    "PRIVATE: computed from the real rows without noise, and the methods' own noise has a known seed. For comparing "
    "methods on data that is public or that stays with you; nothing here is a release, and no budget was charged."
)
"""What stands at the top of everything that shows a comparison."""

Outcome = Literal["done", "not installed", "did not finish", "failed"]


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class ComparedMethod(_Model):
    """One method as the registry tells it; ``private`` is false for a reference that looks without noise."""

    name: str
    title: str
    description: str
    source: str
    private: bool


class MethodRun(_Model):
    """One method at one epsilon with one seed.

    seconds: wall time of the method alone, without metrics, kernels compiled beforehand; rows: of its table;
    marginals: the attribute sets measured besides the one-ways; receipts_epsilon: what its noise promises at the
    comparison's delta, None where there are no receipts.  All but ``note`` are None or empty unless "done".
    """

    method: str
    epsilon: float
    seed: int
    outcome: Outcome
    note: str = ""
    seconds: float | None = None
    rows: int | None = None
    marginals: tuple[tuple[str, ...], ...] = ()
    receipts_epsilon: float | None = None
    metrics: tuple[Metric, ...] = ()


class Comparison(_Model):
    """Several methods x epsilons x seeds on one table.  Private."""

    notice: str = NOTICE
    schema_version: Literal[1] = 1
    private: Literal[True] = True
    dataset: str
    rows_real: int
    rows_holdout: int | None
    columns: tuple[str, ...]
    delta: float
    unit_of_protection: str
    settings: EvaluationSpec
    machine: str
    methods: tuple[ComparedMethod, ...]
    epsilons: tuple[float, ...]
    seeds: int
    runs: tuple[MethodRun, ...]

    def done(self, method: str, epsilon: float) -> tuple[MethodRun, ...]:
        """The whole runs of one method at one epsilon, by seed."""
        return tuple(r for r in self.runs if (r.method, r.epsilon, r.outcome) == (method, epsilon, "done"))
