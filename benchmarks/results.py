"""The paper's comparisons on UCI Adult: ``python -m benchmarks.results [--seeds N]``, or ``make results``.

The table is public and the noise is seeded: nothing here is a release, and what it says of the real rows may be
shown.
"""

from __future__ import annotations

import argparse
import math
import statistics
import sys
from collections.abc import Iterator, Sequence
from itertools import combinations
from pathlib import Path

from scipy.stats import t

from benchmarks.accuracy import TABLES
from benchmarks.pages import write_between
from benchmarks.tables import measured_only
from privsyn.base.pictures import draw_chart
from privsyn.data_contracts.evaluation import Comparison, EvaluationSpec, MethodRun
from privsyn.evaluation.comparison.compare_methods import METHODS, AskedComparison, run_all
from privsyn.evaluation.comparison.results import build_chart
from privsyn.specs.spec_file import load_spec, override_options

DOCS = Path(__file__).parents[1] / "docs"
PAGE = DOCS / "results" / "papers.md"
BEGIN, END = "<!-- results: begin -->", "<!-- results: end -->"
EPSILONS = (0.2, 0.5, 1.0, 2.0)
LABEL = "income"
PAPER_METRICS = ("l1_2way", "range_query", f"svm:{LABEL}")
"""Section 6.1: marginal release, range query, classification."""

CLOSE = 0.1
"""Mean errors that differ by at most this share count as close."""

CONFIDENCE = 0.95
"""A mean difference counts where its interval of this confidence, by Student's t, does not reach 0."""

FIGURES = {
    "compare-noise": (
        ("privsyn-paper", "equal-gaussian", "equal-laplace"),
        "Noise addition (the paper's Figure 6)",
    ),
    "compare-selection": (("privsyn-paper", "non-private-selection", "all-pairs"), "Selection (the paper's Figure 5)"),
}


def subset(results: Comparison, names: Sequence[str]) -> Comparison:
    """Return the same comparison with some of its methods."""
    methods = tuple(m for name in names for m in results.methods if m.name == name)
    runs = tuple(r for r in results.runs if r.method in names)
    return results.model_copy(update={"methods": methods, "runs": runs})


def values(results: Comparison, method: str, epsilon: float, metric: str) -> list[float]:
    """Return one metric of one method at one epsilon, by seed."""
    found = [m.value for r in results.done(method, epsilon) for m in r.metrics if m.name == metric]
    return [v for v in found if v is not None]


def shape(results: Comparison, first: str, second: str, *, close: bool = False) -> Iterator[str]:
    """Yield a row a metric: by how much ``first`` is better (``close``: whether both are within CLOSE), by epsilon.

    Runs of one seed share their noise as far as they ask the same, so differences are taken seed by seed; one of
    which 0 is within the CONFIDENCE interval is not told apart from none (nor is one of a single seed).
    """
    for metric in PAPER_METRICS:
        cells = []
        for epsilon in results.epsilons:
            one, two = (values(results, name, epsilon, metric) for name in (first, second))
            if not one or len(one) != len(two):
                continue
            apart = [b - a for a, b in zip(one, two, strict=True)]
            change = statistics.fmean(apart) / statistics.fmean(one)
            verdict = ("yes" if abs(change) <= CLOSE else "**no**") if close else _verdict(apart)
            cells.append(f"{change:+.1%} {verdict}")
        if cells:
            yield "| " + " | ".join([f"{first} {'≈' if close else '<'} {second}", metric, *cells]) + " |"


def errors_needed(seeds: int) -> float:
    """Return how many standard errors a mean over ``seeds`` differences must be from 0.

    Student's t, seeds - 1 degrees.
    """
    return float(t.ppf(0.5 + CONFIDENCE / 2, seeds - 1)) if seeds > 1 else math.inf


def _verdict(apart: Sequence[float]) -> str:
    error = statistics.stdev(apart) / len(apart) ** 0.5 if len(apart) > 1 else math.inf
    if abs(statistics.fmean(apart)) <= errors_needed(len(apart)) * error:
        return "?"
    return "yes" if statistics.fmean(apart) > 0 else "**no**"


def overlap(results: Comparison, epsilon: float) -> float:
    """Return mean share of pairs in a marginal of non-private selection that private selection has too (same seed)."""

    def pairs(run: MethodRun) -> set[tuple[str, ...]]:
        return {p for clique in run.marginals for p in combinations(clique, 2)}

    private, exact = (results.done(name, epsilon) for name in ("privsyn-paper", "non-private-selection"))
    shares = [len(pairs(a) & pairs(b)) / max(1, len(pairs(b))) for a, b in zip(private, exact, strict=True)]
    return statistics.fmean(shares) if shares else 0.0


def marginals(results: Comparison, method: str, epsilon: float) -> float:
    """Return mean number of measured marginals; 0 where no run was done."""
    counts = [len(run.marginals) for run in results.done(method, epsilon)]
    return statistics.fmean(counts) if counts else 0.0


def page(results: Comparison) -> list[str]:
    """Return the generated part of the page."""
    epsilons = " | ".join(f"{e:g}" for e in results.epsilons)
    return [
        f"{results.rows_real:,} rows, {len(results.columns)} columns, delta {results.delta:g}, {results.seeds} seeds.",
        "",
        *(f"![{title}](../img/{name}.png)\n" for name, (_, title) in FIGURES.items()),
        "Each cell: by how much the second method errs more, and the verdict. `<` holds from "
        f"{errors_needed(results.seeds):.3g} standard errors ({CONFIDENCE:.0%}, Student's t), `≈` within {CLOSE:.0%}. "
        "?: not told apart.",
        "",
        f"| shape | metric | {epsilons} |",
        "|---|---|" + "---|" * len(results.epsilons),
        *shape(results, "privsyn-paper", "equal-gaussian"),
        *shape(results, "equal-gaussian", "equal-laplace"),
        *shape(results, "non-private-selection", "privsyn-paper", close=True),
        "",
        "| epsilon | marginals, private selection | non-private | pairs of the latter that the former has too |",
        "|---|---|---|---|",
        *(
            f"| {e:g} | {marginals(results, 'privsyn-paper', e):.1f} | "
            f"{marginals(results, 'non-private-selection', e):.1f} | {overlap(results, e):.0%} |"
            for e in results.epsilons
        ),
    ]


def measure(seeds: int) -> Comparison:
    """Run everything."""
    spec_path, data = TABLES["Adult"]
    if not data.exists():
        sys.exit(f"{data} is not there; {spec_path.name} says where to get it")
    request = AskedComparison(
        spec=measured_only(override_options(load_spec(spec_path), data=data)),
        methods=tuple(name for name in METHODS if any(name in shown for shown, _ in FIGURES.values())),
        epsilons=EPSILONS,
        seeds=seeds,
        evaluation=EvaluationSpec(labels=(LABEL,)),
    )
    return run_all(request, 0, lambda what, done, total: print(f"{done}/{total} {what}", flush=True))


def main() -> None:
    """Compare, and write the page and its pictures."""
    parser = argparse.ArgumentParser(description="The paper's comparisons on UCI Adult.")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--results", type=Path, help="keep all runs in this file; read it instead where it exists")
    arguments = parser.parse_args()
    kept = arguments.results
    if kept is not None and kept.exists():
        results = Comparison.model_validate_json(kept.read_text(encoding="utf-8"))
    else:
        results = measure(arguments.seeds)
    if kept is not None:
        kept.write_text(results.model_dump_json(), encoding="utf-8")
    for name, (methods, title) in FIGURES.items():
        image = draw_chart(build_chart(subset(results, methods), PAPER_METRICS, f"{title}, UCI Adult"), "png")
        (DOCS / "img" / f"{name}.png").write_bytes(image)
    write_between(PAGE, (BEGIN, END), page(results))


if __name__ == "__main__":
    main()
