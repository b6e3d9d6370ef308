"""What shards cost in accuracy: ``python -m benchmarks.shards [--rows N] [--table NAME] [--shards 1 2 5 10 ...]``.

The table is made up, or the bins of one of ``benchmarks/tables.py``.  The release is real (epsilon 1), so the marginals
hold noise; distances are L1 between shares, 0 to 2.
"""

from __future__ import annotations

import argparse
import itertools
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

from benchmarks.census_like import census_like
from benchmarks.tables import table_spec
from benchmarks.whole_release import census_spec
from privsyn.api.release import propose_release, run_proposal
from privsyn.base.settings import Settings
from privsyn.counting import synthetic_parts
from privsyn.counting.engine import RowWork
from privsyn.data_contracts.domain import Domain
from privsyn.data_contracts.mechanism_options import Synthesis
from privsyn.engine.request import Request
from privsyn.evaluation.coded_tables import encode_table
from privsyn.tasks.estimation import marginals
from privsyn.tasks.estimation.marginals import Marginal
from privsyn.tasks.estimation.recode import Recode, build_coarse_domain, recode_from_table
from privsyn.tasks.kernels.counting import CodeTable
from privsyn.tasks.steps import synthesize
from privsyn.tasks.synthesis import shards

ROWS, COLUMNS, SHARDS = 1_000_000, 20, (1, 2, 5, 10, 20, 50, 100)


def read_bins(name: str) -> CodeTable:
    """Return the rows of a public table in its bins."""
    spec = table_spec(name)
    return encode_table(pq.read_table(spec.data).to_batches(), Request(spec).encoding).bins


def released(table: CodeTable, folder: Path) -> tuple[Recode, list[Marginal]]:
    """Return the recoding and the consistent marginals of a release of the table."""
    pq.write_table(table.to_arrow(), folder / "table.parquet")
    spec = census_spec(table.domain, str(folder / "table.parquet"))
    spec = spec.with_rows(rows=1_000)
    summary = run_proposal(propose_release(spec, Settings(out=folder / "out", ledger=str(folder / "ledger.sqlite"))))
    place = Path(summary.released) / "marginals"
    recode = recode_from_table(pq.read_table(place / "recode.parquet"))
    domain = build_coarse_domain(recode)
    return recode, marginals.from_table(pq.read_table(place / "consistent.parquet"), domain)


def made(found: Sequence[Marginal], domain: Domain, rows: int, number: int) -> CodeTable:
    """``rows`` rows in ``number`` shards, all attributes, joined."""
    settings = Synthesis(shard_rows=-(-rows // number))
    core, core_domain = synthesize.select_core_marginals(found, domain)
    wanted = shards.plan_shards(rows, settings)
    parts: list[CodeTable] = []
    with tempfile.TemporaryDirectory() as folder:
        work = RowWork(make_folder=lambda: Path(folder))
        make = synthetic_parts.CoreParts(core, core_domain, settings, None, None)
        for shard, made in zip(wanted, synthetic_parts.make_core_parts(work, make, wanted), strict=True):
            codes = CodeTable.from_arrow(pq.read_table(made.path), core_domain)
            parts.append(synthesize.append_attributes(codes, found, domain, shard.own_seed))
    return CodeTable(
        domain, tuple(np.concatenate(columns) for columns in zip(*(p.columns for p in parts), strict=True))
    )


def distance(table: CodeTable, targets: Sequence[Marginal]) -> float:
    """Return mean L1 between the table's shares and the targets'."""
    counts = table.counts([m.attributes for m in targets])
    return float(
        np.mean(
            [np.abs(c / table.rows - m.counts / m.counts.sum()).sum() for c, m in zip(counts, targets, strict=True)]
        )
    )


def main() -> None:
    """Print one line a number of shards."""
    parser = argparse.ArgumentParser(description="Accuracy of shards.")
    parser.add_argument("--rows", type=int, default=ROWS)
    parser.add_argument("--table", help="a public table in place of the made-up one")
    parser.add_argument("--shards", type=int, nargs="+", default=SHARDS)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        table = read_bins(arguments.table) if arguments.table else census_like(arguments.rows, COLUMNS)
        recode, found = released(table, Path(name))
    domain = build_coarse_domain(recode)
    larger = [m for m in found if len(m.attributes) > 1]
    private = CodeTable(
        domain,
        tuple(
            np.ascontiguousarray(recode[a].coarse[c].astype(np.uint16))
            for a, c in zip(domain.attributes, table.columns, strict=True)
        ),
    )
    pairs = list(itertools.combinations(domain.attributes, 2))
    truth = [Marginal(p, n.astype(float)) for p, n in zip(pairs, private.counts(pairs), strict=True)]
    cells = sum(m.counts.size for m in larger)
    print(f"{table.rows:,} x {len(domain.attributes)}, {len(larger)} measured pairs with {cells:,} cells\n")
    print("| shards | rows each | L1 to the measured pairs | L1 to the private table, all pairs | CPU |")
    print("|---|---|---|---|---|")
    for number in arguments.shards:
        start = time.process_time()
        codes = made(found, domain, table.rows, number)
        used = time.process_time() - start
        figures = f"{distance(codes, larger):.5f} | {distance(codes, truth):.5f}"
        print(f"| {number} | {-(-table.rows // number):,} | {figures} | {used:.1f} s |", flush=True)


if __name__ == "__main__":
    main()
