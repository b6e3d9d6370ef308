"""The paper's comparisons on UCI Adult: ``python -m benchmarks.results [--seeds N]``, or ``make results``.

Belongs here: which methods are compared, the shapes of the paper's Figures 5 and 6 as checks, and the generated part
of docs/results.md with its pictures.  Does not belong here: the comparison itself (flows/compare.py).  The table is
public and the noise is seeded: nothing here is a release, and what it says of the real rows may be shown.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Iterator, Sequence
from itertools import combinations
from pathlib import Path

from benchmarks.accuracy import TABLES
from data_contracts.comparison import Comparison, MethodRun
from data_contracts.evaluation_spec import EvaluationSpec
from flows.compare import CompareRequest, run_all
from flows.compare_plot import picture
from flows.compare_view import SECONDS, markdown_methods, markdown_table
from flows.spec_file import load_spec, override
from tasks.methods.registry import METHODS

DOCS = Path(__file__).parents[1] / "docs"
PAGE = DOCS / "results.md"
BEGIN, END = "<!-- results: begin -->", "<!-- results: end -->"
EPSILONS = (0.2, 0.5, 1.0, 2.0)
LABEL = "income"
PAPER_METRICS = ("l1_2way", "range_query", f"svm:{LABEL}")
"""Section 6.1: marginal release, range query, classification."""

CLOSE = 0.1
"""Mean errors that differ by at most this share count as close."""

FIGURES = {
    "compare-noise": (
        ("weighted-gaussian", "equal-gaussian", "equal-laplace"),
        "Noise addition (the paper's Figure 6)",
    ),
    "compare-selection": (("privsyn-paper", "non-private-selection", "all-pairs"), "Selection (the paper's Figure 5)"),
    "compare-methods": (
        ("default", "privsyn-paper", "independent"),
        "The default, the paper's settings, one-ways only",
    ),
}


def subset(results: Comparison, names: Sequence[str]) -> Comparison:
    """The same comparison with some of its methods."""
    methods = tuple(m for name in names for m in results.methods if m.name == name)
    runs = tuple(r for r in results.runs if r.method in names)
    return results.model_copy(update={"methods": methods, "runs": runs})


def values(results: Comparison, method: str, epsilon: float, metric: str) -> list[float]:
    """One metric of one method at one epsilon, by seed."""
    found = [m.value for r in results.done(method, epsilon) for m in r.metrics if m.name == metric]
    return [v for v in found if v is not None]


def shape(results: Comparison, first: str, second: str, *, close: bool = False) -> Iterator[str]:
    """Rows of a table: is ``first`` better (``close``: are both within CLOSE), by how much, in how many seeds."""
    for metric in PAPER_METRICS:
        for epsilon in results.epsilons:
            one, two = (values(results, name, epsilon, metric) for name in (first, second))
            if one and len(one) == len(two):
                change = statistics.fmean(two) / statistics.fmean(one) - 1
                holds = abs(change) <= CLOSE if close else change > 0
                seeds = sum(a < b for a, b in zip(one, two, strict=True))
                row = [
                    f"{first} {'≈' if close else '<'} {second}",
                    metric,
                    f"{epsilon:g}",
                    "yes" if holds else "**no**",
                ]
                yield "| " + " | ".join([*row, f"{change:+.1%}", f"{seeds} of {len(one)}"]) + " |"


def overlap(results: Comparison, epsilon: float) -> float:
    """Mean share of pairs in a marginal of non-private selection that private selection has too (same seed)."""

    def pairs(run: MethodRun) -> set[tuple[str, ...]]:
        return {p for clique in run.marginals for p in combinations(clique, 2)}

    private, exact = (results.done(name, epsilon) for name in ("privsyn-paper", "non-private-selection"))
    shares = [len(pairs(a) & pairs(b)) / max(1, len(pairs(b))) for a, b in zip(private, exact, strict=True)]
    return statistics.fmean(shares) if shares else 0.0


def page(results: Comparison) -> list[str]:
    """The generated part of the page."""
    rows = [
        f"{results.rows_real:,} rows, {len(results.columns)} columns, delta {results.delta:g}, {results.seeds} seeds: "
        f"mean and standard deviation. Wall times of the methods alone on {results.machine}.",
        "",
        *markdown_methods(results),
        "",
    ]
    rows += [f"![{title}](img/{name}.png)\n" for name, (_, title) in FIGURES.items()]
    rows += [
        "### Does the shape come out?",
        f"Difference: the second method's mean error over the first's. Seeds: at how many the first is better. `≈` "
        f"holds within {CLOSE:.0%}.",
        "",
        "| shape | metric | epsilon | holds | difference | seeds |",
        "|---|---|---|---|---|---|",
        *shape(results, "weighted-gaussian", "equal-gaussian"),
        *shape(results, "equal-gaussian", "equal-laplace"),
        *shape(results, "non-private-selection", "privsyn-paper", close=True),
        "",
        "Pairs that non-private selection measures and private selection measures too: "
        + ", ".join(f"{overlap(results, e):.0%} at epsilon {e:g}" for e in results.epsilons)
        + ".",
        "",
        "### All metrics",
        "weighted-gaussian is privsyn-paper, row for row, and is left out here.",
        "",
        *markdown_table(subset(results, [m.name for m in results.methods if m.name != "weighted-gaussian"])),
    ]
    return rows


def main() -> None:
    """Compare, and write the page and its pictures."""
    parser = argparse.ArgumentParser(description="The paper's comparisons on UCI Adult.")
    parser.add_argument("--seeds", type=int, default=5)
    spec_path, data = TABLES["Adult"]
    arguments = parser.parse_args()
    if not data.exists():
        sys.exit(f"{data} is not there; {spec_path.name} says where to get it")
    request = CompareRequest(
        spec=override(load_spec(spec_path), data=data),
        methods=tuple(METHODS),
        epsilons=EPSILONS,
        seeds=arguments.seeds,
        evaluation=EvaluationSpec(labels=(LABEL,)),
    )
    results = run_all(request, 0, lambda what, done, total: print(f"{done}/{total} {what}", flush=True))
    for name, (methods, title) in FIGURES.items():
        metrics = PAPER_METRICS if name != "compare-methods" else (*PAPER_METRICS, "l1_1way", "l1_3way", SECONDS)
        image = picture(subset(results, methods), "png", metrics, f"{title}, UCI Adult")
        (DOCS / "img" / f"{name}.png").write_bytes(image)
    before, rest = PAGE.read_text(encoding="utf-8").split(BEGIN)
    after = rest.split(END)[1]
    PAGE.write_text(f"{before}{BEGIN}\n" + "\n".join(page(results)) + f"\n{END}{after}", encoding="utf-8")


if __name__ == "__main__":
    main()
