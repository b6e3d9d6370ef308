"""The methods that the papers compare with, and that this project does not release by."""

from __future__ import annotations

import numpy as np

from privsyn.comparison.method import Method, MethodInput, MethodResult
from privsyn.comparison.papers import dual_query, exponential_network, full_domain, min_cost_flow, public_views
from privsyn.tasks.kernels.counting import CodeTable


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
