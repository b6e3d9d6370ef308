"""Answers of sets of k columns that were not measured together: ``python -m benchmarks.kway [--seeds N]``.

PriView's figure (Qardaji, Yang, Li 2014; DPSyn report, section 3.2): error against k of maximum entropy, least squares,
linear programming and this project's rows, all from the same consistent noisy marginals.  Releases are made in memory
with seeded noise: nothing here is a release.  Finished cases are kept in kway.jsonl and not made again; the table of
docs/receivers.md and docs/img/kway.png are made from there.
"""

from __future__ import annotations

import argparse
import json
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any, TypeAlias

import altair as alt
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray
from scipy.optimize import linprog, nnls

from benchmarks.tables import FOLDER, table_spec
from privsyn.base.pictures import draw_chart
from privsyn.data_contracts.columns import DropColumn
from privsyn.data_contracts.domain import Clique, Domain
from privsyn.data_contracts.release_spec import ReleaseSpec
from privsyn.engine.memory import MemoryRun, draw_from_seed
from privsyn.engine.request import Request
from privsyn.evaluation.coded_tables import encode_table
from privsyn.evaluation.comparison.results import COLORS
from privsyn.extras.papers.public_views import list_covering_views, replace_selection
from privsyn.pipelines.registry import build_steps
from privsyn.tasks.estimation import marginals
from privsyn.tasks.kernels.counting import CodeTable, count

HERE = Path(__file__).parent
KEPT, PICTURE = HERE / "kway.jsonl", HERE.parent / "docs" / "img" / "kway.png"
DELTA, SETS, LARGEST, SOLVED = 1e-9, 40, 1_500, 400
"""Failure probability; random sets of each k; most cells of a set, and most for least squares and linear programs."""

METHODS = ("rows", "maximum entropy", "least squares", "linear programming")
Floats = NDArray[np.float64]
Kept: TypeAlias = dict[str, list[dict[str, Any]]]
"""Case and seed, as text -> its sets by k and by whether a pair was measured."""


@dataclass(frozen=True)
class Case:
    """A table (``binary``: every column as one of two values), what is measured, at which epsilon, for which k."""

    table: str
    binary: bool
    measured: str
    epsilon: float
    ways: tuple[int, ...]


CASES = (
    *(
        Case(table, True, measured, 1.0, tuple(range(2, 9)))
        for table in ("adult", "social_diagnosis2011")
        for measured in ("views", "privsyn")
    ),
    *(Case(t, False, "privsyn", e, (2, 3, 4)) for t in ("support2", "gss_happiness") for e in (1.0, 5.0)),
)
"""PriView's figure on two binary tables, by its views and by PrivSyn's choice; and two tables as they are."""


def table_of(case: Case) -> tuple[ReleaseSpec, pa.Table]:
    """Return the spec and the rows.

    A binary column is "above the median" or "the most frequent value": the data is public.
    """
    spec = table_spec(case.table, case.epsilon, DELTA)
    kept = [name for name, c in spec.columns.items() if not isinstance(c, DropColumn)]
    table = pq.read_table(FOLDER / f"{case.table}.parquet").select(kept)
    content = spec.model_dump(mode="json", include={"dataset", "data", "unit", "privacy", "budget"})
    columns: dict[str, Any] = {name: spec.columns[name].model_dump(mode="json") for name in kept}
    if case.binary:
        frame = table.to_pandas()
        halves = {}
        for name in kept:
            numeric = columns[name]["kind"] in ("integer", "number")
            split = frame[name] > frame[name].median() if numeric else frame[name] == frame[name].mode()[0]
            split = split.fillna(False).astype(bool)
            if 0.02 <= split.mean() <= 0.98:
                halves[name] = split.to_numpy(dtype=bool)
        table, columns = pa.table(halves), {name: {"kind": "boolean"} for name in halves}
    mechanism = {"name": "privsyn", "compression": {"enabled": False}}
    return ReleaseSpec.model_validate({**content, "columns": columns, "mechanism": mechanism}), table


def released(case: Case, seed: int) -> tuple[CodeTable, CodeTable, dict[Clique, Floats]]:
    """Return the private rows and the synthetic ones in the same codes, and the consistent marginals, by a seed."""
    spec, table = table_of(case)
    spec = spec.with_rows(seed=seed)
    request = Request(spec, tuple(table.column_names), 1)
    steps = build_steps(request) if case.measured == "privsyn" else replace_selection(list_covering_views)(request)
    rows = encode_table(table.to_batches(), request.encoding)

    given = {"encode": {"encoded_rows": rows.fine.to_arrow()}}
    made = MemoryRun(request, steps, draw_from_seed(seed), known_tables=given).run()
    known = {
        m.attributes: m.counts for m in marginals.from_table(made["make_consistent"]["marginals"], rows.bins.domain)
    }
    return rows.bins, CodeTable.from_arrow(made["append_attributes"]["codes"], rows.bins.domain), known


@dataclass(frozen=True)
class Constraints:
    """What the marginals say of the cells of a set: sums over groups of cells, as shares.

    ``parts``: a marginal's axes in the set's array, and its shares.
    """

    shape: tuple[int, ...]
    parts: tuple[tuple[tuple[int, ...], Floats], ...]

    def system(self) -> tuple[Floats, Floats]:
        """Return the linear equations: matrix (sums, cells) and right side."""
        cells = np.arange(int(np.prod(self.shape))).reshape(self.shape)
        rows, right = [], []
        for axes, shares in self.parts:
            others = tuple(i for i in range(len(self.shape)) if i not in axes)
            grouped = cells.transpose(*axes, *others).reshape(shares.size, -1)
            block = np.zeros((shares.size, cells.size))
            np.put_along_axis(block, grouped, 1.0, axis=1)
            rows.append(block)
            right.append(shares.ravel())
        return np.concatenate(rows), np.concatenate(right)


def constraints(asked: Clique, known: dict[Clique, Floats], domain: Domain) -> Constraints:
    """Return the largest parts of ``asked`` that lie in a known marginal, with their shares."""
    parts: dict[Clique, Floats] = {}
    for clique, counts in known.items():
        part = domain.ordered(set(clique) & set(asked))
        if part and part not in parts:
            summed = counts.sum(axis=tuple(i for i, a in enumerate(clique) if a not in part))
            parts[part] = np.maximum(summed, 0) / max(float(np.maximum(summed, 0).sum()), 1e-9)
    largest = [p for p in parts if not any(set(p) < set(other) for other in parts)]
    return Constraints(domain.shape(asked), tuple((tuple(map(asked.index, p)), parts[p]) for p in largest))


def maximum_entropy(asked: Constraints) -> Floats:
    """Return iterative proportional fitting from the uniform table, at most 300 rounds."""
    cells = np.full(asked.shape, 1 / np.prod(asked.shape))
    for _ in range(300):
        before = cells
        for axes, shares in asked.parts:
            others = tuple(i for i in range(len(asked.shape)) if i not in axes)
            now = cells.sum(axis=others, keepdims=True)
            wanted = np.expand_dims(shares, others)
            cells = cells * np.divide(wanted, now, out=np.zeros_like(now), where=now > 0)
        if np.abs(cells - before).sum() < 1e-9:
            break
    return cells / max(float(cells.sum()), 1e-12)


def least_squares(asked: Constraints) -> Floats:
    """Return table of least L2 norm without negative cells that fulfils the sums (weighted 1,000 times the norm)."""
    matrix, right = asked.system()
    cells = matrix.shape[1]
    found, _ = nnls(
        np.concatenate([1_000 * matrix, np.eye(cells)]),
        np.concatenate([1_000 * right, np.zeros(cells)]),
        maxiter=50 * cells,
    )
    return found.reshape(asked.shape) / max(float(found.sum()), 1e-12)


def linear_programming(asked: Constraints) -> Floats:
    """Return a table without negative cells whose largest violation of a sum is least: the vertex that HiGHS finds."""
    matrix, right = asked.system()
    sums, cells = matrix.shape
    slack = np.ones((sums, 1))
    solution = linprog(
        np.concatenate([np.zeros(cells), [1.0]]),
        A_ub=np.block([[matrix, -slack], [-matrix, -slack]]),
        b_ub=np.concatenate([right, -right]),
        method="highs-ds",
    )
    found = np.maximum(solution.x[:cells], 0)
    return found.reshape(asked.shape) / max(float(found.sum()), 1e-12)


SOLVERS: dict[str, Callable[[Constraints], Floats]] = {
    "maximum entropy": maximum_entropy,
    "least squares": least_squares,
    "linear programming": linear_programming,
}


def unmeasured_sets(domain: Domain, known: Sequence[Clique], ways: int, most: int, seed: int) -> list[Clique]:
    """Return SETS random sets of ``ways`` attributes that lie in no known marginal, of at most ``most`` cells each."""
    rng, found = np.random.default_rng([seed, ways]), dict[Clique, None]()
    inside = [set(c) for c in known]
    for _ in range(50 * SETS):
        asked = domain.ordered(rng.choice(domain.attributes, ways, replace=False))
        if domain.cells(asked) <= most and not any(s >= set(asked) for s in inside):
            found[asked] = None
        if len(found) == SETS:
            break
    return list(found)


def distances(case: Case, seed: int) -> Iterator[tuple[int, bool, dict[str, float]]]:
    """Yield for every set: k, whether some pair was measured, and half the sum of absolute differences by method."""
    real, rows, known = released(case, seed)
    domain, pairs = real.domain, {p for c in known for p in combinations(c, 2)}
    for ways in case.ways:
        for asked in unmeasured_sets(domain, list(known), ways, LARGEST, seed):
            truth = count(real, asked) / real.rows
            given = constraints(asked, known, domain)
            errors = {"rows": _apart(truth, count(rows, asked) / max(rows.rows, 1))}
            few = domain.cells(asked) <= SOLVED
            solvers = SOLVERS if few else {"maximum entropy": maximum_entropy}
            errors |= {name: _apart(truth, solve(given)) for name, solve in solvers.items()}
            yield ways, any(p in pairs for p in combinations(asked, 2)), errors


def _apart(truth: Floats, answer: Floats) -> float:
    return round(float(np.abs(truth - answer).sum() / 2), 5)


def _summed(case: Case, seed: int) -> list[dict[str, Any]]:
    """Return the sets of one release by k and by whether a pair was measured.

    Method -> [sets, sum of their distances].
    """
    groups: dict[tuple[int, bool], dict[str, list[float]]] = defaultdict(lambda: {m: [0, 0.0] for m in METHODS})
    for ways, some, errors in distances(case, seed):
        for method, error in errors.items():
            sets, total = groups[ways, some][method]
            groups[ways, some][method] = [sets + 1, round(total + error, 5)]
    return [{"k": k, "some pair": some, **found} for (k, some), found in sorted(groups.items())]


def _kept() -> Kept:
    lines = KEPT.read_text(encoding="utf-8").splitlines() if KEPT.exists() else []
    return {line["case"]: line["groups"] for line in map(json.loads, lines)}


def main() -> None:
    """Make what is missing, print the tables and draw the picture."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    seeds = parser.parse_args().seeds
    kept = _kept()
    for case in CASES:
        for seed in range(seeds):
            name = json.dumps([case.table, case.binary, case.measured, case.epsilon, seed])
            if name in kept:
                continue
            start = time.process_time()
            kept[name] = _summed(case, seed)
            with KEPT.open("a", encoding="utf-8") as file:
                file.write(json.dumps({"case": name, "groups": kept[name]}) + "\n")
            print(f"{name}: {time.process_time() - start:.0f} CPU s", flush=True)
    print(binary_table(kept), "\n")
    print(earlier_table(kept))
    PICTURE.write_bytes(draw_chart(picture(kept), "png"))


def _mean(groups: Sequence[dict[str, Any]], method: str) -> tuple[int, float]:
    """Return how many sets the groups have for a method, and their mean distance."""
    sets = sum(g[method][0] for g in groups)
    return sets, sum(g[method][1] for g in groups) / max(sets, 1)


def _means(kept: Kept) -> dict[tuple[str, str, int], dict[str, tuple[float, float]]]:
    """(table, measured, k) of the binary cases -> method -> mean over the seeds, and their standard deviation."""
    by_seed: dict[tuple[str, str, int], list[dict[str, float]]] = defaultdict(list)
    for name, groups in kept.items():
        table, binary, measured, _, _ = json.loads(name)
        for k in sorted({g["k"] for g in groups}) if binary else ():
            own = [g for g in groups if g["k"] == k]
            by_seed[table, measured, k].append({m: _mean(own, m)[1] for m in METHODS})
    return {
        key: {m: (float(np.mean([v[m] for v in values])), float(np.std([v[m] for v in values]))) for m in METHODS}
        for key, values in sorted(by_seed.items())
    }


def binary_table(kept: Kept) -> str:
    """Markdown: error against k on the binary tables."""
    lines = [f"| table | measured | k | {' | '.join(METHODS)} |", "|---|---|---|---|---|---|---|"]
    for (table, measured, k), found in _means(kept).items():
        cells = " | ".join(f"{found[m][0]:.4f} ± {found[m][1]:.4f}" for m in METHODS)
        lines.append(f"| {table} | {measured} | {k} | {cells} |")
    return "\n".join(lines)


def earlier_table(kept: Kept) -> str:
    """Markdown: the tables as they are, by whether some pair of the asked columns was measured; (N): of N sets."""
    groups: dict[tuple[int, bool], list[dict[str, Any]]] = defaultdict(list)
    for name, own in kept.items():
        for group in own if not json.loads(name)[1] else ():
            groups[group["k"], group["some pair"]].append(group)
    lines = [f"| columns | measured among them | {' | '.join(METHODS)} |", "|---|---|---|---|---|---|"]
    for (k, some), own in sorted(groups.items()):
        means = [_mean(own, m) for m in METHODS]
        lines.append(f"| {k} | {'some' if some else 'no'} pair | {' | '.join(f'{v:.3f} ({n})' for n, v in means)} |")
    return "\n".join(lines)


def picture(kept: Kept) -> dict[str, Any]:
    """Error against k: a panel a table and choice, a line a method, as Vega-Lite."""
    points = [
        {"panel": f"{table}, {measured}", "k": k, "method": m, "distance": mean}
        for (table, measured, k), found in _means(kept).items()
        for m, (mean, _) in found.items()
    ]
    chart = (
        alt.Chart(alt.InlineData(values=points))
        .mark_line(point=True)
        .encode(
            x=alt.X("k:O", title="k: columns asked for together", axis=alt.Axis(labelAngle=0)),
            y=alt.Y("distance:Q", title="distance from the private counts"),
            color=alt.Color("method:N", title=None, scale=alt.Scale(domain=list(METHODS), range=list(COLORS[:4]))),
        )
        .properties(width=250, height=170)
        .facet(alt.Facet("panel:N", title=None), columns=2)
        .resolve_scale(y="independent")
        .properties(title="Sets of k columns that were not measured together, epsilon 1")
        .configure_legend(orient="bottom")
    )
    content: dict[str, Any] = chart.to_dict()
    return content


if __name__ == "__main__":
    main()
