"""A public table updated by levels: one-ways, related columns in large groups, then single columns by group.

"Public prior: distribution estimation" (second place, NIST challenge of 2020, sprint 2), Algorithm 2.

From the paper: each of four looks has a quarter of the budget.  The workload is chosen from the public table.  The
update has the least relative entropy.  Rows are taken from the public table.

Unlike the paper: the first look asks the one-ways, which give bins.  A large group has the sum of its small groups'
rows, and a group starts from its own public rows.  Noise is discrete Gaussian.  Counts are shrunk to the expected
counts (``shrink``).

Privacy: rho-zCDP for adding or removing one person with at most k records; the run first bounds the rows to k per
person (the paper's individual stability by truncation).  Every query is one marginal of sensitivity k, over the groups'
columns and a set of others.  It is one mechanism instance for all groups together, since a record is in one group only
(parallel composition over disjoint groups).  The sensitivity is not divided among a person's groups: all k records may
fall into one cell.  With d columns the four looks have d, at most d, 1 and at most d queries (or d one-ways in place of
none).  The queries depend on the public table and earlier noisy counts; prices add up to rho (adaptive composition).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from privsyn.base.errors import RequestError
from privsyn.data_contracts import tables
from privsyn.data_contracts.artifacts import StepKind
from privsyn.data_contracts.domain import Clique
from privsyn.data_contracts.mechanism_options import MAX_CELLS, PriorLevels
from privsyn.engine.inputs import Inputs
from privsyn.engine.request import Request
from privsyn.engine.step import LookDescription, Output, Progress, Step
from privsyn.pipelines.common_steps import COMPRESS_DOMAIN, ENCODE, ONE_WAYS, RECODE, publish_noisy
from privsyn.pipelines.mechanism_parts import build_drawing_step, build_measurement, decode_from, weigh_evenly
from privsyn.pipelines.one_shot import COUNTS, RECODE_ROWS
from privsyn.pipelines.synthesis_steps import MAKE_CONSISTENT, REFINE_CODES
from privsyn.tasks.estimation import prior_levels
from privsyn.tasks.estimation.prior_levels import NoisyLevel, PublicSupport, iterate_group_shares, sort_by_group
from privsyn.tasks.estimation.recode import Recode, build_coarse_domain, estimate_total, sum_coarse_one_ways
from privsyn.tasks.kernels.counting import CodeTable
from privsyn.tasks.knowledge.public_knowledge import KnowledgePart
from privsyn.tasks.steps import draw_rows, synthesize


def build_steps(request: Request) -> tuple[Step, ...]:
    """Return the steps: four looks with a quarter of rho each, then rows of the public table."""
    return (
        ENCODE,
        ONE_WAYS,
        COMPRESS_DOMAIN,
        RECODE_ROWS,
        PUBLIC_WORKLOAD,
        MEASURE_LARGE,
        MEASURE_GROUPS,
        MEASURE_IN_GROUPS,
        REFINE_CODES,
        MAKE_CONSISTENT,
        PRIOR_ROWS,
        decode_from("prior_rows.codes"),
    )


MEASURED = ("measure_marginals", "measure_groups", "measure_in_groups")


def _read_public(request: Request, recode: Recode) -> CodeTable:
    """Return the public rows in coarse codes.  Raises RequestError if the request does not say where they are."""
    prior = request.public.prior
    if prior is None:
        raise RequestError(
            "rows are made from the public table, whose file is not in a released folder",
            "Use the release's spec, with the public table's file",
            "prior",
        )
    return draw_rows.coarsen_rows(prior, recode)


def _list_levels(request: Request) -> tuple[Clique, Clique]:
    """Return the attributes of the large groups (empty: the whole table is one group) and of the small groups."""
    options, attributes_of = request.get_options(PriorLevels), request.encoding.attributes_of
    return attributes_of(options.large), attributes_of(options.group)


def _list_workload(request: Request, inputs: Inputs, progress: Progress) -> Mapping[str, Output]:
    options, recode = request.get_options(PriorLevels), inputs.recode()
    public, domain, (large, small) = _read_public(request, recode), inputs.domain(), _list_levels(request)
    others = tuple(a for a in domain.attributes if a not in small)
    information = prior_levels.compute_mutual_information(public, others, request.threads)
    cliques = prior_levels.choose_related_cliques(information, domain, options.most_cells, edge=options.edge)
    one_ways = prior_levels.choose_independent_one_ways(information, domain)

    def weigh_sets(group: Clique, sets: Sequence[Clique]) -> pa.Table:
        with_groups = [domain.ordered((*group, *c)) for c in (sets if information else [others])]
        fitting = [c for c in with_groups if domain.cells(c) <= MAX_CELLS]
        return weigh_evenly(sorted(fitting, key=lambda c: len(c) == 1), request, inputs)

    groups = weigh_evenly([small], request, inputs)
    return {"large": weigh_sets(large, cliques), "groups": groups, "in_groups": weigh_sets(small, one_ways)}


PUBLIC_WORKLOAD = Step(
    name="public_workload",
    title="Public workload",
    kind=StepKind.POSTPROCESS,
    inputs=(RECODE,),
    outputs={"large": tables.CLIQUES, "groups": tables.CLIQUES, "in_groups": tables.CLIQUES},
    fields=("mechanism.group", "mechanism.large", "mechanism.edge", "mechanism.most_cells"),
    reads=(KnowledgePart.PRIOR,),
    run=_list_workload,
    words="what is counted in the groups is chosen from the public table: related columns, then single ones",
)

ONE_CELL = (
    "k, the records a person may have: all k may fall into one cell; the groups are disjoint, so that one query asks "
    "all of them (parallel composition)"
)


MEASURE_LARGE = build_measurement(
    name=MEASURED[0],
    title="Measure large groups",
    chosen="public_workload.large",
    look=LookDescription(counted="joint counts of related columns in the large groups", reason=ONE_CELL),
    files=publish_noisy("measured", COUNTS),
    limit="Every row is a row of the public table, put into a group. Combinations that the public table lacks do not "
    "occur, and relations that were not counted come from it.",
)
MEASURE_GROUPS = build_measurement(
    name=MEASURED[1],
    title="Measure groups",
    chosen="public_workload.groups",
    look=LookDescription(counted="the number of rows of every group", reason=ONE_CELL),
    files=publish_noisy("groups", "has the groups' rows"),
)
MEASURE_IN_GROUPS = build_measurement(
    name=MEASURED[2],
    title="Measure in groups",
    chosen="public_workload.in_groups",
    look=LookDescription(counted="counts of single columns in every group", reason=ONE_CELL),
    files=publish_noisy("in_groups", "has counts of single columns by group"),
)


def _build_level(
    request: Request, inputs: Inputs, recode: Recode, stage: str, group: Clique, number: Any
) -> NoisyLevel:
    """Return the counts of other columns that ``stage`` measured in the groups by ``group``."""
    domain, small = build_coarse_domain(recode), set(_list_levels(request)[1])
    sets, counts, noise = [], [], []
    for query, noisy in zip(*inputs.noisy(stage), strict=True):
        rest = tuple(a for a in query.attributes if a not in group)
        if len(query.attributes) > 1 and rest and set(group) <= set(query.attributes) and not small & set(rest):
            sets.append(rest)
            counts.append(sort_by_group(noisy.astype(np.float64), (*group, *rest), len(group), domain))
            noise.append(query.sigma)
    return NoisyLevel(
        group, number, tuple(sets), tuple(counts), tuple(noise) if request.get_options(PriorLevels).shrink else None
    )


def _add_one_ways(request: Request, recode: Recode, level: NoisyLevel) -> NoisyLevel:
    """Return the whole table's ``level`` with the one-ways by all measurements added."""
    ones = zip(*sum_coarse_one_ways(recode), strict=True)
    one_ways = [(m, float(np.sqrt(v.mean()))) for m, v in ones if m.attributes[0] not in _list_levels(request)[1]]
    return replace(
        level,
        cliques=(*level.cliques, *(m.attributes for m, _ in one_ways)),
        counts=(*level.counts, *(m.counts[None] for m, _ in one_ways)),
        noise=None if level.noise is None else (*level.noise, *(sigma for _, sigma in one_ways)),
    )


def _list_number_of_rows(inputs: Inputs, recode: Recode) -> tuple[Clique, Any, float]:
    """Return the groups' attributes, the noisy number of rows per group in the domain's shape, and its sigma."""
    (query,), (noisy,) = inputs.noisy(MEASURED[1])
    if len(query.attributes) > 1:
        return query.attributes, noisy.reshape(build_coarse_domain(recode).shape(query.attributes)), query.sigma
    r = recode[query.attributes[0]]  # a single column was asked in fine codes
    codes = r.coarse[r.kept]
    counts = np.bincount(codes, weights=noisy[r.kept], minlength=r.size)
    return query.attributes, counts, query.sigma * float(np.sqrt(codes.size / r.size))


def _draw_rows(request: Request, inputs: Inputs, recode: Recode, progress: Progress) -> Iterator[CodeTable]:
    options, (large, _) = request.get_options(PriorLevels), _list_levels(request)
    public = _read_public(request, recode)
    small, number, sigma = _list_number_of_rows(inputs, recode)
    total = estimate_total(recode)
    in_large = number.sum(axis=tuple(i for i, a in enumerate(small) if a not in large)).reshape(-1)
    noise = () if options.shrink else None
    whole_table = NoisyLevel((), np.array([total]), (), (), noise)
    above = _build_level(request, inputs, recode, MEASURED[0], large, in_large if large else whole_table.number)
    levels = [_add_one_ways(request, recode, whole_table if large else above), *([above] if large else [])]
    levels.append(_build_level(request, inputs, recode, MEASURED[2], small, number.ravel()))
    settings, support = request.synthesis, PublicSupport.of(public, small)
    possible_rows = draw_rows.list_possible_rows(support, request.public.in_codes(recode).zeros)
    rows = synthesize.compute_output_rows(total, settings)
    groups = draw_rows.list_groups_with_rows(public, small, number.ravel(), sigma, rows, possible_rows)
    shares = iterate_group_shares(support, levels, groups.codes, options.turns, settings.seed, own_rows=True)
    return draw_rows.draw_rows(support, groups, shares, possible_rows, settings.seed)


PRIOR_ROWS = build_drawing_step(
    name="prior_rows",
    title="Prior rows",
    draw=_draw_rows,
    fields=("mechanism.group", "mechanism.large", "mechanism.turns", "mechanism.shrink", "mechanism.synthesis"),
    reads=(KnowledgePart.RULES, KnowledgePart.PRIOR),
    words="rows of the public table, drawn group by group as often as the noisy counts say, which are met by the least "
    "change in relative entropy",
)
