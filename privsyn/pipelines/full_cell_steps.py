"""The steps that choose the cells of ordered columns by a first look, before anything else is counted.

Steps after them treat these cells as they treat those of the spec: their request has them.
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
from privsyn.data_contracts.artifacts import StepKind
from privsyn.data_contracts.domain import Domain
from privsyn.data_contracts.receipts import Query
from privsyn.engine.inputs import Inputs
from privsyn.engine.request import Request
from privsyn.engine.step import Look, Output, Progress, PublishedFile, ReleaseStep, RowStream, Step
from privsyn.pipelines.common_steps import (
    ENCODE,
    ENCODE_WITH_NUMBERS,
    ENCODED,
    RELEASED,
    build_one_way_step,
    count_cells,
    explain_one_cell,
    list_released_tables,
    publish_noisy,
    stream_codes,
)
from privsyn.tasks.estimation.full_cells import find_full_cells, list_looked_at, tabulate_cuts
from privsyn.tasks.estimation.noisy import tabulate_answers, tabulate_receipts
from privsyn.tasks.kernels.batches import pair_batches
from privsyn.tasks.kernels.read_ahead import read_ahead
from privsyn.tasks.knowledge.public_knowledge import KnowledgePart
from privsyn.tasks.steps import encode as finer_codes
from privsyn.tasks.steps import one_way_marginals

CELL_COUNTS, FIND = "cell_counts", "find_full_cells"
CUTS, FINER = f"{FIND}.cuts", "encode_finer"
CUTS_FILE = "marginals/cut_cells.parquet"

NUMBERS_OF = {
    "encoded_rows": "numbers",
    "rows_of_persons": "numbers_of_rows",
    "without_rows": "numbers_without_rows",
}
"""Table of codes that *encode* makes -> the table of the same rows' numbers."""

PART_OF_ONE_WAYS = Fraction(3, 20)
"""Part of a column's one-way that is for the first look at its rungs."""

NO_CELL_COUNTS = {
    CELL_COUNTS: {"noisy": tabulate_answers([]), "receipts": tabulate_receipts([])},
    FIND: {"cuts": tabulate_cuts([])},
    FINER: {"encoded_rows": pa.table({})},
}
"""The tables of these steps, by step, of a run in memory that has no values of rows, only codes."""


def share_full_cells(request: Request) -> Fraction:
    """Return the part of the one-ways' budget that the first look at rungs has; 0 where no column has any."""
    encoding = request.encoding
    counted = [codec for codec in encoding.codecs if codec.chances is None]
    return PART_OF_ONE_WAYS * Fraction(len(list_looked_at(encoding)), max(len(counted), 1))


def build_one_way_steps(request: Request, share: Fraction, division: str) -> tuple[Step, ...]:
    """Return the steps that encode rows and count every column, with this share of the budget.

    ``division``: how the one-ways share what the first look leaves (:func:`build_one_way_step`).
    """
    cells = share_full_cells(request)
    one_ways = build_one_way_step(share * (1 - cells), division)
    if not cells:
        return ENCODE, one_ways
    return ENCODE_WITH_NUMBERS, *build_full_cell_steps(share * cells, one_ways), one_ways


def build_full_cell_steps(
    share: Fraction, one_ways: ReleaseStep, encode: Step = ENCODE_WITH_NUMBERS
) -> tuple[Step, ...]:
    """Return the steps that choose cells, with this share of the budget, and encode the rows in them.

    ``one_ways``: the look at the one-ways that comes after, whose noise says how many cells a column has; ``encode``:
    the step whose tables of codes are made anew.
    """
    counts = _build_cell_counts(share)

    def find(request: Request, inputs: Inputs, progress: Progress) -> Mapping[str, Output]:
        queries, answers = inputs.noisy(CELL_COUNTS)
        looks = {q.attributes[0]: (q, y) for q, y in zip(queries, answers, strict=True)}
        planned = one_ways.plan(request, inputs, one_ways.rho(request))
        sigmas = {q.attributes[0]: q.sigma for q in planned}
        codecs = [codec for codec in list_looked_at(request.encoding) if codec.attribute in looks]
        return {"cuts": tabulate_cuts(find_full_cells(codecs, looks, sigmas) if codecs else [])}

    return (
        counts,
        Step(
            name=FIND,
            title="Choose cells",
            kind=StepKind.POSTPROCESS,
            inputs=list_released_tables([CELL_COUNTS]),
            outputs={"cuts": tables.CUT_CELLS},
            settings=lambda r: {"one_ways": one_ways.build_key(r)},
            reads=(KnowledgePart.KNOWN_COLUMNS,),
            run=find,
            published={"cuts": PublishedFile(CUTS_FILE, "lists the cells that a first look chose")},
        ),
        _build_finer_step(encode),
    )


def _build_cell_counts(share: Fraction) -> ReleaseStep:
    def plan(request: Request, inputs: Inputs, rho: Fraction) -> list[Query]:
        sizes = {codec.attribute: codec.size for codec in list_looked_at(request.encoding)}
        return one_way_marginals.plan_queries(Domain.of(sizes), rho, request.records)

    return ReleaseStep(
        name=CELL_COUNTS,
        title="Rung counts",
        inputs=(ENCODED,),
        outputs=RELEASED,
        settings=lambda r: {"columns": [codec.attribute for codec in list_looked_at(r.encoding)]},
        plan=plan,
        exact=count_cells,
        share=lambda r: share,
        look=Look(
            what="rough counts of intervals that double in width, to choose cells where rows are",
            reason=explain_one_cell,
            noise_of="a rough count",
        ),
        rows=ENCODED,
        rows_domain=lambda r, inputs: r.encoding.domain,
        published=publish_noisy(
            CELL_COUNTS, "has rough counts of intervals that double in width, of numbers, dates and moments"
        ),
    )


def _build_finer_step(encode: Step) -> Step:
    """Return the step that encodes each table of codes of ``encode`` in the chosen cells."""
    outputs = {table: contract for table, contract in encode.outputs.items() if NUMBERS_OF.get(table) in encode.outputs}
    return Step(
        name=FINER,
        title="Encode in chosen cells",
        kind=StepKind.TRANSFORM,
        inputs=(CUTS, *(place for table in outputs for place in _name_tables(table))),
        outputs=outputs,
        inherits=(KnowledgePart.CODES,),
        run=lambda request, inputs, _: {table: _encode_finer(request, inputs, table) for table in outputs},
        version=3,
    )


def _name_tables(table: str) -> tuple[str, str]:
    """Return where a table of codes of *encode* is, and the table of its rows' numbers."""
    return f"encode.{table}", f"encode.{NUMBERS_OF[table]}"


def _encode_finer(request: Request, inputs: Inputs, table: str) -> RowStream:
    encoding = request.encoding if table == "encoded_rows" else request.encoding.of_rows
    if not request.cuts or encoding.uncut is None:  # no pass over the rows
        return stream_codes((), encoding.domain)
    finer = partial(finer_codes.encode_finer, before=encoding.uncut, after=encoding)
    rows = starmap(finer, pair_batches(*map(inputs.batches, _name_tables(table))))
    return stream_codes(read_ahead(rows, request.threads), encoding.domain)


def follow_cuts(steps: Sequence[Step]) -> tuple[Step, ...]:
    """Return the steps; those after the first look, if there is one, follow the cells that it chose."""
    names = [step.name for step in steps]
    if FINER not in names:
        return tuple(steps)
    start = names.index(FINER)
    finer = {f"encode.{table}": f"{FINER}.{table}" for table in steps[start].outputs}
    return (*steps[:start], _follow(steps[start], {}), *(_follow(step, finer) for step in steps[start + 1 :]))


def _follow(step: Step, finer: Mapping[str, str]) -> Step:
    """Return the step with the cuts; ``finer``: table of codes -> the table in chosen cells, read in its place."""
    replaced = {table: place for table, place in finer.items() if table in step.inputs}
    added: Any = dict.fromkeys((*step.inputs, CUTS, *replaced.values()))
    return replace(step, inputs=tuple(added), cuts=CUTS, finer=replaced)
