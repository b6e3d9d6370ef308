"""Initial rows for the sweeps: drawn along a tree, with each attribute settled before the next one is drawn.

Not in the paper.  A tree keeps one relation per attribute.  Before later attributes are drawn given an attribute, a few
sweeps move it alone towards its marginals with all attributes drawn so far.  This makes rows coherent.  If columns
determine each other, moves of one value at a time cannot repair rows later, because the row's other values oppose each
move.  Post-processing of released counts costs no budget.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np

from privsyn.data_contracts.domain import Domain
from privsyn.data_contracts.step_options import Synthesis
from privsyn.tasks.estimation.known_zeros import KnownZeros
from privsyn.tasks.estimation.marginals import Marginal, sum_to_one_ways
from privsyn.tasks.kernels.streams import derive_stream
from privsyn.tasks.kernels.sweeper import Sweeper
from privsyn.tasks.synthesis.conditional import draw_attribute
from privsyn.tasks.synthesis.shards import Shard
from privsyn.tasks.synthesis.sweep import compute_residuals, cool, weigh_marginals
from privsyn.tasks.synthesis.targets import find_empty_cells, scale_target

MOST_SWEEPS = 6
"""Largest number of sweeps of one attribute; each takes a fraction of a sweep of all attributes."""

_TREE, _SETTLE = 4, 14  # purposes of random streams, used by no other method


def start_settled(
    marginals: Sequence[Marginal],
    domain: Domain,
    settings: Synthesis,
    rows: int,
    threads: int,
    zeros: KnownZeros,
) -> list[np.ndarray]:
    """Return columns of ``rows`` codes over ``domain``, in its order.

    marginals: every one-way and any larger marginals; zeros: joint codes that rules forbid.  Each attribute takes at
    most ``settings.sweeps`` sweeps.
    """
    one_ways = sum_to_one_ways(marginals, domain)
    holding = _list_by_attribute([m for m in marginals if len(m.attributes) > 1], domain)
    drawn: set[str] = set()

    def settle(attribute: str, columns: Mapping[str, np.ndarray]) -> None:
        drawn.add(attribute)
        drawn_marginals = [m for m in holding[attribute] if drawn.issuperset(m.attributes)]
        tables = [(c, cells) for c, cells in zeros.tables if attribute in c and drawn.issuperset(c)]
        if rows and (len(drawn_marginals) > 1 or tables):
            cliques = [*(m.attributes for m in drawn_marginals), *(c for c, _ in tables)]
            group = domain.ordered({a for c in cliques for a in c})
            forbidden = [(tuple(group.index(a) for a in c), cells) for c, cells in tables]
            targets = [
                scale_target(m, group, rows, zeros)
                for m in (Marginal((attribute,), one_ways[attribute]), *drawn_marginals)
            ]
            chosen, sizes, number = [columns[a] for a in group], domain.shape(group), domain.index(attribute)
            residuals = compute_residuals(chosen, sizes, targets, number, threads, Shard(settings.seed), _SETTLE)
            position = group.index(attribute)
            sweeper = Sweeper(
                chosen,
                sizes,
                [t.attributes for t in targets],
                weights=weigh_marginals(targets),
                residuals=residuals,
                threads=threads,
                forbidden=forbidden,
                empty=find_empty_cells(targets),
                merges=[t.merges for t in targets],
                visited=frozenset({position}),
            )
            with sweeper:
                cool(sweeper, np.array([position]), min(MOST_SWEEPS, settings.sweeps), (settings.seed, _SETTLE, number))

    return start_from_tree(marginals, domain, rows, settings.seed, _TREE, settle)


Settle = Callable[[str, Mapping[str, np.ndarray]], None]


def start_from_tree(
    marginals: Sequence[Marginal],
    domain: Domain,
    rows: int,
    seed: int,
    purpose: int,
    settle: Settle = lambda attribute, columns: None,
) -> list[np.ndarray]:
    """Return columns of ``rows`` codes over ``domain``, in its order; marginals: every one-way and any larger ones.

    Up to rounding, every attribute has its one-way's shares, or the conditional shares of its marginal given the
    attributes drawn before.  Attributes that no chain of marginals connects are independent.  seed, purpose: address
    the random streams.  settle: called with each drawn attribute and all columns so far; it may change the attribute's
    codes.
    """
    one_ways = sum_to_one_ways(marginals, domain)
    columns: dict[str, np.ndarray] = {}
    for attribute, marginal in order_drawing([m for m in marginals if len(m.attributes) > 1], domain):
        address = derive_stream(seed, purpose, domain.index(attribute))
        columns[attribute] = draw_attribute(attribute, marginal, columns, rows, one_ways[attribute], address)
        settle(attribute, columns)
    return [columns[a] for a in domain.attributes]


def order_drawing(larger: Sequence[Marginal], domain: Domain) -> Iterator[tuple[str, Marginal | None]]:
    """Yield every attribute once, with the marginal on it and the earlier attributes it is drawn from, or None.

    The next attribute is the one with the largest mutual information with the drawn attributes of one marginal.  A
    component begins with the attribute of the strongest relation.  The first attribute wins ties.
    """
    holding = _list_by_attribute(larger, domain)
    strongest = dict.fromkeys(domain.attributes, 0.0)
    for m in larger:
        for a in m.attributes:
            strongest[a] = max(strongest[a], compute_mutual_information(m, a))
    drawn: set[str] = set()
    reach: dict[str, tuple[float, Marginal]] = {}
    while len(drawn) < len(domain.attributes):
        if reach:
            attribute = max(reach, key=lambda a: (reach[a][0], -domain.index(a)))
            yield attribute, reach.pop(attribute)[1]
        else:
            attribute = max((a for a in domain.attributes if a not in drawn), key=lambda a: strongest[a])
            yield attribute, None
        drawn.add(attribute)
        for m in holding[attribute]:
            for a in m.attributes:
                if a not in drawn:
                    conditional = m.project({a, *(b for b in m.attributes if b in drawn)})
                    weight = compute_mutual_information(conditional, a)
                    if a not in reach or weight > reach[a][0]:
                        reach[a] = (weight, conditional)


def _list_by_attribute(marginals: Sequence[Marginal], domain: Domain) -> dict[str, list[Marginal]]:
    """Return each attribute's marginals, in their order; in wide tables these are few among many."""
    holding: dict[str, list[Marginal]] = {a: [] for a in domain.attributes}
    for m in marginals:
        for a in m.attributes:
            holding[a].append(m)
    return holding


def compute_mutual_information(marginal: Marginal, attribute: str) -> float:
    """Return the mutual information in nats of ``attribute`` and the marginal's other attributes; 0 without counts.

    Rounded to nine decimals: further digits differ between CPUs, and near 0 they would decide the order.
    """
    joint = marginal.by_code(attribute)
    total = joint.sum()
    if total <= 0:
        return 0.0
    entropy_of_others, entropy, joint_entropy = (
        _compute_entropy(counts / total) for counts in (joint.sum(axis=1), joint.sum(axis=0), joint)
    )
    return round(max(0.0, entropy_of_others + entropy - joint_entropy), 9)


def _compute_entropy(shares: np.ndarray) -> float:
    positive = shares[shares > 0]
    return -float((positive * np.log(positive)).sum())
