"""The workload chosen from a public table: by hand."""

from __future__ import annotations

from math import log

import numpy as np
import pytest

from privsyn.data_contracts.domain import Clique, Domain
from privsyn.tasks.estimation.prior_levels import (
    choose_independent_one_ways,
    choose_related_cliques,
    compute_mutual_information,
    sum_information,
)
from privsyn.tasks.kernels.counting import CodeTable

DOMAIN = Domain(("a", "b", "c", "d"), (4, 3, 2, 5))
KNOWN: dict[Clique, float] = {
    ("a", "b"): 0.6,
    ("a", "c"): 0.3,
    ("a", "d"): 0.0,
    ("b", "c"): 0.2,
    ("b", "d"): 0.01,
    ("c", "d"): 0.02,
}


def test_mutual_information_by_hand() -> None:
    assert sum_information(np.eye(4, dtype=np.int64) * 7) == pytest.approx(log(4))
    assert sum_information(np.outer([1, 2, 3], [4, 5])) == pytest.approx(0, abs=1e-12)
    assert sum_information(np.zeros((2, 2), np.int64)) == 0
    rows = np.repeat(np.arange(3, dtype=np.uint8), 5)
    table = CodeTable(Domain(("x", "y"), (3, 3)), (rows, rows))
    assert compute_mutual_information(table, ("x", "y"), 1) == pytest.approx({("x", "y"): log(3)})


@pytest.mark.parametrize(
    ("edge", "most_cells", "cliques"),
    [
        (0.1, 24, [("a", "b", "c"), ("d",)]),
        (0.1, 23, [("a", "b"), ("a", "c"), ("b", "c"), ("d",)]),
        (0.1, 11, [("a", "c"), ("b", "c"), ("d",)]),
        (0.25, 24, [("a", "b"), ("a", "c"), ("d",)]),
        (1.0, 24, [("a",), ("b",), ("c",), ("d",)]),
    ],
)
def test_cliques_hold_every_edge_that_has_few_cells(edge: float, most_cells: int, cliques: list[object]) -> None:
    assert choose_related_cliques(KNOWN, DOMAIN, most_cells, edge=edge) == cliques


def test_one_ways_are_nearly_independent_and_those_that_tell_most() -> None:
    assert choose_independent_one_ways(KNOWN, DOMAIN) == [("a",), ("d",)]
    assert choose_independent_one_ways(KNOWN, DOMAIN, limit=0.35) == [("a",), ("c",), ("d",)]
