"""L1 distances by hand, against pandas, dense against sparse, and the lists of marginals."""

from __future__ import annotations

from itertools import combinations
from math import comb

import numpy as np
import pandas as pd
import pytest

from privsyn.data_contracts.domain import Clique, Domain
from privsyn.tasks.kernels.counting import CodeTable
from privsyn.tasks.metrics import marginal_distance
from privsyn.tasks.metrics.marginal_distance import (
    compute_l1_distances,
    draw_cliques,
    estimate_density_error,
    list_all_cliques,
)
from tests.support.code_tables import draw_table

DOMAIN = Domain.of({"a": 4, "one": 1, "b": 3, "wide": 300, "c": 2})


def frame(data: CodeTable) -> pd.DataFrame:
    return pd.DataFrame(dict(zip(data.domain.attributes, data.columns, strict=True)))


def by_pandas(real: CodeTable, synthetic: CodeTable, clique: Clique) -> float:
    """The referee: shares by value_counts, missing cells 0."""
    ours, theirs = (frame(t).value_counts(list(clique), normalize=True) for t in (real, synthetic))
    return float(ours.subtract(theirs, fill_value=0).abs().sum())


def test_against_pandas() -> None:
    real, synthetic = draw_table(DOMAIN, 500, 1), draw_table(DOMAIN, 301, 2)
    cliques = [c for ways in (1, 2, 3, 5) for c in list_all_cliques(DOMAIN, ways)]
    expected = [by_pandas(real, synthetic, c) for c in cliques]
    assert compute_l1_distances(real, synthetic, cliques, threads=2) == pytest.approx(expected, rel=1e-12)
    triples = [by_pandas(real, synthetic, c) for c in combinations(DOMAIN.attributes, 3)]
    assert estimate_density_error(real, synthetic) == pytest.approx(1e6 * (1 - np.mean(triples) / 2))


@pytest.mark.parametrize("width", [3, 9])
def test_more_cells_than_can_be_numbered(width: int) -> None:
    """2**48 and 2**144 cells: past what can be allocated, and past 64-bit numbers of cells.

    One of the four rows differs, in the first attribute only, which numbers that wrap around would lose: 2 / 4.
    """
    domain = Domain.of({f"a{i}": 1 << 16 for i in range(width)})
    columns = [np.array([0, 65_535, 65_535, 7], np.uint16) for _ in range(width)]
    real = CodeTable(domain, tuple(columns))
    synthetic = CodeTable(domain, (np.array([0, 65_535, 65_535, 8], np.uint16), *columns[1:]))
    assert compute_l1_distances(real, real, [domain.attributes]).tolist() == [0.0]
    assert compute_l1_distances(real, synthetic, [domain.attributes]).tolist() == [0.5]


def test_tables_that_cannot_be_compared() -> None:
    real = draw_table(DOMAIN, 5)
    with pytest.raises(ValueError, match="same domain"):
        compute_l1_distances(real, draw_table(Domain.of({"a": 2}), 5), [])
    padded = CodeTable(DOMAIN, real.columns, padded=True)
    with pytest.raises(ValueError, match="filtered"):
        compute_l1_distances(padded, padded, [])


@pytest.mark.parametrize("ways", [0, 1, 3, 6])
@pytest.mark.parametrize("number", [0, 4, 100])
@pytest.mark.parametrize("few", [0, 1 << 16])
def test_random_cliques_are_distinct_and_ordered(
    ways: int, number: int, few: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(marginal_distance, "_FEW_CLIQUES", few)
    found = draw_cliques(DOMAIN, ways, number, seed=3)
    every = list(combinations(DOMAIN.attributes, ways))
    assert len(found) == len(set(found)) == min(number, comb(5, ways))
    assert found == [c for c in every if c in set(found)]
    assert found == draw_cliques(DOMAIN, ways, number, seed=3)


@pytest.mark.parametrize("few", [0, 1 << 16])
def test_random_cliques_are_even_and_seeded(few: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of the 10 triples of 5 attributes is among 2 drawn with probability 1/5, among 7 with 7/10 (sd 9, 10)."""
    monkeypatch.setattr(marginal_distance, "_FEW_CLIQUES", few)  # drawn one by one, or out of the list of all
    for number in (2, 7):
        drawn = [c for seed in range(500) for c in draw_cliques(DOMAIN, 3, number, seed)]
        counts = pd.Series(drawn).value_counts()
        assert len(counts) == 10
        assert counts.between(50 * number - 50, 50 * number + 50).all()


def test_negative_numbers_are_refused() -> None:
    with pytest.raises(ValueError, match="-1"):
        draw_cliques(DOMAIN, 2, -1, 0)
    with pytest.raises(ValueError, match="-2"):
        list_all_cliques(DOMAIN, -2)
    with pytest.raises(ValueError, match="-2"):
        draw_cliques(DOMAIN, -2, 3, 0)
