"""One run of one peer that bins columns itself, in its own environment: ``python relations_worker.py PEER FOLDER``.

FOLDER holds ``request.json`` (epsilon, delta, seed; domain: of every column its bounds, or its number of codes; whole:
the columns of whole numbers) and ``real.npz`` (values: float64, rows x columns, NaN for null).  It gets ``made.npz``
(values) and ``made.json`` (wall and CPU seconds of the peer's own work).  Exit code 3: the peer is not installed.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd

NOT_INSTALLED = 3
BINNING = 0.1
"""Share of epsilon for the peer's own bins (PrivTree): its default at epsilon 1."""
MEGABYTES = 4
"""AIM's bound on its model."""


def main(name: str, folder: Path) -> int:
    """Run one peer; returns the exit code."""
    try:
        from dpmm.pipelines import AIMPipeline, MSTPipeline
    except ImportError as error:
        print(error, file=sys.stderr)
        return NOT_INSTALLED
    request = json.loads((folder / "request.json").read_text(encoding="utf-8"))
    with np.load(folder / "real.npz") as real:
        rows = pd.DataFrame(real["values"], columns=list(request["domain"]))
    domain = {}
    for column, content in request["domain"].items():
        whole = column in request["whole"] and not rows[column].isna().any()
        rows[column] = rows[column].astype(np.int64) if whole else rows[column]
        domain[column] = content
        if "codes" in content:
            domain[column] = {"categories": list(range(content["codes"]))}
            rows[column] = rows[column].astype(np.int64).astype("category")
    wall, cpu = time.perf_counter(), time.process_time()
    epsilon = request["epsilon"]
    shared = {"epsilon": epsilon * (1 - BINNING), "proc_epsilon": epsilon * BINNING, "delta": request["delta"]}
    aim = name.startswith("aim")
    pipeline = AIMPipeline(**shared, max_model_size=MEGABYTES, n_jobs=1) if aim else MSTPipeline(**shared, n_jobs=1)
    pipeline.fit(rows, domain=domain, random_state=request["seed"])
    made = pipeline.generate(n_records=len(rows), random_state=request["seed"])
    spent = {"wall": time.perf_counter() - wall, "cpu": time.process_time() - cpu}
    columns = [pd.to_numeric(made[c].astype(object), errors="coerce").to_numpy(np.float64) for c in request["domain"]]
    np.savez_compressed(folder / "made.npz", values=np.stack(columns, axis=1))
    (folder / "made.json").write_text(json.dumps(spent), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], Path(sys.argv[2])))
