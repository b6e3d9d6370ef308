"""Samples and one-hot features."""

from __future__ import annotations

import numpy as np
import pytest

from data_contracts.domain import Domain
from tasks.kernels.counting import CodeTable
from tasks.metrics.features import one_hot, sample, take

DOMAIN = Domain.of({"a": 3, "b": 2, "id": 1_000})
TABLE = CodeTable(
    DOMAIN,
    (
        (np.arange(1_000) % 3).astype(np.uint8),
        (np.arange(1_000) // 500).astype(np.uint8),
        np.arange(1_000, dtype=np.uint16),
    ),
)


def test_one_hot_by_hand() -> None:
    """Rows (0, 0), (1, 0), (2, 1) over 3 + 2 codes."""
    few = take(TABLE, np.array([0, 1, 998]))
    assert few.column("a").tolist() == [0, 1, 2]
    expected = [[1, 0, 0, 1, 0], [0, 1, 0, 1, 0], [0, 0, 1, 0, 1]]
    np.testing.assert_array_equal(one_hot(few, ("a", "b")).toarray(), expected)
    np.testing.assert_array_equal(one_hot(few, ("b",)).toarray(), [[1, 0], [1, 0], [0, 1]])
    assert one_hot(take(TABLE, np.array([], dtype=int)), ("a", "b")).shape == (0, 5)
    assert one_hot(few, ()).shape == (3, 0)


def test_samples_are_even_distinct_seeded_and_never_larger_than_the_table() -> None:
    ids = sample(TABLE, 300, 0).column("id")
    assert len(set(ids.tolist())) == 300
    assert np.all(np.diff(ids.astype(int)) > 0)
    assert sample(TABLE, 300, 0).column("id").tolist() == ids.tolist()
    assert sample(TABLE, 300, 1).column("id").tolist() != ids.tolist()
    assert sample(TABLE, 1_000, 0) is TABLE
    drawn = np.bincount(np.concatenate([sample(TABLE, 300, s).column("id") for s in range(200)]), minlength=1_000)
    assert drawn.mean() == 60
    assert 60 * 0.7 * 0.8 < drawn.var() < 60 * 0.7 * 1.2  # binomial: 200 x 0.3 x 0.7
    with pytest.raises(ValueError, match="at least one row"):
        sample(TABLE, 0, 0)
