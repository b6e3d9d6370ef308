"""The last steps of every mechanism: from noisy counts to the synthetic table, by post-processing only.

What was looked at before differs from mechanism to mechanism, so most functions here are told it by names of release
steps, each empty where there was no such step:

- ``stages``: those that measured marginals after the first one-ways;
- ``trends``: those that asked trends, from which pairs follow that no stage measured;
- ``values``: those that counted single values;
- ``scores``: the released tables of noisy scores, by which rows follow a public prior or do not.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import pyarrow as pa

from privsyn.counting import synthetic_parts
from privsyn.counting.part_files import Make, PartFile
from privsyn.counting.row_work import RowWork
from privsyn.data_contracts import tables
from privsyn.data_contracts.artifacts import StepKind
from privsyn.data_contracts.domain import Clique, Domain
from privsyn.data_contracts.mechanism_options import PrivSyn
from privsyn.data_contracts.step_options import SHARD_ROWS, Consistency, Synthesis
from privsyn.engine.inputs import Inputs
from privsyn.engine.request import Request
from privsyn.engine.step import Output, Progress, PublishedFile, RowStream, Step
from privsyn.pipelines.common_steps import (
    RECODE,
    collect_parts,
    key_asked_pairs,
    key_columns,
    key_draws_below_top,
    list_asked_pairs,
    list_released_tables,
    stream_codes,
)
from privsyn.pipelines.named_sets import (
    MERGES,
    has_sets,
    key_named_pairs,
    list_measured_tables,
    list_named_pairs,
    list_stages_by_code,
    read_set_marginals,
    read_sets,
)
from privsyn.pipelines.trend_steps import list_trends, read_trends
from privsyn.pipelines.value_steps import list_value_tables, read_frequent_values
from privsyn.storage.table_files import StoredTable
from privsyn.tasks.estimation import known_zeros, marginals, null_zeros
from privsyn.tasks.estimation.near_pairs import is_wide
from privsyn.tasks.estimation.recode import (
    Recode,
    build_coarse_domain,
    drop_unlisted,
    estimate_total,
    map_coarse_one_ways,
    mark_all_ordered_codes,
    sum_coarse_one_ways,
)
from privsyn.tasks.estimation.trends import list_missing_pairs
from privsyn.tasks.kernels.counting import CodeTable
from privsyn.tasks.kernels.read_ahead import read_ahead
from privsyn.tasks.knowledge import hold_totals, prior_pairs
from privsyn.tasks.knowledge.public_knowledge import KnowledgeInCodes, KnowledgePart
from privsyn.tasks.steps import append_attributes, decode, make_consistent, synthesize
from privsyn.tasks.synthesis import shards
from privsyn.tasks.synthesis.strongest_pairs import MOST_FOLLOWED, choose_strongest

MARGINALS, SET_MARGINALS = "make_consistent.marginals", "make_consistent.set_marginals"
BY_TREND = "make_consistent.by_trend"


def get_consistency(request: Request) -> Consistency:
    """Return the settings of consistency: the mechanism's, or the defaults where it has none."""
    options = request.spec.mechanism
    return options.consistency if isinstance(options, PrivSyn) else Consistency()


def key_consistency(request: Request) -> dict[str, Any]:
    """Return the settings of consistency by the names that they have in keys."""
    settings = get_consistency(request)
    key = {"rounds": settings.rounds, "firm": settings.one_way_weight, "shrink": settings.shrink}
    pooled = {"pooled": "with trends", "nulls": "together"}  # earlier keys have no such fields
    return {**key, **(pooled if settings.pooled else {}), **_key_smoothing(request)}


def _key_smoothing(request: Request) -> dict[str, Any]:
    """Return what keys say of smoothed one-ways; earlier keys have no such field."""
    return {"smoothed": "with tails"} if request.spec.mechanism.compression.equal_mass else {}


def get_synthesis(request: Request) -> Synthesis:
    """Return the settings of synthesis: the mechanism's, or the defaults where it has rows and seed only."""
    options = request.spec.mechanism.synthesis
    return options if isinstance(options, Synthesis) else Synthesis(**options.model_dump())


def key_synthesis(request: Request) -> dict[str, Any]:
    """Return the settings of synthesis by the names that they have in keys.

    ``kappa`` was one until 0.3.0, and was 0.
    """
    return {**get_synthesis(request).model_dump(exclude={"related_inside"}), "kappa": 0.0}


def _key_rows(request: Request) -> dict[str, Any]:
    settings = get_synthesis(request)
    rows = SHARD_ROWS if settings.rows == "auto" else settings.rows
    # shards were made one after another before 0.4: what they were must not be taken for what they would be now
    later: dict[str, Any] = {"shards": "apart"} if settings.method == "sweep" and settings.shard_rows < rows else {}
    follows_some = list_trends(request) and is_wide(request.encoding.domain.attributes)
    later |= {"followed": MOST_FOLLOWED} if follows_some else {}
    later |= {"nulls": "together"} if get_consistency(request).pooled else {}
    return {**key_synthesis(request), **later}


def _key_shards(request: Request) -> dict[str, Any]:
    return request.spec.mechanism.synthesis.model_dump(include={"seed", "shard_rows"})


def pool_one_ways(request: Request, inputs: Inputs, stages: Sequence[str]) -> Recode:
    """Return the recoding with all one-ways that ``stages`` measured."""
    return inputs.refined(request.encoding.binning, request.spec.mechanism.compression, list_stages_by_code(stages))


def find_null_codes(request: Request, recode: Recode) -> dict[str, int]:
    """Return, by attribute, the code of null whose joint codes with others may be found to be empty.

    Attributes of which rules or totals say something are left out; all are without ``consistency.pooled``, and where
    a prior says what is expected.
    """
    knowledge = request.public.in_codes(recode)
    if not get_consistency(request).pooled or request.has_prior:
        return {}
    totals = knowledge.public.totals
    zero_tables = [] if knowledge.zeros is None else knowledge.zeros.tables
    constrained = knowledge.tied | {clique[0] for clique, _ in zero_tables}
    nullable = [c.attribute for c in request.encoding.codecs if any(r.nullable for r in c.ranges().values())]
    free = [a for a in nullable if a not in constrained and (totals is None or not totals.has((a,)))]
    return null_zeros.find_null_codes(recode, free)


def find_zeros(
    request: Request, inputs: Inputs, stages: Sequence[str], recode: Recode, unmeasured: Collection[Clique] = ()
) -> known_zeros.KnownZeros | None:
    """Return the joint codes that no row has: by public knowledge, and with null by the counts of ``stages``.

    ``recode``: with all one-ways that these measured; ``unmeasured``: pairs that they did not measure, whose
    cells with null are looked at, too.
    """
    public, nulls = request.public.in_codes(recode).zeros, find_null_codes(request, recode)
    if not nulls:
        return public
    queries, answers = inputs.measured(list_stages_by_code(stages))
    measured = make_consistent.build_measured_marginals(queries, answers, build_coarse_domain(recode))
    pairs = [m for m in measured if len(m.attributes) == 2]
    found_zeros = null_zeros.find_null_zeros(pairs, map_coarse_one_ways(recode), nulls, unmeasured)
    if public is None:
        return found_zeros
    return known_zeros.KnownZeros(public.tables, (*public.implied, *found_zeros.implied))


def read_consistent_marginals(
    request: Request, inputs: Inputs, stages: Sequence[str], trends: Sequence[str] = ()
) -> tuple[Recode, list[marginals.Marginal], list[marginals.Marginal]]:
    """Return the recoding by all that ``stages`` measured, the consistent marginals, and pairs by trend.

    Among the marginals sets in merged codes come last; pairs by trend are those that ``stages`` did not measure.
    """
    recode = pool_one_ways(request, inputs, stages)
    domain = build_coarse_domain(recode)
    one_way, variance = sum_coarse_one_ways(recode)
    measured = make_consistent.build_measured_marginals(*inputs.measured(list_stages_by_code(stages)), domain)
    settings, knowledge = get_consistency(request), request.public.in_codes(recode)
    by_trend = read_trends(request, inputs, recode, trends, list_stages_by_code(stages))
    totals, sets = knowledge.public.totals, read_set_marginals(inputs, stages)
    named_pairs = list_named_pairs(request)
    if by_trend is not None:
        one_way = [m if totals is not None and totals.has(m.attributes) else by_trend.pool_in(m) for m in one_way]
        measured = [by_trend.pool_in(m) for m in measured]
        sets = [by_trend.pool_in(m) if m.attributes in named_pairs else m for m in sets]
    measured += [*knowledge.known_pairs, *sets]
    expected = by_trend if knowledge.prior_pairs is None else knowledge.prior_pairs
    zeros = find_zeros(request, inputs, stages, recode, () if by_trend is None else by_trend.correlation)
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
    """Return the marginals in the codes of the recoding, and the sets in merged codes."""
    return [m for m in consistent if not m.merges], [m for m in consistent if m.merges]


def list_attributes(sets: Sequence[marginals.Marginal]) -> frozenset[str]:
    """Return the attributes of the sets: rows of these are made together."""
    return frozenset(a for m in sets for a in m.attributes)


def read_consistent(
    request: Request, inputs: Inputs, stages: Sequence[str], trends: Sequence[str] = ()
) -> tuple[list[marginals.Marginal], list[marginals.Marginal]]:
    """Return the consistent marginals, with the pairs by trend that rows follow, and sets from their tables."""
    domain, sets = inputs.domain(), read_sets(inputs, stages)
    by_code = marginals.from_table(inputs.table(MARGINALS), domain)
    by_trend = marginals.from_table(inputs.table(BY_TREND), domain) if trends else []
    by_code += choose_strongest(by_trend) if is_wide(request.encoding.domain.attributes) else by_trend
    merges = [planned.merges for planned in sets]
    return by_code, marginals.from_table(inputs.table(SET_MARGINALS), domain, merges) if sets else []


def list_consistent_tables(stages: Sequence[str], trends: Sequence[str] = ()) -> tuple[str, ...]:
    """Return the tables of consistent counts, of pairs by trend, and of sets how these are merged."""
    return (MARGINALS, *((BY_TREND,) if trends else ()), *((SET_MARGINALS, MERGES) if has_sets(stages) else ()))


CONSISTENCY_READS = (KnowledgePart.RULES, KnowledgePart.PRIOR_PAIRS, KnowledgePart.TOTALS)
"""The parts of public knowledge that :func:`read_consistent_marginals` reads."""


def list_score_tables(request: Request) -> tuple[str, ...]:
    """Return the tables by which rows know whether to follow the prior's pairs; none without a prior."""
    return list_released_tables(["indif_scores"]) if request.has_prior else ()


def trusts_prior(knowledge: KnowledgeInCodes, inputs: Inputs) -> bool:
    """Return whether the noisy scores say that the prior's pairs are nearer than independence."""
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
    """Return what rows take from the prior, if the noisy scores speak for it.

    ``knowledge``: in the codes that were scored; ``recode``: the same codes with all one-ways that were measured.
    """
    expected = knowledge.public.in_codes(recode).prior_pairs
    if expected is None or not trusts_prior(knowledge, inputs):
        return None
    return prior_pairs.choose_followed(expected, recode, consistent)


def build_consistency_step(stages: Sequence[str], trends: Sequence[str] = ()) -> Step:
    """Return the step that makes the one-ways and what ``stages`` measured agree, and lists pairs by ``trends``."""

    def run(request: Request, inputs: Inputs, progress: Progress) -> Mapping[str, Output]:
        _, consistent, by_trend = read_consistent_marginals(request, inputs, stages, trends)
        by_code, sets = split_sets(consistent)
        of_sets = {"set_marginals": marginals.to_table(sets)} if has_sets(stages) else {}
        of_trends = {"by_trend": marginals.to_table(by_trend)} if trends else {}
        return {"marginals": marginals.to_table(by_code), **of_sets, **of_trends}

    files = {"marginals": PublishedFile("marginals/consistent.parquet")}
    if has_sets(stages):
        files["set_marginals"] = PublishedFile("marginals/consistent_sets.parquet")
    if trends:
        words = "has the counts of pairs that were not measured, by trend"
        files["by_trend"] = PublishedFile("marginals/by_trend.parquet", words)

    return Step(
        name="make_consistent",
        title="Make consistent",
        kind=StepKind.POSTPROCESS,
        inputs=(RECODE, *list_measured_tables(stages), *list_released_tables(trends)),
        outputs=dict.fromkeys(files, tables.MARGINALS),
        settings=lambda r: {**key_consistency(r), **(key_named_pairs(r) if has_sets(stages) else {})},
        reads=CONSISTENCY_READS,
        run=run,
        version=8,
        published=files,
        words=lambda r: "all noisy counts are brought into agreement and to one total, without negative ones",
    )


def build_synthesis_step(stages: Sequence[str], scores: tuple[str, ...] = (), trends: Sequence[str] = ()) -> Step:
    """Return the step that makes rows from consistent marginals, as many as ``stages`` and the one-ways say."""

    def run(request: Request, inputs: Inputs, progress: Progress) -> Mapping[str, Output]:
        domain = inputs.domain()
        knowledge = request.public.in_codes(inputs.recode())
        consistent, sets = read_consistent(request, inputs, stages, trends)
        recode = pool_one_ways(request, inputs, stages)
        prior = _follow_prior(knowledge, inputs, recode, consistent)
        # appended attributes follow the core's rows one by one; what rules, sets or a prior tie is made at once
        made_together = knowledge.tied | list_attributes(sets) if prior is None else frozenset(domain.attributes)
        core = append_attributes.select_core_marginals(consistent, domain, made_together)
        settings, totals = get_synthesis(request), knowledge.public.totals
        total = estimate_total(recode) if totals is None else totals.rows
        planned = shards.plan_shards(synthesize.compute_output_rows(total, settings), settings)

        zeros = find_zeros(request, inputs, stages, recode)
        parts = synthetic_parts.CoreParts([*core.marginals, *sets], core.domain, settings, zeros, prior)
        stream = stream_codes((), core.domain)
        if len(planned) == 1:
            shard = parts.make(planned[0], request.threads, progress)
            return {"core_codes": replace(stream, batches=shard.batches)}
        files = make_core_parts(inputs.work, parts, planned, progress)
        return {"core_codes": collect_parts(stream, files)}

    return Step(
        name="synthesize",
        title="Synthesize",
        kind=StepKind.POSTPROCESS,
        inputs=(
            *list_consistent_tables(stages, trends),
            RECODE,
            *list_released_tables(list_stages_by_code(stages)),
            *scores,
        ),
        outputs={"core_codes": tables.SYNTHETIC_CODES},
        settings=_key_rows,
        reads=(KnowledgePart.RULES, KnowledgePart.PRIOR_PAIRS, KnowledgePart.TOTALS),
        run=run,
        version=10,
        words=_describe_rows,
    )


_METHODS = {
    "sweep": "rows drawn along a tree of related columns, then moved value by value towards all counts at once",
    "gum": "rows updated gradually towards the counts (PrivSyn, section 5)",
}


def _describe_rows(request: Request) -> str:
    settings = get_synthesis(request)
    auto = settings.rows == "auto"
    rows = "as many as the noisy counts say" if auto else f"{settings.rows:,}, as the request asks"
    return f"synthetic rows: {_METHODS[settings.method]}; {rows}"


def make_core_parts(
    work: RowWork,
    parts: synthetic_parts.CoreParts,
    planned: Sequence[shards.Shard],
    progress: Progress = lambda done, total: None,
) -> list[PartFile]:
    """Return the files of the shards: each is made by itself, and then some are moved towards what all lack together.

    That is done shard after shard, until all together are as close to the counts as a shard by itself was on average.
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
    """Return a step's output, made shard by shard: as a stream where there is one only, else as files."""
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
    else:  # made at once, or by an earlier version
        rows = list(inputs.work.split(inputs.batches(name), tables.build_code_schema(domain), sizes))
    return [synthetic_parts.ShardRows(shard, shard_rows) for shard, shard_rows in zip(planned, rows, strict=True)]


def _append(
    stages: Sequence[str], trends: Sequence[str], request: Request, inputs: Inputs, progress: Progress
) -> Mapping[str, Output]:
    domain = inputs.domain()
    consistent, sets = read_consistent(request, inputs, stages, trends)
    knowledge = request.public.in_codes(inputs.recode())
    tied = frozenset(domain.attributes) if trusts_prior(knowledge, inputs) else knowledge.tied | list_attributes(sets)
    core = append_attributes.select_core_marginals(consistent, domain, tied)
    quotas = hold_totals.Quotas(knowledge.exact_counts)
    tasks = [
        synthetic_parts.ExactShard(shard, rows, quotas.take(shard.rows))
        for shard, rows in _list_shard_rows(request, inputs, "synthesize.core_codes", core.domain)
    ]
    parts = synthetic_parts.WholeParts(core.domain, consistent, domain, tied)
    stream = stream_codes((), domain)
    return {"codes": _make_in_parts(request, inputs, progress, parts.make, stream, tasks)}


def build_appending_step(scores: tuple[str, ...] = (), stages: Sequence[str] = (), trends: Sequence[str] = ()) -> Step:
    """Return the step that gives rows the attributes that are related to no other."""
    return Step(
        name="append_attributes",
        title="Append attributes",
        kind=StepKind.POSTPROCESS,
        inputs=("synthesize.core_codes", *list_consistent_tables(stages, trends), RECODE, *scores),
        outputs={"codes": tables.SYNTHETIC_CODES},
        settings=_key_shards,
        reads=(KnowledgePart.RULES, KnowledgePart.PRIOR_PAIRS, KnowledgePart.TOTALS),
        run=partial(_append, stages, trends),
        version=2,
    )


CODES = "append_attributes.codes"


def build_decoding_step(stages: Sequence[str], name: str = CODES, values: Sequence[str] = ()) -> Step:
    """Return the step that turns codes into values, combined ones by all that ``stages`` and the one-ways measured.

    ``name``: the table of the codes, which is the step's first input.
    """

    def run(request: Request, inputs: Inputs, progress: Progress) -> Mapping[str, Output]:
        pooled, encoding = pool_one_ways(request, inputs, stages), request.encoding
        recode = drop_unlisted(pooled, encoding.binning, request.spec.mechanism.compression)
        if values:
            encoding = encoding.with_frequent(read_frequent_values(request, inputs, recode, values))
        order, exact = request.column_order, request.public.exact_in_rules
        related = get_synthesis(request).related_inside
        domain = build_coarse_domain(recode)
        asked_pairs = list_asked_pairs(request, domain.attributes) if related else None
        parts = synthetic_parts.DecodedParts(recode, encoding, order, exact, related, asked_pairs)
        tasks = _list_shard_rows(request, inputs, name, domain)
        ranges = encoding.ranges()
        profile = partial(tables.make_value_profile, ranges={name: ranges[name] for name in order})
        stream = RowStream(decode.build_decoded_schema(encoding, order), (), profile)
        return {"synthetic": _make_in_parts(request, inputs, progress, parts.make, stream, tasks)}

    return Step(
        name="decode",
        title="Decode",
        kind=StepKind.POSTPROCESS,
        inputs=(name, RECODE, *list_released_tables(list_stages_by_code(stages)), *list_value_tables(values)),
        outputs={"synthetic": tables.SYNTHETIC},
        settings=_key_decoding,
        reads=(KnowledgePart.RULES, KnowledgePart.TOGETHER, KnowledgePart.NEAR),
        inherits=(KnowledgePart.TOTALS,) if name == CODES else (),
        run=run,
        version=6,
        words=lambda r: f"codes become values; {_describe_inside_bins(r, bool(values))}; rows come in random order",
    )


def _key_decoding(request: Request) -> dict[str, Any]:
    # earlier keys have neither
    related = get_synthesis(request).related_inside
    later: dict[str, Any] = {"inside": "related by products, rounded", **key_asked_pairs(request)} if related else {}
    if any(bins.added is not None for bins in request.encoding.binning.values()):
        later |= {"unlisted": "above noise"}
    later |= {**_key_smoothing(request), **key_draws_below_top(request)}
    if (rows := tables.choose_batch_rows(len(request.column_order))) < tables.BATCH_ROWS:
        later |= {"batch_rows": rows}
    if request.spec.compare and request.encoding.computed:
        later |= {"computed": "after comparing"}
    return {**_key_shards(request), "order": request.column_order, "columns": key_columns(request), **later}


def _describe_inside_bins(request: Request, frequent: bool) -> str:
    falling = ", in wide bins as the noisy counts of their cells fall" if request.encoding.wide else ""
    common = ", those of columns that move together at one place of their bins" if request.public.together else ""
    related = ", along the relations of the row's other values" if get_synthesis(request).related_inside else ""
    often = ", values that many rows share as often as their noisy counts say" if frequent else ""
    names = ", ".join(request.spec.unmeasured_columns)
    unread = f"; columns that are not measured are drawn evenly from their public domains: {names}" if names else ""
    return f"inside a bin values are drawn evenly{falling}{often}{common}{related}{unread}"


def build_row_steps(
    stages: Sequence[str], scores: tuple[str, ...] = (), trends: Sequence[str] = (), values: Sequence[str] = ()
) -> tuple[Step, ...]:
    """Return the last steps of most mechanisms: from the one-ways and what ``stages`` measured to synthetic rows."""
    return (
        build_consistency_step(stages, trends),
        build_synthesis_step(stages, scores, trends),
        build_appending_step(scores, stages, trends),
        build_decoding_step(stages, values=values),
    )


Draw = Callable[[Request, Inputs, Recode, Progress], Iterable[CodeTable]]
"""Draws rows in coarse codes, from released tables and the recoding with all that was measured."""


def build_drawing_step(
    *,
    name: str,
    title: str,
    stages: Sequence[str],
    draw: Draw,
    settings: Callable[[Request], dict[str, Any]],
    reads: tuple[KnowledgePart, ...] = (),
    words: str,
) -> Step:
    """Return a mechanism's own step in place of the synthesis: ``draw`` makes rows from the counts of ``stages``."""

    def run(request: Request, inputs: Inputs, progress: Progress) -> Mapping[str, Output]:
        recode = pool_one_ways(request, inputs, stages)
        batches = (b for rows in draw(request, inputs, recode, progress) for b in rows.to_arrow().to_batches())
        return {"codes": stream_codes(batches, build_coarse_domain(recode))}

    return Step(
        name=name,
        title=title,
        kind=StepKind.POSTPROCESS,
        inputs=(RECODE, *list_released_tables(stages)),
        outputs={"codes": tables.SYNTHETIC_CODES},
        settings=lambda r: {**settings(r), **_key_smoothing(r)},
        reads=reads,
        run=run,
        words=lambda r: f"synthetic rows: {words}",
    )


def iterate_shards_to_draw(request: Request, recode: Recode, progress: Progress) -> Iterator[shards.Shard]:
    """Yield the shards of as many rows as the request wants, or the noisy counts say, reporting each."""
    settings = get_synthesis(request)
    rows = synthesize.compute_output_rows(estimate_total(recode), settings)
    for shard in shards.plan_shards(rows, settings):
        progress(shard.number, shard.count)
        yield shard
