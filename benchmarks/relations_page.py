"""The page of kept relations: ``python -m benchmarks.relations_page`` writes docs/results/relations.md's tables.

Belongs here: what is wanted of relations between numbers, what the stored runs of benchmarks/relations.py reach of it,
and the figures table by table.  Does not belong here: making runs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence, Sized
from dataclasses import dataclass
from pathlib import Path
from statistics import mean

from benchmarks.compare_store import Run, Store
from benchmarks.pages import write_between
from benchmarks.relations import CHOOSING, FIGURES, KEPT, MEASURING, summarize

PAGE = Path(__file__).parent.parent / "docs" / "results" / "relations.md"
MARKERS = ("<!-- relations: begin -->", "<!-- relations: end -->")

OURS, BEFORE, ALONE = "privsyn", "0.3.0", "independent"
PEERS = ("mst-dpmm", "aim-dpmm", "mst-opendp", "aim-opendp")
LISTS = {"CHOOSING": CHOOSING, "MEASURING": MEASURING}

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


@dataclass(frozen=True)
class Wanted:
    """What is wanted at an epsilon: ``reach`` returns what a list of tables reaches in words, and whether it is enough.

    It returns None where no run says so.
    """

    words: str
    reach: Callable[[Means, Sequence[str]], tuple[str, bool] | None]


def _read(means: Means, method: str, epsilon: float, tables: Sequence[str], figure: str) -> dict[str, float]:
    """Return the figure of each table that has it."""
    return {t: f[figure] for t in tables if figure in (f := means.get((method, t, epsilon), {}))}


def _count(tables: Sized) -> str:
    return f"{len(tables)} table{'s' if len(tables) != 1 else ''}"


def compare_with(
    other: str,
    figures: Sequence[str],
    epsilon: float,
    at_most: float,
    *,
    by_mean: bool,
    low: int = 0,
    high: float = 9e9,
) -> Callable[[Means, Sequence[str]], tuple[str, bool] | None]:
    """Return a reach: each figure, in its mean or on every table, at most ``at_most`` times that of ``other``.

    Tables of ``low`` to below ``high`` rows.  ``kept`` is to be as large, in place of as small.
    """

    def reach(means: Means, tables: Sequence[str]) -> tuple[str, bool] | None:
        said, enough = [], True
        for figure in figures:
            ours, theirs = (_read(means, m, epsilon, tables, figure) for m in (OURS, other))
            both = [t for t in ours if t in theirs and low <= ROWS[t] < high]
            if not both:
                continue
            if by_mean:
                ratio = mean(ours[t] for t in both) / mean(theirs[t] for t in both)
                said.append(f"{FIGURES[figure]} {ratio:.3f} times ({_count(both)})")
                enough &= ratio <= at_most
                continue
            larger = figure == "kept"
            behind = [t for t in both if (ours[t] < theirs[t] if larger else ours[t] > at_most * theirs[t])]
            ahead = f"{FIGURES[figure]} on {len(both) - len(behind)} of {len(both)}"
            said.append(ahead + (f" (not {', '.join(behind)})" if behind else ""))
            enough &= not behind
        return ("; ".join(said), enough) if said else None

    return reach


def hold_to(
    figure: str, epsilon: float, limit: float, low: int = 0, high: float = 9e9, *, at_least: bool
) -> Callable[[Means, Sequence[str]], tuple[str, bool] | None]:
    """Return a reach: the mean of a figure over the tables of ``low`` to ``high`` rows is within a limit."""

    def reach(means: Means, tables: Sequence[str]) -> tuple[str, bool] | None:
        found = [v for t, v in _read(means, OURS, epsilon, tables, figure).items() if low <= ROWS[t] < high]
        if not found:
            return None
        reached = mean(found)
        return f"{reached:.3g} ({_count(found)})", reached >= limit if at_least else reached <= limit

    return reach


L1 = ("l1_1way", "l1_2way")
WANTED = (
    Wanted(
        "1: error at most half of 0.3.0's, up to 30,000 rows",
        compare_with(BEFORE, ["spearman"], 1.0, 0.5, by_mean=True, high=30_001),
    ),
    Wanted("1: at most .7 of it, on more", compare_with(BEFORE, ["spearman"], 1.0, 0.7, by_mean=True, low=30_001)),
    Wanted("1: kept .93 from 20,000 rows on", hold_to("kept", 1.0, 0.93, low=20_000, at_least=True)),
    Wanted("1: kept .8 from 5,000", hold_to("kept", 1.0, 0.8, low=5_000, high=20_000, at_least=True)),
    Wanted("1: kept .6 below", hold_to("kept", 1.0, 0.6, high=5_000, at_least=True)),
    Wanted("1: slopes within two errors in .9", hold_to("regressions", 1.0, 0.9, at_least=True)),
    Wanted("1: L1 nowhere above 1.01 times 0.3.0's", compare_with(BEFORE, L1, 1.0, 1.01, by_mean=False)),
    Wanted("1: L1 below 0.3.0's on average", compare_with(BEFORE, L1, 1.0, 1.0, by_mean=True)),
    *(
        Wanted(f"1: {words} within {limit:.0%} from 20,000 rows on", hold_to(f, 1.0, limit, low=20_000, at_least=False))
        for f, words, limit in (("mean", "means", 0.03), ("sd", "deviations", 0.1), ("q99", "99 % quantiles", 0.1))
    ),
    *(
        Wanted(f"{e:g}: ahead of {peer}", compare_with(peer, ["spearman", "kept"], e, 1.0, by_mean=False))
        for e in (1.0, 0.2)
        for peer in PEERS
    ),
    Wanted("0.2: ahead of `independent`", compare_with(ALONE, ["spearman", "l1_2way"], 0.2, 1.0, by_mean=False)),
    Wanted("0.2: columns at most 1.01 times 0.3.0's", compare_with(BEFORE, ["l1_1way"], 0.2, 1.01, by_mean=False)),
)
"""What was set as a goal before any of it was built."""


def compute_means(store: Store) -> Means:
    """Return the means of all methods' runs that are done."""
    groups: dict[tuple[str, str, float], list[Run]] = {}
    for run in store.runs.values():
        if run.outcome == "done":
            groups.setdefault((run.method, run.table, run.epsilon), []).append(run)
    return {key: summarize(runs) for key, runs in groups.items()}


def list_wanted(means: Means) -> Iterator[str]:
    """Yield the table of what is wanted and reached, one line each; what no run says is left empty."""
    yield f"| wanted | {' | '.join(LISTS)} |"
    yield "|---|" + "---|" * len(LISTS)
    for wanted in WANTED:
        reached = [wanted.reach(means, tables) for tables in LISTS.values()]
        if any(reached):
            cells = ["" if r is None else f"{'yes' if r[1] else '**no**'}: {r[0]}" for r in reached]
            yield f"| {wanted.words} | {' | '.join(cells)} |"


def list_tables(store: Store, means: Means, tables: Sequence[str], epsilon: float) -> Iterator[str]:
    """Yield one line a table: error / kept / L1 of columns / of pairs by method, ours with half its seeds' range."""
    shown = ("spearman", "kept", *L1)
    methods = (BEFORE, ALONE, PEERS[0])
    yield f"| table (rows) | {' | '.join(methods)} | now | slopes | their error | mean, sd, 99 % |"
    yield "|---|" + "---|" * (len(methods) + 4)
    for table in tables:
        cells = [" / ".join(_show(means.get((m, table, epsilon), {}).get(f)) for f in shown) for m in methods]
        ours = means.get((OURS, table, epsilon), {})
        runs = [r for r in store.runs.values() if (r.method, r.table, r.epsilon) == (OURS, table, epsilon)]
        ranges = [[r.figures[f] for r in runs if f in r.figures] for f in shown]
        now = [
            f"{_show(ours.get(f))} ±{(max(v) - min(v)) / 2:.3f}" if v else ""
            for f, v in zip(shown, ranges, strict=True)
        ]
        tails = ", ".join(_show(ours.get(f)) for f in ("mean", "sd", "q99"))
        cells = [c if c.strip(" /") else "" for c in cells]
        cells += [" / ".join(now), _show(ours.get("regressions")), _show(ours.get("slopes")), tails]
        yield f"| {table} ({ROWS[table]:,}) | {' | '.join(cells)} |"


def _show(value: float | None) -> str:
    return "" if value is None or math.isnan(value) else f"{value:.3f}"


def list_lines(store: Store) -> Iterator[str]:
    """Yield all that is between the markers."""
    means = compute_means(store)
    yield from list_wanted(means)
    for name, tables in LISTS.items():
        for epsilon in (1.0, 0.2):
            yield from ("", f"### {name}, epsilon {epsilon:g}", "")
            yield from list_tables(store, means, tables, epsilon)


def main() -> None:
    """Write the page from the stored runs."""
    write_between(PAGE, MARKERS, list(list_lines(Store(KEPT))))


if __name__ == "__main__":
    main()
