"""Samples, their scores, and the share that a value is read as."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from privsyn.data_contracts.domain import Domain
from privsyn.tasks.kernels.counting import CodeTable
from privsyn.tasks.metrics.marginal_distance import average_l1
from privsyn.tasks.metrics.samples import (
    SHARES,
    draw_subsample,
    find_equivalent_share,
    score_subsamples,
)


def numbered(rows: int) -> CodeTable:
    """Row i holds i, and i modulo 7."""
    domain = Domain.of({"i": max(rows, 1), "m": 7})
    return CodeTable(domain, (np.arange(rows, dtype=np.uint32), (np.arange(rows) % 7).astype(np.uint8)))


@pytest.mark.parametrize(("share", "rows"), [(1.0, 100), (0.5, 50), (0.014, 1), (0.001, 1), (0.996, 100)])
def test_a_sample_has_its_share_of_whole_rows(share: float, rows: int) -> None:
    sample = draw_subsample(numbered(100), share, 3)
    i, m = sample.columns
    assert i.size == rows == np.unique(i).size
    assert (np.diff(i.astype(int)) > 0).all()
    assert m.tolist() == (i % 7).tolist()


def test_samples_are_seeded_and_even() -> None:
    table = numbered(10)
    assert draw_subsample(table, 0.3, 1).columns[0].tolist() == draw_subsample(table, 0.3, 1).columns[0].tolist()
    drawn = Counter(int(i) for seed in range(1_000) for i in draw_subsample(table, 0.3, seed).columns[0])
    assert sum(drawn.values()) == 3_000
    assert all(240 < drawn[i] < 360 for i in range(10))  # 300 expected, sd 14.5


@pytest.mark.parametrize("share", [0.0, -0.1, 1.01, float("nan")])
def test_shares_are_above_0_and_at_most_1(share: float) -> None:
    with pytest.raises(ValueError, match="at most 1"):
        draw_subsample(numbered(10), share, 0)
    with pytest.raises(ValueError, match="at most 1"):
        score_subsamples({}, numbered(10), [share])


def test_no_rows() -> None:
    assert draw_subsample(numbered(0), 0.5, 0).rows == 0


def test_scores_are_taken_on_the_same_samples() -> None:
    table = numbered(50)
    seen: dict[str, list[list[int]]] = {"a": [], "b": []}

    def watch(name: str, sample: CodeTable) -> float:
        seen[name].append(sample.columns[0].tolist())
        return float(sample.rows)

    scores = {"a": lambda t: watch("a", t), "b": lambda t: watch("b", t)}
    found = score_subsamples(scores, table, (0.1, 0.5, 1.0), seed=4)
    assert found["a"].tolist() == found["b"].tolist() == [5.0, 25.0, 50.0]
    assert seen["a"] == seen["b"] and len(seen["a"]) == 3
    means = score_subsamples({"m": lambda t: t.columns[0].mean()}, table, (0.1, 0.5), 4)["m"]
    assert means[0] == pytest.approx(np.mean(seen["a"][0]))


@pytest.mark.parametrize(
    ("scores", "value"),
    [([3.0, 3.0], 3.0), ([3.0, 3.0], 1.0), ([1.0, 2.0], 1.5), ([2.0, np.nan], 1.0), ([2.0, 1.0], np.nan)],
)
def test_no_reading(scores: list[float], value: float) -> None:
    """Scores that are all equal or get worse with more rows, or are not numbers, say nothing of a share."""
    assert find_equivalent_share((0.1, 1.0), np.array(scores), value, "lower") is None


@pytest.mark.parametrize("share", [0.03, 0.15, 0.6])
def test_a_sample_is_read_as_its_own_share(share: float) -> None:
    """The definition, on a real metric: a fresh random sample of X is read as about X."""
    rng = np.random.default_rng(0)
    domain = Domain.of({"a": 40, "b": 30})
    real = CodeTable(
        domain, (rng.integers(40, size=20_000, dtype=np.uint8), rng.integers(30, size=20_000, dtype=np.uint8))
    )

    def error(table: CodeTable) -> float:
        return average_l1(real, table, [("a", "b")])

    values = {"sample": error(draw_subsample(real, share, 99)), "equal": 0.0, "worst": 2.0}
    measured = score_subsamples({"error": error}, real)["error"]
    found = {name: find_equivalent_share(SHARES, measured, value, "lower") for name, value in values.items()}
    assert found == {"sample": pytest.approx(share, rel=0.2), "equal": 1.0, "worst": 0.01}


def test_refusals() -> None:
    for shares in ((), (0.5, 0.1), (0.1, 0.1)):
        with pytest.raises(ValueError, match="ascending"):
            score_subsamples({}, numbered(5), shares)


def test_share_by_hand() -> None:
    """The scores of 1 % and 100 % are 8 and 4: halfway between them, in log share, is 10 %."""
    shares = (0.01, 1.0)
    assert find_equivalent_share(shares, np.array([8.0, 4.0]), 6.0, "lower") == pytest.approx(0.1)
    assert find_equivalent_share(shares, np.array([4.0, 8.0]), 6.0, "higher") == pytest.approx(0.1)
    assert find_equivalent_share(shares, np.array([4.0, 8.0]), 5.0, "higher") == pytest.approx(10**-1.5)


def test_ends() -> None:
    shares, lower = (0.02, 0.1, 0.5), np.array([9.0, 3.0, 1.0])
    assert [find_equivalent_share(shares, lower, v, "lower") for v in (0.0, 1.0, 9.0, 50.0)] == [0.5, 0.5, 0.02, 0.02]
    assert [find_equivalent_share(shares, -lower, v, "higher") for v in (0.0, -1.0, -9.0, -50.0)] == [
        0.5,
        0.5,
        0.02,
        0.02,
    ]
    assert find_equivalent_share(shares, lower, 3.0, "lower") == pytest.approx(0.1)


def test_scores_out_of_order_are_pooled() -> None:
    """10, 4, 6, 1 become 10, 5, 5, 1: a value of 5 is read at the middle of the flat stretch, in log share."""
    shares, scores = (0.01, 0.1, 0.4, 1.0), np.array([10.0, 4.0, 6.0, 1.0])
    assert find_equivalent_share(shares, scores, 5.0, "lower") == pytest.approx(0.2)
    readings = [find_equivalent_share(shares, scores, v, "lower") for v in np.linspace(12, 0, 60)]
    assert readings == sorted(readings, key=float)
