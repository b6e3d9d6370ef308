"""Accuracy of settings on public tables: ``python -m benchmarks.accuracy [--seeds N]``.

Belongs here: the settings compared, which marginals are measured, and the table in docs/algorithm.md.  Does not
belong here: speed (bench.py), the L1 errors (tasks/metrics/).  The tables are public and the noise is seeded: nothing
here is a release.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from data_contracts.domain import Clique, Domain
from data_contracts.spec import ReleaseSpec
from flows.direct import release_directly
from flows.settings import Settings
from flows.source import Source
from flows.spec_file import load_spec
from tasks.codecs import plan
from tasks.encode import Repairs, encode_batch
from tasks.kernels.counting import CodeTable
from tasks.metrics.marginal_distance import all_cliques, mean_l1, random_cliques
from tasks.privacy.noise import SeededNoise

HERE = Path(__file__).parent
PAGE = HERE.parent / "docs" / "algorithm.md"
BEGIN, END = "<!-- accuracy: begin -->", "<!-- accuracy: end -->"
TABLES = {
    "Adult": (HERE.parent / "examples" / "adult.yaml", HERE.parents[1] / "shared" / "data" / "adult.parquet"),
    "GSS": (HERE.parent / "examples" / "gss.yaml", HERE.parents[1] / "shared" / "data" / "gss_happiness.parquet"),
}
SETTINGS: dict[str, dict[str, Any]] = {
    "default": {},
    "gum": {"synthesis": {"method": "gum"}},
    "gum, duplicate_share 0": {"synthesis": {"method": "gum", "duplicate_share": 0.0}},
    "gum, duplicate_share 0.5 (paper)": {"synthesis": {"method": "gum", "duplicate_share": 0.5}},
    "kappa 0": {"synthesis": {"kappa": 0.0}},
    "kappa 0.5": {"synthesis": {"kappa": 0.5}},
    "firm 1 (paper)": {"consistency": {"firm": 1.0}},
    "gum, firm 1": {"synthesis": {"method": "gum"}, "consistency": {"firm": 1.0}},
    "no cliques": {"selection": {"combine_cliques": False}},
    "no low-count rule": {"compression": {"enabled": False}},
    "accountant paper": {"accountant": "paper"},
    "epsilon 0.2": {"privacy": {"epsilon": 0.2, "delta": 1e-9}},
    "epsilon 0.2, gum": {"privacy": {"epsilon": 0.2, "delta": 1e-9}, "synthesis": {"method": "gum"}},
    "epsilon 5": {"privacy": {"epsilon": 5.0, "delta": 1e-9}},
    "epsilon 5, gum": {"privacy": {"epsilon": 5.0, "delta": 1e-9}, "synthesis": {"method": "gum"}},
}
RANDOM_TRIPLES = 100


def merged(base: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """``base`` with the nested values of ``changes``."""
    out = dict(base)
    for name, value in changes.items():
        out[name] = merged(out[name], value) if isinstance(value, Mapping) and name in out else value
    return out


def binned(batches: Sequence[pa.RecordBatch], spec: ReleaseSpec) -> CodeTable:
    """The rows as codes of the public bins."""
    encoding = plan(spec)
    fine = pa.Table.from_batches([encode_batch(b, encoding, Repairs()) for b in batches])
    domain = Domain.of({a: int(g.max()) + 1 for a, g in encoding.groups.items()})
    columns = [encoding.groups[a][fine[a].to_numpy()] for a in domain.attributes]
    return CodeTable(domain, tuple(c.astype(np.uint16) for c in columns))


def workloads(domain: Domain) -> list[list[Clique]]:
    """All 1-way and 2-way marginals and some random 3-way ones."""
    return [all_cliques(domain, 1), all_cliques(domain, 2), random_cliques(domain, 3, RANDOM_TRIPLES, seed=0)]


def errors(name: str, changes: Mapping[str, Any], seeds: int) -> np.ndarray:
    """L1 errors, shape (seeds, 3): 1-, 2- and 3-way."""
    spec_path, data = TABLES[name]
    base = load_spec(spec_path).model_dump(mode="json")
    spec = ReleaseSpec.model_validate(merged({**base, "data": str(data)}, changes))
    real = binned(list(Source.open(data, spec).batches()), spec)
    found = []
    for seed in range(seeds):
        with tempfile.TemporaryDirectory() as folder:
            settings = Settings(out=Path(folder) / "out", ledger=str(Path(folder) / "ledger.sqlite"))
            summary = release_directly(spec, settings, noise=SeededNoise(seed))
            table = pq.read_table(Path(summary.released) / "synthetic.parquet")
        synthetic = binned(table.to_batches(), spec)
        found.append([mean_l1(real, synthetic, cliques) for cliques in workloads(real.domain)])
    return np.array(found)


def main() -> None:
    """Measure every setting on every table that is present; print and write the markdown."""
    parser = argparse.ArgumentParser(description="Accuracy of settings on public tables.")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--only", help="JSON of changes to measure instead, printed only")
    arguments = parser.parse_args()
    names = [n for n, (_, data) in TABLES.items() if data.exists()]
    lines = [
        "| setting |" + "".join(f" {n}: 1-way | 2-way | 3-way |" for n in names),
        "|---|" + "---|---|---|" * len(names),
    ]
    chosen = {"given": json.loads(arguments.only)} if arguments.only else SETTINGS
    for label, changes in chosen.items():
        means = [errors(n, changes, arguments.seeds).mean(axis=0) for n in names]
        lines.append(f"| {label} |" + "".join(f" {m[0]:.4f} | {m[1]:.4f} | {m[2]:.4f} |" for m in means))
        print(lines[-1], flush=True)
    if not arguments.only:
        whole = PAGE.read_text(encoding="utf-8")
        before, rest = whole.split(BEGIN)
        PAGE.write_text(f"{before}{BEGIN}\n" + "\n".join(lines) + f"\n{END}{rest.split(END)[1]}", encoding="utf-8")


if __name__ == "__main__":
    main()
