"""Rows equal to unique real rows: by hand, and against Python's own tuples."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from privsyn.data_contracts.domain import Domain, choose_code_dtype
from privsyn.tasks.kernels.counting import CodeTable
from privsyn.tasks.metrics.membership import Uniqueness, group_equal_rows, measure_uniqueness

DOMAIN = Domain.of({"a": 3, "b": 4})


def table(*rows: tuple[int, int]) -> CodeTable:
    codes = np.array(rows, np.uint8).reshape(-1, 2)
    return CodeTable(DOMAIN, (codes[:, 0].copy(), codes[:, 1].copy()))


def random_table(domain: Domain, rows: int, seed: int) -> CodeTable:
    """Rows drawn from few patterns, so that some are unique and some are not."""
    patterns = np.random.default_rng(0).integers(0, domain.sizes, (60, len(domain.sizes)))
    chosen = patterns[np.random.default_rng(seed).integers(60, size=rows)]
    return CodeTable(domain, tuple(chosen[:, i].astype(choose_code_dtype(s)) for i, s in enumerate(domain.sizes)))


def tuples(data: CodeTable) -> list[tuple[int, ...]]:
    return list(zip(*(c.tolist() for c in data.columns), strict=True))


REAL = table((0, 0), (0, 0), (0, 1), (2, 3))


def test_by_hand() -> None:
    """Unique: (0, 1) and (2, 3), half of the rows.  Of five synthetic rows three are (0, 1): share 3/5, and one of the

    two unique rows is repeated.  (0, 0) is real but not unique; (1, 1) is nobody's.  Of the hold-out one of four.
    """
    synthetic = table((0, 1), (0, 1), (0, 1), (0, 0), (1, 1))
    found = measure_uniqueness(REAL, synthetic, table((2, 3), (0, 0), (1, 0), (2, 2)))
    assert found == Uniqueness(share=3 / 5, holdout_share=1 / 4, unique=1 / 2, repeated=1 / 2)


@pytest.mark.parametrize("width", [1, 7, 60])
def test_groups_are_exactly_the_equal_rows_also_of_wide_tables(width: int) -> None:
    """60 attributes of 300 codes have 300**60 different rows: far more than one 62-bit key."""
    domain = Domain.of({f"a{i}": 300 for i in range(width)})
    tables = [random_table(domain, rows, seed) for seed, rows in enumerate((90, 50, 0, 70))]
    groups = group_equal_rows(tables)
    assert [g.size for g in groups] == [90, 50, 0, 70]
    rows = [row for data in tables for row in tuples(data)]
    numbers = np.concatenate(groups).tolist()
    assert len(set(zip(rows, numbers, strict=True))) == len(set(rows)) == len(set(numbers))
    counts = Counter(tuples(tables[0]))
    found = measure_uniqueness(tables[0], tables[1], tables[3])
    assert 0 < found.share == pytest.approx(np.mean([counts[row] == 1 for row in tuples(tables[1])]))
    assert 0 < (found.holdout_share or 0) == pytest.approx(np.mean([counts[row] == 1 for row in tuples(tables[3])]))


def test_rows_that_differ_in_the_first_column_only_are_told_apart_after_ranking() -> None:
    """70,000**20 is a multiple of 2**64: in plain 64-bit arithmetic the first of 21 columns would be lost."""
    domain = Domain.of({f"a{i}": 70_000 for i in range(21)})
    last = np.full(4, 69_999, np.uint32)
    data = CodeTable(domain, (np.array([0, 1, 2, 0], np.uint32), *(last for _ in range(20))))
    (groups,) = group_equal_rows([data])
    assert groups[0] == groups[3]
    assert len(set(groups.tolist())) == 3


def test_tables_of_no_rows() -> None:
    none = table()
    assert measure_uniqueness(none, none, none) == Uniqueness(0.0, 0.0, 0.0, 0.0)
    assert measure_uniqueness(none, REAL) == Uniqueness(0.0, None, 0.0, 0.0)
    assert measure_uniqueness(REAL, none) == Uniqueness(0.0, None, 0.5, 0.0)
