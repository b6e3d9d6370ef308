"""Step *append attributes* (postprocess): draw attributes that are in at most one marginal after synthesis.

Paper: section 5.3.  Post-processing of released counts costs no budget.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from privsyn.data_contracts.domain import Clique, Domain
from privsyn.tasks.estimation.marginals import Marginal, fit_to_sums, sum_to_one_ways
from privsyn.tasks.kernels.counting import CodeTable
from privsyn.tasks.kernels.streams import derive_stream

_APPEND = 100  # purpose of the random streams; no other step's


@dataclass(frozen=True)
class CoreMarginals:
    """The input of synthesis: the marginals on the core attributes, one-ways first, and their domain."""

    marginals: list[Marginal]
    domain: Domain


def split_appended(
    cliques: Sequence[Clique], domain: Domain, tied: AbstractSet[str] = frozenset()
) -> tuple[list[Clique], list[tuple[str, Clique | None]]]:
    """Return the cliques that synthesis works on, and the appended attributes in the order of drawing.

    An attribute in exactly one clique of two or more attributes is drawn given the rest of that clique.  Its second
    item is that clique without the attributes drawn later, or None if the attribute is in no clique.  If no attribute
    of a clique is in another clique, the first stays in the core, and so does the first attribute of a domain without
    any other core attribute.

    The core cliques are the given ones without appended attributes: a clique of three or more keeps the joint of its
    core attributes.  Single attributes and duplicates are left out.  Attributes in ``tied`` are never appended, because
    rules tie them to others.
    """
    larger = [domain.ordered(clique) for clique in cliques if len(clique) > 1]
    degree = Counter(a for clique in larger for a in clique)
    appended: list[tuple[str, Clique | None]] = [
        (a, None) for a in domain.attributes if degree[a] == 0 and a not in tied
    ]
    core: dict[Clique, None] = {}
    for clique in larger:
        leaves = [a for a in clique if degree[a] == 1 and a not in tied]
        if len(leaves) == len(clique):
            leaves = leaves[1:]
        drawn_before = [a for a in clique if a not in leaves]
        if len(drawn_before) > 1:
            core[tuple(drawn_before)] = None
        for leaf in leaves:
            drawn_before.append(leaf)
            appended.append((leaf, domain.ordered(drawn_before)))
    if len(appended) == len(domain.attributes) and appended:
        appended = appended[1:]
    return list(core), appended


def select_core_marginals(
    marginals: Sequence[Marginal], domain: Domain, tied: AbstractSet[str] = frozenset()
) -> CoreMarginals:
    """Return the marginals and domain left for synthesis; see :func:`split_appended`."""
    cliques, appended = split_appended([m.attributes for m in marginals], domain, tied)
    left_out = {attribute for attribute, _ in appended}
    core = Domain.of({a: domain.size(a) for a in domain.attributes if a not in left_out})
    one_ways = sum_to_one_ways(marginals, domain)
    core_one_ways = [Marginal((a,), one_ways[a]) for a in core.attributes]
    holding = _group_by_attribute(marginals)
    marginal_of = {frozenset(m.attributes): m for m in reversed(marginals)}  # most cliques are marginals themselves
    measured = ((clique, marginal_of.get(frozenset(clique))) for clique in cliques)
    return CoreMarginals(
        [*core_one_ways, *(m if m and m.attributes == c else _find_covering(c, holding) for c, m in measured)], core
    )


def append_attributes(
    core: CodeTable,
    marginals: Sequence[Marginal],
    domain: Domain,
    seed: int,
    tied: AbstractSet[str] = frozenset(),
) -> CodeTable:
    """Draw the attributes that ``core`` lacks; returns all attributes of ``domain``, in its order.

    core: rows over ``select_core_marginals(marginals, domain, tied).domain``, else ValueError; marginals: all
    marginals, including every attribute's one-way.  Within rows that share the conditioning values, the new codes have
    exactly the marginal's conditional shares, up to rounding, in random order; the marginal is first fitted to the
    one-ways.  If the marginal has no counts for the conditioning values, the one-way is used.
    """
    from privsyn.tasks.synthesis.conditional import draw_attribute  # here: compiled code loads slowly

    _, appended = split_appended([m.attributes for m in marginals], domain, tied)
    drawn = {attribute for attribute, _ in appended}
    if core.domain.attributes != tuple(a for a in domain.attributes if a not in drawn):
        raise ValueError("the table's attributes are not the core attributes of these marginals")
    one_ways = sum_to_one_ways(marginals, domain)
    holding = _group_by_attribute(marginals)
    columns = dict(zip(core.domain.attributes, core.columns, strict=True))
    for attribute, clique in appended:
        marginal = None if clique is None else _keep_agreeing(_find_covering(clique, holding), attribute, one_ways)
        address = derive_stream(seed, _APPEND, domain.index(attribute))
        columns[attribute] = draw_attribute(attribute, marginal, columns, core.rows, one_ways[attribute], address)
    return CodeTable(domain, tuple(columns[a] for a in domain.attributes))


def _keep_agreeing(marginal: Marginal, attribute: str, one_ways: Mapping[str, NDArray[np.float64]]) -> Marginal:
    """Return ``marginal`` fitted to ``one_ways``: a pair to both one-ways, a larger marginal to ``attribute``'s.

    The consistency rounds do not fully reconcile very noisy counts; rows drawn from the unfitted counts would have a
    different one-way.
    """
    conditions = [(a, n) for a, n in zip(marginal.attributes, marginal.counts.shape, strict=True) if a != attribute]
    joint, one_way = marginal.by_code(attribute), one_ways[attribute]
    if joint.sum() <= 0 or one_way.sum() <= 0:
        return marginal
    sums = one_ways[conditions[0][0]] if len(conditions) == 1 else joint.sum(axis=1)
    fitted = fit_to_sums(joint / joint.sum(), (sums, one_way * (sums.sum() / one_way.sum())))
    return Marginal(
        (*(a for a, _ in conditions), attribute), fitted.reshape(*(n for _, n in conditions), -1), marginal.sigma
    )


def _group_by_attribute(marginals: Sequence[Marginal]) -> dict[str, list[Marginal]]:
    """Map each attribute to the marginals of two or more attributes that contain it."""
    holding: dict[str, list[Marginal]] = {}
    for marginal in marginals:
        if len(marginal.attributes) > 1:
            for attribute in marginal.attributes:
                holding.setdefault(attribute, []).append(marginal)
    return holding


def _find_covering(clique: Clique, holding: Mapping[str, Sequence[Marginal]]) -> Marginal:
    """Return the smallest marginal that covers ``clique``, summed down to it, with the axes in the clique's order."""
    fewest = min((holding[a] for a in clique), key=len)
    covering = [m for m in fewest if set(clique) <= set(m.attributes)]
    smallest = min(covering, key=lambda m: len(m.attributes)).project(clique)
    order = [smallest.attributes.index(a) for a in clique]
    return Marginal(clique, smallest.counts.transpose(order), smallest.sigma)
