"""The registry: every method that `privsyn compare` knows, by the name that people type.

Belongs here: names, titles, and what each method changes.  Does not belong here: how a method works
(pipeline.py), running and scoring it (flows/comparison/compare.py).
"""

from __future__ import annotations

from dataclasses import replace

from data_contracts.spec import Compression, Consistency, Selection, Split, Synthesis
from tasks.methods.base import Made, Method, PipelineSettings, Task
from tasks.methods.pipeline import Variant, run_pipeline

PAPER = "Zhang et al., PrivSyn, USENIX Security 2021"


def paper_settings(settings: PipelineSettings) -> PipelineSettings:
    """The paper's values, whatever the spec says; ``synthesis.rows`` and public limits stay the spec's.

    Accountant: Theorem 2; split: 0.1, 0.1, 0.8 (Algorithm 3); values below 3 sigma are combined, gamma 5,000
    (section 5.3, Algorithm 2); GUM replaces and duplicates in equal parts (section 5.2), alpha decays in steps.
    """
    synthesis = Synthesis(
        rows=settings.synthesis.rows,
        seed=settings.synthesis.seed,
        method="gum",
        iterations=50,
        alpha=1.0,
        decay="step",
        decay_rate=0.84,
        decay_every=20,
        duplicate_share=0.5,
    )
    return PipelineSettings(
        accountant="paper",
        split=Split(one_way=0.1, selection=0.1, measurement=0.8, one_ways="equal", again=False),
        compression=Compression(enabled=True, sigmas=3.0, filter=True, neighbours=False),
        selection=Selection(
            scores="indif",
            choice="dense_marg",
            combine_cliques=True,
            gamma=5_000,
            max_cells=settings.selection.max_cells,
        ),
        consistency=Consistency(rounds=settings.consistency.rounds, firm=1.0, shrink=False),
        synthesis=synthesis,
    )


def _method(name: str, title: str, description: str, source: str, variant: Variant, *, private: bool = True) -> Method:
    def run(task: Task) -> Made:
        return run_pipeline(task, variant)

    return Method(name, title, description, source, run, private)


_PAPER = Variant(settings=paper_settings)

_ALL = (
    _method(
        "default",
        "PrivSyn Flows",
        "what `privsyn release` does: the settings of the spec, by default this project's",
        "docs/algorithm.md",
        Variant(),
    ),
    _method(
        "privsyn-paper",
        "PrivSyn (paper)",
        "the paper's settings: its accountant, split 0.1/0.1/0.8, cliques, 3-sigma compression, half duplication",
        PAPER,
        _PAPER,
    ),
    _method(
        "independent",
        "Independent",
        "one-ways only, with the whole budget: every column on its own",
        "baseline",
        Variant(marginals="none"),
    ),
    _method(
        "weighted-gaussian",
        "Weighted Gaussian",
        "the paper's noise addition: rho_i in proportion to cells^(2/3); the same method as privsyn-paper",
        f"{PAPER}, section 4.2",
        _PAPER,
    ),
    _method(
        "equal-gaussian",
        "Equal Gaussian",
        "privsyn-paper, but each measured marginal gets the same rho",
        f"{PAPER}, section 6.4",
        replace(_PAPER, noise="equal"),
    ),
    _method(
        "equal-laplace",
        "Equal Laplace",
        "privsyn-paper, but Laplace noise on the measured marginals: what the first two stages leave of epsilon in "
        "equal parts",
        f"{PAPER}, section 6.4",
        replace(_PAPER, noise="laplace"),
    ),
    _method(
        "non-private-selection",
        "Non-private selection",
        "privsyn-paper, but the InDif scores have no noise and their budget is not spent: NOT private, a reference",
        f"{PAPER}, section 6.3",
        replace(_PAPER, marginals="exact"),
        private=False,
    ),
    _method(
        "all-pairs",
        "All pairs",
        "privsyn-paper, but every pair is measured; the scores' budget is spent on measuring",
        "baseline",
        replace(_PAPER, marginals="all"),
    ),
)

METHODS = {method.name: method for method in _ALL}
"""Every method by its name, in the order in which they are shown."""
