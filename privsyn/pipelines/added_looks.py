"""Looks beyond the paper: trends of ordered columns, counts of single values, and their use in later steps.

A trend is one number for a pair: how two ordered columns rise together.  Single values are counted inside heavy cells
of numbers, and decoding gives rows these values as often as the counts say.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from privsyn.data_contracts import tables
from privsyn.data_contracts.artifacts import LookKind, StepKind
from privsyn.data_contracts.domain import Clique
from privsyn.data_contracts.receipts import Query, sum_rho
from privsyn.engine.inputs import Inputs
from privsyn.engine.request import Request
from privsyn.engine.step import LookDescription, Output, Progress, PublishedFile, ReleaseStep, RowStream, Step, repeat
from privsyn.pipelines.common_steps import (
    NUMBERS,
    RECODE,
    RECODED,
    RELEASED,
    count_cells,
    explain_one_cell,
    list_released_tables,
    publish_noisy,
)
from privsyn.tasks.codecs.numbers import FrequentValues
from privsyn.tasks.estimation.frequent_values import (
    find_frequent_values,
    list_values_to_count,
    read_counted,
    tabulate_counted,
)
from privsyn.tasks.estimation.noisy import count_marginals, pool_answers, tabulate_answers, tabulate_receipts
from privsyn.tasks.estimation.pair_departures import MOST_PAIRS, is_wide
from privsyn.tasks.estimation.recode import Recode, estimate_total
from privsyn.tasks.estimation.trends import TOP, Ranks, Trends, rank_codes
from privsyn.tasks.kernels.counting import Countable
from privsyn.tasks.knowledge.public_knowledge import KnowledgePart
from privsyn.tasks.steps import measure_marginals, score_columns, select_marginals

TRENDS = "trend_scores"

VALUE_COUNTS, LOCATE = "value_counts", "locate_values"
COUNTED, LOCATED = "find_heavy_cells.counted", f"{LOCATE}.located_rows"
COUNTED_FILE = "marginals/counted_values.parquet"

WORDS = "has the counts of the values in `counted_values`, and last the count of all other values"

NO_VALUE_COUNTS = {
    "find_heavy_cells": {"counted": tabulate_counted([], [])},
    LOCATE: {"located_rows": pa.table({})},
    VALUE_COUNTS: {"noisy": tabulate_answers([]), "receipts": tabulate_receipts([])},
}
"""Step -> its empty tables, for a run in memory that has only codes, not values."""


def rank_by_looks(request: Request, inputs: Inputs, queries: Sequence[Query]) -> dict[str, Ranks]:
    """Return attribute -> ranks of its codes, as ``queries`` use them."""
    return score_columns.rank_asked_codes(inputs.recode(), request.encoding.binning, queries)


def read_trends(request: Request, inputs: Inputs, recode: Recode) -> Trends | None:
    """Return the trends by all looks, with the one-ways of ``recode``; None if no look asked trends.

    The trends that looks at marginals asked again are included.
    """
    if not inputs.list_looks(LookKind.TRENDS):
        return None
    looks = [inputs.all_noisy(LookKind.TRENDS), inputs.sums_beside()]
    queries, answers = pool_answers(
        [q for look_queries, _ in looks for q in look_queries], [y for _, look_answers in looks for y in look_answers]
    )
    return Trends.of(recode, rank_by_looks(request, inputs, queries), queries, answers) if queries else None


def _plan_with_trends(chosen: str, request: Request, inputs: Inputs, rho: Fraction) -> list[Query]:
    """Plan the cliques in the table ``chosen``, then the unclear trends once more.

    A wide table asks only as many trends as are clear, so it asks none again.
    """
    weights, fine = select_marginals.read_cliques(inputs.table(chosen)), request.encoding.domain
    asked = [] if is_wide(fine.attributes) else inputs.all_noisy(LookKind.TRENDS)[0]
    asked_again, weights = score_columns.plan_again(
        asked, weights, estimate_total(inputs.recode()), rho, request.records
    )
    rho -= sum_rho(asked_again)
    return [*measure_marginals.plan_marginals(weights, inputs.domain(), fine, rho, request.records), *asked_again]


def _count_with_trends(
    measure: ReleaseStep, request: Request, inputs: Inputs, rows: Countable, queries: list[Query]
) -> Iterator[NDArray[np.int64]]:
    """Yield the exact counts of the marginals, then the sums of the trends asked again, by the first look's ranks."""
    marginals = count_marginals([q.attributes for q in queries])
    yield from measure.exact(request, inputs, rows, queries[:marginals])
    if asked_again := queries[marginals:]:
        scores = {a: r.score for a, r in rank_by_looks(request, inputs, inputs.noisy(TRENDS)[0]).items()}
        yield from score_columns.count_trends(rows, asked_again, request.threads, scores)


def ask_unclear_trends(measure: ReleaseStep, chosen: str) -> ReleaseStep:
    """Return the measurement of the cliques in the table ``chosen``, which also asks unclear trends again."""
    noisy = measure.published["noisy"]
    words = f"{noisy.words}; pairs after the single columns are sums, as in `trends.parquet`"
    sums = "; a trend asked again is a sum of signs, and each record adds at most 1"
    return replace(
        measure,
        look_kinds=(LookKind.TRENDS,),
        plan=partial(_plan_with_trends, chosen),
        exact=partial(_count_with_trends, measure),
        look=replace(measure.look, reason=lambda r: explain_one_cell(r) + sums),
        published={**measure.published, "noisy": noisy._replace(words=words)},
    )


def explain_by_trends(request: Request, inputs: Inputs) -> Mapping[Clique, float] | None:
    """Return pair -> its distance from independence due to its trend, in records; None if no look asked trends."""
    trends = read_trends(request, inputs, inputs.recode())
    return None if trends is None else trends.explain()


def list_trend_pairs(request: Request, attributes: Clique, ordered: Sequence[str], limit: int) -> list[Clique]:
    """Return the pairs of ``ordered`` attributes whose trends are asked, by names, their order and the focus alone.

    attributes: all attributes of the rows, in order.  A wide table asks only those among its ``limit`` nearest pairs,
    or, if none of these is of two ordered attributes, the ``limit`` nearest pairs of ordered attributes.
    """
    pairs = score_columns.list_pairs(ordered, request.list_asked_pairs(attributes, limit))
    return pairs or score_columns.list_pairs(ordered, request.list_asked_pairs(tuple(ordered), limit))


def _plan_trends(request: Request, inputs: Inputs, rho: Fraction) -> list[Query]:
    recode = inputs.recode()
    total = estimate_total(recode)
    attributes = list(rank_codes(recode, request.encoding.binning, 1, request.public.two_valued))
    most = score_columns.count_clear_pairs(len(attributes), total, rho, request.records)
    pairs = list_trend_pairs(request, inputs.domain().attributes, attributes, min(most, MOST_PAIRS))
    top = score_columns.choose_top(len(attributes) + len(pairs), total, rho, request.records, TOP)
    return score_columns.plan_trends(attributes, top, rho, request.records, pairs)


def _plan_trends_again(request: Request, inputs: Inputs, rho: Fraction) -> list[Query]:
    """Plan the queries of the first look again."""
    attributes = list(rank_codes(inputs.recode(), request.encoding.binning, 1, request.public.two_valued))
    first = inputs.noisy(TRENDS)[0]
    pairs = [q.attributes for q in first if len(q.attributes) == 2]
    return score_columns.plan_trends(attributes, score_columns.get_top(first), rho, request.records, pairs)


def _count_trends(
    request: Request, inputs: Inputs, rows: Countable, queries: list[Query]
) -> Iterator[NDArray[np.int64]]:
    scores = {a: r.score for a, r in rank_by_looks(request, inputs, queries).items()}
    return score_columns.count_trends(rows, queries, request.threads, scores)


TREND_SCORES = ReleaseStep(
    name=TRENDS,
    title="Trend scores",
    about="how two ordered columns rise together, one number a pair",
    when="two ordered columns or more, no `prior`",
    measures=LookKind.TRENDS,
    inputs=(RECODED, RECODE),
    outputs=RELEASED,
    reads=(KnowledgePart.NEAR, KnowledgePart.TWO_VALUED),
    plan=_plan_trends,
    exact=_count_trends,
    look=LookDescription(
        counted="how pairs of numbers and moments rise together",
        reason=lambda r: (
            "k s, or k s^2 for a pair: each of a person's k records adds at most the largest score s, or s^2"
            + ("; a column in focus has a score for either of its two values" if r.public.two_valued else "")
        ),
        noise_of="a sum of scores",
    ),
    rows=RECODED,
    padded=True,
    published=publish_noisy("trends", "has the sum of scores of each number, and of products of two for each pair"),
)
"""Asks the trends of all pairs of ordered columns, or of the nearest pairs of a wide table."""


def ask_trends_again(n: int) -> ReleaseStep:
    """Return the look of a further release ``n``, with the queries of the first."""
    again = repeat(TREND_SCORES, n, publish_noisy(f"trends_{n}"))
    return replace(again, inputs=(*again.inputs, *list_released_tables(TRENDS)), plan=_plan_trends_again)


def _find(request: Request, inputs: Inputs, progress: Progress) -> Mapping[str, Output]:
    noisy = {q.attributes[0]: y for q, y in zip(*inputs.noisy("one_way_marginals"), strict=True)}
    codecs = [codec for codec in request.encoding.wide_celled if codec.attribute in noisy]
    values = list_values_to_count(codecs, noisy, inputs.rho[VALUE_COUNTS], request.records)
    return {"counted": tabulate_counted(values, codecs)}


FIND_HEAVY_CELLS = Step(
    name="find_heavy_cells",
    title="Find heavy cells",
    about="cells in which one value may have most of the rows",
    when="before value counts",
    kind=StepKind.POSTPROCESS,
    only_with_look=VALUE_COUNTS,
    budgets=(VALUE_COUNTS,),
    inputs=list_released_tables("one_way_marginals"),
    outputs={"counted": tables.COUNTED},
    fields=("together",),  # these columns are not asked
    run=_find,
    published={"counted": PublishedFile(COUNTED_FILE, "lists the values whose counts were asked one by one")},
)


def _locate(request: Request, inputs: Inputs, progress: Progress) -> Mapping[str, Output]:
    counted = read_counted(inputs.table(COUNTED))
    domain = measure_marginals.build_located_domain(counted)
    if not counted:  # no pass over the rows
        return {"located_rows": RowStream.of_codes((), domain)}
    rows = measure_marginals.locate_rows(inputs.batches(NUMBERS), request.encoding, counted)
    return {"located_rows": RowStream.of_codes(rows, domain)}


LOCATE_VALUES = Step(
    name=LOCATE,
    title="Locate values",
    about="which of these values each row has",
    when="before value counts",
    kind=StepKind.TRANSFORM,
    only_with_look=VALUE_COUNTS,
    inputs=(COUNTED, NUMBERS),
    outputs={"located_rows": tables.LOCATED_ROWS},
    inherits=(KnowledgePart.CODES,),
    run=_locate,
    version=2,
)


COUNT_VALUES = ReleaseStep(
    name=VALUE_COUNTS,
    title="Value counts",
    about="how many rows have each of these values",
    when="columns of numbers with wide cells",
    measures=LookKind.VALUES,
    read_with=(COUNTED,),
    inputs=(LOCATED, COUNTED),
    outputs=RELEASED,
    plan=lambda r, i, rho: measure_marginals.plan_values(read_counted(i.table(COUNTED)), rho, r.records),
    exact=count_cells,
    look=LookDescription(
        counted="counts of single values of numbers in intervals that have many rows",
        reason=explain_one_cell,
        noise_of="a count of a value",
    ),
    rows=LOCATED,
    rows_domain=lambda r, i: measure_marginals.build_located_domain(read_counted(i.table(COUNTED))),
    published=publish_noisy(VALUE_COUNTS, WORDS),
)

VALUE_STEPS = (FIND_HEAVY_CELLS, LOCATE_VALUES, COUNT_VALUES)
"""The steps that count single values inside heavy cells."""


def count_values_again(n: int) -> ReleaseStep:
    """Return the look of a further release ``n`` at the same values."""
    return repeat(COUNT_VALUES, n, publish_noisy(f"{VALUE_COUNTS}_{n}", WORDS))


def read_frequent_values(request: Request, inputs: Inputs, recode: Recode) -> dict[str, FrequentValues]:
    """Return column -> its frequent values, by all looks; ``recode``: with all one-ways."""
    pooled = zip(*pool_answers(*inputs.all_noisy(LookKind.VALUES)), strict=True)
    looks: dict[str, tuple[Query, NDArray[Any]]] = {q.attributes[0]: (q, y) for q, y in pooled}
    return find_frequent_values(read_counted(inputs.table(COUNTED)), looks, recode, request.encoding)
