"""From declared steps to the steps of one release.

A mechanism declares every step that some release has (``privsyn/pipelines/one_shot.py``).  Four functions turn them
into the steps of one release, in this order:

1. :func:`privsyn.pipelines.budget.split_budget` chooses the release's looks and their shares.
2. :func:`fund` gives the steps these shares; it drops looks without one, and the steps that serve them.
3. :func:`connect` adds the tables of the earlier looks that a step wants to its inputs.
4. :func:`privsyn.pipelines.rung_steps.follow_cuts` lets later steps read the codes of the chosen cells.

:func:`check_shares` compares the shares with the whole budget, and :func:`run_steps` runs the steps in order.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Protocol, TypeVar

from privsyn.data_contracts.artifacts import LookKind
from privsyn.engine.step import PublishedFile, ReleaseStep, Step, release_steps


def fund(steps: Iterable[Step], budget: Mapping[str, Fraction]) -> tuple[Step, ...]:
    """Return the steps of releases with this budget, each with all shares; ``budget``: look -> its share.

    Looks without a share are dropped, with the steps that serve them.
    """
    funded = []
    for declared in steps:
        step = next((other for look, other in declared.replacements.items() if look in budget), declared)
        needed = step.name if isinstance(step, ReleaseStep) else step.only_with_look
        if needed in budget or not needed:
            funded.append(replace(step, shares=budget, replacements={}))
    return tuple(funded)


def connect(steps: Iterable[Step]) -> tuple[Step, ...]:
    """Return the steps, each with the tables of the earlier looks that it wants among its inputs.

    A step also gets the tables of ``may_read`` that an earlier step makes, and loses the outputs of looks that are not
    taken.
    """
    connected: list[Step] = []
    for step in steps:
        made = {f"{s.name}.{table}" for s in connected for table in s.outputs}
        looks = {kind: list_looks(connected, kind) for kind in step.look_kinds}
        read = [table for kind in step.look_kinds for look in looks[kind] for table in look.released_tables]
        dropped = {table for table, kind in step.only_after.items() if not list_looks(connected, kind)}
        connected.append(
            replace(
                step,
                inputs=tuple(dict.fromkeys((*step.inputs, *(t for t in step.may_read if t in made), *read))),
                looks={kind: tuple(look.name for look in looks[kind]) for kind in looks} or step.looks,
                outputs={table: contract for table, contract in step.outputs.items() if table not in dropped},
                published={table: file for table, file in step.published.items() if table not in dropped},
                may_read=(),
                look_kinds=(),
                only_after={},
            )
        )
    return tuple(connected)


def check_shares(steps: Sequence[Step]) -> None:
    """Raise ValueError unless the shares of the release steps are positive and sum to exactly 1."""
    shares = [step.share for step in release_steps(steps)]
    if sum(shares) != 1 or min(shares, default=Fraction(0)) <= 0:
        raise ValueError(f"the shares of the release steps are {', '.join(map(str, shares))}: they must sum to 1")


def list_looks(steps: Iterable[Step], kind: LookKind) -> tuple[ReleaseStep, ...]:
    """Return the release steps among ``steps`` whose measurements are of this kind, in order."""
    return tuple(step for step in release_steps(steps) if step.measures is kind)


def repeat(step: ReleaseStep, n: int, files: Mapping[str, PublishedFile]) -> ReleaseStep:
    """Return the same look, repeated for release ``n`` of several; ``files``: its published files."""
    return replace(
        step,
        name=f"{step.name}_{n}",
        title=f"{step.title}, release {n}",
        look=replace(step.look, round=n),
        published=files,
    )


Outputs = TypeVar("Outputs")


class RunStep(Protocol[Outputs]):
    """Run one step on its producers' results, by their names, and return its own result."""

    def __call__(self, step: Step, inputs: Mapping[str, Outputs]) -> Outputs:
        """Return the step's result."""


def run_steps(steps: Iterable[Step], run: RunStep[Outputs]) -> dict[str, Outputs]:
    """Run every step in order; returns step name -> its result.

    Raises LookupError for an input that no step made.
    """
    outputs: dict[str, Outputs] = {}
    for step in steps:
        outputs[step.name] = run(step, {name: outputs[name] for name in step.producers})
    return outputs
