"""Every case of the referee, run once in this process with seeded noise.

Belongs here: what a case's steps are, asked, read and published.  Does not belong here: what is right of it
(tests/privacy/test_declarations.py, and the snapshot of the published tables).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache

import pyarrow as pa
import pytest

from audit.referee_cases import CASES
from privsyn.data_contracts.receipts import Query
from privsyn.engine import memory
from privsyn.engine.memory import MemoryRun, Tables, draw_from_seed
from privsyn.engine.plan import Plan
from privsyn.engine.request import Request
from privsyn.engine.step import Step, list_published_files


@dataclass(frozen=True)
class Ran:
    """A case's run: its steps, the queries of each look, the inputs that each step read, and hashes of its tables."""

    request: Request
    steps: tuple[Step, ...]
    receipts: Mapping[str, list[Query]]
    reads: frozenset[tuple[str, str]]
    published: Mapping[str, str]


@cache
def run_cases() -> dict[str, Ran]:
    """Return the run of every case."""
    return dict(_run_cases())


def _run_cases() -> Iterator[tuple[str, Ran]]:
    reads: set[tuple[str, str]] = set()
    now = ""
    get_table, run_step = memory._get_table, MemoryRun._step

    def get_noted(inputs: Mapping[str, Tables], name: str) -> pa.Table:
        reads.add((now, name))
        return get_table(inputs, name)

    def run_noted(run: MemoryRun, plan: Plan, step: Step, inputs: Mapping[str, Tables]) -> Tables:
        nonlocal now
        now = step.name
        return run_step(run, plan, step, inputs)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(memory, "_get_table", get_noted)
        patch.setattr(MemoryRun, "_step", run_noted)
        for case in CASES:
            reads.clear()
            source = case.make(case.few, 0)
            request = case.make_request(source)
            steps = tuple(case.build(request))
            run = MemoryRun(request, steps, draw_from_seed(1), case.open_rows(source, None))
            published = _hash_published(steps, run.run())
            yield case.name, Ran(request, steps, run.receipts, frozenset(reads), published)


def _hash_published(steps: tuple[Step, ...], outputs: Mapping[str, Tables]) -> dict[str, str]:
    places = {**list_published_files(steps), "last": f"{steps[-1].name}.{next(iter(steps[-1].outputs))}"}
    return {file: _hash(outputs, *place.split(".")) for file, place in sorted(places.items())}


def _hash(outputs: Mapping[str, Tables], step: str, table: str) -> str:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, outputs[step][table].schema) as writer:
        writer.write_table(outputs[step][table].combine_chunks())
    return hashlib.sha256(sink.getvalue()).hexdigest()[:16]
