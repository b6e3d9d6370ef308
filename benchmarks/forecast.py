"""How near forecasts come: ``python -m benchmarks.forecast [--tables ..] [--write]``.

Each public table is cut into two halves at random.  Releases of the first half, in memory and with seeded noise, are
what a forecast should have said.  Forecasts know about how many rows it has, and one of three things: the second half
as a public table, a release of the second half at epsilon 1 as an earlier release, or nothing.  Runs are kept in
forecast.jsonl, so that an interrupted measurement goes on; take lines out to run them again.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from functools import cache
from itertools import product
from pathlib import Path

import numpy as np

from benchmarks.compare_store import Run, Store
from benchmarks.pages import write_between
from benchmarks.tables import keep_present, table_spec
from privsyn.data_contracts.release_spec import ReleaseSpec
from privsyn.engine.memory import MemoryRun, draw_from_seed
from privsyn.engine.request import Request
from privsyn.evaluation.coded_tables import encode_table, open_table
from privsyn.evaluation.forecasts.forecast import ReleaseQuality, simulate_figures
from privsyn.evaluation.forecasts.stand_in import DEFAULT_STRENGTH, assume_rows, list_nullable, resample_rows
from privsyn.pipelines.added_looks import NO_VALUE_COUNTS
from privsyn.pipelines.registry import build_steps
from privsyn.pipelines.rung_steps import NO_RUNG_COUNTS
from privsyn.tasks.kernels.counting import CodeTable
from privsyn.tasks.metrics.samples import take_rows

HERE = Path(__file__).parent
STORE = HERE / "forecast.jsonl"
PAGE = HERE.parent / "docs" / "epsilon.md"
BEGIN, END = "<!-- forecasts: begin -->", "<!-- forecasts: end -->"
TABLES = ("gss_happiness", "adult", "support2", "national2019", "social_diagnosis2011", "stroke_ist")
EPSILONS = (0.2, 1.0, 5.0)
SEEDS = 1
RELEASE = "release"
MADE_UP = "made up"
NEAR = 1.5
WORDS = {
    "noise": "noise of a count",
    "mean": "error of a mean",
    "columns": "rows in a wrong bin, mean of columns",
    "seen": "relations seen from",
    "pairs": "pairs measured",
    "sample": "random sample of",
}
"""Figure -> its words."""
PER_COLUMN = ("noise", "mean")


def _request(name: str, epsilon: float) -> Request:
    spec: ReleaseSpec = table_spec(name, epsilon)
    return Request(spec, tuple(spec.released_columns), threads=1)


@cache
def halves(name: str) -> tuple[CodeTable, CodeTable]:
    """Return the table's two halves in fine codes."""
    request = _request(name, 1.0)
    whole = open_table(request.spec.data, request.encoding, request.spec, "benchmark").read().fine
    order = np.random.default_rng(0).permutation(whole.rows)
    middle = whole.rows // 2
    return take_rows(whole, np.sort(order[:middle])), take_rows(whole, np.sort(order[middle:]))


@cache
def released_rows(name: str) -> CodeTable:
    """Return the rows of a release of the second half at epsilon 1, in fine codes."""
    request = _request(name, 1.0)

    given = {"encode": {"encoded_rows": halves(name)[1].to_arrow()}, **NO_RUNG_COUNTS, **NO_VALUE_COUNTS}
    made = MemoryRun(request, build_steps(request), draw_from_seed(1_000), known_tables=given).run()
    return encode_table(made["decode"]["synthetic"].to_batches(), request.encoding).fine


def about(rows: int) -> int:
    """Return a number of rows as somebody outside may know it: two digits of it."""
    return int(float(f"{rows:.1e}"))


ASSUMPTIONS: dict[str, Callable[[str, int, int], CodeTable]] = {
    "a public table": lambda name, rows, seed: resample_rows(halves(name)[1], rows, seed),
    "an earlier release": lambda name, rows, seed: resample_rows(released_rows(name), rows, seed),
    MADE_UP: lambda name, rows, seed: assume_rows(_request(name, 1.0).encoding, rows, DEFAULT_STRENGTH, seed),
}
"""What stands in for the private table -> its rows, by table, number and seed."""


def measure(name: str, method: str, epsilon: float, seed: int) -> Run:
    """Return one release of the first half, or one simulated release of a forecast."""
    real = halves(name)[0]
    rows = real if method == RELEASE else ASSUMPTIONS[method](name, about(real.rows), seed)
    found = simulate_figures(_request(name, epsilon), rows, seed + (100 if method == RELEASE else 0))
    return Run(method, "1", name, epsilon, seed, "done", _flat(found))


def _flat(found: ReleaseQuality) -> dict[str, float]:
    flat = {f"noise:{column}": value for column, value in found.noise.items()}
    flat |= {f"misplaced:{column}": value for column, value in found.misplaced.items()}
    flat |= {f"mean:{column}": value for column, value in found.mean_errors.items() if np.isfinite(value)}
    flat |= {name: float(v) for name, v in (("seen", found.seen), ("sample", found.sample)) if v is not None}
    return {**flat, "pairs": float(found.pairs), "columns": float(np.mean(list(found.misplaced.values())))}


def average(store: Store, name: str, method: str, epsilon: float) -> dict[str, float]:
    """Return the mean of every figure over the seeds."""
    runs = [store.runs[method, name, epsilon, seed].figures for seed in range(SEEDS)]
    return {k: float(np.mean([r[k] for r in runs if k in r])) for k in dict.fromkeys(k for r in runs for k in r)}


def ratios(store: Store, name: str, method: str, epsilon: float, figure: str) -> Iterator[float]:
    """Forecast by release, of one figure: one ratio, or one a column; infinite where only one of the two has it.

    What a forecast says to be not known is left out: errors of means of made-up columns that may be null.
    """
    said, had = (average(store, name, m, epsilon) for m in (method, RELEASE))
    unknown = {f"mean:{c}" for c in list_nullable(_request(name, 1.0).spec)} if method == MADE_UP else set()
    for key in [k for k in dict.fromkeys((*said, *had)) if k == figure or k.startswith(f"{figure}:")]:
        if key in unknown:
            continue
        a, b = said.get(key, 0.0), had.get(key, 0.0)
        yield 1.0 if a == b else a / b if a and b else np.inf


def list_cases(store: Store, names: list[str]) -> list[str]:
    """Return a line for each table, epsilon and assumption that was measured.

    What the forecast said and the release had.
    """
    lines = [
        "| table | epsilon | assumed | " + " | ".join(f"{w}: within {NEAR:g}" for w in list(WORDS.values())[:2])
        + " | rows in a wrong bin: forecast, release | relations seen from | pairs measured | random sample of |",
        "|---" * 9 + "|",
    ]  # fmt: skip
    for name, epsilon in _measured(store, names):
        for method in ASSUMPTIONS:
            cells = []
            for figure in WORDS:
                good = _find_near(store, name, method, epsilon, figure)
                if figure in PER_COLUMN:
                    cells.append(f"{sum(good)} of {len(good)}" if good else "-")
                else:
                    cells.append(_both(store, name, method, epsilon, figure) + ("" if all(good) else " *"))
            lines.append(f"| {name} | {epsilon:g} | {method} | " + " | ".join(cells) + " |")
    return lines


def summarize(store: Store, names: list[str]) -> list[str]:
    """Return a line for each assumption: how many figures of all tables and epsilons are within the factor."""
    lines = ["| assumed | " + " | ".join(WORDS.values()) + " |", "|---" * 7 + "|"]
    for method in ASSUMPTIONS:
        cells = []
        for figure in WORDS:
            good = [g for n, e in _measured(store, names) for g in _find_near(store, n, method, e, figure)]
            cells.append(f"{sum(good)}/{len(good)}")
        lines.append(f"| {method} | " + " | ".join(cells) + " |")
    return lines


def _find_near(store: Store, name: str, method: str, epsilon: float, figure: str) -> list[bool]:
    return [1 / NEAR <= r <= NEAR for r in ratios(store, name, method, epsilon, figure)]


def _measured(store: Store, names: list[str]) -> list[tuple[str, float]]:
    """Return the tables and epsilons of which every case was measured."""
    return [(name, epsilon) for name, epsilon in product(names, EPSILONS) if _is_measured(store, name, epsilon)]


def _is_measured(store: Store, name: str, epsilon: float) -> bool:
    jobs = product((RELEASE, *ASSUMPTIONS), range(SEEDS))
    return all(store.has(method, "1", name, epsilon, seed) for method, seed in jobs)


def _both(store: Store, name: str, method: str, epsilon: float, figure: str) -> str:
    values = [average(store, name, m, epsilon).get(figure) for m in (method, RELEASE)]
    if figure == "pairs":
        return ", ".join(f"{v:,.0f}" for v in values if v is not None)
    return ", ".join("none" if v is None else f"{v:.2%}" for v in values)


def main() -> None:
    """Measure what is not in the store yet, print every case, and with --write put the summary into docs/epsilon.md."""
    parser = argparse.ArgumentParser(description="How near forecasts come on public tables.")
    parser.add_argument("--tables", nargs="+", choices=TABLES, default=list(TABLES))
    parser.add_argument("--store", type=Path, default=STORE, help="JSON lines of the runs")
    parser.add_argument("--write", action="store_true", help="put the summary into docs/epsilon.md")
    arguments = parser.parse_args()
    store, names = Store(arguments.store), keep_present(arguments.tables)
    for name in names:
        for epsilon in EPSILONS:
            for method in (RELEASE, *ASSUMPTIONS):
                for seed in range(SEEDS):
                    if not store.has(method, "1", name, epsilon, seed):
                        store.add(measure(name, method, epsilon, seed))
                        print(name, epsilon, method, seed, flush=True)
        halves.cache_clear()
        released_rows.cache_clear()
    lines = summarize(store, names)
    print("\n".join([*list_cases(store, names), "", f"Within a factor of {NEAR:g}:", "", *lines]))
    if arguments.write:
        write_between(PAGE, (BEGIN, END), lines)


if __name__ == "__main__":
    main()
