"""Rows of a random model by mbi, in an environment that has it: ``python sampling_worker.py FOLDER``.

FOLDER holds ``request.json`` (domain, cliques, rows: how many, several times).  It gets ``marginals.npz`` (of clique i,
shares) and ``made.json``: of each number of rows wall and CPU seconds, and the mean L1 distance of the cliques.  The
first row, which compiles, has no part in them.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import mbi
import numpy as np


def main(folder: Path) -> None:
    """Make the model and its rows."""
    asked = json.loads((folder / "request.json").read_text(encoding="utf-8"))
    cliques = [tuple(clique) for clique in asked["cliques"]]
    np.random.seed(0)  # noqa: NPY002
    domain = mbi.Domain.fromdict(asked["domain"])
    potentials = mbi.CliqueVector.random(domain, cliques)
    marginals = mbi.marginal_oracles.message_passing_stable(potentials)
    model = mbi.MarkovRandomField(potentials=potentials, marginals=marginals, total=1)
    shares = [np.asarray(model.project(c).datavector(flatten=False), dtype=np.float64) for c in cliques]
    np.savez(folder / "marginals.npz", *shares)
    model.synthetic_data(rows=1)
    made = []
    for rows in asked["rows"]:
        wall, cpu = time.perf_counter(), time.process_time()
        found = model.synthetic_data(rows=rows)
        spent = {"rows": rows, "wall": time.perf_counter() - wall, "cpu": time.process_time() - cpu}
        counts = [np.asarray(found.project(c).datavector(flatten=False)) for c in cliques]
        errors = [np.abs(n / rows - p).sum() for n, p in zip(counts, shares, strict=True)]
        made.append({**spent, "l1": float(np.mean(errors))})
    (folder / "made.json").write_text(json.dumps(made), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
