"""PrivSyn (paper, Algorithm 3): one-ways, scores of all pairs, the chosen marginals, consistency, rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import combinations
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from privsyn.counting.partitions import list_parts
from privsyn.counting.recoded_parts import RecodedParts
from privsyn.data_contracts import tables
from privsyn.data_contracts.artifacts import StepKind
from privsyn.data_contracts.domain import Clique, Domain
from privsyn.data_contracts.mechanism_options import PrivSyn
from privsyn.data_contracts.receipts import Query, sum_rho
from privsyn.data_contracts.step_options import Selection
from privsyn.engine.inputs import Inputs
from privsyn.engine.request import Request
from privsyn.engine.step import Look, Output, Progress, PublishedFile, ReleaseStep, Step
from privsyn.pipelines.common_steps import (
    COMPRESS_DOMAIN,
    ENCODE,
    ENCODE_WITH_NUMBERS,
    ENCODED,
    RECODE,
    RECODED,
    RELEASED,
    build_one_way_step,
    collect_parts,
    explain_one_cell,
    get_options_as,
    key_asked_pairs,
    list_asked_pairs,
    list_released_tables,
    publish_noisy,
    stream_codes,
)
from privsyn.pipelines.full_cell_steps import build_full_cell_steps, share_full_cells
from privsyn.pipelines.named_sets import build_compression_step, build_set_steps, compute_share, list_set_stages
from privsyn.pipelines.synthesis_steps import build_row_steps, list_score_tables
from privsyn.pipelines.trend_steps import (
    TRENDS,
    build_trend_step,
    count_trends_again,
    explain_by_trends,
    list_trends,
    share_trends,
)
from privsyn.pipelines.value_steps import build_value_steps, list_value_looks, share_values
from privsyn.storage.table_files import StoredTable
from privsyn.tasks.codecs.binning import list_counted_alone, list_roundings
from privsyn.tasks.estimation.near_pairs import is_wide
from privsyn.tasks.estimation.noisy import count_marginals
from privsyn.tasks.estimation.recode import build_coarse_domain, estimate_total
from privsyn.tasks.kernels.counting import Countable
from privsyn.tasks.kernels.read_ahead import read_ahead
from privsyn.tasks.knowledge.public_knowledge import KnowledgePart
from privsyn.tasks.steps import (
    combine_cliques,
    compress_domain,
    indif_scores,
    measure_marginals,
    select_pairs,
    trend_scores,
)

CLIQUES = "combine_cliques.cliques"
JOINT_COUNTS, SINGLE_COUNTS = "joint counts of the related columns", "counts of single columns once more"
WHOLE_BUDGET = Fraction(1)
"""The whole budget."""
NOTHING = Fraction(0)
"""No part of a budget."""


def build_steps(request: Request) -> tuple[Step, ...]:
    """Return the steps of PrivSyn, in the paper's order; each step's inputs are outputs of earlier ones."""
    options, stages = get_options(request), ["measure_marginals", *list_set_stages(request)]
    measurement, sets = options.split.exact()[2], compute_share(request)
    return (
        *build_up_to_measurement(  # lines 1 to 5
            options,
            measurement * (1 - sets),
            trends=share_trends(request),
            values=share_values(request),
            cells=share_full_cells(request),
            compress=build_compression_step(request, measurement),
        ),
        *build_set_steps(request, measurement),  # not in the paper
        *build_row_steps(  # lines 6 and 7
            stages, list_score_tables(request), list_trends(request), list_value_looks(request)
        ),
    )


def build_up_to_measurement(
    options: PrivSyn,
    measurement: Fraction,
    part: Fraction = WHOLE_BUDGET,
    trends: Fraction = NOTHING,
    values: Fraction = NOTHING,
    cells: Fraction = NOTHING,
    compress: Step = COMPRESS_DOMAIN,
    encode: Step | None = None,
) -> tuple[Step, ...]:
    """Return the steps up to the first measurement of marginals.

    Args:
        options: The mechanism's options.
        measurement: The share of ``part`` that the measurement has, with the looks that are cut off from it.
        part: The part of the whole budget that all these steps share.
        trends: The share of ``measurement`` that a look at trends has; 0: there is none.
        values: The share of ``measurement`` that counts of single values have; 0: there are none.
        cells: What of the one-ways' share the first look at rungs has; 0: there is none.
        compress: The step that chooses codes.
        encode: The step that encodes the private table; None: as the looks need it.
    """
    one_ways, scores, _ = options.split.exact()
    trend_looks = (TRENDS,) if trends else ()
    encode = encode or (ENCODE_WITH_NUMBERS if values or cells else ENCODE)
    measure = build_first_measurement(measurement * (1 - trends - values) * part, trends=trend_looks)
    single = build_one_way_step(one_ways * (1 - cells) * part, options.split.one_ways)
    return (
        encode,
        *(build_full_cell_steps(one_ways * cells * part, single, encode) if cells else ()),  # not in the paper
        single,  # line 1
        compress,  # line 2
        RECODE_ROWS,
        build_scores_step(lambda r: get_options(r).selection, scores * part),  # line 3, Algorithm 1
        *([build_trend_step(measurement * trends * part)] if trends else []),  # not in the paper
        build_selection_step(measure, trend_looks),  # line 3, Algorithm 1
        COMBINE_CLIQUES,  # line 4, Algorithm 2
        measure,  # line 5
        *(build_value_steps(measurement * values * part) if values else ()),  # not in the paper
    )


def get_options(request: Request) -> PrivSyn:
    """Return the request's options.  Raises TypeError if it asks for another mechanism."""
    return get_options_as(request, PrivSyn)


def _recode(request: Request, inputs: Inputs, progress: Progress) -> Mapping[str, Output]:
    recode, stored = inputs.recode(), inputs.stored(ENCODED)
    stream = stream_codes((), build_coarse_domain(recode), padded=True)
    parts = list_parts(stored.files) if isinstance(stored, StoredTable) else []
    if parts:
        make = RecodedParts(recode).make
        return {"recoded_rows": collect_parts(stream, inputs.work.make(make, stream.profile, stream.schema, parts))}
    batches = compress_domain.recode_rows(inputs.batches(ENCODED), recode)
    return {"recoded_rows": replace(stream, batches=read_ahead(batches, request.threads))}


RECODE_ROWS = Step(
    name="recode_rows",
    title="Recode rows",
    kind=StepKind.TRANSFORM,
    inputs=(ENCODED, RECODE),
    outputs={"recoded_rows": tables.RECODED_ROWS},
    settings=lambda r: None,
    run=_recode,
)


def _plan_scores(selection: Selection, request: Request, inputs: Inputs, rho: Fraction) -> list[Query]:
    by_one_ways = selection.scores == "one_ways"
    domain = inputs.domain()
    asked_pairs = list_asked_pairs(request, domain.attributes)
    return indif_scores.plan_queries(
        domain,
        rho,
        request.records,
        indif_scores.REFERENCE_SENSITIVITY if by_one_ways else indif_scores.SENSITIVITY,
        max_cells=selection.max_cells,
        unscored={*request.public.known_pairs, *_list_settled_pairs(request, domain, asked_pairs)},
        scored_more=request.public.scored_more,
        asked_pairs=asked_pairs,
    )


def _list_settled_pairs(request: Request, domain: Domain, asked_pairs: Sequence[Clique] | None) -> list[Clique]:
    """Return the pairs that need no score, of ``asked_pairs``, or of all where these are None.

    One of their attributes has a single code, and so is related to nothing; or both are of rows that are made before.
    """
    counted_alone = set(list_counted_alone(request.encoding.binning))
    made_before = set(request.encoding.list_attributes_within(request.above))
    if not counted_alone and not made_before:
        return []
    pairs = combinations(domain.attributes, 2) if asked_pairs is None else asked_pairs
    return [pair for pair in pairs if counted_alone & {*pair} or made_before >= {*pair}]


def _score_exactly(
    selection: Selection, request: Request, inputs: Inputs, rows: Countable, queries: list[Query]
) -> Iterator[NDArray[np.int64]]:
    expected = request.public.in_codes(inputs.recode()).expected if selection.scores == "one_ways" else None
    return indif_scores.count_exactly(rows, queries, request.threads, expected)


def _explain_score_sensitivity(selection: Selection) -> str:
    if selection.scores == "one_ways":
        return (
            "k: against the noisy one-ways, released before, each of a person's k records changes "
            "one count by 1, so the L1 distance by at most 1; rounding down to whole records keeps it"
        )
    return "4k: PrivSyn, Lemma 4, for each of a person's k records; rounding down to whole records keeps it"


def build_scores_step(selection: Callable[[Request], Selection], share: Fraction) -> ReleaseStep:
    """Return the step that scores pairs as ``selection`` says (which distance, which pairs), with this part of rho."""
    return ReleaseStep(
        name="indif_scores",
        title="InDif scores",
        inputs=(RECODED, RECODE),
        outputs=RELEASED,
        settings=lambda r: {**selection(r).model_dump(include={"scores", "max_cells"}), **key_asked_pairs(r)},
        reads=(KnowledgePart.PRIOR_PAIRS, KnowledgePart.KNOWN_PAIRS, KnowledgePart.SCORED, KnowledgePart.NEAR),
        plan=lambda r, inputs, rho: _plan_scores(selection(r), r, inputs, rho),
        exact=lambda r, inputs, rows, queries: _score_exactly(selection(r), r, inputs, rows, queries),
        share=lambda r: share,
        look=Look(
            what="how strongly each pair of columns is related",
            reason=lambda r: _explain_score_sensitivity(selection(r)),
            noise_of="a score",
        ),
        rows=RECODED,
        padded=True,
        published=publish_noisy("scores", "the strength of relation of each pair"),
    )


def read_noisy_scores(inputs: Inputs) -> dict[tuple[str, str], float]:
    """Return pair -> noisy score, for a step that reads the scores."""
    queries, answers = inputs.noisy("indif_scores")
    return {(q.attributes[0], q.attributes[1]): float(y[0]) for q, y in zip(queries, answers, strict=True)}


def weigh_evenly(cliques: Sequence[Clique], request: Request, inputs: Inputs) -> pa.Table:
    """Return the contract CLIQUES of ``cliques``, all of one weight; of the one-ways where there are none."""
    domain, fine = inputs.domain(), request.encoding.domain
    weighed = combine_cliques.with_one_ways(dict.fromkeys(cliques, 1.0), 0.0, fine)
    return combine_cliques.tabulate_cliques(weighed, domain, fine)


def build_choice_step(
    *,
    name: str,
    title: str,
    scores: str,
    choose: Callable[[Request, Inputs], Sequence[Clique]],
    settings: Callable[[Request], dict[str, Any]],
    reads: tuple[KnowledgePart, ...] = (),
    words: str,
) -> Step:
    """Return the step of a mechanism that chooses cliques by the noisy ``scores``, all of one weight."""
    return Step(
        name=name,
        title=title,
        kind=StepKind.POSTPROCESS,
        inputs=(*list_released_tables([scores]), RECODE),
        outputs={"cliques": tables.CLIQUES},
        settings=settings,
        reads=reads,
        run=lambda r, inputs, progress: {"cliques": weigh_evenly(choose(r, inputs), r, inputs)},
        words=lambda r: words,
    )


def _key_criterion(request: Request) -> dict[str, Any]:
    selection = get_options(request).selection
    return {"choice": selection.criterion, "max_cells": selection.max_cells}


def key_choice(request: Request, measure: ReleaseStep) -> dict[str, Any]:
    """Return the settings, for keys, that every choice of marginals for the step ``measure`` depends on."""
    options = get_options(request)
    pooled = {"pooled": True} if options.consistency.pooled else {}  # earlier keys have no such field
    return {**measure.priced(request), "again": options.split.remeasure_one_ways, **pooled}


def build_selection_step(measure: ReleaseStep, trends: Sequence[str] = ()) -> Step:
    """Return the choice of pairs by their noisy scores, for the budget of the step ``measure``.

    ``trends``: the looks at trends, whose part of a score needs no measurement.
    """

    def run(request: Request, inputs: Inputs, progress: Progress) -> Mapping[str, Output]:
        queries, answers = inputs.noisy("indif_scores")
        options = get_options(request)
        pairs = select_pairs.select(
            queries,
            [float(a[0]) for a in answers],
            inputs.recode(),
            float(measure.rho(request)),
            request.records,
            options.selection,
            remeasure_one_ways=options.split.remeasure_one_ways,
            targets=request.public.targets,
            pooled=options.consistency.pooled,
            rounding=list_roundings(request.encoding.binning),
            explained=explain_by_trends(request, inputs, trends),
        )
        return {"pairs": pairs}

    return Step(
        name="select_pairs",
        title="Select pairs",
        kind=StepKind.POSTPROCESS,
        inputs=(*list_released_tables(["indif_scores", *trends]), RECODE),
        outputs={"pairs": tables.PAIRS},
        settings=lambda r: {**key_choice(r, measure), **_key_criterion(r)},
        reads=(KnowledgePart.TARGETS,),
        run=run,
        version=4,
        words=_describe_selection,
    )


def _describe_selection(request: Request) -> str:
    criterion = get_options(request).selection.criterion.replace("_", " ")
    counting_more = "; targets of the request count more" if request.public.key([KnowledgePart.TARGETS]) else ""
    return f"pairs of columns are chosen by their noisy scores ({criterion}){counting_more}"


def _combine(request: Request, inputs: Inputs, progress: Progress) -> Mapping[str, Output]:
    domain, fine = inputs.domain(), request.public.measured_again
    pairs = inputs.table("select_pairs.pairs")
    weighed = combine_cliques.weigh_cliques(pairs, domain, fine, get_options(request).selection)
    return {"cliques": combine_cliques.tabulate_cliques(weighed, domain, fine)}


def _compute_gamma(request: Request) -> int | None:
    selection = get_options(request).selection
    return selection.gamma if selection.combine_cliques else None


COMBINE_CLIQUES = Step(
    name="combine_cliques",
    title="Combine cliques",
    kind=StepKind.POSTPROCESS,
    inputs=("select_pairs.pairs", RECODE),
    outputs={"cliques": tables.CLIQUES},
    settings=lambda r: {**_key_criterion(r), "gamma": _compute_gamma(r)},
    inherits=(KnowledgePart.KNOWN_COLUMNS,),
    run=_combine,
    version=2,
)


def build_measurement(
    *,
    name: str,
    title: str,
    chosen: str,
    share: Fraction,
    look: Look,
    files: Mapping[str, PublishedFile],
    limit: str = "",
    trends: Sequence[str] = (),
) -> ReleaseStep:
    """Return the step that measures the cliques in the table ``chosen``, which share this part of the budget by weight.

    ``trends``: the looks at trends.  Where what they say is unclear it is asked again, after the marginals, unless the
    table is wide.
    """

    def plan(request: Request, inputs: Inputs, rho: Fraction) -> list[Query]:
        weights, domain = combine_cliques.read_cliques(inputs.table(chosen)), inputs.domain()
        # of a wide table fewer trends are asked where they would be unclear, so none is asked again
        trend_looks = () if is_wide(request.encoding.domain.attributes) else trends
        asked_before = [query for look in trend_looks for query in inputs.noisy(look)[0]]
        total = estimate_total(inputs.recode())
        asked_again, weights = trend_scores.plan_again(asked_before, weights, total, rho, request.records)
        remaining = rho - sum_rho(asked_again)
        queries = measure_marginals.plan_queries(weights, domain, request.encoding.domain, remaining, request.records)
        return [*queries, *asked_again]

    def exact(request: Request, inputs: Inputs, rows: Countable, queries: list[Query]) -> Iterator[NDArray[np.int64]]:
        fine = lambda: inputs.countable(ENCODED, request.encoding.domain)  # noqa: E731
        marginals = count_marginals([q.attributes for q in queries])
        yield from measure_marginals.count_exactly(rows, fine, queries[:marginals], request.threads)
        if asked_again := queries[marginals:]:
            yield from count_trends_again(request, inputs, rows, asked_again)

    return ReleaseStep(
        name=name,
        title=title,
        inputs=(RECODED, ENCODED, RECODE, chosen, *list_released_tables(trends)),
        outputs=RELEASED,
        plan=plan,
        exact=exact,
        share=lambda r: share,
        look=look,
        rows=RECODED,
        padded=True,
        published=files,
        limit=limit,
    )


def _explain_sum_of_signs(request: Request) -> str:
    return f"{explain_one_cell(request)}; a trend asked again is a sum of signs, to which each adds at most 1"


def build_first_measurement(
    share: Fraction,
    chosen: str = CLIQUES,
    limit: str = "Relations of three and more columns are only kept where they follow from those measured.",
    trends: Sequence[str] = (),
) -> ReleaseStep:
    """Return the paper's measurement of the marginals in the table ``chosen``, with this share of the budget.

    ``trends``: as of :func:`build_measurement`.
    """
    words = "has the joint counts, cell by cell, the last attribute running fastest"
    if trends:
        words += "; pairs after the single columns are sums, as in `trends.parquet`"
    return build_measurement(
        name="measure_marginals",
        title="Measure marginals",
        chosen=chosen,
        share=share,
        look=Look(what=JOINT_COUNTS, reason=_explain_sum_of_signs if trends else explain_one_cell, alone=SINGLE_COUNTS),
        files=publish_noisy("measured", words),
        limit=limit,
        trends=trends,
    )


STEPS = (
    *build_up_to_measurement(PrivSyn(), PrivSyn().split.exact()[2]),
    *build_row_steps(["measure_marginals"]),
)
"""The steps with the default options: what docs/architecture.md draws."""
