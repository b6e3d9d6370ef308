"""Accuracy of settings on public tables: ``python -m benchmarks.accuracy [--seeds N]``.

The tables are public and the noise is seeded: nothing here is a release. Runs are in memory, by the method that gives
a release's rows.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.tables import FOLDER, available, measured_only, table_spec
from privsyn.data_contracts.release_spec import ReleaseSpec
from privsyn.evaluation.coded_tables import CodedTable, encode_table
from privsyn.evaluation.comparison import method
from privsyn.evaluation.comparison.method import MethodInput, MethodSettings
from privsyn.sources.open_source import open_source
from privsyn.specs.spec_file import load_spec
from privsyn.tasks.codecs import plan
from privsyn.tasks.metrics.marginal_distance import average_l1, draw_cliques, list_all_cliques
from privsyn.tasks.privacy.noise import SeededNoise

HERE = Path(__file__).parent
TABLES = {
    "Adult": (HERE.parent / "examples" / "adult.yaml", FOLDER / "adult.parquet"),
    "GSS": (HERE.parent / "examples" / "gss.yaml", FOLDER / "gss_happiness.parquet"),
}
"""The specs of examples/ and their tables; all other names are those of tables.py, with its spec."""
LOW = {"privacy": {"epsilon": 0.2, "delta": 1e-9}}
HIGH = {"privacy": {"epsilon": 5.0, "delta": 1e-9}}
SETTINGS: dict[str, dict[str, Any]] = {
    "default": {},
    "preset paper": {"preset": "paper"},
    "split 0.1/0.1/0.8 (paper)": {"mechanism": {"split": {"one_way": 0.1, "selection": 0.1, "measurement": 0.8}}},
    "split 0.3/0.05/0.65": {"mechanism": {"split": {"one_way": 0.3, "selection": 0.05, "measurement": 0.65}}},
    "split 0.2/0.02/0.78": {"mechanism": {"split": {"one_way": 0.2, "selection": 0.02, "measurement": 0.78}}},
    "one-ways equal (paper)": {"mechanism": {"split": {"one_ways": "equal"}}},
    "scores indif (paper)": {"mechanism": {"selection": {"scores": "indif"}}},
    "criterion dense_marg (paper)": {"mechanism": {"selection": {"criterion": "dense_marg"}}},
    "cliques (paper)": {"mechanism": {"selection": {"combine_cliques": True}}},
    "one-ways once (paper)": {"mechanism": {"split": {"remeasure_one_ways": False}}},
    "no low-count rule": {"mechanism": {"compression": {"enabled": False}}},
    "rare values dropped (paper)": {"mechanism": {"compression": {"filter": True}}},
    "rare intervals combined with each other": {"mechanism": {"compression": {"neighbours": False}}},
    "one-way weight 1 (paper)": {"mechanism": {"consistency": {"one_way_weight": 1.0}}},
    "no shrinking (paper)": {"mechanism": {"consistency": {"shrink": False}}},
    "1 further round": {"mechanism": {"name": "adaptive", "rounds": 1}},
    "2 further rounds": {"mechanism": {"name": "adaptive", "rounds": 2}},
    "1 further round, with triples": {"mechanism": {"name": "adaptive", "rounds": 1, "triples": True}},
    "no oversampling": {"mechanism": {"synthesis": {"oversample": 1}}},
    "gum": {"mechanism": {"synthesis": {"method": "gum"}}},
    "gum, duplicate_share 0.5 (paper)": {"mechanism": {"synthesis": {"method": "gum", "duplicate_share": 0.5}}},
    "accountant gaussian": {"accountant": "gaussian"},
    "accountant paper": {"accountant": "paper"},
    "epsilon 0.2": LOW,
    "epsilon 0.2, split 0.1/0.1/0.8": {
        **LOW,
        "mechanism": {"split": {"one_way": 0.1, "selection": 0.1, "measurement": 0.8}},
    },
    "epsilon 0.2, criterion dense_marg": {**LOW, "mechanism": {"selection": {"criterion": "dense_marg"}}},
    "epsilon 0.2, one-ways once": {**LOW, "mechanism": {"split": {"remeasure_one_ways": False}}},
    "epsilon 0.2, rare values dropped": {**LOW, "mechanism": {"compression": {"filter": True}}},
    "epsilon 0.2, no shrinking": {**LOW, "mechanism": {"consistency": {"shrink": False}}},
    "epsilon 0.2, no oversampling": {**LOW, "mechanism": {"synthesis": {"oversample": 1}}},
    "epsilon 0.2, 1 further round": {**LOW, "mechanism": {"name": "adaptive", "rounds": 1}},
    "epsilon 0.2, gum": {**LOW, "mechanism": {"synthesis": {"method": "gum"}}},
    "epsilon 0.2, preset paper": {**LOW, "preset": "paper"},
    "epsilon 5": HIGH,
    "epsilon 5, 1 further round": {**HIGH, "mechanism": {"name": "adaptive", "rounds": 1}},
    "epsilon 5, 1 further round, with triples": {
        **HIGH,
        "mechanism": {"name": "adaptive", "rounds": 1, "triples": True},
    },
    "epsilon 5, gum": {**HIGH, "mechanism": {"synthesis": {"method": "gum"}}},
    "epsilon 5, preset paper": {**HIGH, "preset": "paper"},
}
RANDOM_TRIPLES = 100


def merged(base: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return ``base`` with the nested values of ``changes``."""
    out = dict(base)
    for name, value in changes.items():
        out[name] = merged(out[name], value) if isinstance(value, Mapping) and name in out else value
    return out


def base_spec(name: str) -> ReleaseSpec:
    """Return the spec of a table, its fields at the defaults but for columns and guarantee."""
    if name not in TABLES:
        return table_spec(name)
    spec, data = TABLES[name]
    return measured_only(load_spec(spec)).model_copy(update={"data": str(data)})


@cache
def rows_of(name: str) -> CodedTable:
    """Return the table's rows in codes."""
    spec = base_spec(name)
    return encode_table(open_source(spec.data, spec).batches(), plan(spec))


def errors(name: str, changes: Mapping[str, Any], seeds: int) -> np.ndarray:
    """L1 errors, shape (seeds, 3): 1-, 2- and 3-way."""
    content = base_spec(name).model_dump(mode="json", exclude_defaults=True)
    spec = ReleaseSpec.model_validate(merged(content, changes))
    rows, encoding, records = rows_of(name), plan(spec), spec.unit.records
    domain = rows.bins.domain
    workloads = [list_all_cliques(domain, 1), list_all_cliques(domain, 2), draw_cliques(domain, 3, RANDOM_TRIPLES, 0)]
    found = []
    for seed in range(seeds):
        trial = MethodInput(
            rows.fine, encoding.binning, spec.privacy.epsilon, spec.privacy.delta, records, SeededNoise(seed), seed,
            settings=MethodSettings.of(spec),
        )  # fmt: skip
        made = method.default(trial)
        found.append([average_l1(rows.bins, made.table, cliques) for cliques in workloads])
    return np.array(found)


def by_setting(seeds: int, chosen: Mapping[str, Mapping[str, Any]]) -> None:
    """Print every setting on the two example tables, as markdown."""
    names = [n for n, (_, data) in TABLES.items() if data.exists()]
    print("| setting |" + "".join(f" {n}: 1-way | 2-way | 3-way |" for n in names))
    print("|---|" + "---|---|---|" * len(names))
    for label, changes in chosen.items():
        means = [errors(n, changes, seeds).mean(axis=0) for n in names]
        print(f"| {label} |" + "".join(f" {m[0]:.4f} | {m[1]:.4f} | {m[2]:.4f} |" for m in means), flush=True)


def by_table(seeds: int) -> None:
    """Print the paper's preset and the default on every table that is present, at two epsilons, as markdown."""
    print("| table | rows x columns | epsilon | paper: 1-way | 2-way | 3-way | default: 1-way | 2-way | 3-way |")
    print("|---|---|---|---|---|---|---|---|---|")
    for name in available():
        rows = rows_of(name).bins
        for epsilon in (0.2, 1.0):
            privacy = {"privacy": {"epsilon": epsilon, "delta": 1e-9}}
            cells = []
            for preset in ("paper", "default"):
                found = errors(name, {**privacy, "preset": preset}, seeds)
                mean, spread = found.mean(axis=0), found.std(axis=0, ddof=1)
                cells += [f"{mean[0]:.3f}", f"{mean[1]:.3f} ±{spread[1]:.3f}", f"{mean[2]:.3f}"]
            size = f"{rows.rows:,} x {len(rows.columns)}"
            print(f"| {name} | {size} | {epsilon:g} | " + " | ".join(cells) + " |", flush=True)


def main() -> None:
    """Measure every setting on the example tables, and the presets on all; print the markdown."""
    parser = argparse.ArgumentParser(description="Accuracy of settings on public tables.")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--only", help="JSON of changes to measure on the example tables instead, printed only")
    parser.add_argument("--skip-tables", action="store_true", help="the example tables only, which takes minutes less")
    arguments = parser.parse_args()
    if arguments.only:
        by_setting(arguments.seeds, {"given": json.loads(arguments.only)})
        return
    by_setting(arguments.seeds, SETTINGS)
    if not arguments.skip_tables:
        by_table(max(2, arguments.seeds - 2))


if __name__ == "__main__":
    main()
