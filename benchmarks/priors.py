"""What a public prior brings: ``python -m benchmarks.priors [--tables ..] [--epsilons ..] [--seeds N] [--priors ..]``.

A table is split at random into two halves: one is the private table, the other "last year's", which is public.  The
prior is that half as it is (right); with 70 % of the rows of the commonest value of the first column left out (stale);
with every column shuffled on its own (shuffled); with the values of every column renamed at random (renamed); or with
every column sorted on its own (sorted), which keeps the one-ways and makes all pairs wrong.  The tables are public and
the noise is seeded: nothing here is a release.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from benchmarks.tables import FOLDER, table_spec
from privsyn.data_contracts.public_counts import Prior
from privsyn.data_contracts.release_spec import ReleaseSpec
from privsyn.engine.inputs import PrivateAccess
from privsyn.engine.memory import MemoryRun, draw_from_seed
from privsyn.engine.request import Request
from privsyn.evaluation.coded_tables import encode_table
from privsyn.pipelines.registry import build_steps
from privsyn.sources.open_source import open_source
from privsyn.storage.named_files import compute_sha256
from privsyn.tasks.codecs import plan
from privsyn.tasks.metrics.marginal_distance import average_l1, draw_cliques, list_all_cliques

TABLES = ("stroke_ist", "support2", "adult", "gss_happiness")
"""Tables that the estimates were chosen on."""
GROUPS = {
    "stroke_ist": ["COUNTRY"],
    "support2": ["dzgroup"],
    "adult": ["education"],
    "gss_happiness": ["region"],
    "loans": ["state"],
    "ma2019": ["PUMA"],
    "flights2013": ["origin"],
}
"""The columns whose values are the groups: what the mechanism `prior` counts by."""
PRIORS = ("none", "right", "stale", "shuffled", "renamed", "sorted")
EPSILONS = (0.05, 0.2, 1.0)
MOST_ROWS = 20_000
TRIPLES = 100
STATEMENT = "The other half of a public benchmark table, taken at random."


@cache
def halves(name: str, seed: int) -> tuple[pa.Table, pa.Table]:
    """Return the private half and the public one, of at most MOST_ROWS rows together."""
    table = pq.read_table(FOLDER / f"{name}.parquet")
    order = np.random.default_rng(seed).permutation(table.num_rows)[:MOST_ROWS]
    return table.take(order[: len(order) // 2]), table.take(order[len(order) // 2 :])


def prior_of(kind: str, public: pa.Table, spec: ReleaseSpec, seed: int) -> pa.Table:
    """Return the public half as a prior of that kind."""
    rng, released = np.random.default_rng(1000 + seed), list(spec.released_columns)
    if kind == "stale":
        column = public[released[0]].combine_chunks()
        counts = column.drop_null().value_counts()
        commonest = counts.field("values")[int(counts.field("counts").to_numpy().argmax())]
        own = np.asarray(pc.equal(column, commonest).fill_null(False))
        return public.filter(pa.array(~own | (rng.random(public.num_rows) > 0.7)))
    for name in released if kind in ("shuffled", "renamed", "sorted") else ():
        column = public[name].combine_chunks()
        if kind == "shuffled":
            column = column.take(pa.array(rng.permutation(len(column))))
        elif kind == "sorted":
            column = column.take(pc.array_sort_indices(column))
        else:
            encoded = column.dictionary_encode(null_encoding="encode")
            values = encoded.dictionary.take(pa.array(rng.permutation(len(encoded.dictionary))))
            column = values.take(encoded.indices)
        public = public.set_column(public.column_names.index(name), name, column)
    return public


def with_mechanism(spec: ReleaseSpec, options: dict[str, Any], name: str) -> ReleaseSpec:
    """Return the spec by the mechanism `prior` with these options, its groups those of the table."""
    content = spec.model_dump()
    return ReleaseSpec.model_validate({**content, "mechanism": {"name": "prior", "group": GROUPS[name], **options}})


def errors(
    name: str, kind: str, epsilon: float, seed: int, options: dict[str, Any] | None = None
) -> tuple[float, float, float, float]:
    """Return mean L1 errors of a release of the private half.

    Of all one-ways, all pairs, TRIPLES triples, and as many triples with a column of the table's groups.  ``options``:
    of the mechanism `prior`, None for `privsyn`.
    """
    private, public = halves(name, seed)
    spec = table_spec(name, epsilon)
    with tempfile.TemporaryDirectory() as folder:
        if kind != "none":
            file = Path(folder) / "prior.parquet"
            pq.write_table(prior_of(kind, public, spec, seed), file)
            stated = Prior(table=str(file), statement=STATEMENT, sha256=compute_sha256(file))
            spec = spec.model_copy(update={"prior": stated})
            spec = spec if options is None else with_mechanism(spec, options, name)
        rows = lambda *_: open_source(private, spec).batches()  # noqa: E731
        request = Request(spec.with_rows(seed=seed), tuple(spec.released_columns), threads=1)
        steps = build_steps(request)
        made = MemoryRun(request, steps, draw_from_seed(seed), PrivateAccess(rows)).run()[steps[-1].name]["synthetic"]
    plain = table_spec(name, epsilon)
    real = encode_table(rows(), plan(plain)).bins
    synthetic = encode_table(made.to_batches(), plan(plain)).bins
    domain = real.domain
    pairs = list_all_cliques(domain, 2)
    some = [p for p in pairs if not set(p) & set(GROUPS[name])]
    chosen = np.random.default_rng(1).permutation(len(some))[:TRIPLES]
    grouped = [domain.ordered((*some[i], *GROUPS[name])) for i in chosen]
    workloads = [list_all_cliques(domain, 1), pairs, draw_cliques(domain, 3, TRIPLES, 0), grouped]
    one, two, three, by_group = (average_l1(real, synthetic, cliques) for cliques in workloads)
    return one, two, three, by_group


def main() -> None:
    """Measure and print one JSON line a run, then the table of means as markdown."""
    parser = argparse.ArgumentParser(description="What a public prior brings.")
    parser.add_argument("--tables", nargs="+", default=list(TABLES))
    parser.add_argument("--epsilons", nargs="+", type=float, default=list(EPSILONS))
    parser.add_argument("--priors", nargs="+", default=list(PRIORS))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--options", type=json.loads, help="By the mechanism `prior`, with these options, as JSON.")
    asked = parser.parse_args()
    lines = ["| table | epsilon |" + "".join(f" {kind} |" for kind in asked.priors)]
    lines.append("|---|---|" + "---|" * len(asked.priors))
    for name in asked.tables:
        for epsilon in asked.epsilons:
            cells = []
            for kind in asked.priors:
                found = np.array([errors(name, kind, epsilon, seed, asked.options) for seed in range(asked.seeds)])
                print(json.dumps([name, epsilon, kind, found.round(4).tolist()]), flush=True)
                mean, spread = found.mean(axis=0), found.std(axis=0, ddof=min(1, asked.seeds - 1))
                cells.append(f"{mean[1]:.3f} ±{spread[1]:.3f} / {mean[2]:.3f} / {mean[3]:.3f}")
            lines.append(f"| {name} | {epsilon:g} | " + " | ".join(cells) + " |")
    print("\n".join(lines))


if __name__ == "__main__":
    main()
