"""The membership attack, and rows equal to unique real ones: against referees and by hand."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from privsyn.data_contracts.domain import Domain, choose_code_dtype
from privsyn.tasks.kernels.counting import CodeTable
from privsyn.tasks.metrics.membership import (
    Membership,
    Uniqueness,
    find_closest,
    group_equal_rows,
    measure_membership,
    measure_uniqueness,
    run_attack,
)
from privsyn.tasks.metrics.samples import take_rows

DOMAIN = Domain.of({"age": 5, "city": 3, "one": 1, "wage": 300})
ORDERED = {"age", "one", "wage"}


def random_table(rows: int, seed: int, domain: Domain = DOMAIN) -> CodeTable:
    rng = np.random.default_rng(seed)
    return CodeTable(domain, tuple(rng.integers(s, size=rows).astype(choose_code_dtype(s)) for s in domain.sizes))


def found(real: CodeTable, holdout: CodeTable, synthetic: CodeTable, **settings: int) -> Membership:
    result = measure_membership(real, holdout, synthetic, settings.pop("ordered", ORDERED), **settings)  # type: ignore[arg-type]
    assert result is not None
    return result


@pytest.mark.parametrize("rows", [1, 7, 5_000])
def test_distances_equal_the_referee_on_any_number_of_threads(rows: int) -> None:
    """5,000 rows are more than two blocks of the kernel, 150 targets more than two chunks."""
    targets, others = random_table(150, 0), random_table(rows, 1)
    expected = np.full(150, np.inf)
    for i in range(150):
        total = np.zeros(rows)
        for name, size, column in zip(DOMAIN.attributes, DOMAIN.sizes, others.columns, strict=True):
            mine = int(targets.column(name)[i])
            steps = np.abs(column.astype(int) - mine) / max(size - 1, 1)
            total += steps if name in ORDERED else column != mine
        expected[i] = total.min() / 4
    once = find_closest(targets, others, ORDERED, threads=1)
    assert once == pytest.approx(expected, abs=1e-6)
    for threads in (0, 2, 3):
        np.testing.assert_array_equal(find_closest(targets, others, ORDERED, threads), once)


def test_the_attack_by_hand() -> None:
    """Members 0, 0.1, 0.3, non-members 0.1, 0.4.  Of 6 pairs the member is nearer in 2 + 1 + 1 and one is a tie:

    4.5 / 6.  Thresholds: 0 gives 1/3 - 0, 0.1 gives 2/3 - 1/2, 0.3 gives 1 - 1/2: the best is 1/2.
    The sd is sqrt(6 / (12 x 6)).
    """
    figures = run_attack(np.array([0.1, 0, 0.3], np.float32), np.array([0.4, 0.1], np.float32))
    assert figures == pytest.approx({"auc": 4.5 / 6, "advantage": 0.5, "auc_sd": (6 / 72) ** 0.5})


@pytest.mark.slow
def test_the_stated_sd_is_that_of_an_attack_without_a_signal() -> None:
    rng = np.random.default_rng(0)
    draws = [run_attack(rng.random(30).astype(np.float32), rng.random(40).astype(np.float32)) for _ in range(500)]
    aucs = [d["auc"] for d in draws]
    assert np.mean(aucs) == pytest.approx(0.5, abs=0.015)
    assert np.std(aucs) == pytest.approx(draws[0]["auc_sd"], rel=0.15)


def test_caps_make_equal_samples_that_follow_the_seed() -> None:
    real, holdout, synthetic = random_table(300, 0), random_table(200, 1), random_table(400, 2)
    assert found(real, holdout, synthetic).targets == 200
    capped = found(real, holdout, synthetic, max_targets=50, max_synthetic=90, seed=1)
    assert (capped.targets, capped.synthetic_rows) == (50, 90)
    assert capped == found(real, holdout, synthetic, max_targets=50, max_synthetic=90, seed=1)
    assert capped.auc != found(real, holdout, synthetic, max_targets=50, max_synthetic=90, seed=2).auc


def test_without_a_hold_out_or_rows_there_is_no_figure() -> None:
    real, none = random_table(3, 0), random_table(0, 0)
    assert measure_membership(real, None, real, ORDERED) is None
    assert measure_membership(real, none, real, ORDERED) is None
    assert measure_membership(real, real, none, ORDERED) is None
    assert measure_membership(none, real, real, ORDERED) is None
    one = found(take_rows(real, np.array([0])), take_rows(real, np.array([0])), real)
    assert (one.targets, one.auc, one.advantage) == (1, 0.5, 0)
    with pytest.raises(ValueError, match="at least one target"):
        measure_membership(real, real, real, ORDERED, max_targets=0)
    with pytest.raises(ValueError, match="no rows"):
        find_closest(real, none, ORDERED)


SMALL = Domain.of({"a": 3, "b": 4})


def table(*rows: tuple[int, int]) -> CodeTable:
    codes = np.array(rows, np.uint8).reshape(-1, 2)
    return CodeTable(SMALL, (codes[:, 0].copy(), codes[:, 1].copy()))


def draw_patterns(domain: Domain, rows: int, seed: int) -> CodeTable:
    """Rows drawn from few patterns, so that some are unique and some are not."""
    patterns = np.random.default_rng(0).integers(0, domain.sizes, (60, len(domain.sizes)))
    chosen = patterns[np.random.default_rng(seed).integers(60, size=rows)]
    return CodeTable(domain, tuple(chosen[:, i].astype(choose_code_dtype(s)) for i, s in enumerate(domain.sizes)))


def tuples(data: CodeTable) -> list[tuple[int, ...]]:
    return list(zip(*(c.tolist() for c in data.columns), strict=True))


REAL = table((0, 0), (0, 0), (0, 1), (2, 3))


def test_unique_rows_by_hand() -> None:
    """Unique: (0, 1) and (2, 3), half of the rows.  Of five synthetic rows three are (0, 1): share 3/5.

    (0, 0) is real but not unique; (1, 1) is nobody's.  Of the hold-out one of four.
    """
    synthetic = table((0, 1), (0, 1), (0, 1), (0, 0), (1, 1))
    found = measure_uniqueness(REAL, synthetic, table((2, 3), (0, 0), (1, 0), (2, 2)))
    assert found == Uniqueness(share=3 / 5, holdout_share=1 / 4, unique=1 / 2)


@pytest.mark.parametrize("width", [1, 7, 60])
def test_groups_are_exactly_the_equal_rows_also_of_wide_tables(width: int) -> None:
    """60 attributes of 300 codes have 300**60 different rows: far more than one 62-bit key."""
    domain = Domain.of({f"a{i}": 300 for i in range(width)})
    tables = [draw_patterns(domain, rows, seed) for seed, rows in enumerate((90, 50, 0, 70))]
    groups = group_equal_rows(tables)
    assert [g.size for g in groups] == [90, 50, 0, 70]
    rows = [row for data in tables for row in tuples(data)]
    numbers = np.concatenate(groups).tolist()
    assert len(set(zip(rows, numbers, strict=True))) == len(set(rows)) == len(set(numbers))
    counts = Counter(tuples(tables[0]))
    found = measure_uniqueness(tables[0], tables[1], tables[3])
    assert 0 < found.share == pytest.approx(np.mean([counts[row] == 1 for row in tuples(tables[1])]))
    assert 0 < (found.holdout_share or 0) == pytest.approx(np.mean([counts[row] == 1 for row in tuples(tables[3])]))
