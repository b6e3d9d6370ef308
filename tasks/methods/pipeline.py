"""PrivSyn and its variants: the release's own steps in memory, with the choices that a variant changes.

Belongs here: which marginals are measured, how the budget is split over them, and the order of the steps.  Does
not belong here: any step's algorithm (tasks/*.py), the release's wiring with files and ledger (flows/).
Paper: Algorithm 3; the variants are those of sections 6.3 and 6.4.

A test holds the pipeline with the spec's own settings against a real release: the same noise gives the same rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from itertools import combinations
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from data_contracts.domain import Clique, Domain, code_dtype
from data_contracts.receipts import Query, sigma_for, total_rho
from data_contracts.spec import Synthesis
from tasks import (
    append_attributes,
    combine_cliques,
    compress_domain,
    decode,
    indif_scores,
    make_consistent,
    measure_marginals,
    one_way_marginals,
    residual_scores,
    select_again,
    select_pairs,
    synthesize,
)
from tasks.kernels.counting import CodeTable
from tasks.marginals import Marginal
from tasks.methods.base import LaplaceQuery, Made, PipelineSettings, Task, laplace_scale
from tasks.noisy import Answers, pooled
from tasks.privacy.accountant import epsilon_for, pricing_of, rho_for

Exact = Callable[[CodeTable, Sequence[Query], int], Iterator[NDArray[np.int64]]]


@dataclass(frozen=True)
class Variant:
    """What a variant of the pipeline does otherwise.

    marginals: "noisy": DenseMarg on noisy InDif scores; "exact": on exact ones, their budget left unspent (the
    paper's "non-private"); "all": every pair, not merged into cliques, the scores' budget spent on measuring;
    "none": one-ways only, with the whole budget.
    noise: of the measured marginals: "weighted": Gaussian, rho_i ~ c_i^(2/3) (equation (1)); "equal": Gaussian,
    equal rho_i; "laplace": Laplace, equal epsilon_i.
    settings: what becomes of the task's settings.
    """

    marginals: Literal["noisy", "exact", "all", "none"] = "noisy"
    noise: Literal["weighted", "equal", "laplace"] = "weighted"
    settings: Callable[[PipelineSettings], PipelineSettings] = lambda settings: settings


@dataclass(frozen=True)
class _Budget:
    """rho of the three stages, and of each further round's scores and measurement; what none has is not spent."""

    one_way: Fraction
    selection: Fraction
    measurement: Fraction
    scores: Fraction = Fraction(0)
    again: Fraction = Fraction(0)
    rounds: int = 0


def run_pipeline(task: Task, variant: Variant) -> Made:
    """Make a table by the release's steps, as ``variant`` changes them.

    Promise: all receipts together keep (epsilon, delta), whatever was selected; "exact" also looks at the scores
    without noise and promises nothing.
    """
    settings = variant.settings(task.settings)
    task = replace(task, settings=settings)
    budget = _budget(task, variant)
    equal = settings.split.one_ways == "equal"
    pricing = pricing_of(settings.accountant)
    planned = one_way_marginals.plan(task.rows.domain, budget.one_way, task.records, equal=equal)
    asked = [q.under(pricing) for q in planned]
    answers = _noisy(task, asked, one_way_marginals.exact, task.rows)
    recode = compress_domain.compress_domain(answers, asked, task.groups, settings.compression, task.in_order)
    domain = compress_domain.coarse_domain(recode)
    rows = _recoded(task.rows, recode, domain)
    reference = indif_scores.Reference.of(recode) if settings.selection.scores == "one_ways" else None
    weights, scored, scores = _choose(task, variant, budget, rows, recode, reference)
    plan = _plan(task, weights, domain, budget.measurement)
    zcdp, pure = _mechanisms(task, variant, budget, plan, [*asked, *scored])
    queries, noisy = _measure(task, rows, plan, pure or zcdp)
    known = _Known(recode, queries, noisy)
    for number in range(2, budget.rounds + 2):
        pairs = {(q.attributes[0], q.attributes[1]): score for q, score in zip(scored, scores, strict=True)}
        more, known = _round(task, budget, rows, known, pairs, number)
        zcdp = [*zcdp, *more]
    refined, found = known.consistent(task, domain)
    made = _fine_rows(task, found, refined, domain)
    larger = dict.fromkeys(q.attributes for q in known.queries if len(q.attributes) > 1)
    return Made(task.to_bins(made), made, (*asked, *scored, *zcdp), tuple(pure), tuple(larger))


def _budget(task: Task, variant: Variant) -> _Budget:
    rho = rho_for(task.epsilon, task.delta, task.settings.accountant)
    one_way, selection, measurement = (rho * share for share in task.settings.split.exact())
    if variant.marginals == "none":
        return _Budget(rho, Fraction(0), Fraction(0))
    if variant.marginals == "all":
        return _Budget(one_way, Fraction(0), selection + measurement)
    if variant != Variant(settings=variant.settings):
        return _Budget(one_way, selection, measurement)
    adaptive = task.settings.adaptive
    return _Budget(one_way, selection, *adaptive.exact(measurement), adaptive.rounds)


def _plan(task: Task, weights: Mapping[Clique, float], domain: Domain, rho: Fraction) -> list[Query]:
    planned = measure_marginals.plan(weights, domain, task.rows.domain, rho, task.records) if weights else []
    return [q.under(pricing_of(task.settings.accountant)) for q in planned]


@dataclass(frozen=True)
class _Known:
    """The recoding of the first stage, and what was measured so far."""

    recode: compress_domain.Recode
    queries: list[Query]
    noisy: Answers

    def refined(self, task: Task) -> compress_domain.Recode:
        return compress_domain.refined(self.recode, *pooled(self.queries, self.noisy), task.groups)

    def consistent(self, task: Task, domain: Domain) -> tuple[compress_domain.Recode, list[Marginal]]:
        recode = self.refined(task)
        return recode, _consistent(
            task, recode, make_consistent.measured_marginals(*pooled(self.queries, self.noisy), domain)
        )


def _round(
    task: Task,
    budget: _Budget,
    rows: CodeTable,
    known: _Known,
    pairs: Mapping[tuple[str, str], float],
    number: int,
) -> tuple[list[Query], _Known]:
    """Round ``number`` (from 2): its receipts, and what is known after it (flows/rounds.py)."""
    domain, selection, adaptive = rows.domain, task.settings.selection, task.settings.adaptive
    recode, found = known.consistent(task, domain)
    total = compress_domain.noisy_total(recode)
    seed = residual_scores.seed_of(task.seed, number)
    settings = task.settings.synthesis.model_copy(update={"oversample": 1, "seed": seed})
    made = _coarse_rows(task, found, domain, settings, residual_scores.rows_so_far(total))
    cliques = residual_scores.candidates(pairs, domain, selection.max_cells, selection.gamma, triples=adaptive.triples)
    asked = [
        q.under(pricing_of(task.settings.accountant))
        for q in residual_scores.plan(cliques, budget.scores, task.records)
    ]
    exact = residual_scores.exact(rows, made, total, asked, task.threads)
    distances = [float((d + task.noise.draw(q.sigma, q.cells))[0]) for d, q in zip(exact, asked, strict=True)]
    weights = select_again.select_again(
        asked, distances, recode, task.rows.domain, float(budget.again), task.records, again=task.settings.split.again
    )
    plan = _plan(task, weights, domain, budget.again)
    queries, noisy = _measure(task, rows, plan, plan)
    return [*asked, *plan], replace(known, queries=[*known.queries, *queries], noisy=[*known.noisy, *noisy])


def _noisy(task: Task, queries: list[Query], exact: Exact, rows: CodeTable) -> Answers:
    """Exact answers plus Gaussian noise, in the queries' order."""
    counts = exact(rows, queries, task.threads)
    return [c + task.noise.draw(q.sigma, q.cells) for c, q in zip(counts, queries, strict=True)]


def _recoded(rows: CodeTable, recode: compress_domain.Recode, domain: Domain) -> CodeTable:
    batches = list(compress_domain.recode_rows(rows.to_arrow().to_batches(), recode))
    return CodeTable.from_arrow(batches, domain, padded=True)


def _choose(
    task: Task,
    variant: Variant,
    budget: _Budget,
    rows: CodeTable,
    recode: compress_domain.Recode,
    reference: indif_scores.Reference | None,
) -> tuple[dict[Clique, float], list[Query], list[float]]:
    """The cliques to measure with their weights; the receipts of the noisy scores, if there are any, and the scores."""
    domain, fine, selection = rows.domain, task.rows.domain, task.settings.selection
    if variant.marginals == "none":
        return {}, [], []
    if variant.marginals == "all":
        all_pairs = [p for p in combinations(domain.attributes, 2) if domain.cells(p) <= selection.max_cells]
        return combine_cliques.weigh(all_pairs, domain, fine, None), [], []
    sensitivity = indif_scores.SENSITIVITY if reference is None else indif_scores.REFERENCE_SENSITIVITY
    planned = indif_scores.plan(domain, budget.selection, task.records, sensitivity, selection.max_cells)
    queries = [q.under(pricing_of(task.settings.accountant)) for q in planned]
    exact = partial(indif_scores.exact, reference=reference)
    if variant.marginals == "exact":
        answers, spent = list(exact(rows, queries, task.threads)), []
    else:
        answers, spent = _noisy(task, queries, exact, rows), queries
    scores = [float(s[0]) for s in answers]
    how = (recode, float(budget.measurement), task.records, selection)
    pairs = select_pairs.select(queries, scores, *how, again=task.settings.split.again)
    return combine_cliques.weighed_cliques(pairs, domain, fine, selection), spent, scores


def _mechanisms(
    task: Task, variant: Variant, budget: _Budget, plan: list[Query], before: Sequence[Query]
) -> tuple[list[Query], list[LaplaceQuery]]:
    """The noise of each measured marginal: the plan's own (weighted), or the same marginals at equal shares.

    Equal Laplace composes naively, as in the paper: the Gaussian looks of the first two stages promise an epsilon
    of their own at ``delta``; what is left of the task's is split evenly, and pure epsilons add up.  A marginal's
    L1 sensitivity is the number of records of one person.
    """
    if variant.noise == "weighted" or not plan:
        return plan, []
    if variant.noise == "equal":
        sigma = sigma_for(budget.measurement / len(plan), task.records, plan[0].pricing)
        return [replace(q, sigma=sigma) for q in plan], []
    spent = epsilon_for(total_rho(before), task.delta, task.settings.accountant)
    scale = laplace_scale((Fraction(task.epsilon) - Fraction(spent)) / len(plan), task.records)
    return [], [LaplaceQuery(q.attributes, q.cells, task.records, scale) for q in plan]


def _measure(
    task: Task, rows: CodeTable, plan: list[Query], mechanisms: Sequence[Query | LaplaceQuery]
) -> tuple[list[Query], Answers]:
    """The queries at the noise that they got, and the noisy answers."""

    def noise(query: Query | LaplaceQuery) -> NDArray[np.int64]:
        if isinstance(query, LaplaceQuery):
            return task.noise.draw_laplace(query.scale, query.cells)
        return task.noise.draw(query.sigma, query.cells)

    counts = measure_marginals.exact(rows, lambda: task.rows, plan, task.threads)
    answers = [c + noise(q) for c, q in zip(counts, mechanisms, strict=True)]
    return [replace(q, sigma=m.sigma) for q, m in zip(plan, mechanisms, strict=True)], answers


def _consistent(task: Task, recode: compress_domain.Recode, measured: list[Marginal]) -> list[Marginal]:
    one_way, variance = make_consistent.coarse_one_ways(recode)
    settings, sigmas = task.settings.consistency, [m.sigma for m in measured]
    return make_consistent.make_consistent(
        one_way, variance, measured, sigmas, settings.rounds, firm=settings.firm, shrink=settings.shrink
    )


def _coarse_rows(task: Task, found: list[Marginal], domain: Domain, settings: Synthesis, rows: int) -> CodeTable:
    """Synthesized rows and appended attributes."""
    core = append_attributes.core_marginals(found, domain)
    made = synthesize.synthesize(core.marginals, core.domain, settings, rows, task.threads)
    return append_attributes.append_attributes(made, found, domain, settings.seed)


def _fine_rows(task: Task, found: list[Marginal], recode: compress_domain.Recode, domain: Domain) -> CodeTable:
    """Synthesized rows, appended attributes, and the fine codes of combined values."""
    settings = task.settings.synthesis.model_copy(update={"seed": task.seed})
    rows = synthesize.output_rows(compress_domain.noisy_total(recode), settings)
    codes = _coarse_rows(task, found, domain, settings, rows)
    parts = list(decode.fine_codes(codes, recode, decode.generator(task.seed)))
    columns = (
        np.concatenate([np.zeros(0, np.int64), *(part[a] for part in parts)]).astype(code_dtype(size))
        for a, size in zip(domain.attributes, task.rows.domain.sizes, strict=True)
    )
    return CodeTable(task.rows.domain, tuple(columns))
