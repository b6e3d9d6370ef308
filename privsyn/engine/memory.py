"""The runner in memory: the same steps on tables in memory, with seeded noise.  Its result is not a release.

For comparisons, simulations and audits: no file, no ledger, no contract check.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import pyarrow as pa

from privsyn.data_contracts.artifacts import StepKind
from privsyn.data_contracts.receipts import Query
from privsyn.engine.inputs import Inputs, PrivateAccess
from privsyn.engine.plan import Plan
from privsyn.engine.request import Request
from privsyn.engine.step import Output, ReleaseStep, RowStream, Step, list_published_files, run_steps
from privsyn.tasks.estimation import noisy
from privsyn.tasks.privacy.noise import SeededNoise

Tables = Mapping[str, pa.Table]
"""The output tables of a step, by name."""

DrawNoise = Callable[[ReleaseStep, Sequence[Query]], noisy.Answers]
"""Noise for the queries of a release step, one flat vector each."""


def draw_from_seed(seed: int) -> DrawNoise:
    """Return the noise of a run, derived from ``seed``; nothing made with it is a release."""
    source = SeededNoise(seed)

    def draw(step: ReleaseStep, queries: Sequence[Query]) -> noisy.Answers:
        return noisy.draw_for_queries(queries, lambda sizes: [source.draw(sigma, cells) for sigma, cells in sizes])

    return draw


def name_by_files(steps: Sequence[Step], outputs: Mapping[str, Tables]) -> dict[str, pa.Table]:
    """Return the tables of a run of these steps by the names of a released folder's files, including its rows."""
    places = {file: place.split(".") for file, place in list_published_files(steps).items()}
    tables = {file: outputs[step][table] for file, (step, table) in places.items()}
    return {**tables, "synthetic.parquet": outputs[steps[-1].name]["synthetic"]}


@dataclass
class MemoryRun:
    """One run in memory.

    ``known_tables``: step name -> its tables, for steps that are not run; ``receipts``: the queries of each release
    step.
    """

    request: Request
    steps: Sequence[Step]
    draw: DrawNoise
    private: PrivateAccess | None = None
    known_tables: Mapping[str, Tables] = field(default_factory=dict)
    receipts: dict[str, list[Query]] = field(default_factory=dict)

    def run(self) -> dict[str, Tables]:
        """Run every step; return step name -> its tables."""
        plan = Plan(self.request, tuple(self.steps))
        return run_steps(self.steps, partial(self._step, plan))

    def _step(self, plan: Plan, step: Step, inputs: Mapping[str, Tables]) -> Tables:
        if step.name in self.known_tables:
            return self.known_tables[step.name]
        read = {name: partial(_get_table, inputs, name) for name in step.inputs}
        if isinstance(step, ReleaseStep):
            return self._look(plan, step, read)
        private = self.private if step.encodes or self.private is None else self.private.without_source()
        visible = Inputs(read, private) if step.kind is StepKind.TRANSFORM else _read_released(plan, step, read)
        assert step.run is not None  # noqa: S101 - only release steps have none
        outputs = step.run(*step.open(self.request, visible), lambda done, total: None)
        wide_first = sorted(outputs, key=lambda name: not isinstance(outputs[name], RowStream))  # streams fill others
        return {name: _join_batches(outputs[name]) for name in wide_first}

    def _look(self, plan: Plan, step: ReleaseStep, read: Mapping[str, Callable[[], pa.Table]]) -> Tables:
        inputs = Inputs(read, self.private)
        queries = plan.queries(step, _read_released(plan, step, read))
        noise = self.draw(step, queries)
        answers = []
        if queries:
            request, inputs = step.open(self.request, inputs)
            exact = step.exact(request, inputs, step.read_rows(request, inputs), queries)
            answers = [counts + drawn for counts, drawn in zip(exact, noise, strict=True)]
        self.receipts[step.name] = queries
        return {"noisy": noisy.tabulate_answers(answers), "receipts": noisy.tabulate_receipts(queries)}


def _read_released(plan: Plan, step: Step, read: Mapping[str, Callable[[], pa.Table]]) -> Inputs:
    """Return the step's released inputs, without access to private rows."""
    return Inputs({name: read[name] for name in plan.released_inputs(step)})


def _get_table(inputs: Mapping[str, Tables], name: str) -> pa.Table:
    producer, table = name.split(".")
    return inputs[producer][table]


def _join_batches(output: Output) -> pa.Table:
    if isinstance(output, RowStream):
        return pa.Table.from_batches(list(output.batches), schema=output.schema)
    return output() if callable(output) else output
