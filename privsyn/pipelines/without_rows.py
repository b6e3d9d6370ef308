"""Persons of the table above who have no rows: counted by their columns, and made beside the linked persons."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction

import numpy as np

from privsyn.data_contracts import tables
from privsyn.data_contracts.artifacts import LookKind, StepKind
from privsyn.data_contracts.linked_tables import get_above
from privsyn.data_contracts.receipts import Query
from privsyn.engine.inputs import Inputs
from privsyn.engine.request import Request
from privsyn.engine.step import (
    COLUMN_ORDER,
    DECODED_COLUMNS,
    LookDescription,
    Output,
    Progress,
    ReleaseStep,
    RowStream,
    Step,
)
from privsyn.pipelines.common_steps import (
    RECODE,
    RELEASED,
    count_cells,
    list_released_tables,
    publish_noisy,
    stream_codes,
)
from privsyn.tasks.estimation.recode import estimate_total
from privsyn.tasks.knowledge.public_knowledge import KnowledgePart
from privsyn.tasks.steps import make_without_rows, one_way_marginals

ROWS = "list_without_rows.without_rows"


def _list(request: Request, inputs: Inputs, progress: Progress) -> Mapping[str, Output]:
    recode, plan = inputs.recode(), request.encoding
    rows = make_without_rows.list_without_rows(inputs.batches("encode.without_rows"), plan, recode)
    return {"without_rows": stream_codes(rows, make_without_rows.build_without_domain(recode, plan))}


LIST_WITHOUT_ROWS = Step(
    name="list_without_rows",
    title="List persons without rows",
    about="persons that have no row",
    when="`tables`",
    kind=StepKind.TRANSFORM,
    serves="measure_without_rows",
    inputs=("encode.without_rows", RECODE),
    outputs={"without_rows": tables.WITHOUT_ROWS},
    inherits=(KnowledgePart.CODES,),
    run=_list,
)


def _plan(request: Request, inputs: Inputs, rho: Fraction) -> list[Query]:
    domain = make_without_rows.build_without_domain(inputs.recode(), request.encoding)
    return one_way_marginals.plan_queries(domain, rho, request.records)


MEASURE_WITHOUT_ROWS = ReleaseStep(
    name="measure_without_rows",
    title="Measure persons without rows",
    about="their columns, one by one",
    when="`tables`",
    measures=LookKind.WITHOUT_ROWS,
    inputs=(ROWS, RECODE),
    outputs=RELEASED,
    inherits=(KnowledgePart.CODES,),
    plan=_plan,
    exact=count_cells,
    look=LookDescription(
        counted="counts of persons, or households, without rows, by each of their columns",
        reason=lambda r: f"1: a {r.spec.unit.one} without rows is one record, which depends on that {r.spec.unit.one}",
        noise_of="a count of those without rows",
    ),
    rows=ROWS,
    rows_domain=lambda r, i: make_without_rows.build_without_domain(i.recode(), r.encoding),
    published=publish_noisy("without_rows", "counts persons, or households, without rows by each of their columns"),
    limit="Persons, or households, without rows were counted by one column at a time.",
)


def _make(request: Request, inputs: Inputs, progress: Progress) -> Mapping[str, Output]:
    from privsyn.tasks.steps import make_without_rows  # here: it loads SciPy

    plan, recode, rows = request.encoding, inputs.recode(), request.spec.mechanism.synthesis.rows
    queries, answers = inputs.noisy("measure_without_rows")
    noisy = [(query, counts.astype(np.float64)) for query, counts in zip(queries, answers, strict=True)]
    scale = 1.0 if rows == "auto" else rows / max(estimate_total(recode), 1.0)
    above, order = get_above(request.spec.tables)[1].columns, request.column_order
    seed = request.spec.mechanism.synthesis.seed
    batches_without_rows = make_without_rows.make_without_rows(
        inputs.batches("link_rows.linked"), plan, recode, noisy, order, above, seed, scale
    )
    ranges = make_without_rows.list_ranges(plan, order, above)
    profile = lambda batches: tables.make_value_profile(batches, ranges)  # noqa: E731
    return {
        "without_rows": RowStream(make_without_rows.build_schema(plan, order, above), batches_without_rows, profile)
    }


MAKE_WITHOUT_ROWS = Step(
    name="make_without_rows",
    title="Make persons without rows",
    about="as many as the noisy counts say",
    when="`tables`",
    kind=StepKind.POSTPROCESS,
    inputs=("link_rows.linked", RECODE, *list_released_tables("measure_without_rows")),
    outputs={"without_rows": tables.SYNTHETIC_WITHOUT_ROWS},
    fields=(DECODED_COLUMNS, COLUMN_ORDER, "mechanism.synthesis.seed", "mechanism.synthesis.rows"),
    reads=(KnowledgePart.RULES,),
    run=_make,
    words="those without rows are like the others, in the shares of their own noisy counts",
)
