"""The page of kept relations: ``python -m benchmarks.relations_page`` writes docs/results/relations.md's tables.

Belongs here: the figures of the stored runs of benchmarks/relations.py, as means and table by table.  Does not belong
here: making runs.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import mean

from benchmarks.compare_store import Run, Store, describe_failure
from benchmarks.pages import write_between
from benchmarks.relations import CHOOSING, DPSYNTH, KEPT, MEASURING, summarize

PAGE = Path(__file__).parent.parent / "docs" / "results" / "relations.md"
MARKERS = ("<!-- relations: begin -->", "<!-- relations: end -->")

OURS, PEER = "privsyn", "mst-dpmm"
LISTS = {"MEASURING": MEASURING, "CHOOSING": CHOOSING}
EPSILONS = (1.0, 0.2)
COMPARED = ("spearman", "kept", "l1_1way", "l1_2way")
FIGURES = ("spearman", "kept", "regressions")

ROWS = {
    "SLID": 7_425,
    "Workinghours": 3_382,
    "BudgetFood": 23_972,
    "Computers": 6_259,
    "OFP": 4_406,
    "MedExp": 5_574,
    "Benefits": 4_877,
    "HI": 22_272,
    "diamonds": 53_940,
    "Bundesliga": 14_018,
    "adult": 48_842,
    "loans": 10_000,
    "national2019": 27_253,
    "gss_happiness": 17_137,
    "support2": 9_105,
    "social_diagnosis2011": 5_000,
    "stroke_ist": 19_434,
    "insteval": 73_421,
    "eusilc": 14_827,
    "fire2016": 305_119,
    "census_income": 299_285,
    "ma2019": 7_634,
    "flchain": 7_874,
    "RetSchool": 5_225,
    "DoctorContacts": 20_186,
    "VietNamI": 27_765,
    "flights2013": 336_776,
    "LaborSupply": 5_320,
    "VerbAgg": 7_584,
    "baseball": 21_699,
}
"""Rows of each table."""

Means = Mapping[tuple[str, str, float], Mapping[str, float]]
"""(method, table, epsilon) -> the mean of each figure over its runs that are done; what is not there was not run."""


def compute_means(store: Store) -> Means:
    """Return the means of all methods' runs that are done."""
    groups: dict[tuple[str, str, float], list[Run]] = {}
    for run in store.runs.values():
        if run.outcome == "done":
            groups.setdefault((run.method, run.table, run.epsilon), []).append(run)
    return {key: summarize(runs) for key, runs in groups.items()}


def average(means: Means, method: str, tables: Sequence[str], epsilon: float, figure: str) -> float | None:
    """Return the mean of a figure over the tables that have it; None without any."""
    found = [f[figure] for t in tables if figure in (f := means.get((method, t, epsilon), {}))]
    return mean(found) if found else None


def list_averages(means: Means) -> Iterator[str]:
    """Yield the means over the tables of each list: ours over all, then ours and the peer over those of both."""
    yield "| list, epsilon | tables | method | error | kept | columns | pairs | slopes | their error |"
    yield "|---|---|---|---|---|---|---|---|---|"
    for name, tables in LISTS.items():
        for epsilon in EPSILONS:
            ours = [t for t in tables if (OURS, t, epsilon) in means]
            both = [t for t in ours if (PEER, t, epsilon) in means]
            for method, over, figures in (
                (OURS, ours, (*COMPARED, "regressions", "slopes")),
                (OURS, both if both != ours else (), COMPARED),
                (PEER, both, COMPARED),
            ):
                if over:
                    cells = [_show(average(means, method, over, epsilon, f)) for f in figures]
                    cells += [""] * (len(COMPARED) + 2 - len(figures))
                    yield f"| {name}, {epsilon:g} | {len(over)} | {method} | {' | '.join(cells)} |"


def list_tables(means: Means, tables: Sequence[str]) -> Iterator[str]:
    """Yield one line a table: ours at each epsilon, and the peer's error and what it keeps."""
    heads = [h for e in EPSILONS for h in (f"{e:g}: error", "kept", "slopes", "MST: error", "kept")]
    yield f"| table (rows) | {' | '.join(heads)} |"
    yield "|---|" + "---|" * len(heads)
    for table in tables:
        cells = []
        for epsilon in EPSILONS:
            cells += [_show(means.get((OURS, table, epsilon), {}).get(f)) for f in FIGURES]
            cells += [_show(means.get((PEER, table, epsilon), {}).get(f)) for f in FIGURES[:2]]
        yield f"| {table} ({ROWS[table]:,}) | {' | '.join(cells)} |"


def list_dpsynth(store: Store, means: Means) -> Iterator[str]:
    """Yield one line a table on which dpsynth was tried at epsilon 1: each method's figures, or why there are none."""
    methods = (OURS, *DPSYNTH)
    yield f"| error/kept/columns/pairs, CPU s | {' | '.join(methods)} |"
    yield "|---|" + "---|" * len(methods)
    for table in (*CHOOSING, *MEASURING):
        tried = {
            m: [r for r in store.runs.values() if (r.method, r.table, r.epsilon) == (m, table, 1.0)] for m in methods
        }
        if not any(tried[m] for m in DPSYNTH):
            continue
        cells = []
        for method in methods:
            found = means.get((method, table, 1.0))
            if found:
                cells.append(f"{'/'.join(_show(found.get(f)) for f in COMPARED)}, {found.get('cpu', 0):.0f}")
            else:
                cells.append(describe_failure(tried[method][0]) if tried[method] else "")
        yield f"| {table} | {' | '.join(cells)} |"


def _show(value: float | None) -> str:
    return "" if value is None or math.isnan(value) else f"{value:.3f}".replace("0.", ".", 1)


TITLE_LINES = 2


def list_lines(store: Store) -> Iterator[str]:
    """Yield all that is between the markers."""
    means = compute_means(store)
    yield from list_averages(means)
    for name, tables in LISTS.items():
        yield from ("", f"### {name}", "")
        yield from list_tables(means, tables)
    lines = list(list_dpsynth(store, means))
    if len(lines) > TITLE_LINES:
        yield from ("", "### Google's dpsynth at epsilon 1", "", *lines)


def main() -> None:
    """Write the page from the stored runs."""
    write_between(PAGE, MARKERS, list(list_lines(Store(KEPT))))


if __name__ == "__main__":
    main()
