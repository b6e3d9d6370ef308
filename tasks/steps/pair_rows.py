"""Step *pair rows* (transform): of each person with two rows and more a row and the next one, in codes; their queries.

Not in the paper.  The pair is drawn by a public rule from the person's own rows (tasks/panels/choose_rows.py), so one
person is one record of the result, however many rows it has.  Of a household one pair of neighbouring members is drawn
and, where it has three and more, a later member beside its first one; both are in one record.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from privsyn.data_contracts.domain import Domain
from privsyn.data_contracts.panels import name_first, name_later, name_next
from privsyn.data_contracts.receipts import Query, compute_sigma
from privsyn.data_contracts.tables import build_code_schema
from privsyn.tasks.codecs import EncodingPlan
from privsyn.tasks.codecs.compositions import find_kinds
from privsyn.tasks.codecs.ordered import OrderedCodec
from privsyn.tasks.panels.choose_rows import KeptRuns, Passes
from privsyn.tasks.panels.transition_codes import TransitionCodes
from privsyn.tasks.steps.encode import Repairs, encode_batch, iterate_persons


def build_pair_domain(codes: Mapping[str, TransitionCodes], plan: EncodingPlan) -> Domain:
    """Return the domain of the pairs: a row's codes, and those of the next one, the last for "as before".

    Pairs of members of a household have no such code, but one for what kind of pair they are.  Beside them are, of
    households that may have three, the codes of its first member and of a later one, and of what kind that pair is.
    """
    panel = plan.get_order()[0]
    if not panel.household:
        return Domain.of({n: s for a, c in codes.items() for n, s in ((a, c.size), (name_next(a), c.size + 1))})
    kinds = plan.get_compositions().kinds
    sizes = {panel.kind_of_pair: kinds}
    sizes |= {n: c.size for a, c in codes.items() for n in (a, name_next(a))}
    if panel.counts_later:
        sizes |= {panel.kind_beside_first: kinds}
        sizes |= {n: c.size for a, c in codes.items() for n in (name_first(a), name_later(a))}
    return Domain.of(sizes)


def pair_rows(passes: Passes, plan: EncodingPlan, codes: Mapping[str, TransitionCodes]) -> Iterator[pa.RecordBatch]:
    """Yield the pairs as codes of :func:`build_pair_domain`, padded: a filtered value has the code ``size``.

    "As before" is said of a next row whose value is that of the row, both clamped to the public bounds.  A household of
    two members has all codes of a later member filtered.  Adding or removing one person, or household, adds or removes
    at most one record.
    """
    domain, household = build_pair_domain(codes, plan), plan.get_order()[0].household
    schema = build_code_schema(domain, padded=True)
    for runs in iterate_persons(passes, plan):
        arrays = _pair_members(passes, plan, runs, codes) if household else _pair_rows(passes, plan, runs, codes)
        columns = [pa.array(v.astype(f.type.to_pandas_dtype())) for v, f in zip(arrays, schema, strict=True)]
        yield pa.RecordBatch.from_arrays(columns, schema=schema)


def _pair_rows(
    passes: Passes, plan: EncodingPlan, runs: KeptRuns, codes: Mapping[str, TransitionCodes]
) -> list[NDArray[Any]]:
    """Return the columns of the pairs of rows of a person."""
    drawn = runs.find_pairs()
    fine, numbers = _read_rows(passes, plan, runs.place[np.concatenate([drawn, drawn + 1])])
    arrays: list[NDArray[Any]] = []
    for a, c in codes.items():
        first, after = np.split(fine[a], 2)
        alike = first == after
        if a in numbers:
            alike &= np.equal(*np.split(numbers[a], 2))
        row, moved = c.recode.coarse[first], c.recode.coarse[after]
        moved = np.where(moved == c.size, c.size + 1, moved)
        arrays += [row, np.where(alike & (row < c.size), c.size, moved)]
    return arrays


def _pair_members(
    passes: Passes, plan: EncodingPlan, runs: KeptRuns, codes: Mapping[str, TransitionCodes]
) -> list[NDArray[Any]]:
    """Return the columns of the pairs of members of a household: of neighbours, and of the first and a later one."""
    pairs, later = runs.find_pairs(), runs.find_later()
    first, begins = later - runs.before[later], pairs - runs.before[pairs]
    has_later = np.isin(begins, first)
    of_later = np.searchsorted(first, begins[has_later])
    fine, _ = _read_rows(passes, plan, runs.place[np.concatenate([pairs, pairs + 1, first, later])])
    cuts = np.cumsum([len(pairs), len(pairs), len(first)])
    parts_by_attribute = {a: [c.recode.coarse[part] for part in np.split(fine[a], cuts)] for a, c in codes.items()}

    def spread(values: NDArray[Any], filtered: int) -> NDArray[Any]:
        spread_values = np.full(len(pairs), filtered)
        spread_values[has_later] = values[of_later]
        return spread_values

    kinds = plan.get_compositions().kinds
    arrays: list[NDArray[Any]] = [find_kinds(runs.number[pairs], runs.number[pairs + 1])]
    for a in codes:
        arrays += parts_by_attribute[a][:2]
    if not plan.get_order()[0].counts_later:
        return arrays
    arrays.append(spread(find_kinds(runs.number[first], runs.number[later]), kinds))
    for a, c in codes.items():
        arrays += [spread(values, c.size) for values in parts_by_attribute[a][2:]]
    return arrays


def _read_rows(
    passes: Passes, plan: EncodingPlan, wanted: NDArray[np.int64]
) -> tuple[dict[str, NDArray[np.int64]], dict[str, NDArray[np.float64]]]:
    """Return fine codes of the rows at these places, and their numbers in columns with an order; it reads once."""
    order = np.argsort(wanted, kind="stable")
    wanted, start = wanted[order], 0
    parts: dict[str, list[NDArray[np.int64]]] = {a: [np.empty(0, np.int64)] for a in plan.following}
    ordered = {a: c for a in plan.following if isinstance(c := plan.get_codec(a), OrderedCodec)}
    numbers: dict[str, list[NDArray[np.float64]]] = {a: [np.empty(0)] for a in ordered}
    for batch in passes():
        low, high = np.searchsorted(wanted, [start, start + batch.num_rows])
        if high > low:
            rows = batch.take(pa.array(wanted[low:high] - start))
            codes = encode_batch(rows, plan.of_rows, Repairs())
            for a, fine_codes in parts.items():
                fine_codes.append(np.asarray(codes.column(a)).astype(np.int64))
            for a, codec in ordered.items():
                numbers[a].append(codec.clamp(rows.column(a))[0])
        start += batch.num_rows
    return tuple(
        {a: _put_back(np.concatenate(v), order) for a, v in parts_by_attribute.items()}
        for parts_by_attribute in (parts, numbers)
    )  # type: ignore[return-value]


def _put_back(values: NDArray[Any], order: NDArray[np.int64]) -> NDArray[Any]:
    """Return values that were taken in ``order`` in their places."""
    restored = np.empty_like(values)
    restored[order] = values
    return restored


def plan_transition_queries(plan: EncodingPlan, domain: Domain, rho: Fraction, records: int) -> list[Query]:
    """Return one query per attribute that is followed: its codes by those of the next row, each at rho_i = ``rho`` / d.

    ``domain``: of the pairs (tasks/steps/pair_rows.py).  Of households all are counted by the kind of the pair of
    members, too, and where they may have three, a second query per attribute is about the first member and a later one;
    d is the number of queries, and a household is what a person is below.
    Privacy: all answers together are rho-zCDP for adding or removing one person with all rows.  A person is at most
    ``records`` = 1 record of the pairs, since one pair (of members, one of each sort) is drawn from each person by a
    rule that depends on that person alone.  So each table has L2 sensitivity 1 and costs 1 / (2 sigma_i^2) <= rho_i
    (Theorem 3); the rho_i sum to ``rho`` and depend on the public columns only.  One mechanism instance a query
    (Theorem 1).
    """
    panel, following = plan.get_order()[0], plan.following
    cliques: list[tuple[str, ...]] = [(a, name_next(a)) for a in following]
    if panel.household:
        cliques = [(panel.kind_of_pair, *clique) for clique in cliques]
    if panel.counts_later:
        cliques += [(panel.kind_beside_first, name_first(a), name_later(a)) for a in following]
    cells = [domain.cells(c) for c in cliques]
    sigma = compute_sigma(rho / max(len(cliques), 1), records)
    return [Query(c, n, records, sigma) for c, n in zip(cliques, cells, strict=True)]
