"""The start of sweeps: along a tree, every attribute settled towards all it is measured with before the next is drawn.

Not in the paper.  A tree gives an attribute what it has with one other.  Before any later attribute hangs on it, a few
sweeps move it alone, towards its marginals with all attributes drawn so far.  So rows come to be coherent: where
columns follow from each other, moves of one value at a time could not mend them later, as all other values of the row
speak against each.  Post-processing of released counts costs no budget.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from privsyn.data_contracts.domain import Domain
from privsyn.data_contracts.step_options import Synthesis
from privsyn.tasks.estimation.known_zeros import KnownZeros
from privsyn.tasks.estimation.marginals import Marginal, sum_to_one_ways
from privsyn.tasks.kernels.sweeper import Sweeper
from privsyn.tasks.synthesis.shards import Shard
from privsyn.tasks.synthesis.sweep import compute_residuals, cool, weigh_marginals
from privsyn.tasks.synthesis.targets import find_empty_cells, scale_target
from privsyn.tasks.synthesis.tree_start import start_from_tree

MOST_SWEEPS = 6
"""Most sweeps of one attribute; each takes a fraction of a sweep of all."""

_TREE, _SETTLE = 4, 14  # purposes of random streams; no other method's


def start_settled(
    marginals: Sequence[Marginal],
    domain: Domain,
    settings: Synthesis,
    rows: int,
    threads: int,
    zeros: KnownZeros,
) -> list[np.ndarray]:
    """Return columns of ``rows`` codes over ``domain``, in its order.

    marginals: every one-way and any larger ones; at most ``settings.sweeps`` sweeps an attribute; zeros: joint codes
    that rules forbid.
    """
    ones = sum_to_one_ways(marginals, domain)
    larger = [m for m in marginals if len(m.attributes) > 1]
    drawn: set[str] = set()

    def settle(attribute: str, columns: Mapping[str, np.ndarray]) -> None:
        drawn.add(attribute)
        own = [m for m in larger if attribute in m.attributes and drawn.issuperset(m.attributes)]
        tables = [(c, cells) for c, cells in zeros.tables if attribute in c and drawn.issuperset(c)]
        if rows and (len(own) > 1 or tables):
            cliques = [*(m.attributes for m in own), *(c for c, _ in tables)]
            group = domain.ordered({a for c in cliques for a in c})
            forbidden = [(tuple(group.index(a) for a in c), cells) for c, cells in tables]
            targets = [scale_target(m, group, rows, zeros) for m in (Marginal((attribute,), ones[attribute]), *own)]
            chosen, sizes, number = [columns[a] for a in group], domain.shape(group), domain.index(attribute)
            residuals = compute_residuals(chosen, sizes, targets, number, threads, Shard(settings.seed), _SETTLE)
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
            )
            with sweeper:
                alone = np.array([group.index(attribute)])
                cool(sweeper, alone, min(MOST_SWEEPS, settings.sweeps), (settings.seed, _SETTLE, number))

    return start_from_tree(marginals, domain, rows, settings.seed, _TREE, settle)
