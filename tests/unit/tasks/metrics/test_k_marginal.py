"""Scores of the challenges, k-marginal and pie charts: by hand, against pandas and a plain loop, and at thresholds."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy.spatial.distance import jensenshannon

from privsyn.data_contracts.domain import Domain, choose_code_dtype
from privsyn.tasks.kernels.counting import CodeTable
from privsyn.tasks.metrics import marginal_distance
from privsyn.tasks.metrics.by_place import denoise, score_pie_charts
from privsyn.tasks.metrics.marginal_distance import (
    average_l1,
    compute_group_k_marginal,
    compute_k_marginal_score,
    draw_cliques,
    list_all_cliques,
)
from tests.support.code_tables import draw_table

DOMAIN = Domain.of({"a": 4, "place": 6, "b": 3, "year": 2, "c": 5})


def table(places: list[int], values: list[int]) -> CodeTable:
    return CodeTable(Domain.of({"place": 3, "value": 2}), (np.array(places, np.uint8), np.array(values, np.uint8)))


def by_pandas(real: CodeTable, synthetic: CodeTable, groups: list[str], cliques: list[tuple[str, ...]]) -> pd.Series:
    """The referee: one group after the other, its rows' shares by value_counts."""
    frames = [pd.DataFrame(dict(zip(DOMAIN.attributes, t.columns, strict=True))) for t in (real, synthetic)]
    scores = {}
    for group in sorted({tuple(r) for f in frames for r in f[groups].to_numpy().tolist()}):
        ours, theirs = (f[(f[groups] == list(group)).all(axis=1)] for f in frames)
        if ours.empty or theirs.empty or abs(len(ours) - len(theirs)) > 250:
            scores[group] = 0.0
            continue
        shares = [[f.value_counts(list(c), normalize=True) for f in (ours, theirs)] for c in cliques]
        scores[group] = (2 - np.mean([p.subtract(q, fill_value=0).abs().sum() for p, q in shares])) * 500
    return pd.Series(scores)


def test_score_is_the_scaled_mean_over_the_same_random_marginals() -> None:
    real, synthetic = draw_table(DOMAIN, 300, 1), draw_table(DOMAIN, 200, 2)
    cliques = draw_cliques(DOMAIN, 3, 4, seed=9)
    expected = (2 - average_l1(real, synthetic, cliques)) * 500
    assert 0 < compute_k_marginal_score(real, synthetic, 3, number=4, seed=9) == expected < 1000
    pairs = list_all_cliques(DOMAIN, 2)
    assert compute_k_marginal_score(real, synthetic, 2) == compute_k_marginal_score(real, synthetic, cliques=pairs)


@pytest.mark.parametrize(("more", "score"), [(250, 1000.0), (251, 0.0)])
def test_bias_penalty_begins_above_250_rows(more: int, score: float) -> None:
    real, synthetic = table([0] * 10, [0] * 10), table([0] * (10 + more), [0] * (10 + more))
    for one, other in ((real, synthetic), (synthetic, real)):
        found = compute_group_k_marginal(one, other, ["place"])
        assert found.score == score
        assert found.biased.tolist() == [score == 0]


@pytest.mark.parametrize("dense_cells", [1 << 22, 100, 0])
def test_groups_against_pandas(dense_cells: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(marginal_distance, "DENSE_CELLS", dense_cells)
    real, synthetic = draw_table(DOMAIN, 2_000, 3), draw_table(DOMAIN, 1_100, 4)
    cliques = [("a", "b"), ("a", "c"), ("b", "c"), ("c",)]
    found = compute_group_k_marginal(real, synthetic, ["year", "place"], cliques=cliques, threads=2)
    expected = by_pandas(real, synthetic, ["place", "year"], cliques)
    assert found.scores == pytest.approx(expected.to_numpy(), abs=1e-9)
    assert found.biased.any() and not found.biased.all()
    assert found.score == pytest.approx(expected.mean())


def test_default_marginals_leave_the_groups_out() -> None:
    real, synthetic = draw_table(DOMAIN, 300, 5), draw_table(DOMAIN, 300, 6)
    rest = [("a", "b"), ("a", "c"), ("b", "c")]
    chosen = compute_group_k_marginal(real, synthetic, ["place", "year"])
    assert chosen.score == compute_group_k_marginal(real, synthetic, ["place", "year"], cliques=rest).score
    everything = compute_group_k_marginal(real, real, DOMAIN.attributes)  # nothing is left to compare but presence
    assert everything.score == 1000.0


def test_without_rows() -> None:
    real, none = draw_table(DOMAIN, 40), draw_table(DOMAIN, 0)
    assert compute_group_k_marginal(none, none, ["place"]).score == 1000.0
    assert compute_group_k_marginal(none, none, ["place"]).scores.shape == (0,)
    assert (
        compute_group_k_marginal(real, none, ["place"]).score
        == 0.0
        == compute_group_k_marginal(none, real, ["place"]).score
    )


def test_refusals() -> None:
    real = draw_table(DOMAIN, 5)
    with pytest.raises(ValueError, match="one group attribute"):
        compute_group_k_marginal(real, real, [])
    with pytest.raises(ValueError, match="other than place"):
        compute_group_k_marginal(real, real, ["place"], cliques=[("a", "place")])


def pies(counts: list[list[list[int]]] | np.ndarray) -> CodeTable:
    """A table with these counts by place, time and kind."""
    cells = np.array(counts)
    codes = np.repeat(np.indices(cells.shape).reshape(3, -1), cells.ravel(), axis=1)
    domain = Domain(("place", "time", "kind"), cells.shape)
    return CodeTable(domain, tuple(c.astype(choose_code_dtype(s)) for c, s in zip(codes, cells.shape, strict=True)))


def scored(real: list[int], synthetic: list[int]) -> float:
    """The score of a single pie."""
    found = score_pie_charts(pies([[real]]), pies([[synthetic]]), "place", "time", "kind")
    assert found.shape == (1, 1)
    return float(found[0, 0])


def by_loop(real: np.ndarray, synthetic: np.ndarray) -> float:
    """The referee: one pie, slice by slice."""
    if (real == synthetic).all():
        return 1.0
    shown = [[c if sum(pie) and c / sum(pie) >= 0.05 else 0 for c in pie] for pie in (real, synthetic)]
    penalty = jensenshannon(np.array(shown[0]) + 1e-9, np.array(shown[1]) + 1e-9, base=2)
    penalty += 0.2 * sum(a == 0 and b > 0 for a, b in zip(*shown, strict=True))
    penalty += 0.25 * (abs(int(real.sum()) - int(synthetic.sum())) > 500)
    return max(0.0, 1 - penalty)


@pytest.mark.parametrize(("rows", "bias"), [(600, 0.0), (601, 0.25), (99, 0.0)])
def test_bias_begins_above_500_rows(rows: int, bias: float) -> None:
    assert scored([100, 0], [rows, 0]) == pytest.approx(1 - bias, abs=1e-4)
    assert scored([rows, 0], [100, 0]) == pytest.approx(1 - bias, abs=1e-4)


def test_against_a_loop() -> None:
    rng = np.random.default_rng(1)
    shape = (4, 5, 7)
    real = rng.poisson(rng.gamma(0.3, 200, shape))
    synthetic = rng.poisson(real * rng.uniform(0, 3, shape))
    synthetic[0, 0], real[0, 1], synthetic[0, 2] = real[0, 0], 0, 0
    found = score_pie_charts(pies(real), pies(synthetic), "place", "time", "kind")
    expected = [[by_loop(a, b) for a, b in zip(p, q, strict=True)] for p, q in zip(real, synthetic, strict=True)]
    assert found == pytest.approx(np.array(expected), abs=1e-7)
    biased = np.abs(real.sum(axis=-1) - synthetic.sum(axis=-1)) > 500
    misleading = (denoise(real) == 0) & (denoise(synthetic) > 0)
    assert biased.any() and not biased.all() and misleading.any() and found[0, 0] == 1.0


def test_any_three_attributes_in_any_order() -> None:
    real, synthetic = pies([[[4, 1], [2, 2]]]), pies([[[1, 4], [2, 2]]])
    plain = score_pie_charts(real, synthetic, "place", "time", "kind")
    assert score_pie_charts(real, synthetic, "time", "place", "kind").T.tolist() == plain.tolist()
    assert plain[0, 0] < plain[0, 1] == 1.0
    with pytest.raises(ValueError, match="three different"):
        score_pie_charts(real, synthetic, "time", "time", "kind")


def test_small_slices_are_left_out_of_each_table() -> None:
    """4 of 100 is below 5 %, 5 of 100 and 7 of 140 are not (also in floating point)."""
    assert denoise(np.array([96, 4])).tolist() == [96, 0]
    assert denoise(np.array([[95, 5], [133, 7], [0, 0]])).tolist() == [[95, 5], [133, 7], [0, 0]]
    assert scored([96, 4], [97, 3]) == pytest.approx(1.0, abs=1e-4)
    apart = jensenshannon(np.array([1.0, 0.0]), np.array([0.95, 0.05]), base=2)
    assert scored([96, 4], [95, 5]) == pytest.approx(1 - apart - 0.2, abs=1e-4)
