"""Step *select tree* (postprocess): link all attributes by the pairs with the largest noisy scores.

McKenna, Miklau, Sheldon: *Winning the NIST Contest*, Journal of Privacy and Confidentiality 11(3), 2021, section 4
(MST).  MST adds one pair after another, each by the exponential mechanism.  Here all scores have noise already, so the
maximum spanning tree is a function of released numbers and costs no budget.
"""

from __future__ import annotations

from collections.abc import Mapping

from privsyn.data_contracts.domain import Clique, Domain


def find_spanning_tree(scores: Mapping[tuple[str, str], float], domain: Domain) -> list[Clique]:
    """Return the attributes' maximum spanning tree under ``scores``, which may be negative; pairs in domain order.

    scores: pair -> noisy distance from independence, in records.  If the scored pairs do not connect all attributes,
    the result is a forest.  Ties go to the pair that is first in domain order.
    """
    from networkx.utils import UnionFind  # here: a release that is found again makes no graph

    def place(pair: Clique) -> list[int]:
        return [domain.index(a) for a in pair]

    linked, tree = UnionFind(domain.attributes), list[Clique]()
    for pair in sorted(scores, key=lambda pair: (-scores[pair], place(pair))):  # Kruskal
        if linked[pair[0]] != linked[pair[1]]:
            linked.union(*pair)
            tree.append(domain.ordered(pair))
    return sorted(tree, key=place)
