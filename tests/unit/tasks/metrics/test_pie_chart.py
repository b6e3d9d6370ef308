"""The pie-chart metric by hand, against a plain loop with scipy's distance, and at its thresholds."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.spatial.distance import jensenshannon

from privsyn.data_contracts.domain import Domain, choose_code_dtype
from privsyn.tasks.kernels.counting import CodeTable
from privsyn.tasks.metrics.pie_chart import score_pie_charts


def pies(counts: list[list[list[int]]] | np.ndarray) -> CodeTable:
    """A table with these counts by place, time and kind."""
    cells = np.array(counts)
    codes = np.repeat(np.indices(cells.shape).reshape(3, -1), cells.ravel(), axis=1)
    domain = Domain(("place", "time", "kind"), cells.shape)
    return CodeTable(domain, tuple(c.astype(choose_code_dtype(s)) for c, s in zip(codes, cells.shape, strict=True)))


def scored(real: list[int], synthetic: list[int]) -> tuple[float, float, float, float]:
    """(score, divergence, misleading, bias) of a single pie."""
    found = score_pie_charts(pies([[real]]), pies([[synthetic]]), "place", "time", "kind")
    assert found.score == found.total == found.scores[0, 0]
    return found.score, found.divergence[0, 0], found.misleading[0, 0], found.bias[0, 0]


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
    score, divergence, misleading, found = scored([100, 0], [rows, 0])
    assert (found, misleading) == (bias, 0.0)
    assert score == pytest.approx(1 - bias, abs=1e-4) and divergence < 1e-4
    assert scored([rows, 0], [100, 0])[3] == bias


def test_against_a_loop() -> None:
    rng = np.random.default_rng(1)
    shape = (4, 5, 7)
    real = rng.poisson(rng.gamma(0.3, 200, shape))
    synthetic = rng.poisson(real * rng.uniform(0, 3, shape))
    synthetic[0, 0], real[0, 1], synthetic[0, 2] = real[0, 0], 0, 0
    found = score_pie_charts(pies(real), pies(synthetic), "place", "time", "kind")
    expected = [[by_loop(a, b) for a, b in zip(p, q, strict=True)] for p, q in zip(real, synthetic, strict=True)]
    assert found.scores == pytest.approx(np.array(expected), abs=1e-7)
    assert 0 < found.bias.sum() < 5 and (found.misleading > 0).any() and found.scores[0, 0] == 1.0
    assert found.total == pytest.approx(found.scores.sum()) and found.score == pytest.approx(found.total / 20)


def test_any_three_attributes_in_any_order() -> None:
    real, synthetic = pies([[[4, 1], [2, 2]]]), pies([[[1, 4], [2, 2]]])
    plain = score_pie_charts(real, synthetic, "place", "time", "kind").scores
    assert score_pie_charts(real, synthetic, "time", "place", "kind").scores.T.tolist() == plain.tolist()
    assert plain[0, 0] < plain[0, 1] == 1.0
    with pytest.raises(ValueError, match="three different"):
        score_pie_charts(real, synthetic, "time", "time", "kind")
