"""The steps that choose the cells of ordered columns by a first look, before all other counts.

Later steps treat these cells like cells from the spec, since their request has them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import partial
from itertools import starmap
from typing import Any

import pyarrow as pa

from privsyn.data_contracts import tables
from privsyn.data_contracts.artifacts import LookKind, StepKind
from privsyn.data_contracts.domain import Domain
from privsyn.data_contracts.receipts import Query
from privsyn.engine.inputs import Inputs
from privsyn.engine.request import Request
from privsyn.engine.step import LookDescription, Output, Progress, PublishedFile, ReleaseStep, RowStream, Step
from privsyn.pipelines.common_steps import (
    ENCODE_WITH_NUMBERS,
    ENCODED,
    ONE_WAYS,
    RELEASED,
    count_cells,
    explain_one_cell,
    list_released_tables,
    plan_one_ways,
    publish_noisy,
)
from privsyn.storage.released_files import CUTS_FILE
from privsyn.tasks.codecs import encode_rows
from privsyn.tasks.estimation.noisy import tabulate_answers, tabulate_receipts
from privsyn.tasks.estimation.rungs import choose_cells, list_looked_at, tabulate_cuts
from privsyn.tasks.kernels.blocks import pair_batches, read_ahead
from privsyn.tasks.knowledge.public_knowledge import KnowledgePart
from privsyn.tasks.steps import measure_marginals

RUNG_COUNTS, CHOOSE = "rung_counts", "choose_cells"
CUTS, FINER = f"{CHOOSE}.cuts", "encode_finer"

NUMBERS_OF = {"encoded_rows": "numbers", "rows_of_persons": "numbers_of_rows", "without_rows": "numbers_without_rows"}
"""Table of codes that *encode* makes -> table of numbers of the same rows."""

NO_RUNG_COUNTS = {
    RUNG_COUNTS: {"noisy": tabulate_answers([]), "receipts": tabulate_receipts([])},
    CHOOSE: {"cuts": tabulate_cuts([])},
    FINER: {"encoded_rows": pa.table({})},
}
"""Step -> its empty tables, for a run in memory that has only codes, not values."""


def _plan_rungs(request: Request, inputs: Inputs, rho: Fraction) -> list[Query]:
    sizes = {codec.attribute: codec.size for codec in list_looked_at(request.encoding)}
    return measure_marginals.plan_one_ways(Domain.of(sizes), rho, request.records)


COUNT_RUNGS = ReleaseStep(
    name=RUNG_COUNTS,
    title="Rung counts",
    about="rough counts of intervals that double in width",
    when="ordered columns without `bins` or `edges`",
    measures=LookKind.RUNGS,
    inputs=(ENCODED,),
    outputs=RELEASED,
    plan=_plan_rungs,
    exact=count_cells,
    look=LookDescription(
        counted="rough counts that place the intervals of numbers, dates and moments",
        reason=explain_one_cell,
        noise_of="a rough count",
    ),
    rows=ENCODED,
    rows_domain=lambda r, inputs: r.encoding.domain,
    published=publish_noisy(
        RUNG_COUNTS, "has rough counts of intervals that double in width, of numbers, dates and moments"
    ),
)


def _choose(request: Request, inputs: Inputs, progress: Progress) -> Mapping[str, Output]:
    looks = {q.attributes[0]: (q, y) for q, y in zip(*inputs.noisy(RUNG_COUNTS), strict=True)}
    sigmas = {q.attributes[0]: q.sigma for q in plan_one_ways(request, inputs, inputs.rho[ONE_WAYS.name])}
    codecs = [codec for codec in list_looked_at(request.encoding) if codec.attribute in looks]
    return {"cuts": tabulate_cuts(choose_cells(codecs, looks, sigmas) if codecs else [])}


CHOOSE_CELLS = Step(
    name=CHOOSE,
    title="Choose cells",
    about="narrow cells where the rough counts show rows",
    when="after rung counts",
    kind=StepKind.POSTPROCESS,
    only_with_look=RUNG_COUNTS,
    budgets=(ONE_WAYS.name,),
    inputs=list_released_tables(RUNG_COUNTS),
    outputs={"cuts": tables.CUT_CELLS},
    settings=ONE_WAYS.settings,
    reads=(KnowledgePart.KNOWN_COLUMNS,),
    run=_choose,
    version=3,
    published={"cuts": PublishedFile(CUTS_FILE, "lists the cells that a first look chose")},
)
"""Splits the rungs that hold rows, as finely as the noise of the one-ways allows."""


def _build_finer_step(encode: Step) -> Step:
    """Return the step that encodes each table of codes from ``encode`` in the chosen cells."""
    outputs = {table: contract for table, contract in encode.outputs.items() if NUMBERS_OF.get(table) in encode.outputs}
    return Step(
        name=FINER,
        title="Encode in chosen cells",
        about="the rows as codes of the chosen cells",
        when="after rung counts",
        kind=StepKind.TRANSFORM,
        only_with_look=RUNG_COUNTS,
        inputs=(CUTS, *(place for table in outputs for place in _name_tables(table))),
        outputs=outputs,
        transient=tuple(table for table in encode.transient if table in outputs),
        inherits=(KnowledgePart.CODES,),
        run=lambda request, inputs, _: {table: _encode_finer(request, inputs, table) for table in outputs},
        version=3,
    )


def _name_tables(table: str) -> tuple[str, str]:
    """Return the full names of a table of codes from *encode* and of its table of numbers."""
    return f"encode.{table}", f"encode.{NUMBERS_OF[table]}"


def _encode_finer(request: Request, inputs: Inputs, table: str) -> RowStream:
    encoding = request.encoding if table == "encoded_rows" else request.encoding.row_plan
    if not request.cuts or encoding.uncut is None:  # no pass over the rows
        return RowStream.of_codes((), encoding.domain)
    finer = partial(encode_rows.encode_finer, before=encoding.uncut, after=encoding)
    rows = starmap(finer, pair_batches(*map(inputs.batches, _name_tables(table))))
    return RowStream.of_codes(read_ahead(rows, request.threads), encoding.domain)


def build_first_look(encode: Step = ENCODE_WITH_NUMBERS) -> tuple[Step, ...]:
    """Return the steps that choose cells by a look at rungs; ``encode``: the step that encodes rows."""
    return COUNT_RUNGS, CHOOSE_CELLS, _build_finer_step(encode)


def follow_cuts(steps: Sequence[Step]) -> tuple[Step, ...]:
    """Return the steps; steps after the first look, if there is one, use the cells that it chose."""
    names = [step.name for step in steps]
    if FINER not in names:
        return tuple(steps)
    start = names.index(FINER)
    finer = {f"encode.{table}": f"{FINER}.{table}" for table in steps[start].outputs}
    return (*steps[:start], _follow(steps[start], {}), *(_follow(step, finer) for step in steps[start + 1 :]))


def _follow(step: Step, finer: Mapping[str, str]) -> Step:
    """Return the step with the cuts; ``finer``: table of codes -> the table in chosen cells to read instead."""
    replaced = {table: place for table, place in finer.items() if table in step.inputs}
    added: Any = dict.fromkeys((*step.inputs, CUTS, *replaced.values()))
    return replace(step, inputs=tuple(added), cuts=CUTS, finer_inputs=replaced)
