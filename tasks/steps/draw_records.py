"""Step *draw records* (postprocess): choose the parent rows that have child rows, and draw one record for each.

Not in the paper.  A record describes the child rows of one parent row: their number, one of them, and its position.
The parent rows already exist, so their codes stay, and the record's codes are drawn given the parent rows' codes.  The
codes are first drawn by the most informative measured pair, then moved until all measured relations between the two
tables hold.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from privsyn.data_contracts.domain import Domain, choose_code_dtype
from privsyn.data_contracts.receipts import Query
from privsyn.tasks.codecs import EncodingPlan
from privsyn.tasks.codecs.encode_rows import Repairs, encode_batch
from privsyn.tasks.estimation.marginals import Marginal
from privsyn.tasks.estimation.recode import Recode
from privsyn.tasks.estimation.shrink_departures import shrink_counts
from privsyn.tasks.kernels.counting import CodeTable, choose_thread_count
from privsyn.tasks.kernels.streams import derive_stream
from privsyn.tasks.panels.rows_above import Numbered
from privsyn.tasks.panels.transitions import project_to_sum
from privsyn.tasks.steps.make_without_rows import estimate_without, rake

Floats: TypeAlias = NDArray[np.float64]
Codes: TypeAlias = NDArray[Any]

LEAST_SHARE = 1e-9
"""Cells with a smaller share are left out of a pair's mutual information."""


def encode_above(
    rows: Iterable[Numbered], plan: EncodingPlan, recode: Recode
) -> tuple[NDArray[np.int64], dict[str, Codes]]:
    """Return the numbers of the parent rows, and their coarse codes by attribute."""
    only = plan.row_plan.only(plan.constant)
    numbers: list[NDArray[np.int64]] = [np.empty(0, np.int64)]
    parts: dict[str, list[Codes]] = {}
    for a in only.domain.attributes:
        parts[a] = [np.empty(0, choose_code_dtype(recode[a].size))]
    for number, batch in rows:
        numbers.append(number)
        fine = encode_batch(batch, only, Repairs())
        for a, coarse_parts in parts.items():
            coarse = np.minimum(recode[a].coarse[np.asarray(fine.column(a))], recode[a].size - 1)
            coarse_parts.append(coarse.astype(coarse_parts[0].dtype))
    return np.concatenate(numbers), {a: np.concatenate(coarse_parts) for a, coarse_parts in parts.items()}


def choose_above(
    parent_codes: Mapping[str, Codes],
    noisy: Sequence[tuple[Query, Floats]],
    marginals: Sequence[Marginal],
    seed: int,
) -> NDArray[np.bool_]:
    """Return which parent rows have child rows, shape (parent rows,).

    ``parent_codes``: the parents' coarse codes; ``noisy``: counts of the parents without rows, by each attribute's
    codes; ``marginals``: consistent counts of the parents with rows.  In every code the share of parents without rows
    follows these counts.
    """
    one_ways = _list_ones(marginals)
    rows, total = len(next(iter(parent_codes.values()))), estimate_without(noisy)
    if total <= 0 or rows == 0:
        return np.ones(rows, bool)
    codes, wanted = [], []
    for query, counts in noisy:
        (a,) = query.attributes
        having = one_ways[a]
        without = shrink_counts(counts, total * having / max(float(having.sum()), 1e-9), query.sigma)
        without = project_to_sum(without, total)
        share = without / np.maximum(without + having, 1e-9)
        codes.append(parent_codes[a].astype(np.int64))
        wanted.append(share * np.bincount(codes[-1], minlength=len(share)))
    mean = float(np.mean([target.sum() for target in wanted]))
    wanted = [target * (mean / max(float(target.sum()), 1e-9)) for target in wanted]
    without_rows = np.minimum(rake(codes, wanted, lambda weights: 1.0), 1.0)
    rng = np.random.default_rng([seed, 0x0AB0])
    order = rng.permutation(rows)
    marks = np.floor(np.cumsum(without_rows[order]) + rng.random())
    has_rows = np.empty(rows, bool)
    has_rows[order] = np.diff(marks, prepend=0.0) == 0
    return has_rows


def draw_records(
    parent_codes: Mapping[str, Codes], marginals: Sequence[Marginal], domain: Domain, seed: int, threads: int
) -> CodeTable:
    """Return one record per parent row, in their order, as codes of ``domain``.

    ``parent_codes``: the parent rows' coarse codes, which stay as they are; ``marginals``: consistent, including the
    one-ways.
    """
    from privsyn.tasks.panels.link_rows import fit_relations  # these here: compiled code loads slowly
    from privsyn.tasks.synthesis.conditional import draw_attribute

    rows = len(next(iter(parent_codes.values())))
    one_ways = _list_ones(marginals)
    drawn = tuple(a for a in domain.attributes if a not in parent_codes)
    relations = [m for m in marginals if len(m.attributes) > 1 and not set(m.attributes).isdisjoint(drawn)]
    new: dict[str, Codes] = {}
    for a in drawn:
        pair = _find_telling_pair(a, parent_codes, relations)
        address = derive_stream(seed, 0xD2A3, domain.index(a))
        new[a] = draw_attribute(a, pair, parent_codes, rows, one_ways[a], address)
    held = {a: code for a, code in parent_codes.items() if any(a in m.attributes for m in relations)}
    if rows:
        sizes = dict(zip(domain.attributes, domain.sizes, strict=True))
        fit_relations(new, [], held, sizes, relations, seed, choose_thread_count(threads))
    return CodeTable(domain, tuple(np.ascontiguousarray({**new, **parent_codes}[a]) for a in domain.attributes))


def _list_ones(marginals: Sequence[Marginal]) -> dict[str, Floats]:
    return {m.attributes[0]: m.counts for m in marginals if len(m.attributes) == 1}


def _find_telling_pair(
    attribute: str, parent_codes: Mapping[str, Codes], relations: Sequence[Marginal]
) -> Marginal | None:
    """Return the attribute's measured pair with the most informative parent attribute, or None."""
    pairs: list[tuple[float, Marginal]] = []
    for m in relations:
        if attribute in m.attributes:
            pairs += [
                (_measure_information(pair.counts), pair)
                for other in m.attributes
                if other in parent_codes
                for pair in [m.project((other, attribute))]
            ]
    return max(pairs, key=lambda scored: scored[0])[1] if pairs else None


def _measure_information(counts: Floats) -> float:
    """Return the mutual information of a pair, in nats."""
    shares = counts / max(float(counts.sum()), 1e-300)
    expected = np.outer(shares.sum(axis=1), shares.sum(axis=0))
    has_count = shares > LEAST_SHARE
    return float((shares[has_count] * np.log(shares[has_count] / expected[has_count])).sum())
