"""What sets of columns that a spec names bring: ``python -m benchmarks.named_sets [--seeds N] [--cases CASE ...]``.

Made tables whose label is a parity of numbers (y = x0 XOR x1, thresholds at one half; and of three), in which all pairs
are independent: trees trained on the synthetic rows and tested on real rows that no release saw.  And public tables:
the error of an SVM on the label, with it in focus and with a set named.  And conditions of measured questions: the
error that their answers state.  And named sets of columns with nulls.  Releases are made in memory with seeded noise:
nothing here is a release.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray
from sklearn.ensemble import HistGradientBoostingClassifier
from threadpoolctl import threadpool_limits

from benchmarks.panels import draw_counts
from benchmarks.tables import FOLDER, LABELS, table_spec
from privsyn.answers.questions import answer
from privsyn.data_contracts.release_spec import ReleaseSpec
from privsyn.engine.inputs import PrivateAccess
from privsyn.engine.memory import MemoryRun, draw_from_seed
from privsyn.engine.request import Request
from privsyn.evaluation.coded_tables import encode_table
from privsyn.pipelines.registry import build_steps
from privsyn.tasks.codecs import plan
from privsyn.tasks.metrics.models import compute_svm_error

ROWS, DELTA, HOLDOUT_SHARE = 10_000, 1e-9, 0.2
Case = tuple[str, Mapping[str, Any]]


def list_cases(numbers: int) -> dict[str, Mapping[str, Any]]:
    """Return name -> fields of the spec for the parity of so many numbers."""
    named = [f"x{i}" for i in range(numbers)] + ["y"]
    workload = [{"columns": named}]
    return {
        "default": {},
        "focus": {"focus": {"columns": ["y"]}},
        "named": {"workload": workload},
        "named, adaptive": {"workload": workload, "mechanism": "adaptive"},
        "named, aim": {"workload": workload, "mechanism": "aim"},
    }


def make_parity(numbers: int, rows: int, seed: int) -> pa.Table:
    """Return rows of so many even numbers between 0 and 1 and whether an odd number of them is above one half."""
    x = np.random.default_rng(seed).random((rows, numbers))
    columns = {f"x{i}": pa.array(x[:, i]) for i in range(numbers)}
    return pa.table({**columns, "y": pa.array((x > 0.5).sum(axis=1) % 2 == 1)})


def write_parity_spec(numbers: int, epsilon: float, fields: Mapping[str, Any]) -> ReleaseSpec:
    """Return the spec of such a table, its bins left open."""
    columns: dict[str, Any] = {f"x{i}": {"kind": "number", "min": 0, "max": 1} for i in range(numbers)}
    return write_spec({**columns, "y": {"kind": "boolean"}}, epsilon, fields)


def write_spec(columns: Mapping[str, Any], epsilon: float, fields: Mapping[str, Any]) -> ReleaseSpec:
    """Return the spec of a made table."""
    content = {
        "dataset": "made",
        "unit": {"records_per_person": 1},
        "privacy": {"epsilon": epsilon, "delta": DELTA},
        "budget": {"epsilon": 1000.0, "delta": DELTA},
        "columns": columns,
    }
    return ReleaseSpec.model_validate({**content, **fields})


def make_rows(spec: ReleaseSpec, table: pa.Table, seed: int) -> pa.Table:
    """Return synthetic rows by this spec, with noise from ``seed``."""
    request = Request(spec.with_rows(seed=seed), tuple(table.column_names), 1)
    access = PrivateAccess(lambda repairs=None: table.to_batches())
    return MemoryRun(request, build_steps(request), draw_from_seed(seed), access).run()["decode"]["synthetic"]


def score_trees(made: pa.Table, real: pa.Table) -> float:
    """Return the share of real rows whose label trees trained on ``made`` rows tell."""
    names = [name for name in real.column_names if name != "y"]
    train, label = _stack(made, names), made["y"].to_numpy(zero_copy_only=False).astype(bool)
    if label.all() or not label.any():
        return float((real["y"].to_numpy(zero_copy_only=False) == label[0]).mean())
    with threadpool_limits(1):
        trees = HistGradientBoostingClassifier(random_state=0).fit(train, label)
        return float((trees.predict(_stack(real, names)) == real["y"].to_numpy(zero_copy_only=False)).mean())


def _stack(table: pa.Table, names: Sequence[str]) -> NDArray[np.float64]:
    return np.column_stack([table[name].to_numpy(zero_copy_only=False).astype(float) for name in names])


def run_parity(numbers: int, epsilon: float, seeds: int) -> None:
    """Print a row of Markdown a case: mean accuracy of trees, and that of the worst seed."""
    real = make_parity(numbers, ROWS, 1_000)
    for name, fields in list_cases(numbers).items():
        begun, found = time.process_time(), []
        for seed in range(seeds):
            table = make_parity(numbers, ROWS, seed)
            found.append(score_trees(make_rows(write_parity_spec(numbers, epsilon, fields), table, seed), real))
        seconds = (time.process_time() - begun) / seeds
        print(
            f"| parity of {numbers} | {epsilon:g} | {name} | {np.mean(found):.3f} | {min(found):.3f} | {seconds:.1f} |"
        )


NAMED = {"adult": ["marital-status", "education-num", "capital-gain", "income"]}
"""Table -> a set of columns that is named beside the label in focus."""


def run_table(table: str, epsilon: float, seeds: int) -> None:
    """Print a row of Markdown a case: the SVM's error on held-out rows of a public table."""
    label = LABELS[table]
    cases: dict[str, Mapping[str, Any]] = {
        "default": {},
        "focus, no triples": {"focus": {"columns": [label], "triples": False}},
        "focus": {"focus": {"columns": [label]}},
    }
    if table in NAMED:
        cases["focus, named"] = {**cases["focus"], "workload": [{"columns": NAMED[table]}]}
    whole = pq.read_table(FOLDER / f"{table}.parquet").select(list(table_spec(table).released_columns))
    order = np.random.default_rng(0).permutation(whole.num_rows)
    cut = int(HOLDOUT_SHARE * whole.num_rows)
    train, test = whole.take(np.sort(order[cut:])), whole.take(np.sort(order[:cut]))
    for name, fields in cases.items():
        spec = table_spec(table, epsilon, DELTA)
        content = {**spec.model_dump(mode="json", exclude_unset=True), **fields}
        spec = ReleaseSpec.model_validate(content)
        encoding = plan(spec, tuple(train.column_names))
        real = encode_table(test.to_batches(), encoding).bins
        begun, found = time.process_time(), []
        for seed in range(seeds):
            made = encode_table(make_rows(spec, train, seed).to_batches(), encoding).bins
            found.append(compute_svm_error(made, real, label))
        seconds = (time.process_time() - begun) / seeds
        print(f"| {table} | {epsilon:g} | {name} | {np.mean(found):.4f} | {max(found):.4f} | {seconds:.1f} |")


MOMENTS = {"min": "2000-01-01T00:00:00", "max": "2009-12-31T00:00:00"}
CONDITIONS: dict[str, tuple[Mapping[str, Any], str]] = {
    "number": ({"kind": "number", "min": 0, "max": 1}, "0.6"),
    "number, `decimals: 2`": ({"kind": "number", "min": 0, "max": 1, "decimals": 2}, "0.6"),
    "integer": ({"kind": "integer", "min": 0, "max": 1_000}, "600"),
    "moment": ({"kind": "datetime", **MOMENTS}, "'2005-12-01T12:30:00'"),
}
"""What is asked of x: its column, and the value that it is compared with."""


def run_conditions(epsilon: float, seeds: int) -> None:
    """Print a row of Markdown a condition of a measured question: what its answer rests on, and its standard error."""
    rng = np.random.default_rng(0)
    shares = rng.normal(0.5, 0.15, 3_000).clip(0, 1)
    moments = np.datetime64("2000-01-01", "us") + (shares * 3.1e8).astype("timedelta64[s]")
    values = {"number": shares, "integer": (shares * 1_000).astype(int), "moment": moments}
    y = rng.random(len(shares)) < shares
    print("| column | condition | standard error |\n|---|---|---|")
    for name, (column, value) in CONDITIONS.items():
        rows = pd.DataFrame({"x": values.get(name, shares.round(2)), "y": y})
        for sign in ("<", "<=", ">", "=="):
            question = f"y where x {sign} {value}"
            spec = write_spec({"x": column, "y": {"kind": "boolean"}}, epsilon, {"workload": [{"question": question}]})
            found = [answer(draw_counts(rows, spec, seed), question) for seed in range(seeds)]
            sources = ", ".join({source for one in found for source in one.source})
            print(f"| {name} | `{sign}` | {np.mean([one.std_error.mean() for one in found]):.1f}, {sources} |")


WITH_NULLS = {
    "support2": (("edu", "adlp", "adls"), ("alb", "bili", "bun"), ("ph", "bun", "urine")),
    "social_diagnosis2011": (("income", "mmarr", "ymarr"),),
}
"""Table -> sets of three numbers that are null in 10 to 70 % of the rows, those of the strongest rank correlations."""


def run_nulls(epsilon: float, seeds: int) -> None:
    """Print a row of Markdown a named set whose columns have nulls.

    Mean error of its rank correlations, L1 distances of which are null together, and of null, below and above the
    median of each; mean error of the rank correlations of all numbers.
    """
    print(
        "| table | epsilon | set | correlations | nulls | three-way | all correlations |\n|---|---|---|---|---|---|---|"
    )
    for table, sets in WITH_NULLS.items():
        described = table_spec(table, epsilon, DELTA)
        rows = pq.read_table(FOLDER / f"{table}.parquet").select(list(described.released_columns))
        for named in sets:
            content = described.model_dump(mode="json", exclude_unset=True)
            spec = ReleaseSpec.model_validate({**content, "workload": [{"columns": list(named)}]})
            found = [_compare_nulls(rows, make_rows(spec, rows, seed), spec, named) for seed in range(seeds)]
            figures = " | ".join(f"{figure:.3f}" for figure in np.mean(found, axis=0))
            print(f"| {table} | {epsilon:g} | {', '.join(named)} | {figures} |")


def _compare_nulls(real: pa.Table, made: pa.Table, spec: ReleaseSpec, named: Sequence[str]) -> list[float]:
    """Return the figures of :func:`run_nulls`."""
    kinds = ("integer", "number")
    numbers = [name for name, column in spec.released_columns.items() if column.kind in kinds]
    one, other = (table.select(numbers).to_pandas().astype("float64") for table in (real, made))
    errors = (one.corr("spearman") - other.corr("spearman")).abs()
    pairs = [
        errors.loc[list(names), list(names)].to_numpy()[np.triu_indices(len(names), 1)] for names in (named, numbers)
    ]
    median = one[list(named)].median()
    cells = [
        pd.Series(list(map(tuple, np.where(t[list(named)].isna(), 2, t[list(named)] > median)))).value_counts(
            normalize=True
        )
        for t in (one, other)
    ]
    nulls = [t[list(named)].isna().value_counts(normalize=True) for t in (one, other)]
    distances = [float(a.sub(b, fill_value=0).abs().sum()) for a, b in (nulls, cells)]
    return [float(np.nanmean(pairs[0])), *distances, float(np.nanmean(pairs[1]))]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument(
        "--cases",
        nargs="*",
        default=["2", "3", "adult"],
        help="2, 3: parities of so many; a public table; conditions; nulls",
    )
    parser.add_argument("--epsilon", type=float)
    asked = parser.parse_args()
    if not {*asked.cases} <= {"conditions", "nulls"}:
        print("| table | epsilon | spec | mean | worst | CPU seconds |\n|---|---|---|---|---|---|")
    for case in asked.cases:
        if case == "conditions":
            run_conditions(asked.epsilon or 1.0, asked.seeds)
        elif case == "nulls":
            run_nulls(asked.epsilon or 1.0, asked.seeds)
        elif case.isdigit():
            run_parity(int(case), asked.epsilon or 1.0, asked.seeds)
        else:
            run_table(case, asked.epsilon or 0.2, asked.seeds)


if __name__ == "__main__":
    main()
