"""Parts of mechanisms other than the default: their choice of marginals, its measurement, and rows drawn otherwise."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial

import pyarrow as pa

from privsyn.data_contracts import tables
from privsyn.data_contracts.artifacts import LookKind, StepKind
from privsyn.data_contracts.domain import Clique
from privsyn.engine.inputs import Inputs
from privsyn.engine.request import Request
from privsyn.engine.step import LookDescription, Output, Progress, PublishedFile, ReleaseStep, RowStream, Step
from privsyn.pipelines.common_steps import RECODE, list_released_tables
from privsyn.pipelines.one_shot import MEASURE, SCORES, plan_marginals
from privsyn.pipelines.synthesis_steps import DECODE, REFINED, decode_rows
from privsyn.tasks.estimation.recode import Recode, build_coarse_domain, estimate_total
from privsyn.tasks.kernels.counting import CodeTable
from privsyn.tasks.knowledge.public_knowledge import KnowledgePart
from privsyn.tasks.steps import select_marginals, synthesize
from privsyn.tasks.synthesis import shards


def read_noisy_scores(inputs: Inputs) -> dict[tuple[str, str], float]:
    """Return pair -> noisy score."""
    return {(q.attributes[0], q.attributes[1]): y for q, y in zip(*inputs.noisy_scores(SCORES.name), strict=True)}


def weigh_evenly(cliques: Sequence[Clique], request: Request, inputs: Inputs) -> pa.Table:
    """Return the table CLIQUES of ``cliques`` with equal weights, or of the one-ways if there are no cliques."""
    domain, fine = inputs.domain(), request.encoding.domain
    weighed = select_marginals.with_one_ways(dict.fromkeys(cliques, 1.0), 0.0, fine)
    return select_marginals.tabulate_cliques(weighed, domain, fine)


def build_choice_step(
    *,
    name: str,
    title: str,
    scores: str,
    choose: Callable[[Request, Inputs], Sequence[Clique]],
    fields: tuple[str, ...] = (),
    budgets: tuple[str, ...] = (),
    reads: tuple[KnowledgePart, ...] = (),
    words: str,
) -> Step:
    """Return a step that chooses cliques by the noisy ``scores``, with equal weights."""
    return Step(
        name=name,
        title=title,
        kind=StepKind.POSTPROCESS,
        budgets=budgets,
        inputs=(*list_released_tables(scores), RECODE),
        outputs={"cliques": tables.CLIQUES},
        fields=fields,
        reads=reads,
        run=lambda r, inputs, progress: {"cliques": weigh_evenly(choose(r, inputs), r, inputs)},
        words=words,
    )


def measure_chosen(chosen: str, limit: str = MEASURE.limit) -> ReleaseStep:
    """Return the paper's measurement of the marginals in the table ``chosen``."""
    inputs = (*MEASURE.inputs[:-1], chosen)
    return replace(MEASURE, inputs=inputs, plan=partial(plan_marginals, chosen), limit=limit)


def build_measurement(
    *, name: str, title: str, chosen: str, look: LookDescription, files: Mapping[str, PublishedFile], limit: str = ""
) -> ReleaseStep:
    """Return the step that measures the cliques in the table ``chosen``; they share its budget by weight."""
    measure = measure_chosen(chosen, limit)
    return replace(measure, name=name, title=title, about="", paper="", look=look, published=files)


DrawRows = Callable[[Request, Inputs, Recode, Progress], Iterable[CodeTable]]
"""Draws rows in coarse codes, from released tables and the recoding by all measurements."""


def build_drawing_step(
    *, name: str, title: str, draw: DrawRows, fields: tuple[str, ...], reads: tuple[KnowledgePart, ...] = (), words: str
) -> Step:
    """Return a mechanism's own step in place of the synthesis: ``draw`` makes rows from the measurements."""

    def run(request: Request, inputs: Inputs, progress: Progress) -> Mapping[str, Output]:
        recode = inputs.read_pooled_recode()
        batches = (b for rows in draw(request, inputs, recode, progress) for b in rows.to_arrow().to_batches())
        return {"codes": RowStream.of_codes(batches, build_coarse_domain(recode))}

    return Step(
        name=name,
        title=title,
        kind=StepKind.POSTPROCESS,
        inputs=(RECODE, *REFINED),
        look_kinds=(LookKind.MARGINALS,),
        outputs={"codes": tables.SYNTHETIC_CODES},
        fields=fields,
        reads=reads,
        run=run,
        words=f"synthetic rows: {words}",
    )


def iterate_shards_to_draw(request: Request, recode: Recode, progress: Progress) -> Iterator[shards.Shard]:
    """Yield the shards of the output rows, and report progress for each."""
    settings = request.synthesis
    rows = synthesize.compute_output_rows(estimate_total(recode), settings)
    for shard in shards.plan_shards(rows, settings):
        progress(shard.number, shard.count)
        yield shard


def decode_from(codes: str) -> Step:
    """Return the step DECODE for rows that another step made, in the table ``codes``."""
    run = partial(decode_rows, codes=codes)
    return replace(DECODE, inputs=(codes, *DECODE.inputs[1:]), inherits=(), run=run)
