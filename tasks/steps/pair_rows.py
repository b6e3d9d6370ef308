"""Step *pair rows* (transform): of each person with two rows and more a row and the next one, in codes; their queries.

Not in the paper.  The pair is drawn by a public rule from the person's own rows (tasks/panels/choose_rows.py), so one
person is one record of the result, however many rows it has.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from privsyn.data_contracts.domain import Domain
from privsyn.data_contracts.panels import name_next
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

    Pairs of members of a household have no such code, but one for what kind of pair they are.
    """
    panel = plan.get_order()[0]
    sizes = {panel.kind_of_pair: plan.get_compositions().kinds} if panel.household else {}
    for a, c in codes.items():
        sizes |= {a: c.size, name_next(a): c.size + (not panel.household)}
    return Domain.of(sizes)


def pair_rows(passes: Passes, plan: EncodingPlan, codes: Mapping[str, TransitionCodes]) -> Iterator[pa.RecordBatch]:
    """Yield the pairs as codes of :func:`build_pair_domain`, padded: a filtered value has the code ``size``.

    "As before" is said of a next row whose value is that of the row, both clamped to the public bounds.  Adding or
    removing one person adds or removes at most one record.
    """
    schema = build_code_schema(build_pair_domain(codes, plan), padded=True)
    household = plan.get_order()[0].household
    for runs in iterate_persons(passes, plan):
        first, after, alike = _read_pairs(passes, plan, runs)
        arrays: list[NDArray[Any]] = [find_kinds(runs.number)[runs.find_pairs() + 1]] if household else []
        for a, c in codes.items():
            size, of = c.size, c.recode.coarse
            row, moved = of[first[a]], of[after[a]]
            if household:
                arrays += [row, moved]
                continue
            moved = np.where(moved == size, size + 1, moved)
            arrays += [row, np.where(alike[a] & (row < size), size, moved)]
        columns = [pa.array(v.astype(f.type.to_pandas_dtype())) for v, f in zip(arrays, schema, strict=True)]
        yield pa.RecordBatch.from_arrays(columns, schema=schema)


Fine = dict[str, NDArray[np.int64]]


def _read_pairs(passes: Passes, plan: EncodingPlan, runs: KeptRuns) -> tuple[Fine, Fine, dict[str, NDArray[np.bool_]]]:
    """Return fine codes of drawn rows, and of the rows after them, and which values are the same, person by person."""
    places = runs.list_pairs()
    wanted = np.concatenate(places)
    order = np.argsort(wanted, kind="stable")
    wanted, start = wanted[order], 0
    parts: dict[str, list[NDArray[np.int64]]] = {a: [np.empty(0, np.int64)] for a in plan.following}
    of_rows, middle = plan.of_rows, len(places[0])
    ordered = {a: c for a in plan.following if isinstance(c := plan.get_codec(a), OrderedCodec)}
    numbers: dict[str, list[NDArray[np.float64]]] = {a: [np.empty(0)] for a in ordered}
    for batch in passes():
        low, high = np.searchsorted(wanted, [start, start + batch.num_rows])
        if high > low:
            rows = batch.take(pa.array(wanted[low:high] - start))
            codes = encode_batch(rows, of_rows, Repairs())
            for a, found in parts.items():
                found.append(np.asarray(codes.column(a)).astype(np.int64))
            for a, codec in ordered.items():
                numbers[a].append(codec.clamp(rows.column(a))[0])
        start += batch.num_rows
    first, after, alike = {}, {}, {}
    for a, found in parts.items():
        both = _put_back(np.concatenate(found), order)
        first[a], after[a] = both[:middle], both[middle:]
        alike[a] = first[a] == after[a]
        if a in ordered:
            value = _put_back(np.concatenate(numbers[a]), order)
            alike[a] &= value[:middle] == value[middle:]
    return first, after, alike


def _put_back(values: NDArray[Any], order: NDArray[np.int64]) -> NDArray[Any]:
    """Return values that were taken in ``order`` in their places."""
    found = np.empty_like(values)
    found[order] = values
    return found


def plan_transition_queries(
    attributes: Sequence[str], domain: Domain, rho: Fraction, records: int, kinds: Sequence[str] = ()
) -> list[Query]:
    """Return one query per attribute: its codes by those of the next row, each at rho_i = ``rho`` / d.

    ``domain``: of the pairs (tasks/steps/pair_rows.py); ``kinds``: the attribute that says of which kind a pair of
    members of a household is, by which all are counted, too; a household is then what a person is below.
    Privacy: all answers together are rho-zCDP for adding or removing one person with all rows.  A person is at most
    ``records`` = 1 record of the pairs, since one pair is drawn from each person by a rule that depends on that person
    alone.  So each table of transitions has L2 sensitivity 1 and costs 1 / (2 sigma_i^2) <= rho_i (Theorem 3); the
    rho_i sum to ``rho`` and depend on the public columns only.  One mechanism instance an attribute (Theorem 1).
    """
    cliques = [(*kinds, a, name_next(a)) for a in attributes]
    cells = [domain.cells(c) for c in cliques]
    sigma = compute_sigma(rho / max(len(cliques), 1), records)
    return [Query(c, n, records, sigma) for c, n in zip(cliques, cells, strict=True)]
