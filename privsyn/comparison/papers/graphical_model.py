"""PGM in the place of GUM (PrivSyn, section 6.5): the rows of a graphical model that the package mbi fits, by variants.

Belongs here: what the comparison asks of the package; ``tasks.graphical_rows`` fits and draws.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from privsyn.comparison.method import DomainTooLargeError, MethodResult, Trial
from privsyn.comparison.variants import Steps, vary_paper
from privsyn.engine.inputs import Inputs
from privsyn.engine.request import Request
from privsyn.engine.step import Output, Progress
from privsyn.pipelines.common_steps import stream_codes
from privsyn.pipelines.registry import build_steps
from privsyn.pipelines.synthesis_steps import MARGINALS, get_synthesis, pool_one_ways
from privsyn.tasks.estimation import marginals
from privsyn.tasks.estimation.recode import estimate_total, sum_coarse_one_ways
from privsyn.tasks.steps import append_attributes, make_consistent, synthesize
from privsyn.tasks.synthesis import graphical_rows

MOST_MB = 80.0
"""Size of a junction tree in MB at most: what the authors allow AIM (McKenna et al., 2022, section 5)."""


def exact_selection_pgm(trial: Trial) -> MethodResult:
    """Return the paper's marginals chosen without noise, rows by PGM: NOT private.

    Raises ModuleNotFoundError where mbi is not installed, DomainTooLargeError for a larger junction tree than MOST_MB.
    """
    return vary_paper(trial, _use_model, exact_scores=True)


def _use_model(request: Request) -> Steps:
    return tuple(replace(s, run=_synthesize) if s.name == "synthesize" else s for s in build_steps(request))


def _synthesize(request: Request, inputs: Inputs, progress: Progress) -> Mapping[str, Output]:
    """Make rows as the step does, from the noisy counts instead of the consistent ones, which the model fits itself."""
    domain, settings = inputs.domain(), get_synthesis(request)
    core = append_attributes.select_core_marginals(marginals.from_table(inputs.table(MARGINALS), domain), domain).domain
    recode = pool_one_ways(request, inputs, ["measure_marginals"])
    measured = [
        m
        for m in make_consistent.build_measured_marginals(*inputs.measured(["measure_marginals"]), domain)
        if set(m.attributes) <= set(core.attributes)
    ]
    size = graphical_rows.estimate_model_mb([m.attributes for m in measured], core)
    if size > MOST_MB:
        raise DomainTooLargeError(f"the junction tree of these marginals may have {MOST_MB:g} MB, not {size:,.3g}")
    counts, variances = sum_coarse_one_ways(recode)
    ones = {m.attributes[0]: (m.counts, v) for m, v in zip(counts, variances, strict=True)}
    rows = synthesize.compute_output_rows(estimate_total(recode), settings)
    made = graphical_rows.draw_graphical_rows(measured, ones, core, rows, settings.seed)
    return {"core_codes": stream_codes(iter(made.to_arrow().to_batches()), core)}
