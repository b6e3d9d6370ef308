"""Places inside codes: relations go on there, shares inside codes stay, and what is not related is left alone."""

from __future__ import annotations

import numpy as np
import pytest

from privsyn.data_contracts.domain import Domain
from privsyn.tasks.codecs.cells import AttributeBins
from privsyn.tasks.estimation.recode import AttributeRecode
from privsyn.tasks.kernels.counting import CodeTable
from privsyn.tasks.synthesis.fine_codes import FineCodes, PlacedRecords, RelatedPlaces, fit_related_places

ROWS, FINE = 6_000, 30
GROUPS = np.arange(FINE + 1, dtype=np.int32)  # the last fine code is null


def _recode(codes: int) -> AttributeRecode:
    coarse = np.append(np.arange(FINE) * codes // FINE, codes).astype(np.int32)
    shares = 1.0 / np.bincount(coarse)[coarse]
    return AttributeRecode(coarse, np.ones(FINE + 1, bool), shares, np.full(FINE + 1, 100.0), np.ones(FINE + 1))


def _fit(
    values: dict[str, np.ndarray], codes: int, ordered: tuple[str, ...], near: list[tuple[str, str]] | None = None
) -> tuple[RelatedPlaces, CodeTable]:
    """Return the model of values from 0 to 1 (NaN: null), cut into so many codes of equal mass."""
    cut = {}
    for name, v in values.items():
        rank = np.argsort(np.argsort(np.where(np.isnan(v), -1, v)))
        cut[name] = np.where(np.isnan(v), codes, rank * codes // len(v)).astype(np.uint8)
    table = CodeTable(Domain.of(dict.fromkeys(values, codes + 1)), tuple(cut.values()))
    recode = dict.fromkeys(values, _recode(codes))
    binning = {name: AttributeBins(GROUPS, ((0, FINE),) if name in ordered else ()) for name in values}
    return fit_related_places(table, recode, binning, near), table


def _draw_normal(correlation: float, seed: int = 1) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    both = rng.multivariate_normal([0, 0], [[1, correlation], [correlation, 1]], ROWS)
    return {"a": both[:, 0], "b": both[:, 1], "c": rng.random(ROWS)}


def _draw(model: RelatedPlaces, table: CodeTable, seed: int = 2) -> dict[str, np.ndarray]:
    codes = {a: table.column(a) for a in table.domain.attributes}
    return model.draw(codes, np.random.default_rng(seed))


def test_records_of_linked_rows_have_the_relation_inside_their_codes() -> None:
    values = _draw_normal(0.9)
    model, table = _fit(values, 3, ("a", "b", "c"))
    coarse = {a: table.column(a) for a in table.domain.attributes}
    middle = (coarse["a"] == 1) & (coarse["b"] == 1)
    draws = dict.fromkeys(coarse, FineCodes(_recode(3)))

    def correlate_inside(model: RelatedPlaces | None) -> float:
        placed = PlacedRecords(draws, coarse, model, np.random.default_rng(3))
        (fine, inside), other = placed.place("a"), placed.refine("b")
        assert {*np.unique(inside >= 0), *np.unique(inside < 1)} == {True}
        assert (_recode(3).coarse[fine] == coarse["a"]).all() and (_recode(3).coarse[other] == coarse["b"]).all()
        return float(np.corrcoef(fine[middle], other[middle])[0, 1])

    real = np.corrcoef(values["a"][middle], values["b"][middle])[0, 1]
    assert real > 0.2
    assert abs(correlate_inside(model) - real) < 0.08
    assert abs(correlate_inside(None)) < 0.08


def test_a_relation_between_codes_goes_on_inside_them() -> None:
    for correlation in (0.6, -0.6):
        values = _draw_normal(correlation)
        model, table = _fit(values, 3, ("a", "b", "c"))
        places = _draw(model, table)
        made = {a: table.column(a) + places[a] for a in ("a", "b")}
        real = np.corrcoef(*(np.argsort(np.argsort(values[a])) for a in "ab"))[0, 1]
        apart = np.corrcoef(table.column("a"), table.column("b"))[0, 1]
        kept = np.corrcoef(*(np.argsort(np.argsort(made[a])) for a in "ab"))[0, 1]
        assert abs(kept - real) < 0.02 < abs(apart * 8 / 9 - real)


def test_in_a_wide_table_only_columns_near_each_other_follow_each_other() -> None:
    values = _draw_normal(0.6)
    model, table = _fit(values, 3, ("a", "b", "c"), [("a", "b"), ("b", "c")])
    whole, _ = _fit(values, 3, ("a", "b", "c"))
    assert set(_draw(model, table)) == {"a", "b"}
    assert model.weights[0][0] == pytest.approx(whole.weights[0][1], abs=0.02)
    assert model.spread[0] == pytest.approx(whole.spread[0], abs=0.01)
    alone, _ = _fit(values, 3, ("a", "b", "c"), [("b", "c")])
    assert not alone.moved


def test_places_of_every_code_are_spread_evenly() -> None:
    model, table = _fit(_draw_normal(0.9), 3, ("a", "b", "c"))
    places = _draw(model, table)["a"]
    for code in range(3):
        inside = np.sort(places[table.column("a") == code])
        assert np.abs(inside - (np.arange(len(inside)) + 0.5) / len(inside)).max() < 1 / len(inside)
    assert places.min() >= 0
    assert places.max() < 1


def test_what_is_related_to_nothing_has_no_order_or_fine_codes_of_its_own_is_left_alone() -> None:
    model, table = _fit(_draw_normal(0.7), 3, ("a", "b", "c"))
    assert set(_draw(model, table)) == {"a", "b"}
    model, table = _fit(_draw_normal(0.7), 3, ("b", "c"))
    assert _draw(model, table) == {}
    model, table = _fit(_draw_normal(0.7), FINE, ("a", "b", "c"))
    assert _draw(model, table) == {}
