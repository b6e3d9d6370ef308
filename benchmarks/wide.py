"""Wide tables of blocks of related columns: ``python -m benchmarks.wide [--columns 400 1000] [--rows N] [--open]``.

A made-up table: blocks of 20 columns with one name (b7_3), each of 2 to 12 codes, which depend on a quantity of their
block; that of a block depends on the one before.  Compared are L1 distances (0 to 2, means of pairs) from the private
table, of the synthetic rows and of the private rows with every column shuffled by itself: one-ways without noise and no
relation, the best that counting columns alone can do.  With ``--open`` the columns have no bins, so that trends are
asked.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.scale import release_costs
from benchmarks.whole_release import census_spec
from privsyn.data_contracts.domain import Clique, Domain
from privsyn.tasks.kernels.counting import CodeTable
from privsyn.tasks.metrics.marginal_distance import compute_l1_distances

BLOCK = 20
COMPARED = 300
INSIDE = 10
"""Values of a code where columns have no bins."""
OWN_SHARE, BLOCK_SHARE = 0.6, 0.7
"""Correlation of a column with its block's quantity, and of that with the one before."""


def make_table(rows: int, columns: int, seed: int = 1) -> CodeTable:
    """Return ``rows`` rows of blocks of related columns."""
    rng = np.random.default_rng([seed, columns])
    names, sizes, made = [], [], []
    quantity = rng.standard_normal(rows, dtype=np.float32)
    for i in range(columns):
        if i % BLOCK == 0:
            quantity = _relate(quantity, BLOCK_SHARE, rng)
        own = _relate(quantity, OWN_SHARE, rng)
        size = int(rng.integers(2, 13))
        edges = np.quantile(own[:10_000], np.cumsum(rng.dirichlet(np.full(size, 2.0)))[:-1])
        names.append(f"b{i // BLOCK}_{i % BLOCK}")
        sizes.append(size)
        made.append(np.searchsorted(edges, own).astype(np.uint8))
    return CodeTable(Domain(tuple(names), tuple(sizes)), tuple(made))


def _relate(quantity: np.ndarray, share: float, rng: np.random.Generator) -> np.ndarray:
    fresh = rng.standard_normal(quantity.size, dtype=np.float32)
    return np.asarray(share * quantity + np.sqrt(1 - share**2) * fresh, dtype=np.float32)


def draw_pairs(domain: Domain, seed: int = 0) -> dict[str, list[Clique]]:
    """Return pairs in one block, of blocks beside each other and of any blocks further apart, COMPARED of each."""
    rng, found = np.random.default_rng(seed), {"in a block": [], "beside": [], "further": []}
    while min(map(len, found.values())) < COMPARED:
        i, j = sorted(map(int, rng.choice(len(domain.attributes), 2, replace=False)))
        if rng.random() < 0.5:  # nearer pairs are rare among all
            j = min(i + 1 + int(rng.integers(2 * BLOCK)), len(domain.attributes) - 1)
        apart = j // BLOCK - i // BLOCK
        kind = found["in a block" if apart == 0 else "beside" if apart == 1 else "further"]
        if i < j and len(kind) < COMPARED:
            kind.append((domain.attributes[i], domain.attributes[j]))
    return found


def measure(rows: int, columns: int, *, without_bins: bool = False) -> str:
    """Return a row of the table; ``without_bins``: of a spec whose columns have none."""
    table = make_table(rows, columns)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        inside = INSIDE if without_bins else None
        pq.write_table(_spread(table) if inside else table.to_arrow(), folder / "table.parquet")
        spec = census_spec(table.domain, str(folder / "table.parquet"), inside)
        del table  # what a release takes has nothing of it
        costs = release_costs(spec, folder)
        table = make_table(rows, columns)
        (path,) = (folder / "out" / "released").glob("*/synthetic.parquet")
        (scores,) = (folder / "out" / "released").glob("*/marginals/scores_receipts.parquet")
        (measured,) = (folder / "out" / "released").glob("*/marginals/measured_receipts.parquet")
        made, number = pq.read_table(path).select(list(table.domain.attributes)), pq.read_metadata(scores).num_rows
        asked = pq.read_table(measured).select(["attributes", "cells"]).to_pylist()
        joint = sum(len(q["attributes"]) > 1 and q["cells"] > 1 for q in asked)  # the others are trends asked again
    synthetic = CodeTable(
        table.domain, tuple(np.asarray(column // (inside or 1), dtype=np.uint8) for column in _columns(made))
    )
    rng = np.random.default_rng(0)
    shuffled = CodeTable(table.domain, tuple(rng.permutation(column) for column in table.columns))
    shown = []
    for pairs in draw_pairs(table.domain).values():
        ours, alone = (float(compute_l1_distances(table, t, pairs, threads=1).mean()) for t in (synthetic, shuffled))
        shown.append(f"{ours:.3f} / {alone:.3f}")
    cpu, peak = sum(c.cpu for c in costs), max(c.peak_mb for c in costs)
    slowest = max(costs, key=lambda c: c.cpu)
    return (
        f"| {rows:,} x {columns:,} | {number:,} | {joint:,} | {cpu:,.0f} s | {slowest.step.replace('_', ' ')}, "
        f"{slowest.cpu:,.0f} s | {peak:,.0f} MB | {' | '.join(shown)} |"
    )


def _spread(table: CodeTable) -> pa.Table:
    """Return the table with INSIDE values a code, each drawn evenly."""
    rng = np.random.default_rng(2)
    drawn = (c.astype(np.uint8) * INSIDE + rng.integers(0, INSIDE, c.size, dtype=np.uint8) for c in table.columns)
    return pa.table(dict(zip(table.domain.attributes, drawn, strict=True)))


def _columns(table: pa.Table) -> list[np.ndarray]:
    return [column.to_numpy() for column in table.columns]


def main() -> int:
    """Print the table, each row from a process of its own."""
    parser = argparse.ArgumentParser(description="Releases of wide tables.")
    parser.add_argument("--columns", type=int, nargs="+", default=[400, 1_000, 2_000])
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--open", action="store_true", help="columns have no bins, so that trends are asked")
    parser.add_argument("--one", type=int, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.one is not None:
        print(measure(asked.rows, asked.one, without_bins=asked.open))
        return 0
    print("| rows x columns | pairs scored | measured | CPU | of it | peak memory | in a block | beside | further |")
    print("|---|---|---|---|---|---|---|---|---|")
    for columns in asked.columns:
        command = [sys.executable, "-m", "benchmarks.wide", "--rows", str(asked.rows), "--one", str(columns)]
        command += ["--open"] if asked.open else []
        print(subprocess.check_output(command, text=True).splitlines()[-1], flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
