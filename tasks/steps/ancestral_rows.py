"""Step *ancestral rows* (postprocess): draw rows along a Bayesian network from the measured noisy counts.

PrivBayes (Zhang and others 2014, section 3): negative counts become 0, and each column is drawn given its parents.  Not
in the paper: rows that share the parents' codes get exactly the conditional shares, up to rounding, in random order,
instead of independent draws.  Post-processing of released counts costs no budget.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from privsyn.data_contracts.domain import Domain
from privsyn.tasks.estimation.marginals import Marginal
from privsyn.tasks.kernels.counting import CodeTable
from privsyn.tasks.kernels.streams import derive_stream

_ANCESTRAL = 101  # purpose of the random streams; no other step's


def draw_ancestral_rows(
    families: Sequence[Marginal], one_ways: Mapping[str, NDArray[np.float64]], domain: Domain, rows: int, seed: int
) -> CodeTable:
    """Draw ``rows`` rows of codes over ``domain``.

    families: measured counts in the order of drawing, possibly negative; an attribute is drawn from the first family
    that contains it, given the family's attributes drawn before.  one_ways: attribute -> counts, used for root
    attributes, attributes in no family, and rows whose family has no positive count.
    """
    from privsyn.tasks.synthesis.conditional import draw_attribute  # here: compiled code loads slowly

    shares = {a: np.maximum(one_ways[a], 0.0) for a in domain.attributes}
    columns: dict[str, NDArray[np.unsignedinteger]] = {}

    def draw(attribute: str, conditional: Marginal | None) -> None:
        address = derive_stream(seed, _ANCESTRAL, domain.index(attribute))
        columns[attribute] = draw_attribute(attribute, conditional, columns, rows, shares[attribute], address)

    for family in families:
        counts = Marginal(family.attributes, np.maximum(family.counts, 0.0))
        for attribute in family.attributes:
            if attribute not in columns:
                earlier = [a for a in family.attributes if a in columns]
                draw(attribute, counts.project((attribute, *earlier)) if earlier else None)
    for attribute in domain.attributes:
        if attribute not in columns:
            draw(attribute, None)
    return CodeTable(domain, tuple(columns[a] for a in domain.attributes))
