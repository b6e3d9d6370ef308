"""What rules cost and bring: ``python -m benchmarks.rules [--tables ..] [--epsilons ..] [--seeds N]``.

The tables of tables.py that have rules in examples/rules, and flights2013, which no setting was chosen on: made with
and without the rules, from the same columns.  The tables are public and the noise is seeded: nothing here is a release.
Runs are kept in rules.jsonl, so that an interrupted measurement goes on; take lines out to run them again.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import yaml

from benchmarks.compare_store import Run, Store
from benchmarks.pages import write_between
from benchmarks.tables import keep_present, table_spec
from privsyn.data_contracts.release_spec import ReleaseSpec
from privsyn.engine.inputs import PrivateAccess
from privsyn.engine.memory import MemoryRun, draw_from_seed
from privsyn.engine.request import Request
from privsyn.evaluation.coded_tables import CodedTable, encode_table
from privsyn.pipelines.registry import build_steps
from privsyn.sources.open_source import open_source
from privsyn.specs.spec_file import load_any_spec
from privsyn.tasks.codecs import plan, plan_every_column
from privsyn.tasks.codecs.encode_rows import Batches, Repairs
from privsyn.tasks.metrics.marginal_distance import average_l1, draw_cliques, list_all_cliques

HERE = Path(__file__).parent
RULES = HERE.parent / "examples" / "rules"
STORE = HERE / "rules.jsonl"
PAGE = HERE.parent / "docs" / "rules.md"
BEGIN, END = "<!-- costs: begin -->", "<!-- costs: end -->"
FILES = {
    "adult": "adult.yaml",
    "gss_happiness": "gss.yaml",
    "census_income": "census_income.yaml",
    "national2019": "national2019.yaml",
    "flights2013": "flights2013.yaml",
}
"""Table -> its file of rules."""
EPSILONS = (0.2, 1.0, 5.0)
RANDOM_TRIPLES = 100
WITH, WITHOUT = "with rules", "without rules"
WARM_UP = 2_000
"""Rows of a release that is made before the one that is timed."""


def rules_of(name: str) -> list[dict[str, Any]]:
    """Return the rules of a table as its file has them."""
    found: list[dict[str, Any]] = yaml.safe_load((RULES / FILES[name]).read_text(encoding="utf-8"))["rules"]
    return found


def ruled_specs(name: str, epsilon: float = 1.0) -> dict[str, ReleaseSpec]:
    """Return the specs without and with rules, by the same columns; OSError where the table is not present.

    The columns are those of tables.py, but for two things: a column that a rule looks up may be null, as what the
    public table does not list is, and lists of whole numbers that the dictionary of GSS writes as text are numbers.
    """
    rules = rules_of(name)
    content = table_spec(name, epsilon).model_dump(exclude_unset=True)
    for rule in rules:
        to = rule.get("lookup", {}).get("to", [])
        for column in [to] if isinstance(to, str) else to:
            content["columns"][column]["nullable"] = True
    if name == "gss_happiness":
        for column in content["columns"].values():
            if all(str(value).isdigit() for value in column.get("values", ["text"])):
                column |= {"values": [int(value) for value in column["values"]], "unlisted": "auto"}
    ruled = load_any_spec({**content, "rules": rules}, folder=RULES)
    return {WITHOUT: ReleaseSpec.model_validate(content), WITH: ruled}


@cache
def real_rows(name: str) -> CodedTable:
    """Return the real rows in the public bins of the spec without rules."""
    spec = ruled_specs(name)[WITHOUT]
    return encode_table(open_source(spec.data, spec).batches(), plan(spec))


def broken_share(batches: Any, ruled: ReleaseSpec) -> float:
    """Return the share of rows that meet a forbidden condition, or hold another value than the rules compute."""
    codecs, rules = plan_every_column(ruled).codecs, plan(ruled).rules
    assert rules is not None  # noqa: S101 - every table here has some
    broken = rows = 0
    for batch in batches:
        table = {c.attribute: c.read({c.attribute: batch[c.attribute]})[c.attribute] for c in codecs}
        wrong = np.logical_or.reduce([*rules.find_broken_rows(table), *rules.find_differing_rows(table).values()])
        broken, rows = broken + int(wrong.sum()), rows + batch.num_rows
    return broken / rows


def made(spec: ReleaseSpec, rows: Batches, seed: int) -> tuple[pa.Table, float, float]:
    """Return a table by all steps of a release, in memory, and its wall and CPU seconds."""
    request = Request(spec.with_rows(seed=seed), tuple(spec.released_columns), threads=1)
    steps, draw = build_steps(request), draw_from_seed(seed)
    start, used = time.perf_counter(), time.process_time()
    tables = MemoryRun(request, steps, draw, PrivateAccess(rows)).run()
    return tables[steps[-1].name]["synthetic"], time.perf_counter() - start, time.process_time() - used


def measure(name: str, method: str, epsilon: float, seed: int) -> Run:
    """Return one run of a table, with or without rules; a smaller one before it compiles and warms up."""
    specs = ruled_specs(name, epsilon)
    spec, real = specs[method], real_rows(name)
    source = open_source(spec.data, spec)

    def few(repairs: Repairs | None = None, /) -> list[pa.RecordBatch]:
        return [next(iter(source.batches(repairs))).slice(0, WARM_UP)]

    made(spec, few, seed)
    table, wall, cpu = made(spec, source.batches, seed)
    bins = encode_table(table.to_batches(), plan(specs[WITHOUT])).bins
    domain = bins.domain
    ways = (list_all_cliques(domain, 1), list_all_cliques(domain, 2), draw_cliques(domain, 3, RANDOM_TRIPLES, 0))
    errors = [average_l1(real.bins, bins, cliques) for cliques in ways]
    figures = {"broken": broken_share(table.to_batches(), specs[WITH]), "rows": float(table.num_rows)}
    figures |= {f"l1_{way}way": float(error) for way, error in enumerate(errors, 1)}
    return Run(method, "1", name, epsilon, seed, "done", figures, wall, cpu)


def mean(store: Store, name: str, method: str, epsilon: float, figure: str) -> float:
    """Return the mean of a figure over the seeds; NaN without a run."""
    runs = [r for (m, t, e, _), r in store.runs.items() if (m, t, e) == (method, name, epsilon)]
    found = [float(r.cpu or 0.0) if figure == "cpu" else r.figures[figure] for r in runs]
    return float(np.mean(found)) if found else float("nan")


def markdown(store: Store, names: Sequence[str], epsilons: Sequence[float]) -> list[str]:
    """Return one line for each table and epsilon."""
    lines = [
        "| table | rules | epsilon | rows that break one: real | without rules | with | pairs with rules | triples "
        "| time |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for name in names:
        ruled = ruled_specs(name)[WITH]
        real = broken_share(open_source(ruled.data, ruled).batches(), ruled)
        for epsilon in epsilons:
            get = lambda method, figure: mean(store, name, method, epsilon, figure)  # noqa: B023, E731
            cells = [f"{real:.2%}", f"{get(WITHOUT, 'broken'):.1%}", f"{get(WITH, 'broken'):.0%}"]
            for way in ("l1_2way", "l1_3way"):
                before, after = get(WITHOUT, way), get(WITH, way)
                cells.append(f"{after:.4f} ({after / before - 1:+.1%})")
            cells.append(f"{get(WITH, 'cpu') / get(WITHOUT, 'cpu'):.2f} times")
            lines.append(f"| {name} | {len(ruled.rules)} | {epsilon:g} | " + " | ".join(cells) + " |")
    return lines


def main() -> None:
    """Measure what is not in the store yet, print the markdown, and with every table write it into docs/rules.md."""
    parser = argparse.ArgumentParser(description="What rules cost and bring on public tables.")
    parser.add_argument("--tables", nargs="+", choices=list(FILES), default=list(FILES))
    parser.add_argument("--epsilons", nargs="+", type=float, default=list(EPSILONS))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--store", type=Path, default=STORE, help="JSON lines of the runs")
    parser.add_argument("--write", action="store_true", help="put the table into docs/rules.md")
    arguments = parser.parse_args()
    store, names = Store(arguments.store), keep_present(arguments.tables)
    for seed in range(arguments.seeds):
        for name in names:
            for epsilon in arguments.epsilons:
                for method in (WITHOUT, WITH):
                    if not store.has(method, "1", name, epsilon, seed):
                        store.add(measure(name, method, epsilon, seed))
                        print(store.runs[method, name, epsilon, seed], flush=True)
    lines = markdown(store, names, arguments.epsilons)
    print("\n".join(lines))
    if arguments.write:
        write_between(PAGE, (BEGIN, END), lines)


if __name__ == "__main__":
    main()
