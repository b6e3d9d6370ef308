"""What known totals bring: ``python -m benchmarks.totals [--tables ..] [--epsilons ..] [--seeds N]``.

The counts of some columns are taken as published, each column's by itself (one-ways), or the joint counts of the first
two (pair), or the number of rows alone (rows).  The tables are public and the noise is seeded: nothing here is a
release.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.tables import FOLDER, table_spec
from privsyn.data_contracts.release_spec import ReleaseSpec
from privsyn.engine.inputs import PrivateAccess
from privsyn.engine.memory import MemoryRun, draw_from_seed
from privsyn.engine.request import Request
from privsyn.evaluation.coded_tables import encode_table
from privsyn.pipelines.registry import build_steps
from privsyn.sources.open_source import open_source
from privsyn.tasks.codecs import plan
from privsyn.tasks.metrics.marginal_distance import average_l1, list_all_cliques

KNOWN = {"adult": ("sex", "race"), "stroke_ist": ("COUNTRY", "SEX")}
"""Columns whose counts are taken as published."""
TOTALS = ("none", "rows", "one-ways", "pair", "close")
EPSILONS = (0.2, 1.0)
MOST_ROWS = 20_000
STATEMENT = "Counts of a public benchmark table, taken as published."


def totals_of(kind: str, table: pa.Table, names: tuple[str, ...], spec: ReleaseSpec) -> list[dict[str, Any]]:
    """Return the field `totals` of that kind, from the table's codes, so that they are counts of what is encoded."""
    if kind == "none":
        return []
    if kind == "rows":
        return [{"rows": table.num_rows, "statement": STATEMENT}]
    sets = [names] if kind == "pair" else [(name,) for name in names]
    found = []
    for columns in sets:
        counts = Counter(zip(*(_values(table, name, spec) for name in columns), strict=True))
        rows = [{**dict(zip(columns, values, strict=True)), "count": n} for values, n in counts.items()]
        hold = "close" if kind == "close" else "exact"
        found.append({"columns": list(columns), "counts": rows, "statement": STATEMENT, "hold": hold})
    return found


def _values(table: pa.Table, name: str, spec: ReleaseSpec) -> list[Any]:
    codec = next(c for c in plan(spec).codecs if c.attribute == name)
    column = table[name].combine_chunks()
    found: list[Any] = codec.read({name: column})[name].to_pylist()
    return found


def errors(name: str, kind: str, epsilon: float, seed: int) -> tuple[float, float, float]:
    """Return the mean L1 error of all one-ways, of all pairs, and of the pairs with a known column."""
    spec = table_spec(name, epsilon)
    table = pq.read_table(FOLDER / f"{name}.parquet")
    table = table.take(np.random.default_rng(seed).permutation(table.num_rows)[:MOST_ROWS])
    content = spec.model_dump(exclude_unset=True)
    asked = ReleaseSpec.model_validate({**content, "totals": totals_of(kind, table, KNOWN[name], spec)})
    rows = lambda *_: open_source(table, spec).batches()  # noqa: E731
    request = Request(asked.with_rows(seed=seed), tuple(spec.released_columns), threads=1)
    steps = build_steps(request)
    made = MemoryRun(request, steps, draw_from_seed(seed), PrivateAccess(rows)).run()[steps[-1].name]["synthetic"]
    real, synthetic = encode_table(rows(), plan(spec)).bins, encode_table(made.to_batches(), plan(spec)).bins
    pairs = list_all_cliques(real.domain, 2)
    own = [pair for pair in pairs if set(pair) & set(KNOWN[name])]
    one, all_pairs, held = (average_l1(real, synthetic, c) for c in (list_all_cliques(real.domain, 1), pairs, own))
    return one, all_pairs, held


def main() -> None:
    """Measure and print one JSON line a run, then the table of means as markdown."""
    parser = argparse.ArgumentParser(description="What known totals bring.")
    parser.add_argument("--tables", nargs="+", default=list(KNOWN))
    parser.add_argument("--epsilons", nargs="+", type=float, default=list(EPSILONS))
    parser.add_argument("--totals", nargs="+", default=list(TOTALS))
    parser.add_argument("--seeds", type=int, default=2)
    asked = parser.parse_args()
    lines = ["| table | epsilon |" + "".join(f" {kind} |" for kind in asked.totals)]
    lines.append("|---|---|" + "---|" * len(asked.totals))
    for name in asked.tables:
        for epsilon in asked.epsilons:
            cells = []
            for kind in asked.totals:
                found = np.array([errors(name, kind, epsilon, seed) for seed in range(asked.seeds)])
                print(json.dumps([name, epsilon, kind, found.round(4).tolist()]), flush=True)
                mean, spread = found.mean(axis=0), found.std(axis=0, ddof=min(1, asked.seeds - 1))
                cells.append(f"{mean[1]:.3f} ±{spread[1]:.3f} / {mean[2]:.3f}")
            lines.append(f"| {name} | {epsilon:g} | " + " | ".join(cells) + " |")
    print("\n".join(lines))


if __name__ == "__main__":
    main()
