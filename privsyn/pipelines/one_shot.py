"""PrivSyn (paper, Algorithm 3): one-ways, scores of all pairs, the chosen marginals, consistency, rows.

Marginals are chosen once; ``adaptive`` chooses again in each round.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from fractions import Fraction
from functools import partial

import numpy as np
from numpy.typing import NDArray

from privsyn.counting.engine import list_parts
from privsyn.counting.recoded_parts import recode_part
from privsyn.data_contracts import tables
from privsyn.data_contracts.artifacts import LookKind, StepKind
from privsyn.data_contracts.mechanism_options import PrivSyn
from privsyn.data_contracts.receipts import Query
from privsyn.engine.inputs import Inputs
from privsyn.engine.request import Request
from privsyn.engine.step import LookDescription, Output, Progress, ReleaseStep, RowStream, Step, connect, fund
from privsyn.pipelines.added_looks import TREND_SCORES, TRENDS, VALUE_STEPS, ask_unclear_trends, explain_by_trends
from privsyn.pipelines.common_steps import (
    COMPRESS_DOMAIN,
    ENCODE,
    ENCODE_WITH_NUMBERS,
    ENCODED,
    ONE_WAYS,
    RECODE,
    RECODED,
    RELEASED,
    explain_one_cell,
    list_released_tables,
    publish_noisy,
)
from privsyn.pipelines.named_sets import COMPRESS_FOR_SETS, MEASURE_SETS, SET_STEPS
from privsyn.pipelines.rung_steps import build_first_look
from privsyn.pipelines.synthesis_steps import ROW_STEPS, build_row_steps
from privsyn.storage.table_files import StoredTable
from privsyn.tasks.codecs.cells import list_roundings
from privsyn.tasks.estimation.recode import build_coarse_domain
from privsyn.tasks.kernels.blocks import read_ahead
from privsyn.tasks.kernels.counting import Countable
from privsyn.tasks.knowledge.public_knowledge import KnowledgePart
from privsyn.tasks.steps import compress_domain, measure_marginals, score_columns, select_marginals


def build_steps(request: Request) -> tuple[Step, ...]:
    """Return the steps of PrivSyn, in the paper's order."""
    return *build_looks(), *build_row_steps(request)  # lines 6 and 7 make the rows


def build_looks(encode: Step | None = None) -> tuple[Step, ...]:
    """Return the steps up to the last look; :func:`privsyn.engine.step.fund` drops looks without a budget.

    ``encode``: the step that encodes rows (None: ENCODE).
    """
    return (
        encode or ENCODE,
        *build_first_look(encode or ENCODE_WITH_NUMBERS),  # not in the paper
        ONE_WAYS,  # line 1
        replace(COMPRESS_DOMAIN, replacements={MEASURE_SETS: COMPRESS_FOR_SETS}),  # line 2
        RECODE_ROWS,
        SCORES,  # line 3, Algorithm 1
        TREND_SCORES,  # not in the paper
        SELECT_PAIRS,  # line 3, Algorithm 1
        COMBINE_CLIQUES,  # line 4, Algorithm 2
        replace(MEASURE, replacements={TRENDS: ask_unclear_trends(MEASURE, CLIQUES)}),  # line 5
        *VALUE_STEPS,  # not in the paper
        *SET_STEPS,  # not in the paper
    )


CLIQUES = "combine_cliques.cliques"
JOINT_COUNTS, SINGLE_COUNTS = "joint counts of the related columns", "counts of single columns once more"
MEASURED = "measure_marginals"
COUNTS = "has the joint counts, cell by cell, the last attribute innermost"


def _recode(request: Request, inputs: Inputs, progress: Progress) -> Mapping[str, Output]:
    recode, stored = inputs.recode(), inputs.stored(ENCODED)
    rows = RowStream.of_codes((), build_coarse_domain(recode), padded=True)
    parts = list_parts(stored.files) if isinstance(stored, StoredTable) else []
    if parts:
        files = inputs.work.make(partial(recode_part, recode), rows.profile, rows.schema, parts)
        return {"recoded_rows": rows.read(files)}
    batches = compress_domain.recode_rows(inputs.batches(ENCODED), recode)
    return {"recoded_rows": replace(rows, batches=read_ahead(batches, request.threads))}


RECODE_ROWS = Step(
    name="recode_rows",
    title="Recode rows",
    about="the rows in the combined codes",
    paper="line 2",
    kind=StepKind.TRANSFORM,
    inputs=(ENCODED, RECODE),
    outputs={"recoded_rows": tables.RECODED_ROWS},
    run=_recode,
)


def _plan_scores(request: Request, inputs: Inputs, rho: Fraction) -> list[Query]:
    selection = request.selection
    by_one_ways = selection.scores == "one_ways"
    domain = inputs.domain()
    asked_pairs = request.list_asked_pairs(domain.attributes)
    return score_columns.plan_indif(
        domain,
        rho,
        request.records,
        score_columns.REFERENCE_SENSITIVITY if by_one_ways else score_columns.EXACT_SENSITIVITY,
        max_cells=selection.max_cells,
        unscored={*request.public.known_pairs, *request.list_settled_pairs(domain.attributes, asked_pairs)},
        scored_more=request.public.scored_more,
        asked_pairs=asked_pairs,
    )


def _score_exactly(
    request: Request, inputs: Inputs, rows: Countable, queries: list[Query]
) -> Iterator[NDArray[np.int64]]:
    by_one_ways = request.selection.scores == "one_ways"
    expected = request.public.in_codes(inputs.recode()).expected if by_one_ways else None
    return score_columns.count_indif(rows, queries, request.threads, expected)


def _explain_score_sensitivity(request: Request) -> str:
    if request.selection.scores == "one_ways":
        return (
            "k: the noisy one-ways were released before. Each of a person's k records changes one count by 1, and so "
            "the L1 distance by at most 1. Rounding down to whole records keeps the bound"
        )
    return "4k: PrivSyn, Lemma 4, for each of a person's k records. Rounding down to whole records keeps the bound"


SCORES = ReleaseStep(
    name="indif_scores",
    title="InDif scores",
    about="rho2: how strongly every pair is related",
    paper="line 3, section 4.1",
    measures=LookKind.SCORES,
    inputs=(RECODED, RECODE),
    outputs=RELEASED,
    fields=("mechanism.selection.scores", "mechanism.selection.max_cells", "mechanism.max_cells"),
    reads=(KnowledgePart.PRIOR_PAIRS, KnowledgePart.KNOWN_PAIRS, KnowledgePart.SCORED, KnowledgePart.NEAR),
    plan=_plan_scores,
    exact=_score_exactly,
    look=LookDescription(
        counted="how strongly each pair of columns is related", reason=_explain_score_sensitivity, noise_of="a score"
    ),
    rows=RECODED,
    padded=True,
    published=publish_noisy("scores", "has the noisy strength of relation of each pair"),
)


CHOICE = ("mechanism.split.remeasure_one_ways", "mechanism.consistency.pooled")
"""The fields that every choice of marginals depends on."""

CRITERION = ("mechanism.selection.criterion", "mechanism.selection.max_cells")


def _select(request: Request, inputs: Inputs, progress: Progress) -> Mapping[str, Output]:
    options = request.get_options(PrivSyn)
    pairs = select_marginals.select(
        *inputs.noisy_scores(SCORES.name),
        inputs.recode(),
        float(inputs.rho[MEASURED]),
        request.records,
        options.selection,
        remeasure_one_ways=options.split.remeasure_one_ways,
        targets=request.public.targets,
        pooled=options.consistency.pooled,
        rounding=list_roundings(request.encoding.binning),
        explained=explain_by_trends(request, inputs),  # trends need no measurement
    )
    return {"pairs": pairs}


def _describe_selection(request: Request) -> str:
    criterion = request.get_options(PrivSyn).selection.criterion.replace("_", " ")
    counting_more = "; targets of the request count more" if request.public.key([KnowledgePart.TARGETS]) else ""
    return f"pairs of columns are chosen by their noisy scores ({criterion}){counting_more}"


SELECT_PAIRS = Step(
    name="select_pairs",
    title="Select pairs",
    about="DenseMarg, or the least expected error",
    paper="line 3, Algorithm 1",
    kind=StepKind.POSTPROCESS,
    budgets=(MEASURED,),
    inputs=(*list_released_tables(SCORES.name), RECODE),
    look_kinds=(LookKind.TRENDS, LookKind.MARGINALS),
    outputs={"pairs": tables.PAIRS},
    fields=(*CHOICE, *CRITERION),
    reads=(KnowledgePart.TARGETS,),
    run=_select,
    version=4,
    words=_describe_selection,
)
"""Chooses pairs by their noisy scores, for the budget of the measurement."""


def _combine(request: Request, inputs: Inputs, progress: Progress) -> Mapping[str, Output]:
    domain, fine = inputs.domain(), request.public.measured_again
    pairs = inputs.table("select_pairs.pairs")
    weighed = select_marginals.weigh_cliques(pairs, domain, fine, request.get_options(PrivSyn).selection)
    return {"cliques": select_marginals.tabulate_cliques(weighed, domain, fine)}


COMBINE_CLIQUES = Step(
    name="combine_cliques",
    title="Combine cliques",
    about="small overlapping pairs become cliques",
    paper="line 4, Algorithm 2",
    kind=StepKind.POSTPROCESS,
    inputs=("select_pairs.pairs", RECODE),
    outputs={"cliques": tables.CLIQUES},
    fields=CRITERION,
    settings=lambda r: {"gamma": r.selection.most_combined},
    inherits=(KnowledgePart.KNOWN_COLUMNS,),
    run=_combine,
    version=2,
)


def plan_marginals(chosen: str, request: Request, inputs: Inputs, rho: Fraction) -> list[Query]:
    """Plan the cliques in the table ``chosen``."""
    weights = select_marginals.read_cliques(inputs.table(chosen))
    return measure_marginals.plan_marginals(weights, inputs.domain(), request.encoding.domain, rho, request.records)


def _count_marginals(
    request: Request, inputs: Inputs, rows: Countable, queries: list[Query]
) -> Iterator[NDArray[np.int64]]:
    fine = lambda: inputs.countable(ENCODED, request.encoding.domain)  # noqa: E731
    return measure_marginals.count_marginals(rows, fine, queries, request.threads)


MEASURE = ReleaseStep(
    name=MEASURED,
    title="Measure marginals",
    about="rho3: the cliques' counts, weighted Gaussian noise",
    paper="line 5, section 4.2",
    measures=LookKind.MARGINALS,
    inputs=(RECODED, ENCODED, RECODE, CLIQUES),
    outputs=RELEASED,
    plan=partial(plan_marginals, CLIQUES),
    exact=_count_marginals,
    look=LookDescription(counted=JOINT_COUNTS, reason=explain_one_cell, counted_alone=SINGLE_COUNTS),
    rows=RECODED,
    padded=True,
    published=publish_noisy("measured", COUNTS),
    limit="Relations of three and more columns are kept only if the measured ones imply them.",
)

_DEFAULT_SPLIT = dict(zip((ONE_WAYS.name, SCORES.name, MEASURED), PrivSyn().split.exact(), strict=True))
STEPS = connect(fund((*build_looks(), *ROW_STEPS), _DEFAULT_SPLIT))
"""The steps with default options if every column has bins."""
