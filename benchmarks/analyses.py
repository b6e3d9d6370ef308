"""Analyses of the kind that papers publish, on releases of public tables: ``python -m benchmarks.analyses``.

Releases are made in memory with seeded noise: nothing here is a release.  The analyses stand in published_analyses/,
as the settings of an evaluation.  Finished releases are kept in analyses.jsonl and not made again.
"""

from __future__ import annotations

import argparse
import json
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from statistics import mean, median
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.coverage import release, spec_of
from benchmarks.tables import keep_present
from privsyn.evaluation.analysis_figures import run_analyses
from privsyn.evaluation.settings_file import load_evaluation_spec
from privsyn.tasks.codecs import plan_every_column

HERE = Path(__file__).parent
KEPT = HERE / "analyses.jsonl"
SETTINGS = HERE / "published_analyses"
TABLES = ("adult", "national2019", "national2019-zeros", "census_income", "census_income-zeros")
EPSILON = 1.0


def measure(name: str, epsilon: float, seed: int, independent: bool) -> dict[str, Any]:
    """Return one release: the figures of every analysis.

    ``independent``: of the table, each column shuffled by itself.
    """
    started = time.process_time()
    spec = spec_of(name, epsilon)
    source = pq.read_table(spec.data)
    order = tuple(c for c in source.column_names if c in spec.released_columns)
    made = _shuffled(source, seed) if independent else release(name, epsilon, seed)[0].table
    found = run_analyses(
        load_evaluation_spec(SETTINGS / f"{_plain(name)}.yaml").analyses,
        spec,
        plan_every_column(spec, order),
        source.to_batches(65_536),
        made.to_batches(65_536),
    )
    return {
        "table": name,
        "method": "shuffled columns" if independent else "release",
        "epsilon": epsilon,
        "seed": seed,
        "cpu_seconds": round(time.process_time() - started, 1),
        "analyses": [each.model_dump(mode="json") for each in found],
    }


def _plain(name: str) -> str:
    return name.removesuffix("-zeros")


def _shuffled(table: pa.Table, seed: int) -> pa.Table:
    rng = np.random.default_rng(seed)
    return pa.table({c: table[c].take(pa.array(rng.permutation(table.num_rows))) for c in table.column_names})


def kept() -> list[dict[str, Any]]:
    """Return every finished release."""
    return [json.loads(line) for line in KEPT.read_text(encoding="utf-8").splitlines()] if KEPT.is_file() else []


def summary(lines: list[dict[str, Any]]) -> Iterator[str]:
    """Yield one line an analysis: how many of its figures are close, and the median difference, over all releases."""
    yield (
        "| table | analysis | real rows | figures | close: release (from to) | shuffled columns "
        "| median difference: release | shuffled columns |"
    )
    yield "|---|---|---|---|---|---|---|---|"
    groups: dict[tuple[str, str], dict[str, list[dict[str, Any]]]] = defaultdict(lambda: defaultdict(list))
    for line in lines:
        for each in line["analyses"]:
            groups[line["table"], each["title"]][line["method"]].append(each)
    for (table, title), methods in groups.items():
        ours, shuffled = methods["release"], methods["shuffled columns"]
        close = [_close(each) for each in ours]
        first = ours[0]
        yield (
            f"| {table} | {title} | {first['rows_real']:,} | {len(_compared(first))} "
            f"| {mean(close):.0%} ({min(close):.0%} to {max(close):.0%}) | {mean(map(_close, shuffled)):.0%} "
            f"| {_difference(ours):.0%} | {_difference(shuffled):.0%} |"
        )


def _compared(analysis: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the figures without the intercept, which says nothing by itself."""
    return [f for f in analysis["figures"] if f["name"] != "(Intercept)" and f["real"] is not None]


def _close(analysis: dict[str, Any]) -> float:
    return mean(f["close"] for f in _compared(analysis))


def _difference(analyses: list[dict[str, Any]]) -> float:
    """Return the median difference relative to the real figure; a figure that is not there differs by all of it."""
    return median(
        1.0 if f["synthetic"] is None else abs(f["synthetic"] / f["real"] - 1)
        for each in analyses
        for f in _compared(each)
        if f["real"]
    )


def main() -> None:
    """Make the releases that are not there yet, and print the table."""
    parser = argparse.ArgumentParser(description="Published analyses on releases of public tables.")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--tables", nargs="*", default=[])
    parser.add_argument("--markdown", action="store_true", help="print the table of the finished releases only")
    arguments = parser.parse_args()
    tables = arguments.tables or keep_present(TABLES, "-zeros")
    done = {(line["table"], line["method"], line["seed"]) for line in kept()}
    for name in tables:
        for seed in range(0 if arguments.markdown else arguments.seeds):
            for independent in (True, False):
                if (name, "shuffled columns" if independent else "release", seed) not in done:
                    found = measure(name, EPSILON, seed, independent)
                    with KEPT.open("a", encoding="utf-8") as file:
                        file.write(json.dumps(found) + "\n")
                    print(name, found["method"], seed, found["cpu_seconds"], flush=True)
    print("\n".join(summary(kept())))


if __name__ == "__main__":
    main()
