"""Step *basis set* (post-processing): few small sets of items that hold every set that may be frequent.

PrivBasis, ConstructBasisSet: an itemset can be frequent only if its pairs are frequent.  So a frequent itemset is a
clique of the graph of frequent pairs.  Maximal cliques are merged while a merge lowers the expected error.  Here every
pair has a count of its own, so only cliques of three and more items need a basis.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import combinations, islice
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import networkx as nx

Basis = tuple[int, ...]
"""Items of one basis, ascending: places in the list of frequent items."""

MAX_CLIQUES = 2_000
"""Maximal cliques considered; a public limit on work."""

MAX_BASES = 60
"""Largest number of measured bases; the bases with the most frequent pairs come first."""

_MOST_TARGETS = 1_000


def build_pair_graph(counts: NDArray[Any], items: int, least: float) -> nx.Graph:
    """Return the graph of frequent pairs among ``items``: an edge where the noisy count is at least ``least``.

    ``counts``: the upper triangle row by row; an edge's ``count`` is its count.
    """
    import networkx as nx  # here: a release of a table makes no such graph

    graph = nx.Graph()
    graph.add_nodes_from(range(items))
    for a, b, count in zip(*np.triu_indices(items, 1), counts, strict=True):
        if count >= least:
            graph.add_edge(int(a), int(b), count=float(count))
    return graph


def choose_basis_set(graph: nx.Graph, largest: int) -> list[Basis]:
    """Return bases of 3 to ``largest`` items that hold every triangle of ``graph``, if MAX_BASES of them can.

    The choice follows from the graph alone.
    """
    import networkx as nx  # here: see above

    cliques = [tuple(sorted(c)) for c in islice(nx.find_cliques(graph), MAX_CLIQUES) if len(c) > 2]
    cliques.sort(key=lambda c: (-min(graph.edges[pair]["count"] for pair in combinations(c, 2)), c))
    bases = list(dict.fromkeys(part for clique in cliques for part in _iterate_parts(clique, largest)))
    bases = _keep_maximal(bases)[:MAX_BASES]
    targets = list(islice(dict.fromkeys(t for b in bases for t in combinations(b, 3)), _MOST_TARGETS))
    targets = [t for t in targets if all(graph.has_edge(*pair) for pair in combinations(t, 2))]
    return _merge_bases(bases, targets, largest)


def _iterate_parts(clique: Basis, largest: int) -> Iterable[Basis]:
    """Return the clique, or where it is too large, sets of ``largest`` items that hold all its triples."""
    if len(clique) <= largest:
        return [clique]
    size = max(largest // 3, 1)
    chunks = [clique[i : i + size] for i in range(0, len(clique), size)]
    return [tuple(sorted(sum(three, ()))) for three in combinations(chunks, 3)]


def _keep_maximal(bases: Sequence[Basis]) -> list[Basis]:
    """Return the sets that are not contained in another one, in their order."""
    sets = [frozenset(b) for b in bases]
    return [b for b, s in zip(bases, sets, strict=True) if not any(s < other for other in sets)]


def _compute_precisions(bases: Sequence[Basis], targets: Sequence[Basis]) -> NDArray[np.float64]:
    """Return for each basis and target, 2^(|T| - |B|) if the basis holds the target, else 0."""
    top = 1 + max((item for s in (*bases, *targets) for item in s), default=0)
    inside, wanted = np.zeros((len(bases), top)), np.zeros((len(targets), top))
    for table, sets in ((inside, bases), (wanted, targets)):
        for row, items in enumerate(sets):
            table[row, list(items)] = 1
    sizes = wanted.sum(axis=1)
    is_inside = inside @ wanted.T == sizes
    return np.where(is_inside, 2.0 ** (sizes - inside.sum(axis=1)[:, None]), 0.0)


def _compute_mean_variance(precision: NDArray[np.float64], bases: int) -> float:
    """Return the mean variance of the targets' estimates, in units of K^2 / (2 rho) for the bases together.

    Each of w bases has rho / w, so a cell's variance is w.  A set T sums 2^(|B| - |T|) cells of a basis B.  The bases
    that hold T are combined by inverse variance (PrivBasis, average-case error variance, for Gaussian noise).
    A target in no basis counts as much as the worst target in a basis.

    ``precision``: the precision of each target, shape (targets,).  ``bases``: the number of bases.
    """
    positive = precision[precision > 0]
    if not positive.size:
        return 0.0 if not precision.size else np.inf
    unheld = (precision.size - positive.size) * bases / positive.min()
    return float((bases / positive).sum() + unheld) / precision.size


def _merge_bases(bases: list[Basis], targets: Sequence[Basis], largest: int) -> list[Basis]:
    """Return the bases, two of them merged as long as that lowers the expected variance, the best merge first."""
    while True:
        precisions = _compute_precisions(bases, targets)
        now = _compute_mean_variance(precisions.sum(axis=0), len(bases))
        unions = {tuple(sorted({*a, *b})) for a, b in combinations(bases, 2)}
        candidates = sorted(u for u in unions if len(u) <= largest)
        if not candidates or not targets:
            return bases
        added = _compute_precisions(candidates, targets)
        within = np.array([[set(b) <= set(u) for b in bases] for u in candidates])
        precision_after = precisions.sum(axis=0) - within @ precisions + added
        variances = [
            _compute_mean_variance(p, len(bases) - int(w.sum()) + 1)
            for p, w in zip(precision_after, within, strict=True)
        ]
        best = int(np.argmin(variances))
        if variances[best] >= now:
            return bases
        union = candidates[best]
        bases = [*(b for b, inside in zip(bases, within[best], strict=True) if not inside), union]
