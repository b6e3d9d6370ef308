"""anonymeter's attacks on a synthetic table, run by another interpreter that has anonymeter.

Belongs here: the input of the process and the meaning of its output.  anonymeter needs older versions of numpy and
pyarrow than this project, so it has its own environment.  PRIVATE: the process gets private rows through a pipe on this
machine.  It writes no file, and its standard error is dropped, since it may contain values.
"""

from __future__ import annotations

import io
import json
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from privsyn.evaluation.coded_tables import CodedTable
from privsyn.tasks.kernels.counting import CodeTable
from privsyn.tasks.metrics.samples import sample_rows

WORKER = Path(__file__).with_name("anonymeter_worker.py")
MOST_ATTACKS = 500
"""Largest number of attacks, anonymeter's default."""
MOST_ROWS = 50_000
"""Largest number of rows per table, drawn at random."""
MOST_SECONDS = 3_600

Risk = Mapping[str, float]


def run_attacks(
    python: Path, tables: Mapping[str, CodedTable], ordered: Sequence[bool], attacks: int, seed: int
) -> Mapping[str, Risk | None] | str:
    """Return attack -> risk (None if it failed); or the reason why there are none, without values.

    ``tables``: the tables ``real``, ``holdout`` and ``synthetic``, each with rows.  As many real as hold-out rows are
    attacked, since how often chance singles out a person depends on their number.
    """
    given: dict[str, object] = {"ordered": np.array(ordered), "seed": seed}
    alike = min(MOST_ROWS, *(tables[name].bins.rows for name in ("real", "holdout")))
    for name, table in tables.items():
        rows = MOST_ROWS if name == "synthetic" else alike
        given |= {name: _stack(table.fine, rows, seed), f"{name}_bins": _stack(table.bins, rows, seed)}
    stream = io.BytesIO()
    fewest = min(table.bins.rows for table in tables.values())
    np.savez(stream, attacks=min(attacks, MOST_ATTACKS, fewest), **given)  # type: ignore[arg-type]
    try:
        ended = subprocess.run(  # noqa: S603 - the operator's own setting names the interpreter
            [str(python), "-I", str(WORKER)], input=stream.getvalue(), capture_output=True, timeout=MOST_SECONDS
        )
    except subprocess.TimeoutExpired:
        return f"anonymeter did not finish in {MOST_SECONDS // 60} minutes"
    except OSError:
        return "the interpreter for anonymeter cannot be started"
    if ended.returncode:
        return f"anonymeter ended with the exit code {ended.returncode}: its environment may lack it"
    found: dict[str, Risk | None] = json.loads(ended.stdout)
    return found


def _stack(table: CodeTable, rows: int, seed: int) -> NDArray[np.int32]:
    return np.stack([column.astype(np.int32) for column in sample_rows(table, rows, seed).columns], axis=1)
