"""Speed as ratios measured in one run: ``python -m benchmarks.bench [--quick]``.

Each pair of figures comes from the same process, minutes apart at most; the ratio is what counts.
"""

from __future__ import annotations

import argparse
import itertools
import os
import platform
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks import numpy_gum, whole_release
from benchmarks.census_like import ATTRIBUTES, ROWS, census_like
from benchmarks.pages import write_between
from privsyn.data_contracts.domain import Clique
from privsyn.data_contracts.mechanism_options import Synthesis
from privsyn.tasks.estimation.marginals import Marginal
from privsyn.tasks.kernels.counting import CodeTable, choose_thread_count, count
from privsyn.tasks.metrics.marginal_distance import compute_pair_figures
from privsyn.tasks.steps.synthesize import synthesize

README = Path(__file__).with_name("README.md")
BEGIN, END = "<!-- bench: begin -->", "<!-- bench: end -->"
MARGINALS = 680
REQUIRED = {"count": 5.0, "gum": 20.0}


@dataclass(frozen=True)
class Line:
    """One line of the table; seconds, and the ratio that is required (None: nothing is required)."""

    what: str
    ours: float
    yardstick: str
    theirs: float
    required: float | None = None

    @property
    def ratio(self) -> float:
        """How many times faster than the yardstick."""
        return self.theirs / self.ours

    def markdown(self) -> str:
        """Return the line in Markdown."""
        required = f"{self.required:.2g}×" if self.required else ""
        return (
            f"| {self.what} | {self.ours:.2f} s | {self.yardstick} | {self.theirs:.1f} s "
            f"| **{self.ratio:.1f}×** | {required} |"
        )


def timed(work: Callable[[], object], repeats: int = 1, clock: Callable[[], float] = time.perf_counter) -> float:
    """Return seconds of the fastest of ``repeats`` calls: wall time, or by another clock."""
    best = float("inf")
    for _ in range(repeats):
        start = clock()
        work()
        best = min(best, clock() - start)
    return best


def bench_counting(table: CodeTable, threads: int, sample: int) -> Line:
    """Return all pairs against np.bincount on every so-manieth pair, scaled up by the number of pairs."""
    pairs = list(itertools.combinations(table.domain.attributes, 2))
    some = pairs[:: max(1, len(pairs) // sample)]

    def ours() -> None:
        for _ in table.counts(pairs, threads=threads):
            pass

    def theirs() -> None:
        for a, b in some:
            keys = table.column(a).astype(np.int64) * table.domain.size(b) + table.column(b)
            np.bincount(keys, minlength=table.domain.cells((a, b)))

    for pair in pairs:  # compiles, and warms the caches for both
        if not _same(table, pair):
            raise RuntimeError(f"the two counts of {pair} differ")
        if pair[0] != pairs[0][0]:
            break
    scaled = timed(theirs, 3) * len(pairs) / len(some)
    return Line(
        f"counting all {len(pairs):,} pairs",
        timed(ours, 3),
        f"np.bincount, {len(some)} pairs, scaled",
        scaled,
        REQUIRED["count"],
    )


def bench_pairs(table: CodeTable, other: CodeTable, threads: int, bincount: float) -> Line:
    """Time the evaluation's pass over all pairs of two tables against counting both by np.bincount."""
    figures = lambda: compute_pair_figures(table, other, {}, threads)  # noqa: E731
    what = f"L1 and association of all {len(figures().pairs):,} pairs of two tables"
    return Line(what, timed(figures, 2), "np.bincount, both tables, counts only", 2 * bincount)


def _same(table: CodeTable, pair: Clique) -> bool:
    keys = table.column(pair[0]).astype(np.int64) * table.domain.size(pair[1]) + table.column(pair[1])
    return bool((np.bincount(keys, minlength=table.domain.cells(pair)) == count(table, pair).ravel()).all())


def chosen_marginals(table: CodeTable, number: int, seed: int = 0) -> list[Marginal]:
    """Return all one-ways and ``number`` pairs at random, each attribute in at least one, as exact counts."""
    names = table.domain.attributes
    pairs = list(itertools.combinations(names, 2))
    np.random.default_rng(seed).shuffle(pairs)
    chain = list(itertools.pairwise(names))
    kept = list(dict.fromkeys([*chain, *map(tuple, pairs)]))[:number]
    cliques: list[Clique] = [*((a,) for a in names), *kept]
    return [Marginal(c, n.astype(float)) for c, n in zip(cliques, table.counts(cliques), strict=True)]


def bench_gum(
    table: CodeTable, marginals: Sequence[Marginal], threads: int, sample: int, share: float, required: float | None
) -> Line:
    """Return one iteration with ``share`` of duplicates against numpy on a sample of the marginals, scaled.

    Ours is the difference of three iterations and one, halved: without the start, which is common.
    The yardstick visits its sample from the same kind of start: independent one-ways.
    """
    domain, rows = table.domain, table.rows

    def ours(iterations: int) -> CodeTable:
        settings = Synthesis(method="gum", iterations=iterations, duplicate_share=share)
        return synthesize(marginals, domain, settings, rows, threads)

    start = ours(0)
    ours(1)
    mine = (timed(lambda: ours(3), 2) - timed(lambda: ours(1), 2)) / 2
    number = len(_some(marginals, sample))
    how = "replace only" if share == 0 else f"{share:.0%} duplicates"
    what = f"one GUM iteration, {sum(len(m.attributes) > 1 for m in marginals)} marginals, {how}"
    scaled = numpy_gum_seconds(start, marginals, sample, share)
    return Line(what, mine, f"numpy GUM, {number} marginals, scaled", scaled, required)


def _some(marginals: Sequence[Marginal], sample: int) -> list[Marginal]:
    """About ``sample`` of the larger marginals, evenly."""
    larger = [m for m in marginals if len(m.attributes) > 1]
    return larger[:: max(1, len(larger) // sample)]


def numpy_gum_seconds(
    start: CodeTable,
    marginals: Sequence[Marginal],
    sample: int,
    share: float,
    clock: Callable[[], float] = time.perf_counter,
) -> float:
    """Return seconds of one iteration of the numpy GUM over all larger marginals, scaled up from a sample of them."""
    domain, some = start.domain, _some(marginals, sample)
    columns = [start.column(a).copy() for a in domain.attributes]
    rng = np.random.default_rng(0)

    def theirs() -> None:
        for m in some:
            places = [domain.index(a) for a in m.attributes]
            numpy_gum.visit(columns, places, m.counts.shape, m.counts.ravel(), 1.0, share, rng)

    return timed(theirs, 1, clock) * sum(len(m.attributes) > 1 for m in marginals) / len(some)


def bench_sweeps(table: CodeTable, marginals: Sequence[Marginal], threads: int, sample: int) -> list[Line]:
    """Return whole synthesis by sweeps, tree start included, against one numpy GUM iteration and one thread of ours.

    The first by CPU time, since both are of one thread; the second by wall time, one and several threads in turn.
    Raises RuntimeError if two numbers of threads differ in a row.
    """
    made: dict[int, CodeTable] = {}

    def ours(threads: int) -> None:
        made[threads] = synthesize(marginals, table.domain, Synthesis(method="sweep"), table.rows, threads)

    ours(threads)  # compiles
    cpu = timed(lambda: ours(1), 1, time.process_time)
    start = synthesize(marginals, table.domain, Synthesis(method="gum", iterations=0), table.rows, threads)
    gum = numpy_gum_seconds(start, marginals, sample, 0.0, time.process_time)
    turns = [(timed(lambda: ours(1)), timed(lambda: ours(threads))) for _ in range(2)]
    if not made[1].to_arrow().equals(made[threads].to_arrow()):
        raise RuntimeError("the rows depend on the number of threads")
    what = "synthesis by sweeps, whole, 1 thread, CPU time"
    one, several = (min(turn[i] for turn in turns) for i in (0, 1))
    return [
        Line(what, cpu, "one numpy GUM iteration, replace only, CPU time", gum, 1 / 0.35),
        Line(f"the same, {threads} threads, the same rows", several, "1 thread", one, 1.5 if threads > 1 else None),
    ]


def four_sweeps(table: CodeTable, marginals: Sequence[Marginal], threads: int) -> tuple[str, bool]:
    """Return what four sweeps towards exact targets reach, in words, and whether it is what is required.

    Distinct rows are counted over all attributes, and over as many of the first ones as leave the source's share below
    0.9: over all of them every row of a wide table is distinct, whatever the method does.
    """
    made = synthesize(marginals, table.domain, Synthesis(method="sweep", sweeps=4), table.rows, threads)
    larger = [m for m in marginals if len(m.attributes) > 1]
    wrong = float(np.mean([np.abs(count(made, m.attributes) - m.counts).sum() for m in larger])) / table.rows
    found = [_distinct(t, len(table.columns)) for t in (made, table)]
    few = next((n for n in range(1, len(table.columns)) if _distinct(table, n + 1) >= 0.9), len(table.columns))
    some = [_distinct(t, few) for t in (made, table)]
    words = (
        f"After four sweeps towards the exact marginals: mean L1 on the {len(larger)} selected ones {wrong:.4f} "
        f"(required: below 0.005); distinct rows {found[0]:.1%} (source: {found[1]:.1%}; required: within 5 %), over "
        f"the first {few} attributes {some[0]:.1%} (source: {some[1]:.1%})."
    )
    return words, wrong < 0.005 and abs(found[0] / found[1] - 1) <= 0.05


def _distinct(table: CodeTable, attributes: int) -> float:
    """Return share of distinct rows over the first ``attributes`` columns, by a 64-bit hash of each row."""
    keys = np.zeros(table.rows, np.uint64)
    for column in table.columns[:attributes]:
        keys = (keys ^ column) * np.uint64(0x9E3779B97F4A7C15)
        keys ^= keys >> np.uint64(29)
    return np.unique(keys).size / table.rows


def report(lines: Sequence[Line], table: CodeTable, threads: int, extra: str) -> str:
    """Return the text between the markers of the README."""
    smallest, largest = min(table.domain.sizes), max(table.domain.sizes)
    head = (
        f"{table.rows:,} rows × {len(table.columns)} attributes (domains {smallest}–{largest}), "
        f"{threads} threads, Python {platform.python_version()}, numpy {np.__version__}.\n\n"
        "| what | here | against | takes | ratio | required |\n|---|---|---|---|---|---|\n"
    )
    return "\n".join([head + "\n".join(line.markdown() for line in lines), extra])


def write_readme(text: str) -> None:
    """Put ``text`` between the markers of benchmarks/README.md."""
    write_between(README, (BEGIN, END), [text])


def main() -> int:
    """Run, print and write the table; 1 when something required is missed (not judged with --quick)."""
    parser = argparse.ArgumentParser(description="Speed as ratios measured in one run.")
    parser.add_argument("--quick", action="store_true", help="a tenth of the rows; prints, and writes nothing")
    parser.add_argument("--threads", type=int, default=0, help="0: all cores")
    arguments = parser.parse_args()
    threads, quick = choose_thread_count(arguments.threads), arguments.quick
    table = census_like(ROWS // 10 if quick else ROWS, ATTRIBUTES)
    marginals = chosen_marginals(table, MARGINALS)
    sample = 10 if quick else 30
    lines = [
        bench_counting(table, threads, sample=50 if quick else 200),
        bench_gum(table, marginals, threads, sample, 0.0, REQUIRED["gum"]),
        bench_gum(table, marginals, threads, sample, Synthesis().duplicate_share, None),
    ]
    lines += bench_sweeps(table, marginals, threads, sample)
    words, enough = four_sweeps(table, marginals, threads)
    lines.insert(1, bench_pairs(table, census_like(table.rows - 1, ATTRIBUTES), threads, lines[0].theirs))
    extra = f"\n{words}"
    if not quick:
        whole, kept = whole_release.measure(ROWS)
        enough = enough and kept
        extra += f"\n\n{whole}"
    text = report(lines, table, threads, extra)
    print(f"{text}\n\nload average {os.getloadavg()[0]:.1f}" if hasattr(os, "getloadavg") else text)
    if quick:
        return 0
    write_readme(text)
    return int(not enough or any(line.required and line.ratio < line.required for line in lines))


if __name__ == "__main__":
    raise SystemExit(main())
