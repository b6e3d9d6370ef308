"""The other choices of marginals and the other syntheses of PrivSyn's section 6: Figures 5 and 7, PGM (section 6.5).

Belongs here: variants that replace one step of the paper's and nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from privsyn.data_contracts.artifacts import LookKind
from privsyn.data_contracts.mechanism_options import PrivBayes, Rows, Synthesis
from privsyn.engine.inputs import Inputs
from privsyn.engine.request import Request
from privsyn.engine.step import Output, Progress, RowStream, Step
from privsyn.evaluation.comparison.method import DomainTooLargeError, MethodInput, MethodResult, Steps
from privsyn.extras.papers import min_cost_flow
from privsyn.extras.papers.noise_variants import vary_paper
from privsyn.pipelines.common_steps import RECODE, list_released_tables
from privsyn.pipelines.mechanism_parts import read_noisy_scores, weigh_evenly
from privsyn.pipelines.one_shot import MEASURED
from privsyn.pipelines.registry import build_steps
from privsyn.pipelines.synthesis_steps import MARGINALS
from privsyn.tasks.estimation import marginals
from privsyn.tasks.estimation.recode import estimate_total, map_coarse_one_ways
from privsyn.tasks.steps import draw_rows, make_consistent, synthesize


def privbayes_selection(trial: MethodInput) -> MethodResult:
    """Return the paper's settings, but the marginals are the families of a Bayesian network, PrivBayes(InDif)."""
    return vary_paper(trial, _use_families)


def exact_privbayes_selection(trial: MethodInput) -> MethodResult:
    """Run :func:`privbayes_selection` on scores without noise: NOT private."""
    return vary_paper(trial, _use_families, exact_scores=True)


def exact_selection_mcf(trial: MethodInput) -> MethodResult:
    """Return the paper's marginals chosen without noise, rows by minimum-cost flow: NOT private."""
    return vary_paper(trial, min_cost_flow.replace_synthesis, exact_scores=True)


def exact_selection_sweeps(trial: MethodInput) -> MethodResult:
    """Return the paper's marginals chosen without noise, rows by sweeps: NOT private."""
    return vary_paper(trial, _use_sweeps, exact_scores=True)


def _use_sweeps(request: Request) -> Steps:
    return tuple(_synthesize_by_sweeps(s) if s.name == "synthesize" else s for s in build_steps(request))


def _synthesize_by_sweeps(step: Step) -> Step:
    """Return the step ``synthesize``, its request asking for sweeps."""

    def run(request: Request, inputs: Inputs, progress: Progress) -> Mapping[str, Output]:
        options = request.spec.mechanism.synthesis
        sweeps = Synthesis(**{name: getattr(options, name) for name in Rows.model_fields})
        changed = request.spec.with_rows(**dict(sweeps))
        assert step.run is not None  # noqa: S101 - only looks have none
        return step.run(replace(request, spec=changed), inputs, progress)

    return replace(step, run=run)


def _use_families(request: Request) -> Steps:
    """Return the paper's steps, the families of a network in the place of the combined cliques."""
    steps = build_steps(request)
    return tuple(_build_network_step(s) if s.name == "combine_cliques" else s for s in steps)


def _build_network_step(step: Step) -> Step:
    """Return in the place of ``step``: PrivBayes' network of degree 3 and theta 4, its defaults."""
    options = PrivBayes()

    def run(request: Request, inputs: Inputs, progress: Progress) -> Mapping[str, Output]:
        domain, total = inputs.domain(), estimate_total(inputs.recode())
        rho, families = inputs.rho[MEASURED], len(domain.attributes) - 1
        useful = draw_rows.count_useful_cells(total, families, rho, request.records, options.usefulness)
        limit = min(useful, options.max_cells)
        network = draw_rows.build_bayesian_network(read_noisy_scores(inputs), domain, options.degree, limit)
        return {"cliques": weigh_evenly(network, request, inputs)}

    return replace(step, inputs=(*list_released_tables("indif_scores"), RECODE), budgets=(MEASURED,), run=run)


MOST_MB = 80.0
"""Size of a junction tree in MB at most: what the authors allow AIM (McKenna et al., 2022, section 5)."""


def exact_selection_pgm(trial: MethodInput) -> MethodResult:
    """Return the paper's marginals chosen without noise, rows by PGM: NOT private.

    Raises ModuleNotFoundError where mbi is not installed, DomainTooLargeError for a larger junction tree than MOST_MB.
    """
    return vary_paper(trial, _use_model, exact_scores=True)


def _use_model(request: Request) -> Steps:
    return tuple(_synthesize_by_model(s) if s.name == "synthesize" else s for s in build_steps(request))


def _synthesize_by_model(step: Step) -> Step:
    return replace(step, run=_synthesize, look_kinds=(LookKind.MARGINALS,))


def _synthesize(request: Request, inputs: Inputs, progress: Progress) -> Mapping[str, Output]:
    """Make rows as the step does, from the noisy counts instead of the consistent ones, which the model fits itself."""
    domain, settings = inputs.domain(), request.synthesis
    _, core = synthesize.select_core_marginals(marginals.from_table(inputs.table(MARGINALS), domain), domain)
    recode = inputs.read_pooled_recode()
    measured = [
        m
        for m in make_consistent.build_measured_marginals(*inputs.measured(), domain)
        if set(m.attributes) <= set(core.attributes)
    ]
    size = draw_rows.estimate_model_mb([m.attributes for m in measured], core)
    if size > MOST_MB:
        raise DomainTooLargeError(f"the junction tree of these marginals may have {MOST_MB:g} MB, not {size:,.3g}")
    rows = synthesize.compute_output_rows(estimate_total(recode), settings)
    table = draw_rows.draw_graphical_rows(measured, map_coarse_one_ways(recode), core, rows, settings.seed)
    return {"core_codes": RowStream.of_codes(iter(table.to_arrow().to_batches()), core)}
