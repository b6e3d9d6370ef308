"""The trends of ordered columns: the look at them, and its use in later steps."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import partial

import numpy as np
from numpy.typing import NDArray

from privsyn.data_contracts.artifacts import LookKind
from privsyn.data_contracts.domain import Clique
from privsyn.data_contracts.receipts import Query, sum_rho
from privsyn.engine.inputs import Inputs
from privsyn.engine.request import Request
from privsyn.engine.step import LookDescription, ReleaseStep, repeat
from privsyn.pipelines.common_steps import (
    RECODE,
    RECODED,
    RELEASED,
    explain_one_cell,
    list_released_tables,
    publish_noisy,
)
from privsyn.tasks.estimation.noisy import count_marginals, pool_answers
from privsyn.tasks.estimation.pair_departures import MOST_PAIRS, is_wide
from privsyn.tasks.estimation.recode import Recode, estimate_total
from privsyn.tasks.estimation.trends import TOP, Ranks, Trends, rank_codes
from privsyn.tasks.kernels.counting import Countable
from privsyn.tasks.knowledge.public_knowledge import KnowledgePart
from privsyn.tasks.steps import measure_marginals, score_columns, select_marginals

TRENDS = "trend_scores"


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
    return replace(
        measure,
        look_kinds=(LookKind.TRENDS,),
        plan=partial(_plan_with_trends, chosen),
        exact=partial(_count_with_trends, measure),
        look=replace(measure.look, reason=_explain_sum_of_signs),
        published={**measure.published, "noisy": noisy._replace(words=words)},
    )


def _explain_sum_of_signs(request: Request) -> str:
    return f"{explain_one_cell(request)}; a trend asked again is a sum of signs, and each record adds at most 1"


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


def _plan(request: Request, inputs: Inputs, rho: Fraction) -> list[Query]:
    recode = inputs.recode()
    total = estimate_total(recode)
    attributes = list(rank_codes(recode, request.encoding.binning, 1, request.public.two_valued))
    most = score_columns.count_clear_pairs(len(attributes), total, rho, request.records)
    pairs = list_trend_pairs(request, inputs.domain().attributes, attributes, min(most, MOST_PAIRS))
    top = score_columns.choose_top(len(attributes) + len(pairs), total, rho, request.records, TOP)
    return score_columns.plan_trends(attributes, top, rho, request.records, pairs)


def _plan_again(request: Request, inputs: Inputs, rho: Fraction) -> list[Query]:
    """Plan the queries of the first look again."""
    attributes = list(rank_codes(inputs.recode(), request.encoding.binning, 1, request.public.two_valued))
    first = inputs.noisy(TRENDS)[0]
    pairs = [q.attributes for q in first if len(q.attributes) == 2]
    return score_columns.plan_trends(attributes, score_columns.get_top(first), rho, request.records, pairs)


def _count(request: Request, inputs: Inputs, rows: Countable, queries: list[Query]) -> Iterator[NDArray[np.int64]]:
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
    plan=_plan,
    exact=_count,
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
    return replace(again, inputs=(*again.inputs, *list_released_tables(TRENDS)), plan=_plan_again)
