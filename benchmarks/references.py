"""The papers' other methods on UCI Adult: ``python -m benchmarks.references [--seeds N]``, or ``make results``.

Once on all columns, and once on few, which the methods over the full contingency table can hold.  Minutes.
"""

from __future__ import annotations

import argparse

from benchmarks.pages import write_between
from benchmarks.paper_figures import PAGE, adult_spec
from privsyn.data_contracts.columns import DropColumn
from privsyn.data_contracts.evaluation import Comparison
from privsyn.evaluation.comparison.compare_methods import AskedComparison, run_all
from privsyn.evaluation.comparison.results import list_markdown_table
from privsyn.extras.papers.methods import REFERENCES

MARKERS = ("<!-- references: begin -->", "<!-- references: end -->")
FEW = ("education", "marital-status", "relationship", "race", "sex", "income")
"""Columns whose full contingency table MWEM can hold."""

EPSILONS = (0.2, 1.0)
METHODS = ("privsyn-paper", *(m.name for m in REFERENCES))
METRICS = ("l1_2way",)


def compared(columns: tuple[str, ...] | None, seeds: int) -> Comparison:
    """Return all methods on those columns of Adult, None for all of them."""
    spec, drop = adult_spec(), DropColumn(kind="drop")
    if columns is not None:
        spec = spec.model_copy(
            update={"columns": {name: c if name in columns else drop for name, c in spec.columns.items()}}
        )
    request = AskedComparison(spec, METHODS, EPSILONS, seeds)
    return run_all(request, 0, lambda what, done, total: print(f"{done}/{total} {what}", flush=True), METRICS)


def page(parts: dict[str, Comparison]) -> list[str]:
    """Return the generated part of the page: a table for each comparison."""
    rows = []
    for title, results in parts.items():
        few = ", ".join(str(r.rows) for r in results.done("dual-query", results.epsilons[-1]))
        rows += [
            f"**{title}**: {results.rows_real:,} rows, {len(results.columns)} columns, delta {results.delta:g}, "
            f"{results.seeds} seeds. Rows of dual-query at epsilon {results.epsilons[-1]:g}: {few}.",
            "",
            *list_markdown_table(results, METRICS),
            "",
        ]
    return rows


def main() -> None:
    """Compare, and write the page."""
    parser = argparse.ArgumentParser(description="The papers' other methods on UCI Adult.")
    parser.add_argument("--seeds", type=int, default=3)
    seeds = parser.parse_args().seeds
    few = ", ".join(FEW)
    write_between(
        PAGE, MARKERS, page({f"Six columns ({few})": compared(FEW, seeds), "All columns": compared(None, seeds)})
    )


if __name__ == "__main__":
    main()
