"""The comparison: every run of every method on one table, as one frozen model that is also its JSON file.

Everything in it is computed from the real table without noise, so a ``Comparison``, its tables and its pictures are
private.
"""

from __future__ import annotations

from typing import Literal

from privsyn.data_contracts.evaluation_results import Metric
from privsyn.data_contracts.evaluation_spec import EvaluationSpec
from privsyn.data_contracts.frozen_model import PrivateResult

NOTICE = (
    "PRIVATE: computed from the real rows without noise, and the methods' own noise has a known seed. For comparing "
    "methods on data that is public or that stays with you; nothing here is a release, and no budget was charged."
)
"""Heads everything that shows a comparison."""

Outcome = Literal["done", "not installed", "did not fit", "did not finish", "failed"]


class ComparedMethod(PrivateResult):
    """One method as the registry describes it; ``private`` is false for a reference that looks without noise."""

    name: str
    title: str
    description: str
    source: str
    private: bool


class MethodRun(PrivateResult):
    """One method at one epsilon with one seed.

    ``seconds``: wall time of the method alone, without metrics, with precompiled kernels.  ``rows``: of its table.
    ``marginals``: the attribute sets measured besides the one-ways.  ``receipts_epsilon``: the epsilon that its noise
    guarantees at the comparison's delta, None without receipts.  All but ``note`` are None or empty unless "done".
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


class Comparison(PrivateResult):
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
    cells: str = ""
    settings: EvaluationSpec
    machine: str
    methods: tuple[ComparedMethod, ...]
    epsilons: tuple[float, ...]
    seeds: int
    runs: tuple[MethodRun, ...]

    def done(self, method: str, epsilon: float) -> tuple[MethodRun, ...]:
        """Return the finished runs of one method at one epsilon, by seed."""
        return tuple(r for r in self.runs if (r.method, r.epsilon, r.outcome) == (method, epsilon, "done"))
