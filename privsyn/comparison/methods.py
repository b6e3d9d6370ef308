"""The registry: every method that `privsyn compare` knows, by the name that people type."""

from __future__ import annotations

from functools import partial

from privsyn.comparison import variants
from privsyn.comparison.method import Method
from privsyn.comparison.papers import paper_variants, public_views
from privsyn.comparison.papers.references import REFERENCES

PAPER = "Zhang et al., PrivSyn, USENIX Security 2021"

_ALL = (
    Method(
        "default",
        "PrivSyn Flows",
        "what `privsyn release` does: the settings of the spec, by default this project's",
        "docs/algorithm.md",
        variants.default,
    ),
    Method(
        "privsyn-paper",
        "PrivSyn (paper)",
        "the paper's settings: its accountant, split 0.1/0.1/0.8, cliques, 3-sigma compression, half duplication",
        PAPER,
        variants.paper,
    ),
    Method(
        "independent",
        "Independent",
        "one-ways only, with the whole budget: every column on its own",
        "baseline",
        variants.independent,
    ),
    Method(
        "equal-gaussian",
        "Equal Gaussian",
        "privsyn-paper, but each measured marginal gets the same rho",
        f"{PAPER}, section 6.4",
        variants.equal_gaussian,
    ),
    Method(
        "equal-laplace",
        "Equal Laplace",
        "privsyn-paper, but Laplace noise on the measured marginals: what the first two stages leave of epsilon in "
        "equal parts",
        f"{PAPER}, section 6.4",
        variants.equal_laplace,
    ),
    Method(
        "non-private-selection",
        "Non-private selection",
        "privsyn-paper, but the InDif scores have no noise and their budget is not spent: NOT private, a reference",
        f"{PAPER}, section 6.3",
        variants.non_private_selection,
        private=False,
    ),
    Method(
        "all-pairs",
        "All pairs",
        "privsyn-paper, but every pair is measured; the scores' budget is spent on measuring",
        "baseline",
        public_views.all_pairs,
    ),
    Method(
        "mst",
        "MST",
        "the mechanism `mst`: one tree of pairs through all columns, from noisy scores; rows by sweeps",
        "McKenna et al., Winning the NIST Contest, JPC 2021",
        variants.mst,
    ),
    Method(
        "mst-pgm",
        "MST, rows by PGM",
        "the mechanism `mst` with `rows_by: mbi`: a graphical model fitted by the package mbi, where it is installed",
        "McKenna et al., Graphical-model based estimation, ICML 2019",
        partial(variants.mst, rows_by="mbi"),
    ),
    Method(
        "privbayes",
        "PrivBayes",
        "the mechanism `privbayes`: a Bayesian network from noisy scores, each column drawn given its parents",
        "Zhang et al., PrivBayes, SIGMOD 2014",
        variants.privbayes,
    ),
    Method(
        "aim",
        "AIM over rows",
        "the mechanism `aim`: rounds that measure the few marginals in which the rows made so far are worst",
        "McKenna et al., AIM, PVLDB 2022",
        variants.aim,
    ),
    Method(
        "non-private-aim",
        "AIM over rows, non-private selection",
        "aim, but the scores have no noise and their budget is not spent: NOT private, a reference",
        "McKenna et al., AIM, PVLDB 2022",
        partial(variants.aim, exact_scores=True),
        private=False,
    ),
    Method(
        "privbayes-selection",
        "PrivBayes(InDif)",
        "privsyn-paper, but the marginals are the families of PrivBayes' network",
        f"{PAPER}, section 6.3",
        paper_variants.privbayes_selection,
    ),
    Method(
        "non-private-privbayes-selection",
        "PrivBayes(InDif), non-private",
        "privbayes-selection, but the scores have no noise and their budget is not spent: NOT private, a reference",
        f"{PAPER}, section 6.3",
        paper_variants.exact_privbayes_selection,
        private=False,
    ),
    Method(
        "non-private-selection-mcf",
        "MCF, non-private selection",
        "non-private-selection, its rows by minimum-cost flow: NOT private, a reference",
        f"{PAPER}, section 6.5",
        paper_variants.exact_selection_mcf,
        private=False,
    ),
    Method(
        "non-private-selection-pgm",
        "PGM, non-private selection",
        "non-private-selection, its rows by the package mbi, where it is installed: NOT private, a reference",
        f"{PAPER}, section 6.5",
        paper_variants.exact_selection_pgm,
        private=False,
    ),
    Method(
        "non-private-selection-sweeps",
        "Sweeps, non-private selection",
        "non-private-selection, its rows by this project's sweeps: NOT private, a reference",
        f"{PAPER}, section 6.5",
        paper_variants.exact_selection_sweeps,
        private=False,
    ),
    Method(
        "manual-list",
        "Manual list",
        "privsyn-paper, but the sets of columns that the spec's `workload` names are measured, and nothing else",
        "baseline",
        public_views.manual_list,
    ),
)

METHODS = {method.name: method for method in (*_ALL, *REFERENCES)}
"""Every method by its name, in the order in which they are shown."""
