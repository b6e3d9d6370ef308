"""Pairs of codes that no row can have because of a third attribute, as path consistency finds them.

Where `MSP` is null just below 15 years, and so is `PINCP`, no row has one of them without the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from privsyn.data_contracts.domain import Clique

Bools = NDArray[np.bool_]


def imply_zeros(tables: Sequence[tuple[Clique, Bools]]) -> tuple[tuple[Clique, Bools], ...]:
    """Return pairs with joint codes that ``tables`` forbid, directly or by way of other attributes: (pair, forbidden).

    tables: (attributes, forbidden) of their shape.  One pass over the attributes in between (Mackworth, "Consistency in
    networks of relations", Artificial Intelligence 8, 1977), so more may be implied than is found.
    """
    allowed: dict[Clique, Bools] = {}
    order: dict[str, None] = {}
    for clique, forbidden in tables:
        order |= dict.fromkeys(clique)
        for first, second in combinations(range(len(clique)), 2):
            others = tuple(i for i in range(len(clique)) if i not in (first, second))
            possible = ~np.asarray(forbidden.all(axis=others))
            a, b = clique[first], clique[second]
            allowed[a, b] = possible & allowed.get((a, b), True)
            allowed[b, a] = allowed[a, b].T
    for between in order:
        near = [a for a in order if (a, between) in allowed]
        for a, b in combinations(near, 2):
            way = (allowed[a, between].astype(np.float32) @ allowed[between, b].astype(np.float32)) > 0
            if not way.all():
                allowed[a, b] = way & allowed.get((a, b), True)
                allowed[b, a] = allowed[a, b].T
    return tuple(((a, b), ~allowed[a, b]) for a, b in combinations(order, 2) if not allowed.get((a, b), np.True_).all())
