"""The one wiring: steps in their order, each on the outputs that it declares.  Every runner calls it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol, TypeVar

from privsyn.engine.step import Step

Outputs = TypeVar("Outputs")


class RunStep(Protocol[Outputs]):
    """Runs one step on the results of its producers, by their names, and returns its own result."""

    def __call__(self, step: Step, inputs: Mapping[str, Outputs]) -> Outputs:
        """Return the step's result."""


def run_steps(steps: Iterable[Step], run: RunStep[Outputs]) -> dict[str, Outputs]:
    """Run every step in order; returns step name -> its result.

    Raises LookupError for an input that no step made.
    """
    left: dict[str, Outputs] = {}
    for step in steps:
        left[step.name] = run(step, {name: left[name] for name in step.producers})
    return left
