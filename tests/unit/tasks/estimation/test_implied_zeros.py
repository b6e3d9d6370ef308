"""Zeros by way of other attributes, against all rows that there could be."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from privsyn.tasks.estimation.known_zeros import KnownZeros, imply_zeros


def test_two_nulls_of_one_age_go_together() -> None:
    """Code 0 of age is below 15; only there are status and income null (code 1)."""
    nulls = np.array([[True, False], [False, True], [False, True]])
    found = dict(imply_zeros([(("age", "status"), nulls), (("age", "income"), nulls)]))
    np.testing.assert_array_equal(found["status", "income"], [[False, True], [True, False]])
    np.testing.assert_array_equal(found["age", "status"], nulls)
    zeros = KnownZeros((), tuple(found.items()))
    np.testing.assert_array_equal(zeros.on(("income", "status"), (2, 2)), [[False, True], [True, False]])


@pytest.mark.parametrize("seed", range(3))
def test_only_what_no_row_has_is_found(seed: int) -> None:
    rng = np.random.default_rng(seed)
    sizes = dict(zip("abcd", rng.integers(2, 5, 4).tolist(), strict=True))
    cliques = [("a", "b"), ("b", "c"), ("c", "d"), ("a", "b", "d")][: 2 + seed % 3]
    tables = [(c, rng.random([sizes[x] for x in c]) < 0.5) for c in cliques]
    rows = [dict(zip(sizes, row, strict=True)) for row in product(*(range(n) for n in sizes.values()))]
    rows = [r for r in rows if not any(mask[tuple(r[x] for x in c)] for c, mask in tables)]
    found = imply_zeros(tables)
    assert found
    for (x, y), forbidden in found:
        assert not any(forbidden[r[x], r[y]] for r in rows)
    direct = dict(found)
    assert all((forbidden <= direct[c]).all() for c, forbidden in tables if len(c) == 2)
