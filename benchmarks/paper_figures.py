"""Figures of the papers that need no run of a method: ``python -m benchmarks.paper_figures``, or ``make results``.

Figure 2 of the DPSyn report and Tables 3 and 4 of PrivSyn, into docs/results/papers.md.  Seconds.
"""

from __future__ import annotations

import sys
from fractions import Fraction
from itertools import combinations

from benchmarks import compositions, dependency_metrics
from benchmarks.accuracy import TABLES
from benchmarks.pages import write_between
from benchmarks.results import DOCS
from benchmarks.tables import measured_only
from privsyn.base.pictures import draw_chart
from privsyn.data_contracts.release_spec import ReleaseSpec
from privsyn.evaluation.coded_tables import encode_table
from privsyn.evaluation.comparison.results import COLORS
from privsyn.sources.open_source import open_source
from privsyn.specs.spec_file import load_spec, override_options
from privsyn.tasks.codecs import plan
from privsyn.tasks.kernels.counting import CodeTable
from privsyn.tasks.privacy.accountant import convert_epsilon_to_rho
from privsyn.tasks.privacy.noise import SeededNoise

PAGE = DOCS / "results" / "papers.md"
COMPOSITIONS = ("<!-- compositions: begin -->", "<!-- compositions: end -->")
DEPENDENCY = ("<!-- dependency: begin -->", "<!-- dependency: end -->")
EPSILON, REPEATS = 2.0, 1_000
PAPER_ADULT = {"InDif": 0.017, "mutual information": 34.0, "symmetrical uncertainty": 396.0}
"""Table 4, its column Adult."""


def adult_spec() -> ReleaseSpec:
    """Return the example spec of UCI Adult without rules; ends the program where the table is not there."""
    spec_path, data = TABLES["Adult"]
    if not data.exists():
        sys.exit(f"{data} is not there; {spec_path.name} says where to get it")
    return measured_only(override_options(load_spec(spec_path), data=data))


def adult_bins() -> CodeTable:
    """UCI Adult in the public bins of its example spec."""
    spec = adult_spec()
    return encode_table(open_source(spec.data, spec).batches(), plan(spec)).bins


def errors_table(table: CodeTable) -> list[str]:
    """Return table 4 for ``table`` beside the paper's column, as markdown.

    All of rho, and PrivSyn's tenth, for the scores.
    """
    cliques = list(combinations(table.domain.attributes, 2))
    counts = list(table.counts(cliques, threads=1))
    rho = convert_epsilon_to_rho(EPSILON, 1.0 / table.rows**2, "paper")
    whole, tenth = (
        dependency_metrics.list_relative_errors(counts, rho * share, REPEATS, SeededNoise(0))
        for share in (Fraction(1), Fraction(1, 10))
    )
    rows = ["| metric | all of rho | a tenth of rho | the paper |", "|---|---|---|---|"]
    return rows + [f"| {n} | {whole[n]:.3g} | {tenth[n]:.3g} | {p:g} |" for n, p in PAPER_ADULT.items()]


def main() -> None:
    """Write both parts of the page and the picture."""
    image = draw_chart(compositions.build_chart(COLORS[: len(compositions.COMPOSITIONS)]), "png")
    (DOCS / "img" / "compositions.png").write_bytes(image)
    write_between(PAGE, COMPOSITIONS, compositions.list_crossings())
    write_between(PAGE, DEPENDENCY, [*dependency_metrics.list_ratios(), "", *errors_table(adult_bins())])


if __name__ == "__main__":
    main()
