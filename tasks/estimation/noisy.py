"""Noisy answers and receipts as tables: the published form of all release steps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from fractions import Fraction
from functools import lru_cache
from itertools import groupby
from typing import Any, get_args

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from privsyn.data_contracts.domain import Clique
from privsyn.data_contracts.receipts import SMOOTHING, Pricing, Query
from privsyn.data_contracts.tables import NOISY, RECEIPTS

Answers = list[NDArray[np.int64]]
"""One flat vector per query, in the queries' order, each of length ``query.cells``."""


def draw_for_queries(queries: Sequence[Query], draw: Callable[[list[tuple[float, int]]], Answers]) -> Answers:
    """Return noise for each query from ``draw``, a function of (sigma, cells) pairs; runs of one sigma are one draw."""
    groups = [(sigma, [q.cells for q in group]) for sigma, group in groupby(queries, key=lambda q: q.sigma)]
    drawn = draw([(sigma, sum(cells)) for sigma, cells in groups])
    return [
        part for draws, (_, cells) in zip(drawn, groups, strict=True) for part in np.split(draws, np.cumsum(cells)[:-1])
    ]


def tabulate_answers(answers: Sequence[NDArray[np.int64]]) -> pa.Table:
    """Return flat answers as a table of the contract NOISY."""
    lengths = np.array([len(a) for a in answers], dtype=np.int64)
    starts = np.cumsum(lengths) - lengths
    total = int(lengths.sum())
    query = np.repeat(np.arange(len(answers), dtype=np.int32), lengths)
    cell = np.arange(total, dtype=np.int64) - np.repeat(starts, lengths)
    count = np.concatenate(answers).astype(np.int64) if answers else np.empty(0, dtype=np.int64)
    return pa.table([query, cell, count], schema=NOISY.schema)


def read_answers(table: pa.Table, queries: Sequence[Query]) -> Answers:
    """Return flat answers in the queries' order; raises ValueError unless the table holds exactly their cells."""
    cells = np.array([q.cells for q in queries], dtype=np.int64)
    count = table["count"].to_numpy()
    if len(count) != cells.sum() or not np.array_equal(
        table["query"].to_numpy(), np.repeat(np.arange(len(cells)), cells)
    ):
        raise ValueError("the noisy table does not hold exactly the cells of its receipts, in order")
    return [np.ascontiguousarray(part) for part in np.split(count, np.cumsum(cells)[:-1])] if len(cells) else []


def pool_answers(queries: Sequence[Query], answers: Sequence[NDArray[Any]]) -> tuple[list[Query], list[NDArray[Any]]]:
    """Pool queries on the same attributes, and their answers, by inverse variance; larger cliques come first.

    A pooled query has the sigma of its answer, with variance 1 / sum 1 / sigma_i^2; it is not a receipt.  A query asked
    once comes back unchanged.
    """
    same: dict[Clique, list[int]] = {}
    for i, query in enumerate(queries):
        same.setdefault(query.attributes, []).append(i)
    merged = [_pool([queries[i] for i in group], [answers[i] for i in group]) for group in same.values()]
    merged.sort(key=lambda pair: len(pair[0].attributes) == 1)
    return [q for q, _ in merged], [y for _, y in merged]


def count_marginals(cliques: Sequence[Clique]) -> int:
    """Return how many of a step's queries, given by their attributes in order, are marginals.

    Marginals come first, larger cliques before single attributes; pairs after a single attribute are sums of scores
    (trends).
    """
    single = [i for i, clique in enumerate(cliques) if len(clique) == 1]
    return single[-1] + 1 if single else len(cliques)


def list_all_measured(
    receipts: Sequence[pa.Table], answers: Sequence[pa.Table], *, sums: bool = False
) -> tuple[list[Query], list[NDArray[Any]]]:
    """Return the marginal queries and answers of several rounds, pooled (:func:`pool_answers`), without sums of scores.

    ``sums``: returns the sums of scores instead.  Raises ValueError if receipts and answers do not belong together.
    """
    pooled: list[tuple[Query, NDArray[Any]]] = []
    for table, noisy in zip(receipts, answers, strict=True):
        queries = read_receipts(table)
        marginals = count_marginals([q.attributes for q in queries])
        part = slice(marginals, None) if sums else slice(marginals)
        pooled += [*zip(queries, read_answers(noisy, queries), strict=True)][part]
    return pool_answers([q for q, _ in pooled], [y for _, y in pooled])


def _pool(queries: Sequence[Query], answers: Sequence[NDArray[Any]]) -> tuple[Query, NDArray[Any]]:
    if len(queries) == 1:
        return queries[0], answers[0]
    precision = np.array([q.sigma**-2.0 for q in queries])
    mean = (precision[:, None] * np.stack(answers)).sum(axis=0) / precision.sum()
    return replace(queries[0], sigma=float(precision.sum() ** -0.5)), mean


def tabulate_receipts(queries: Sequence[Query]) -> pa.Table:
    """Return a table of the contract RECEIPTS: each query and its exact cost."""
    rows = [
        {
            "query": i,
            "attributes": list(q.attributes),
            "cells": q.cells,
            "sensitivity": q.sensitivity,
            "sigma": q.sigma,
            "rho": str(q.rho),
        }
        for i, q in enumerate(queries)
    ]
    return pa.Table.from_pylist(rows, schema=RECEIPTS.schema)


def read_receipts(table: pa.Table) -> list[Query]:
    """Return the queries of a RECEIPTS table, each with the pricing under which its noise costs exactly its stated rho.

    Raises ValueError if no pricing fits.
    """
    queries = []
    for row in table.to_pylist():
        pricing = _get_pricing(row["sensitivity"], row["sigma"], row["rho"])
        if pricing is None:
            raise ValueError(
                f"receipt {row['query']}: the stated rho is neither sensitivity^2 / (2 sigma^2) nor "
                f"sensitivity^2 / (2 (sigma^2 - {SMOOTHING}))"
            )
        queries.append(Query(tuple(row["attributes"]), row["cells"], row["sensitivity"], row["sigma"], pricing))
    return queries


@lru_cache(maxsize=4096)
def _get_pricing(sensitivity: int, sigma: float, stated: str) -> Pricing | None:
    """Return the pricing under which noise of this scale costs exactly the stated rho, or None."""
    for pricing in get_args(Pricing):
        with suppress(ValueError):  # noise too small for that pricing
            if Query((), 1, sensitivity, sigma, pricing).rho == Fraction(stated):
                return pricing
    return None
