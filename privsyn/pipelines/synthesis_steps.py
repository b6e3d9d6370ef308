"""The last steps of every mechanism: from noisy counts to the synthetic table, by post-processing only.

Each step names the kinds of looks that it reads, and gets those that the mechanism has taken.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial

import pyarrow as pa

from privsyn.counting import synthetic_parts
from privsyn.counting.part_files import Make, PartFile
from privsyn.counting.row_work import RowWork
from privsyn.data_contracts import tables
from privsyn.data_contracts.artifacts import LookKind, StepKind
from privsyn.data_contracts.domain import Clique, Domain
from privsyn.data_contracts.mechanism_options import PrivSyn
from privsyn.data_contracts.step_options import Consistency, Synthesis
from privsyn.engine.inputs import Inputs
from privsyn.engine.request import Request
from privsyn.engine.step import COLUMN_ORDER, DECODED_COLUMNS, Output, Progress, PublishedFile, RowStream, Step
from privsyn.pipelines.budget import split_budget
from privsyn.pipelines.common_steps import (
    COMPRESSION,
    RECODE,
    collect_parts,
    list_asked_pairs,
    list_released_tables,
    stream_codes,
)
from privsyn.pipelines.named_sets import (
    MERGES,
    list_named_pairs,
    read_set_marginals,
    read_sets,
)
from privsyn.pipelines.trend_steps import read_trends
from privsyn.pipelines.value_steps import read_frequent_values
from privsyn.storage.table_files import StoredTable
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
from privsyn.tasks.kernels.batches import read_ahead
from privsyn.tasks.kernels.counting import CodeTable
from privsyn.tasks.knowledge import prior_pairs, totals
from privsyn.tasks.knowledge.public_knowledge import KnowledgeInCodes, KnowledgePart
from privsyn.tasks.steps import append_attributes, decode, make_consistent, synthesize
from privsyn.tasks.synthesis import shards
from privsyn.tasks.synthesis.implied_pairs import choose_strongest

MARGINALS, SET_MARGINALS = "make_consistent.marginals", "make_consistent.set_marginals"
BY_TREND = "make_consistent.by_trend"


def get_consistency(request: Request) -> Consistency:
    """Return the mechanism's settings of consistency, or the defaults if it has none."""
    options = request.spec.mechanism
    return options.consistency if isinstance(options, PrivSyn) else Consistency()


SYNTHESIS = tuple(f"mechanism.synthesis.{name}" for name in Synthesis.model_fields if name != "related_inside")
SHARDS = ("mechanism.synthesis.seed", "mechanism.synthesis.shard_rows")


def get_synthesis(request: Request) -> Synthesis:
    """Return the mechanism's settings of synthesis, completed by the defaults."""
    options = request.spec.mechanism.synthesis
    return options if isinstance(options, Synthesis) else Synthesis(**options.model_dump())


def find_null_codes(request: Request, recode: Recode) -> dict[str, int]:
    """Return attribute -> code of null, for attributes whose cells with null may be found empty by the counts.

    Attributes under rules or totals are left out.  Without ``consistency.pooled``, or with a prior, there are none.
    """
    knowledge = request.public.in_codes(recode)
    if not get_consistency(request).pooled or request.has_prior:
        return {}
    totals = knowledge.public.totals
    zero_tables = [] if knowledge.zeros is None else knowledge.zeros.tables
    constrained = knowledge.tied | {clique[0] for clique, _ in zero_tables}
    nullable = [c.attribute for c in request.encoding.codecs if any(r.nullable for r in c.ranges().values())]
    free = [a for a in nullable if a not in constrained and (totals is None or not totals.has((a,)))]
    return known_zeros.find_null_codes(recode, free)


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
    recode = inputs.read_pooled_recode()
    domain = build_coarse_domain(recode)
    one_way, variance = sum_coarse_one_ways(recode)
    measured = make_consistent.build_measured_marginals(*inputs.measured(), domain)
    settings, knowledge = get_consistency(request), request.public.in_codes(recode)
    by_trend = read_trends(request, inputs, recode)
    totals, sets = knowledge.public.totals, read_set_marginals(inputs)
    named_pairs = list_named_pairs(request)
    if by_trend is not None:
        one_way = [m if totals is not None and totals.has(m.attributes) else by_trend.pool_in(m) for m in one_way]
        measured = [by_trend.pool_in(m) for m in measured]
        sets = [by_trend.pool_in(m) if m.attributes in named_pairs else m for m in sets]
    measured += [*knowledge.known_pairs, *sets]
    expected = by_trend if knowledge.prior_pairs is None else knowledge.prior_pairs
    zeros = read_zeros(request, inputs, recode, unmeasured=True)
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
        pooled=mark_all_ordered_codes(recode, request.encoding.binning) if settings.pooled else None,
        trend_deviations={} if by_trend is None else by_trend.deviation,
        named_pairs=named_pairs,
        nulls=find_null_codes(request, recode),
    )
    if by_trend is None:
        return recode, consistent, []
    with_pairs = [m for m in consistent if not m.merges or m.attributes in named_pairs]
    return recode, consistent, list_missing_pairs(by_trend, with_pairs, zeros)


def split_sets(consistent: Sequence[marginals.Marginal]) -> tuple[list[marginals.Marginal], list[marginals.Marginal]]:
    """Return the marginals in the recoding's codes, and the sets in merged codes."""
    return [m for m in consistent if not m.merges], [m for m in consistent if m.merges]


def list_attributes(sets: Sequence[marginals.Marginal]) -> frozenset[str]:
    """Return the attributes of the sets, whose rows are made together."""
    return frozenset(a for m in sets for a in m.attributes)


def read_consistent(request: Request, inputs: Inputs) -> tuple[list[marginals.Marginal], list[marginals.Marginal]]:
    """Return the consistent marginals, including the pairs by trend that rows follow, and the sets."""
    domain = inputs.domain()
    by_code = marginals.from_table(inputs.table(MARGINALS), domain)
    by_trend = marginals.from_table(inputs.table(BY_TREND), domain) if inputs.has(BY_TREND) else []
    by_code += choose_strongest(by_trend) if is_wide(request.encoding.domain.attributes) else by_trend
    if not inputs.has(SET_MARGINALS):
        return by_code, []
    merges = [planned.merges for planned in read_sets(inputs)]
    return by_code, marginals.from_table(inputs.table(SET_MARGINALS), domain, merges)


BESIDE_CONSISTENT = (BY_TREND, SET_MARGINALS, MERGES)
"""The optional tables that :func:`read_consistent` reads beside the consistent marginals."""

CONSISTENCY_READS = (KnowledgePart.RULES, KnowledgePart.PRIOR_PAIRS, KnowledgePart.TOTALS)
"""The parts of public knowledge that :func:`read_consistent_marginals` reads."""


def trusts_prior(knowledge: KnowledgeInCodes, inputs: Inputs) -> bool:
    """Return whether the noisy scores say that the prior's pairs fit better than independence."""
    if knowledge.prior_pairs is None:
        return False
    queries, answers = inputs.noisy("indif_scores")
    if not queries:
        return False
    pairs, scores = [q.attributes for q in queries], [float(y[0]) for y in answers]
    return prior_pairs.is_better(knowledge.prior_pairs, pairs, scores, queries[0].sigma)


def _follow_prior(
    knowledge: KnowledgeInCodes, inputs: Inputs, recode: Recode, consistent: Sequence[marginals.Marginal]
) -> prior_pairs.PriorGuide | None:
    """Return the guide by which rows follow the prior, or None if the noisy scores do not support it.

    ``knowledge``: in the codes that were scored; ``recode``: the same codes with all measured one-ways.
    """
    expected = knowledge.public.in_codes(recode).prior_pairs
    if expected is None or not trusts_prior(knowledge, inputs):
        return None
    return prior_pairs.choose_followed(expected, recode, consistent)


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
    wants=(LookKind.MARGINALS, LookKind.ONE_WAYS, LookKind.TRENDS),
    outputs={"refined": tables.RECODE, "empty_cells": tables.EMPTY_CELLS},
    fields=(*COMPRESSION, "mechanism.consistency.pooled"),
    reads=(KnowledgePart.RULES, KnowledgePart.TOTALS),
    run=_refine,
)
"""Pools all one-ways, estimates how rows lie inside each code, and finds the codes that never meet null."""

REFINED = (f"{REFINE_CODES.name}.refined", f"{REFINE_CODES.name}.empty_cells")


def _make_consistent(request: Request, inputs: Inputs, progress: Progress) -> Mapping[str, Output]:
    _, consistent, by_trend = read_consistent_marginals(request, inputs)
    by_code, sets = split_sets(consistent)
    outputs = {"marginals": marginals.to_table(by_code)}
    if inputs.list_looks(LookKind.SETS):
        outputs["set_marginals"] = marginals.to_table(sets)
    if inputs.list_looks(LookKind.TRENDS):
        outputs["by_trend"] = marginals.to_table(by_trend)
    return outputs


CONSISTENCY_WANTS = (LookKind.MARGINALS, LookKind.SETS, LookKind.TRENDS)
"""The kinds of looks that :func:`read_consistent_marginals` reads."""

MAKE_CONSISTENT = Step(
    name="make_consistent",
    title="Make consistent",
    about="all counts agree, none is negative",
    paper="line 6, section 4.3",
    kind=StepKind.POSTPROCESS,
    inputs=(RECODE, *REFINED),
    wants=CONSISTENCY_WANTS,
    outputs=dict.fromkeys(("marginals", "set_marginals", "by_trend"), tables.MARGINALS),
    only_after={"set_marginals": LookKind.SETS, "by_trend": LookKind.TRENDS},
    fields=("mechanism.consistency",),
    reads=CONSISTENCY_READS,
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
    prior = _follow_prior(knowledge, inputs, recode, consistent)
    # attributes are appended to the core's rows one by one; those tied by rules, sets or a prior are made together
    made_together = knowledge.tied | list_attributes(sets) if prior is None else frozenset(domain.attributes)
    core = append_attributes.select_core_marginals(consistent, domain, made_together)
    settings, totals = get_synthesis(request), knowledge.public.totals
    total = estimate_total(recode) if totals is None else totals.rows
    planned = shards.plan_shards(synthesize.compute_output_rows(total, settings), settings)

    zeros = read_zeros(request, inputs, recode)
    parts = synthetic_parts.CoreParts([*core.marginals, *sets], core.domain, settings, zeros, prior)
    stream = stream_codes((), core.domain)
    if len(planned) == 1:
        shard = parts.make(planned[0], request.threads, progress)
        return {"core_codes": replace(stream, batches=shard.batches)}
    return {"core_codes": collect_parts(stream, make_core_parts(inputs.work, parts, planned, progress))}


_METHODS = {
    "sweep": "rows drawn along a tree of related columns, then moved value by value towards all counts at once",
    "gum": "rows updated gradually towards the counts (PrivSyn, section 5)",
}


def _describe_rows(request: Request) -> str:
    settings = get_synthesis(request)
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


def make_core_parts(
    work: RowWork,
    parts: synthetic_parts.CoreParts,
    planned: Sequence[shards.Shard],
    progress: Progress = lambda done, total: None,
) -> list[PartFile]:
    """Return the files of the shards: each is made alone, then shards are refined to reduce the joint residuals.

    Refining goes shard by shard, until all shards together are as close to the counts as a single shard was on average.
    """
    stream = stream_codes((), parts.domain)
    files, residuals, summed_distance = list[PartFile](), shards.Residuals(), 0
    for part in work.iterate(parts.make, stream.profile, stream.schema, planned, progress):
        summed_distance += shards.measure_residuals(part.extra)
        residuals = shards.add_residuals([residuals, part.extra]) if files else part.extra
        files.append(replace(part, extra=None))  # the residuals of many shards are not held at once
    for i, shard in enumerate(planned):
        if shards.measure_residuals(residuals) <= summed_distance / len(files):
            break
        task = synthetic_parts.Refining(shard, files[i].path, residuals)
        (files[i],) = work.make(parts.refine, stream.profile, stream.schema, [task])
        residuals = files[i].extra
    return files


def _make_in_parts(
    request: Request,
    inputs: Inputs,
    progress: Progress,
    make: Make,
    stream: RowStream,
    tasks: Sequence[synthetic_parts.ShardRows | synthetic_parts.ExactShard],
) -> RowStream:
    """Return a step's output, made shard by shard: a stream if there is one shard, else files."""
    if len(tasks) == 1:
        return replace(stream, batches=read_ahead(make(tasks[0], request.threads).batches, request.threads))
    files = inputs.work.make(make, stream.profile, stream.schema, tasks, progress)
    return collect_parts(stream, files)


def _list_shard_rows(request: Request, inputs: Inputs, name: str, domain: Domain) -> list[synthetic_parts.ShardRows]:
    """Return the shards of a table of synthetic rows, each with its rows."""
    stored = inputs.stored(name)
    planned = shards.plan_shards(stored.num_rows, request.spec.mechanism.synthesis)
    sizes = [shard.rows for shard in planned]
    if isinstance(stored, StoredTable) and stored.list_rows() == sizes:
        rows: list[synthetic_parts.Rows] = [*inputs.work.lend(stored.files)]
    elif isinstance(stored, pa.Table) and len(planned) == 1:
        rows = [stored]
    else:  # in one piece, or made by an earlier version
        rows = list(inputs.work.split(inputs.batches(name), tables.build_code_schema(domain), sizes))
    return [synthetic_parts.ShardRows(shard, shard_rows) for shard, shard_rows in zip(planned, rows, strict=True)]


def _append(request: Request, inputs: Inputs, progress: Progress) -> Mapping[str, Output]:
    domain = inputs.domain()
    consistent, sets = read_consistent(request, inputs)
    knowledge = request.public.in_codes(inputs.recode())
    tied = frozenset(domain.attributes) if trusts_prior(knowledge, inputs) else knowledge.tied | list_attributes(sets)
    core = append_attributes.select_core_marginals(consistent, domain, tied)
    quotas = totals.Quotas(knowledge.exact_counts)
    tasks = [
        synthetic_parts.ExactShard(shard, rows, quotas.take(shard.rows))
        for shard, rows in _list_shard_rows(request, inputs, "synthesize.core_codes", core.domain)
    ]
    parts = synthetic_parts.WholeParts(core.domain, consistent, domain, tied)
    stream = stream_codes((), domain)
    return {"codes": _make_in_parts(request, inputs, progress, parts.make, stream, tasks)}


APPEND_ATTRIBUTES = Step(
    name="append_attributes",
    title="Append attributes",
    about="attributes in no larger clique",
    paper="section 5.3",
    kind=StepKind.POSTPROCESS,
    inputs=("synthesize.core_codes", MARGINALS, RECODE),
    may_read=BESIDE_CONSISTENT,
    outputs={"codes": tables.SYNTHETIC_CODES},
    fields=SHARDS,
    reads=(KnowledgePart.RULES, KnowledgePart.PRIOR_PAIRS, KnowledgePart.TOTALS),
    run=_append,
    version=2,
)
"""Appends the attributes that are in no larger clique."""

CODES = "append_attributes.codes"


def _decode(request: Request, inputs: Inputs, progress: Progress, codes: str = CODES) -> Mapping[str, Output]:
    """Return the values of the rows in the table ``codes``."""
    encoding = request.encoding
    recode = drop_unlisted(inputs.read_pooled_recode(), encoding.binning, request.spec.mechanism.compression)
    if inputs.list_looks(LookKind.VALUES):
        encoding = encoding.with_frequent(read_frequent_values(request, inputs, recode))
    order, exact = request.column_order, request.public.exact_in_rules
    related = get_synthesis(request).related_inside
    domain = build_coarse_domain(recode)
    asked_pairs = list_asked_pairs(request, domain.attributes) if related else None
    parts = synthetic_parts.DecodedParts(recode, encoding, order, exact, related, asked_pairs)
    tasks = _list_shard_rows(request, inputs, codes, domain)
    ranges = encoding.ranges()
    profile = partial(tables.make_value_profile, ranges={name: ranges[name] for name in order})
    stream = RowStream(decode.build_decoded_schema(encoding, order), (), profile)
    return {"synthetic": _make_in_parts(request, inputs, progress, parts.make, stream, tasks)}


def _describe_inside_bins(request: Request) -> str:
    frequent = "value_counts" in split_budget(request)
    falling = ", in wide bins as the noisy counts of their cells fall" if request.encoding.wide else ""
    common = ", for columns that move together at one place of their bins" if request.public.together else ""
    related = ", along the relations of the row's other values" if get_synthesis(request).related_inside else ""
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
    wants=(LookKind.VALUES,),
    outputs={"synthetic": tables.SYNTHETIC},
    fields=(DECODED_COLUMNS, COLUMN_ORDER, *SHARDS, "mechanism.synthesis.related_inside"),
    reads=(KnowledgePart.RULES, KnowledgePart.TOGETHER, KnowledgePart.NEAR),
    inherits=(KnowledgePart.TOTALS,),
    run=_decode,
    version=6,
    words=lambda r: f"codes become values; {_describe_inside_bins(r)}; rows come in random order",
)
"""Turns codes into values; inside combined codes, values follow all one-ways."""


def decode_from(codes: str) -> Step:
    """Return the step DECODE for rows that another step made, in the table ``codes``."""
    run = partial(_decode, codes=codes)
    return replace(DECODE, inputs=(codes, *DECODE.inputs[1:]), inherits=(), run=run)


ROW_STEPS = (REFINE_CODES, MAKE_CONSISTENT, SYNTHESIZE, APPEND_ATTRIBUTES, DECODE)
"""The steps from all measurements to synthetic rows."""


def build_row_steps(request: Request) -> tuple[Step, ...]:
    """Return ROW_STEPS; with a prior, rows follow its pairs if the noisy scores support it."""
    scores = list_released_tables("indif_scores") if request.has_prior else ()
    making = (SYNTHESIZE, APPEND_ATTRIBUTES)
    return tuple(replace(s, inputs=(*s.inputs, *scores)) if s in making else s for s in ROW_STEPS)


DrawRows = Callable[[Request, Inputs, Recode, Progress], Iterable[CodeTable]]
"""Draws rows in coarse codes, from released tables and the recoding by all measurements."""


def build_drawing_step(
    *,
    name: str,
    title: str,
    draw: DrawRows,
    fields: tuple[str, ...],
    reads: tuple[KnowledgePart, ...] = (),
    words: str,
) -> Step:
    """Return a mechanism's own step in place of the synthesis: ``draw`` makes rows from the measurements."""

    def run(request: Request, inputs: Inputs, progress: Progress) -> Mapping[str, Output]:
        recode = inputs.read_pooled_recode()
        batches = (b for rows in draw(request, inputs, recode, progress) for b in rows.to_arrow().to_batches())
        return {"codes": stream_codes(batches, build_coarse_domain(recode))}

    return Step(
        name=name,
        title=title,
        kind=StepKind.POSTPROCESS,
        inputs=(RECODE, *REFINED),
        wants=(LookKind.MARGINALS,),
        outputs={"codes": tables.SYNTHETIC_CODES},
        fields=fields,
        reads=reads,
        run=run,
        words=f"synthetic rows: {words}",
    )


def iterate_shards_to_draw(request: Request, recode: Recode, progress: Progress) -> Iterator[shards.Shard]:
    """Yield the shards of the output rows, and report progress for each."""
    settings = get_synthesis(request)
    rows = synthesize.compute_output_rows(estimate_total(recode), settings)
    for shard in shards.plan_shards(rows, settings):
        progress(shard.number, shard.count)
        yield shard
