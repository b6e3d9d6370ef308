"""Rows of 97 columns from the pairs of a random model, by mbi and here: ``python -m benchmarks.sampling``.

Domain and cliques are those of mbi's own benchmark: MBI_SOURCE names a clone of ryan112358/mbi, whose
``benchmarks/benchmark_synthetic_data.py`` has both.  mbi draws from the model, which it knows whole; this project makes
rows whose pairs agree with the model's.  Both run on one thread, one after the other, compiled before.
"""

from __future__ import annotations

import ast
import json
import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.peers import ENVIRONMENTS, LIMITS, ONE_THREAD, PeerError, watch
from privsyn.data_contracts.domain import Domain
from privsyn.data_contracts.mechanism_options import Synthesis
from privsyn.tasks.estimation.marginals import Marginal
from privsyn.tasks.kernels.counting import count
from privsyn.tasks.steps.synthesize import synthesize

HERE = Path(__file__).parent
ROWS = (100_000, 1_000_000)


def read_benchmark(source: Path) -> dict[str, Any]:
    """Return domain and cliques of mbi's benchmark."""
    tree = ast.parse((source / "benchmarks" / "benchmark_synthetic_data.py").read_text(encoding="utf-8"))
    found = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            name = {"domain_dict": "domain", "cliques": "cliques"}.get(node.targets[0].id)
            if name:
                found[name] = ast.literal_eval(node.value)
    return found


def sample_by_mbi(asked: dict[str, Any]) -> tuple[list[dict[str, float]], list[np.ndarray]]:
    """Return what mbi took and reached for each number of rows, and the model's pairs as shares."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "request.json").write_text(json.dumps({**asked, "rows": ROWS}), encoding="utf-8")
        command = [str(ENVIRONMENTS / "dpsynth" / "bin" / "python"), str(HERE / "sampling_worker.py"), name]
        watched = watch(command, LIMITS, {**os.environ, **ONE_THREAD, "PYTHONPATH": ""}, folder / "log")
        if watched.outcome != "ended" or watched.exit_code:
            raise PeerError(watched.stderr.strip()[-200:])
        made = json.loads((folder / "made.json").read_text(encoding="utf-8"))
        with np.load(folder / "marginals.npz") as kept:
            return made, [kept[f"arr_{i}"] for i in range(len(asked["cliques"]))]


def sample_here(asked: dict[str, Any], shares: list[np.ndarray], rows: int) -> dict[str, float]:
    """Return what this project takes and reaches for a number of rows."""
    domain = Domain.of(asked["domain"])
    pairs, singles = [], {a: np.full(domain.size(a), rows / domain.size(a)) for a in domain.attributes}
    for clique, share in zip(asked["cliques"], shares, strict=True):
        ordered = domain.ordered(clique)
        pair = Marginal(ordered, (share if tuple(clique) == tuple(ordered) else share.T) * rows)
        singles |= {a: pair.project((a,)).counts for a in ordered}
        pairs.append(pair)
    marginals = [*(Marginal((a,), counts) for a, counts in singles.items()), *pairs]
    wall, cpu = time.perf_counter(), time.process_time()
    made = synthesize(marginals, domain, Synthesis(), rows, 1)
    spent = {"wall": time.perf_counter() - wall, "cpu": time.process_time() - cpu}
    errors = [np.abs(count(made, m.attributes) - m.counts).sum() / rows for m in pairs]
    return {**spent, "l1": float(np.mean(errors))}


def lines() -> Iterator[str]:
    """Yield the table, line by line as it is known."""
    asked = read_benchmark(Path(os.environ["MBI_SOURCE"]))
    theirs, shares = sample_by_mbi(asked)
    yield "| rows x 97 columns | mbi: CPU s | L1 of pairs | here: CPU s | L1 of pairs |"
    yield "|---|---|---|---|---|"
    sample_here(asked, shares, 1_000)  # compiles
    for rows, other in zip(ROWS, theirs, strict=True):
        ours = sample_here(asked, shares, rows)
        yield f"| {rows:,} | {other['cpu']:.1f} | {other['l1']:.4f} | {ours['cpu']:.1f} | {ours['l1']:.4f} |"


if __name__ == "__main__":
    for line in lines():
        print(line, flush=True)
