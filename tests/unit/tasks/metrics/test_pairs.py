"""Pair figures by hand, against pandas and scipy, and where associations are undefined."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy.stats import contingency, pearsonr

from privsyn.data_contracts.domain import Domain, choose_code_dtype
from privsyn.tasks.kernels.counting import CodeTable
from privsyn.tasks.metrics import marginal_distance
from privsyn.tasks.metrics.marginal_distance import (
    PairFigures,
    Values,
    average_correlation_difference,
    compute_l1_distances,
    compute_pair_figures,
    measure_association,
)

DOMAIN = Domain.of({"x": 4, "kind": 3, "y": 6, "wide": 280, "place": 5, "one": 1, "same": 1})
VALUES: Values = {
    "x": np.array([np.nan, -1.5, 2.0, 10.0]),
    "kind": None,
    "y": np.array([1.0, np.nan, 2.0, 3.0, 4.0, 5.0]),
    "wide": np.r_[np.arange(279.0) ** 2, np.nan],
    "one": np.array([3.0]),
}


def random_table(rows: int, seed: int = 0) -> CodeTable:
    """Columns that go together: each follows the first with noise."""
    rng = np.random.default_rng(seed)
    base = rng.random(rows)
    mixed = [(0.5 * base + 0.5 * rng.random(rows)) ** 1.5 * s for s in DOMAIN.sizes]
    return CodeTable(DOMAIN, tuple(m.astype(choose_code_dtype(s)) for m, s in zip(mixed, DOMAIN.sizes, strict=True)))


def by_rows(data: CodeTable, a: str, b: str) -> float:
    """The referee: the association from the rows themselves."""
    rows = pd.DataFrame({n: data.column(n) if VALUES.get(n) is None else VALUES[n][data.column(n)] for n in (a, b)})
    rows = rows.dropna()
    if min(rows[a].nunique(), rows[b].nunique()) < 2:
        return np.nan
    ordered = [VALUES.get(a) is not None, VALUES.get(b) is not None]
    if all(ordered):
        return pearsonr(rows[a], rows[b]).statistic
    if not any(ordered):
        return contingency.association(pd.crosstab(rows[a], rows[b]).to_numpy(), method="cramer")
    number, group = (a, b) if ordered[0] else (b, a)
    fitted = rows.groupby(group)[number].transform("mean")
    return float(np.sqrt(fitted.var(ddof=0) / rows[number].var(ddof=0)))


def test_against_rows() -> None:
    real, synthetic = random_table(400, 1), random_table(230, 2)
    figures = compute_pair_figures(real, synthetic, VALUES, threads=2)
    assert figures.pairs[:2] == (("x", "kind"), ("x", "y")) and len(figures.pairs) == 21
    assert figures.cells.tolist() == [DOMAIN.cells(p) for p in figures.pairs]
    assert figures.l1.tolist() == compute_l1_distances(real, synthetic, figures.pairs).tolist()
    expected = [[by_rows(t, a, b) for a, b in figures.pairs] for t in (real, synthetic)]
    assert np.isnan(expected).any() and np.isfinite(expected).sum() == 20
    assert figures.association_real == pytest.approx(expected[0], abs=1e-9, nan_ok=True)
    assert figures.association_synthetic == pytest.approx(expected[1], abs=1e-9, nan_ok=True)


def test_sparse_is_dense(monkeypatch: pytest.MonkeyPatch) -> None:
    real, synthetic = random_table(300, 3), random_table(100, 4)
    dense = compute_pair_figures(real, synthetic, VALUES)
    monkeypatch.setattr(marginal_distance, "DENSE_CELLS", 20)  # some pairs are still dense
    sparse = compute_pair_figures(real, synthetic, VALUES)
    assert sparse.l1.tolist() == dense.l1.tolist()
    assert sparse.association_real == pytest.approx(dense.association_real, abs=1e-12, nan_ok=True)
    assert sparse.association_synthetic == pytest.approx(dense.association_synthetic, abs=1e-12, nan_ok=True)


def test_correlation_difference_skips_undefined_pairs() -> None:
    """|0.5 - 0.2| and |-1 - 1|; the other two have an undefined side: (0.3 + 2) / 2."""
    ours, theirs = np.array([0.5, np.nan, -1.0, 0.4]), np.array([0.2, 0.7, 1.0, np.nan])
    figures = PairFigures((("a", "b"),) * 4, np.ones(4, np.int64), np.zeros(4), ours, theirs)
    assert average_correlation_difference(figures) == pytest.approx(1.15)


def test_without_rows_or_pairs() -> None:
    real, none = random_table(50), random_table(0)
    figures = compute_pair_figures(real, none, VALUES)
    assert set(figures.l1) == {1.0}
    assert np.isnan(figures.association_synthetic).all()
    assert average_correlation_difference(figures) == 0.0
    assert average_correlation_difference(compute_pair_figures(real, real, VALUES)) == 0.0
    single = CodeTable(Domain.of({"a": 2}), (np.zeros(3, np.uint8),))
    assert compute_pair_figures(single, single, {}).pairs == ()


def test_values_that_do_not_fit() -> None:
    real = random_table(3)
    for values, said in (({"z": None}, "z"), ({"x": np.zeros(3)}, "4 in all"), ({"x": np.full(4, np.inf)}, "finite")):
        with pytest.raises(ValueError, match=said):
            compute_pair_figures(real, real, values)


def test_null_rows_are_left_out_of_ordered_attributes_only() -> None:
    """Without its null (code 0), x is y; as a category, null makes kind tell the rows apart completely."""
    counts = np.array([[0, 9], [4, 0], [0, 5]])
    x = np.array([np.nan, 0.0, 1.0])
    assert measure_association(counts, x, np.arange(2.0)) == pytest.approx(1.0)
    assert measure_association(counts, x, None) == pytest.approx(1.0)
    assert measure_association(counts, None, None) == pytest.approx(1.0)
    assert measure_association(np.array([[5, 0], [0, 5]]), None, np.array([0.0, np.nan])).__repr__() == "nan"
