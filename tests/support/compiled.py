"""Compile the kernels once, before the workers of the tests each would: ``python -m tests.support.compiled``."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from privsyn.data_contracts.release_spec import ReleaseSpec
from privsyn.engine.inputs import PrivateAccess
from privsyn.engine.memory import MemoryRun, draw_from_seed
from privsyn.engine.request import Request
from privsyn.pipelines.registry import build_steps
from tests.support.specs import make_spec

ROWS = 6_000
SIZES = ((2, 3, 5, 4), (300, 3, 400, 4), (300, 400))
"""Values of the columns of each table: codes of one byte, of one or two, of two."""

LITTLE_NOISE = {"epsilon": 5_000.0, "delta": 1e-6}


def main() -> None:
    """Make a table of each of SIZES by each method."""
    rng = np.random.default_rng(0)
    for sizes in SIZES:
        first = rng.random(ROWS)
        rows = pa.table(
            {f"c{i}": (s * (first if i < 2 else rng.random(ROWS))).astype(np.int64) for i, s in enumerate(sizes)}
        )
        columns = {f"c{i}": {"kind": "integer", "min": 0, "max": s - 1, "bins": s} for i, s in enumerate(sizes)}
        for method in ("sweep", "gum"):
            make(make_spec(columns, privacy=LITTLE_NOISE, budget=LITTLE_NOISE, synthesis={"method": method}), rows)


def make(spec: ReleaseSpec, rows: pa.Table) -> None:
    """One table, in memory."""
    request = Request(spec, tuple(spec.released_columns), threads=2)
    access = PrivateAccess(lambda repairs=None: rows.to_batches())
    MemoryRun(request, build_steps(request), draw_from_seed(0), access).run()


if __name__ == "__main__":
    main()
