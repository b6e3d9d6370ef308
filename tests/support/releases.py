"""Small releases that many tests of the promise make, and what they read from them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from privsyn.api.release import propose_release, run_proposal
from privsyn.base.settings import Settings
from privsyn.data_contracts.artifacts import StepKind
from privsyn.data_contracts.release_spec import ReleaseSpec
from privsyn.engine.execute import ReportProgress
from privsyn.engine.inputs import Inputs, PrivateAccess
from privsyn.engine.proposal import ignore_progress
from privsyn.engine.request import Request
from privsyn.engine.step import Step
from privsyn.ledgers.ledger import Ledger
from privsyn.publish.folder import ReleaseSummary
from privsyn.tasks.privacy.noise import NoiseSource
from tests.support.specs import COLUMNS, make_spec

QUICK: dict[str, Any] = {"synthesis": {"sweeps": 2}}
FEW = {name: COLUMNS[name] if name in ("age", "region") else {"kind": "drop"} for name in COLUMNS}
"""Two columns of ``people``: the quickest release that has a pair."""


def release_in_process(
    spec: ReleaseSpec,
    settings: Settings,
    *,
    noise: NoiseSource | None = None,
    report: ReportProgress = ignore_progress,
    **how: Any,
) -> ReleaseSummary:
    """A release without Prefect, by a source of noise and a progress of one's own."""
    proposal = propose_release(spec, settings, **how)
    return run_proposal(replace(proposal, report=report, noise=noise or proposal.noise))


def run(spec: ReleaseSpec, **how: Any) -> ReleaseSummary:
    """A release without Prefect."""
    return release_in_process(spec, Settings(), **how)


def released(summary: ReleaseSummary, name: str) -> pa.Table:
    """One of its tables."""
    return pq.read_table(Path(summary.released) / name)


def read_files(folder: str | Path) -> dict[str, bytes]:
    """Every file below a folder, by its name there."""
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in sorted(Path(folder).rglob("*")) if p.is_file()}


def spent(dataset: str = "people") -> Fraction:
    """What the ledger has charged for a data set: 0 for one that it does not know."""
    return sum((state.rho for state in Ledger(Settings().ledger).summary(dataset)), Fraction(0))


def few(data: str, **changes: Any) -> ReleaseSpec:
    """A spec of two columns for ``people`` at ``data``."""
    return make_spec(FEW, data=data, **{**QUICK, **changes})


def no_rows() -> Iterator[pa.RecordBatch]:
    """A pass over the private rows that nobody may start."""
    raise AssertionError("a step after a release started a pass over the private rows")


def outputs(step: Step, tables: dict[str, pa.Table], spec: ReleaseSpec, rows: Any = no_rows) -> dict[str, pa.Table]:
    """What a step makes of these tables, streams as tables; post-processing has no access to the private ``rows``."""
    assert step.run is not None
    access = None if step.kind is StepKind.POSTPROCESS else PrivateAccess(lambda repairs=None: rows())
    inputs = Inputs({n: (lambda n=n: tables[n]) for n in tables}, access)
    request = Request(spec, tuple(spec.released_columns))
    step = replace(step, looks=dict.fromkeys(step.look_kinds, ()) | step.looks)
    made = step.run(request, step.lend(request, inputs), lambda done, total: None)
    found = {}
    for name, output in made.items():
        if hasattr(output, "batches"):
            found[name] = pa.Table.from_batches(list(output.batches), output.schema)
        elif isinstance(output, pa.Table):
            found[name] = output
    return found
