"""The last steps of every mechanism: from noisy counts to the synthetic table, by post-processing only.

Each step names the kinds of looks that it reads, and gets those that the mechanism has taken.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial

from privsyn.counting import synthetic_parts
from privsyn.data_contracts import tables
from privsyn.data_contracts.artifacts import LookKind, StepKind
from privsyn.data_contracts.domain import Clique
from privsyn.data_contracts.mechanism_options import Synthesis
from privsyn.engine.inputs import Inputs
from privsyn.engine.request import Request
from privsyn.engine.step import COLUMN_ORDER, DECODED_COLUMNS, Output, Progress, PublishedFile, RowStream, Step
from privsyn.pipelines.added_looks import read_frequent_values, read_trends
from privsyn.pipelines.budget import split_budget
from privsyn.pipelines.common_steps import COMPRESSION, RECODE, list_released_tables
from privsyn.pipelines.named_sets import (
    CONSISTENT_SETS,
    list_attributes,
    read_consistent_sets,
    read_set_marginals,
    set_apart,
)
from privsyn.tasks.estimation import known_zeros, marginals
from privsyn.tasks.estimation.pair_departures import is_wide
from privsyn.tasks.estimation.recode import (
    Recode,
    build_coarse_domain,
    drop_unlisted,
    estimate_total,
    map_coarse_one_ways,
    mark_all_ordered_codes,
    pool_one_ways,
    recode_to_table,
    recompress,
    sum_coarse_one_ways,
)
from privsyn.tasks.estimation.smooth_counts import smooth_one_ways
from privsyn.tasks.estimation.trends import list_missing_pairs
from privsyn.tasks.knowledge import prior_pairs, totals
from privsyn.tasks.knowledge.public_knowledge import KnowledgePart
from privsyn.tasks.steps import make_consistent, synthesize
from privsyn.tasks.synthesis import shards
from privsyn.tasks.synthesis.implied_pairs import choose_strongest

MARGINALS, BY_TREND = "make_consistent.marginals", "make_consistent.by_trend"
CORE, CODES = "synthesize.core_codes", "append_attributes.codes"
SCORES = "indif_scores"

SYNTHESIS = tuple(f"mechanism.synthesis.{name}" for name in Synthesis.model_fields if name != "related_inside")
SHARDS = ("mechanism.synthesis.seed", "mechanism.synthesis.shard_rows")


def find_null_codes(request: Request, recode: Recode) -> dict[str, int]:
    """Return attribute -> code of null, for attributes whose cells with null may be found empty by the counts."""
    by_counts = request.consistency.pooled and not request.has_prior
    return request.public.in_codes(recode).null_codes if by_counts else {}


def read_zeros(
    request: Request, inputs: Inputs, recode: Recode, *, unmeasured: bool = False
) -> known_zeros.KnownZeros | None:
    """Return the cells that no row has: by public knowledge, and cells of null by the counts.

    ``unmeasured``: include cells of pairs that were not measured.
    """
    public, found_zeros = request.public.in_codes(recode).zeros, inputs.empty_cells(unmeasured=unmeasured)
    if public is None:
        return found_zeros if find_null_codes(request, recode) else None
    return known_zeros.KnownZeros(public.tables, (*public.implied, *found_zeros.implied))


def read_consistent_marginals(
    request: Request, inputs: Inputs
) -> tuple[Recode, list[marginals.Marginal], list[marginals.Marginal]]:
    """Return the recoding by all measurements, the consistent marginals, and pairs by trend.

    Sets in merged codes are the last marginals.  Pairs by trend are pairs that no look measured.
    """
    recode, settings, named_pairs = inputs.read_pooled_recode(), request.consistency, request.named_pairs
    by_trend = read_trends(request, inputs, recode)
    pooled = mark_all_ordered_codes(recode, request.encoding.binning) if settings.pooled else None
    knowledge = request.public.in_codes(recode)
    nulls, zeros = find_null_codes(request, recode), read_zeros(request, inputs, recode, unmeasured=True)
    totals, sets = knowledge.public.totals, read_set_marginals(inputs)
    one_way, variance = sum_coarse_one_ways(recode)
    measured = make_consistent.build_measured_marginals(*inputs.measured(), build_coarse_domain(recode))
    if by_trend is not None:
        one_way = [m if totals is not None and totals.has(m.attributes) else by_trend.pool_in(m) for m in one_way]
        measured = [by_trend.pool_in(m) for m in measured]
        sets = [by_trend.pool_in(m) if m.attributes in named_pairs else m for m in sets]
    measured += [*knowledge.known_pairs, *sets]
    expected = by_trend if knowledge.prior_pairs is None else knowledge.prior_pairs
    consistent = make_consistent.make_consistent(
        one_way,
        variance,
        measured,
        [m.sigma for m in measured],
        settings.rounds,
        one_way_weight=settings.one_way_weight,
        shrink=settings.shrink,
        zeros=zeros,
        expected=None if expected is None else expected.coarse,
        known=totals,
        pooled=pooled,
        trend_deviations={} if by_trend is None else by_trend.deviation,
        named_pairs=named_pairs,
        nulls=nulls,
    )
    if by_trend is None:
        return recode, consistent, []
    with_pairs = [m for m in consistent if not m.merges or m.attributes in named_pairs]
    return recode, consistent, list_missing_pairs(by_trend, with_pairs, zeros)


def read_consistent(request: Request, inputs: Inputs) -> tuple[list[marginals.Marginal], list[marginals.Marginal]]:
    """Return the consistent marginals, including the pairs by trend that rows follow, and the sets."""
    domain = inputs.domain()
    by_code = marginals.from_table(inputs.table(MARGINALS), domain)
    by_trend = marginals.from_table(inputs.table(BY_TREND), domain) if inputs.has(BY_TREND) else []
    by_code += choose_strongest(by_trend) if is_wide(request.encoding.domain.attributes) else by_trend
    return by_code, read_consistent_sets(inputs, domain)


BESIDE_CONSISTENT = (BY_TREND, *CONSISTENT_SETS)
"""The optional tables that :func:`read_consistent` reads beside the consistent marginals."""


def _refine(request: Request, inputs: Inputs, progress: Progress) -> Mapping[str, Output]:
    queries, answers = inputs.measured(alone=True)
    binning, settings = request.encoding.binning, request.spec.mechanism.compression
    pooled = pool_one_ways(inputs.recode(), queries, answers, binning)
    refined = recompress(pooled, queries, binning, settings)
    if settings.enabled and settings.equal_mass:
        refined = smooth_one_ways(pooled, refined, binning)
    zeros, measured = _find_empty_cells(request, inputs, refined)
    return {
        "refined": recode_to_table(refined, request.encoding.labels()),
        "empty_cells": known_zeros.tabulate_empty_cells(zeros, measured),
    }


def _find_empty_cells(request: Request, inputs: Inputs, recode: Recode) -> tuple[known_zeros.KnownZeros, list[Clique]]:
    """Return the cells of null that the counts show to be empty, and the measured pairs."""
    nulls = find_null_codes(request, recode)
    if not nulls:
        return known_zeros.KnownZeros(), []
    measured = make_consistent.build_measured_marginals(*inputs.measured(), build_coarse_domain(recode))
    pairs, by_trend = [m for m in measured if len(m.attributes) == 2], read_trends(request, inputs, recode)
    unmeasured = () if by_trend is None else by_trend.correlation
    zeros = known_zeros.find_null_zeros(pairs, map_coarse_one_ways(recode), nulls, unmeasured)
    return zeros, [m.attributes for m in pairs]


REFINE_CODES = Step(
    name="refine_codes",
    title="Refine codes",
    about="all counts of single columns pooled, and where rows lie inside a code",
    kind=StepKind.POSTPROCESS,
    inputs=(RECODE,),
    look_kinds=(LookKind.MARGINALS, LookKind.ONE_WAYS, LookKind.TRENDS),
    outputs={"refined": tables.RECODE, "empty_cells": tables.EMPTY_CELLS},
    fields=(*COMPRESSION, "mechanism.consistency.pooled"),
    reads=(KnowledgePart.RULES, KnowledgePart.TOTALS),
    run=_refine,
    version=2,
)
"""Pools all one-ways, estimates how rows lie inside each code, and finds the codes that never meet null."""

REFINED = (f"{REFINE_CODES.name}.refined", f"{REFINE_CODES.name}.empty_cells")


def _make_consistent(request: Request, inputs: Inputs, progress: Progress) -> Mapping[str, Output]:
    _, consistent, by_trend = read_consistent_marginals(request, inputs)
    by_code, sets = set_apart(consistent)
    outputs = {"marginals": marginals.to_table(by_code)}
    if inputs.list_looks(LookKind.SETS):
        outputs["set_marginals"] = marginals.to_table(sets)
    if inputs.list_looks(LookKind.TRENDS):
        outputs["by_trend"] = marginals.to_table(by_trend)
    return outputs


MAKE_CONSISTENT = Step(
    name="make_consistent",
    title="Make consistent",
    about="all counts agree, none is negative",
    paper="line 6, section 4.3",
    kind=StepKind.POSTPROCESS,
    inputs=(RECODE, *REFINED),
    look_kinds=(LookKind.MARGINALS, LookKind.SETS, LookKind.TRENDS),
    outputs=dict.fromkeys(("marginals", "set_marginals", "by_trend"), tables.MARGINALS),
    only_after={"set_marginals": LookKind.SETS, "by_trend": LookKind.TRENDS},
    fields=("mechanism.consistency",),
    reads=(KnowledgePart.RULES, KnowledgePart.PRIOR_PAIRS, KnowledgePart.TOTALS),
    run=_make_consistent,
    version=8,
    published={
        "marginals": PublishedFile("marginals/consistent.parquet"),
        "set_marginals": PublishedFile("marginals/consistent_sets.parquet"),
        "by_trend": PublishedFile(
            "marginals/by_trend.parquet", "has the counts of pairs that were not measured, by trend"
        ),
    },
    words="all noisy counts are brought into agreement and to one total, without negative ones",
)
"""Makes all measurements agree, and lists pairs by their trends."""


def _synthesize(request: Request, inputs: Inputs, progress: Progress) -> Mapping[str, Output]:
    domain = inputs.domain()
    knowledge = request.public.in_codes(inputs.recode())
    consistent, sets = read_consistent(request, inputs)
    recode = inputs.read_pooled_recode()
    expected, prior = request.public.in_codes(recode).prior_pairs, None
    if expected is not None and prior_pairs.is_trusted(knowledge.prior_pairs, partial(inputs.noisy, SCORES)):
        prior = prior_pairs.choose_followed(expected, recode, consistent)
    # attributes are appended to the core's rows one by one; those tied by rules, sets or a prior are made together
    made_together = knowledge.tied | list_attributes(sets) if prior is None else frozenset(domain.attributes)
    core, core_domain = synthesize.select_core_marginals(consistent, domain, made_together)
    settings, totals = request.synthesis, knowledge.public.totals
    total = estimate_total(recode) if totals is None else totals.rows
    planned = shards.plan_shards(synthesize.compute_output_rows(total, settings), settings)

    zeros = read_zeros(request, inputs, recode)
    parts = synthetic_parts.CoreParts([*core, *sets], core_domain, settings, zeros, prior)
    codes = RowStream.of_codes((), core_domain)
    if len(planned) == 1:
        return {"core_codes": replace(codes, batches=parts.make(planned[0], request.threads, progress).batches)}
    return {"core_codes": codes.read(synthetic_parts.make_core_parts(inputs.work, parts, planned, progress))}


_METHODS = {
    "sweep": "rows drawn along a tree of related columns, then moved value by value towards all counts at once",
    "gum": "rows updated gradually towards the counts (PrivSyn, section 5)",
}


def _describe_rows(request: Request) -> str:
    settings = request.synthesis
    auto = settings.rows == "auto"
    rows = "as many as the noisy counts say" if auto else f"{settings.rows:,}, as the request asks"
    return f"synthetic rows: {_METHODS[settings.method]}; {rows}"


SYNTHESIZE = Step(
    name="synthesize",
    title="Synthesize",
    about="rows that follow the counts (GUM, or sweeps)",
    paper="line 7, section 5.2",
    kind=StepKind.POSTPROCESS,
    inputs=(MARGINALS, RECODE, *REFINED),
    may_read=BESIDE_CONSISTENT,
    outputs={"core_codes": tables.SYNTHETIC_CODES},
    fields=SYNTHESIS,
    reads=(KnowledgePart.RULES, KnowledgePart.PRIOR_PAIRS, KnowledgePart.TOTALS),
    run=_synthesize,
    version=10,
    words=_describe_rows,
)


def _append(request: Request, inputs: Inputs, progress: Progress) -> Mapping[str, Output]:
    domain = inputs.domain()
    consistent, sets = read_consistent(request, inputs)
    knowledge = request.public.in_codes(inputs.recode())
    follows_prior = prior_pairs.is_trusted(knowledge.prior_pairs, partial(inputs.noisy, SCORES))
    tied = frozenset(domain.attributes) if follows_prior else knowledge.tied | list_attributes(sets)
    _, core_domain = synthesize.select_core_marginals(consistent, domain, tied)
    quotas = totals.Quotas(knowledge.exact_counts)
    made = synthetic_parts.list_shard_rows(inputs.work, inputs.stored(CORE), core_domain, request.synthesis)
    tasks = [synthetic_parts.ExactShard(shard, rows, quotas.take(shard.rows)) for shard, rows in made]
    parts = synthetic_parts.WholeParts(core_domain, consistent, domain, tied)
    codes = RowStream.of_codes((), domain)
    return {"codes": codes.make(inputs.work, parts.make, tasks, request.threads, progress)}


APPEND_ATTRIBUTES = Step(
    name="append_attributes",
    title="Append attributes",
    about="attributes in no larger clique",
    paper="section 5.3",
    kind=StepKind.POSTPROCESS,
    inputs=(CORE, MARGINALS, RECODE),
    may_read=BESIDE_CONSISTENT,
    outputs={"codes": tables.SYNTHETIC_CODES},
    fields=SHARDS,
    reads=(KnowledgePart.RULES, KnowledgePart.PRIOR_PAIRS, KnowledgePart.TOTALS),
    run=_append,
    version=2,
)
"""Appends the attributes that are in no larger clique."""


def decode_rows(request: Request, inputs: Inputs, progress: Progress, codes: str = CODES) -> Mapping[str, Output]:
    """Return the values of the rows in the table ``codes``."""
    encoding = request.encoding
    recode = drop_unlisted(inputs.read_pooled_recode(), encoding.binning, request.spec.mechanism.compression)
    if inputs.list_looks(LookKind.VALUES):
        encoding = encoding.with_frequent(read_frequent_values(request, inputs, recode))
    order, exact = request.column_order, request.public.exact_in_rules
    related = request.synthesis.related_inside
    domain = build_coarse_domain(recode)
    asked_pairs = request.list_asked_pairs(domain.attributes) if related else None
    parts = synthetic_parts.DecodedParts(recode, encoding, order, exact, related, asked_pairs)
    tasks = synthetic_parts.list_shard_rows(inputs.work, inputs.stored(codes), domain, request.spec.mechanism.synthesis)
    stream = RowStream.of_values((), encoding.list_table_ranges(order))
    return {"synthetic": stream.make(inputs.work, parts.make, tasks, request.threads, progress)}


def _describe_inside_bins(request: Request) -> str:
    frequent = "value_counts" in split_budget(request)
    falling = ", in wide bins as the noisy counts of their cells fall" if request.encoding.wide else ""
    common = ", for columns that move together at one place of their bins" if request.public.together else ""
    related = ", along the relations of the row's other values" if request.synthesis.related_inside else ""
    often = ", values that many rows share as often as their noisy counts say" if frequent else ""
    names = ", ".join(request.spec.unmeasured_columns)
    unread = f"; columns that are not measured are drawn uniformly from their public domains: {names}" if names else ""
    return f"inside a bin values are drawn uniformly{falling}{often}{common}{related}{unread}"


DECODE = Step(
    name="decode",
    title="Decode",
    about="codes become values",
    paper="section 5.3",
    kind=StepKind.POSTPROCESS,
    inputs=(CODES, *REFINED),
    look_kinds=(LookKind.VALUES,),
    outputs={"synthetic": tables.SYNTHETIC},
    fields=(DECODED_COLUMNS, COLUMN_ORDER, *SHARDS, "mechanism.synthesis.related_inside"),
    reads=(KnowledgePart.RULES, KnowledgePart.TOGETHER, KnowledgePart.NEAR),
    inherits=(KnowledgePart.TOTALS,),
    run=decode_rows,
    version=6,
    words=lambda r: f"codes become values; {_describe_inside_bins(r)}; rows come in random order",
)
"""Turns codes into values; inside combined codes, values follow all one-ways."""


ROW_STEPS = (REFINE_CODES, MAKE_CONSISTENT, SYNTHESIZE, APPEND_ATTRIBUTES, DECODE)
"""The steps from all measurements to synthetic rows."""


def build_row_steps(request: Request) -> tuple[Step, ...]:
    """Return ROW_STEPS; with a prior, rows follow its pairs if the noisy scores support it."""
    scores = list_released_tables(SCORES) if request.has_prior else ()
    making = (SYNTHESIZE, APPEND_ATTRIBUTES)
    return tuple(replace(s, inputs=(*s.inputs, *scores)) if s in making else s for s in ROW_STEPS)
