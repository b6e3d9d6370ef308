"""Samples and one-hot features."""

from __future__ import annotations

import numpy as np
import pytest

from privsyn.data_contracts.domain import Domain
from privsyn.tasks.kernels.counting import CodeTable
from privsyn.tasks.metrics.samples import encode_one_hot, make_row_keys, sample_rows, take_rows

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
    few = take_rows(TABLE, np.array([0, 1, 998]))
    assert few.column("a").tolist() == [0, 1, 2]
    expected = [[1, 0, 0, 1, 0], [0, 1, 0, 1, 0], [0, 0, 1, 0, 1]]
    np.testing.assert_array_equal(encode_one_hot(few, ("a", "b")).toarray(), expected)
    np.testing.assert_array_equal(encode_one_hot(few, ("b",)).toarray(), [[1, 0], [1, 0], [0, 1]])
    assert encode_one_hot(take_rows(TABLE, np.array([], dtype=int)), ("a", "b")).shape == (0, 5)
    assert encode_one_hot(few, ()).shape == (3, 0)


def test_samples_are_even_distinct_seeded_and_never_larger_than_the_table() -> None:
    ids = sample_rows(TABLE, 300, 0).column("id")
    assert len(set(ids.tolist())) == 300
    assert np.all(np.diff(ids.astype(int)) > 0)
    assert sample_rows(TABLE, 300, 0).column("id").tolist() == ids.tolist()
    assert sample_rows(TABLE, 300, 1).column("id").tolist() != ids.tolist()
    assert sample_rows(TABLE, 1_000, 0) is TABLE
    drawn = np.bincount(np.concatenate([sample_rows(TABLE, 300, s).column("id") for s in range(200)]), minlength=1_000)
    assert drawn.mean() == 60
    assert 60 * 0.7 * 0.8 < drawn.var() < 60 * 0.7 * 1.2  # binomial: 200 x 0.3 x 0.7
    with pytest.raises(ValueError, match="at least one row"):
        sample_rows(TABLE, 0, 0)


def test_row_keys_are_equal_for_equal_rows_and_in_row_major_order() -> None:
    keys = make_row_keys([take_rows(TABLE, np.array([1, 3])), take_rows(TABLE, np.array([4, 999]))], ("b", "a"))
    assert keys.tolist() == [1, 0, 1, 3]
    assert make_row_keys([TABLE], ()).tolist() == [0] * 1_000


def test_row_keys_of_more_codes_than_a_key_holds_still_tell_rows_apart() -> None:
    """Ten columns of 2^10 codes: their product is 2^100, and rows that differ in the first or the last one differ."""
    domain = Domain.of({f"x{i}": 1 << 10 for i in range(10)})
    rng = np.random.default_rng(0)
    codes = rng.integers(0, 1 << 10, (10, 3)).astype(np.uint16)
    codes[:, 1:] = codes[:, :1]
    codes[0, 1] ^= 1
    table = CodeTable(domain, tuple(np.ascontiguousarray(c) for c in codes))
    first, other, same = make_row_keys([table], domain.attributes).tolist()
    assert first == same != other
    assert (first < other) == (codes[0, 0] < codes[0, 1])
