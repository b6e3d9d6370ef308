"""Every method of other papers, and of PrivSyn's own figures, that `privsyn compare` gets from this room."""

from __future__ import annotations

import numpy as np

from privsyn.evaluation.comparison.method import PAPER, Method, MethodInput, MethodResult
from privsyn.extras.papers import (
    dual_query,
    exponential_network,
    full_domain,
    min_cost_flow,
    noise_variants,
    paper_variants,
    public_views,
)
from privsyn.tasks.kernels.counting import CodeTable

VARIANTS = (
    Method(
        "equal-gaussian",
        "Equal Gaussian",
        "privsyn-paper, but each measured marginal gets the same rho",
        f"{PAPER}, section 6.4",
        noise_variants.equal_gaussian,
    ),
    Method(
        "equal-laplace",
        "Equal Laplace",
        "privsyn-paper, but Laplace noise on the measured marginals: what the first two stages leave of epsilon in "
        "equal parts",
        f"{PAPER}, section 6.4",
        noise_variants.equal_laplace,
    ),
    Method(
        "non-private-selection",
        "Non-private selection",
        "privsyn-paper, but the InDif scores have no noise and their budget is not spent: NOT private, a reference",
        f"{PAPER}, section 6.3",
        noise_variants.non_private_selection,
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
        "non-private-aim",
        "AIM over rows, non-private selection",
        "aim, but the scores have no noise and their budget is not spent: NOT private, a reference",
        "McKenna et al., AIM, PVLDB 2022",
        noise_variants.non_private_aim,
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
"""This project's steps with one of them replaced."""


def sampling(trial: MethodInput) -> MethodResult:
    """Real rows drawn with replacement, as many as there are: NOT private, what sampling alone costs."""
    picked = np.random.default_rng([trial.seed, 0x5A3]).integers(0, max(1, trial.rows.rows), trial.rows.rows)
    fine = CodeTable(trial.rows.domain, tuple(c[picked] for c in trial.rows.columns))
    return MethodResult(trial.to_bins(fine), fine)


REFERENCES = (
    Method(
        "mcf",
        "MCF",
        "privsyn-paper, but rows by minimum-cost flow in place of GUM",
        "Li, Zhang and Wang, DPSyn report, appendix A.1",
        min_cost_flow.mcf,
    ),
    Method(
        "priview",
        "PriView views",
        "privsyn-paper, but views that cover every pair are measured; the scores' budget is spent on measuring",
        "Qardaji, Yang and Li, PriView, SIGMOD 2014",
        public_views.priview,
    ),
    Method(
        "random-views",
        "Random views",
        "as priview, with as many views of attributes drawn at random",
        "baseline",
        public_views.random_views,
    ),
    Method(
        "privbayes-exponential",
        "PrivBayes(R)",
        "a Bayesian network whose families the exponential mechanism picks by PrivBayes' own score R, and measures",
        "Zhang et al., PrivBayes, TODS 2017",
        exponential_network.privbayes_exponential,
    ),
    Method(
        "mwem",
        "MWEM",
        "multiplicative weights over the full contingency table, 10 pairs picked and measured; few columns only",
        "Hardt, Ligett and McSherry, MWEM, NeurIPS 2012",
        full_domain.mwem,
    ),
    Method(
        "dual-query",
        "DualQuery",
        "rows that answer sampled queries of pairs, step 2.0, sample 1,000; few rows, as the budget allows",
        "Gaboardi et al., Dual Query, ICML 2014",
        dual_query.dual_query,
    ),
    Method(
        "laplace-table",
        "Laplace on all cells",
        "Laplace noise on the full contingency table; few columns only",
        "Dwork, McSherry, Nissim and Smith, TCC 2006",
        full_domain.laplace_table,
    ),
    Method(
        "sampling",
        "Sampling",
        "real rows drawn with replacement: NOT private, a reference",
        "baseline",
        sampling,
        private=False,
    ),
)
"""In the order in which they are shown."""

METHODS = (*VARIANTS, *REFERENCES)
"""What the registry gets."""
