"""The methods that `privsyn compare` knows, by the name that people type: this project's, and those that packages add.

A package adds methods by an entry point of the group ``privsyn.methods``: a sequence of methods.  The methods of other
papers come from privsyn/extras/papers.
"""

from __future__ import annotations

from functools import partial

from privsyn.base.registry import load_parts
from privsyn.evaluation.comparison import variants
from privsyn.evaluation.comparison.method import PAPER, Method

_OWN = (
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
)

_OWN_NAMES = {method.name for method in _OWN}
METHODS = {
    method.name: method
    for method in (*_OWN, *(m for part in load_parts("methods").values() for m in part if m.name not in _OWN_NAMES))
}
"""Every method by its name, in the order in which they are shown."""
