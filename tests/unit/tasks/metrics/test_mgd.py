"""MGD: what may be configured, which marginals are compared, the score, and the drill-down."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

from privsyn.data_contracts.domain import Domain
from privsyn.data_contracts.evaluation import ComparedMarginal, EarthMover, EvaluationSpec, MgdSpec
from privsyn.tasks.kernels.counting import CodeTable
from privsyn.tasks.metrics.mgd import MgdResult, choose_default_marginals, compute_mgd
from tests.support.code_tables import write_rows

DOMAIN = Domain.of({"age": 3, "city": 4, "happy": 2})
table = partial(write_rows, DOMAIN)
LABELS = {"age": ["young", "middle", "old"], "city": ["Chicago", "Gary", "Joliet", "(null)"], "happy": ["no", "yes"]}
ORDERED = {"age": True, "city": False, "happy": False}
STATES = {"Illinois": ["Chicago", "Joliet"], "Indiana": ["Gary"]}


def score(real: CodeTable, synthetic: CodeTable, **spec: Any) -> MgdResult:
    """MGD with null as the last code of city."""
    return compute_mgd(real, synthetic, MgdSpec.model_validate(spec), LABELS, ORDERED, {"city": 3})


REAL = table([(0, 0, 0)] * 5 + [(1, 1, 0)] * 4 + [(2, 2, 1)])
NEAR = table([(0, 0, 0)] * 4 + [(1, 1, 0)] * 5 + [(2, 2, 1)])
FAR = table([(0, 0, 0)] * 4 + [(1, 1, 0)] * 4 + [(2, 2, 1)] * 2)


def test_the_score_is_the_mean_by_weight_and_the_worst_comes_first() -> None:
    # age: 0.05; city by default without moves: |4-5| + |5-4| of 10 = 0.2; weights 3 and 1: (3 * 0.05 + 0.2) / 4.
    marginals = [{"attributes": ["age"], "weight": 3}, {"attributes": ["city"], "tolerance": 0}]
    result = score(REAL, NEAR, marginals=marginals, tolerance=0)
    assert result.score == pytest.approx(0.35 / 4)
    assert [(m.attributes, m.weight) for m in result.marginals] == [(("city",), 1.0), (("age",), 3.0)]
    assert [m.aemc for m in result.marginals] == pytest.approx([0.2, 0.05])


def test_levels_and_hierarchies_change_what_is_counted_and_how_far_it_is() -> None:
    # One of five Chicago records in Joliet: half the way at the leaves with weight 1, nothing at the level of states,
    # and nothing at the root.
    real, synthetic = table([(0, 0, 0)] * 5), table([(0, 0, 0)] * 4 + [(0, 2, 0)])
    for level, expected in ((2, 0.1), (1, 0.0), (0, 0.0)):
        target = {"attributes": ["city"], "levels": {"city": level}, "weights": {"city": 1}}
        found = score(real, synthetic, marginals=[target], hierarchies={"city": STATES}, tolerance=0)
        assert found.score == pytest.approx(expected), level
    gary = table([(0, 0, 0)] * 4 + [(0, 1, 0)])
    target = {"attributes": ["city"], "levels": {"city": 1}, "weights": {"city": 1}}
    found = score(real, gary, marginals=[target], hierarchies={"city": STATES}, tolerance=0)
    assert found.score == pytest.approx(0.2)
    assert [b.labels for b in found.marginals[0].worst_bins] == [("Illinois",), ("Indiana",)]


def test_bins_of_bins_are_the_levels_of_an_ordered_column() -> None:
    # By twos: {young, middle}, {old}.  NEAR moves inside the first; FAR moves one record the whole way.
    target = {"attributes": ["age"], "levels": {"age": 1}}
    for synthetic, expected in ((NEAR, 0.0), (FAR, 0.1)):
        found = score(REAL, synthetic, marginals=[target], bins_of_bins={"age": [2]}, tolerance=0)
        assert found.score == pytest.approx(expected)


def test_the_drill_down_names_the_attribute_and_the_bins() -> None:
    # In Chicago 2 of 10 records go from old to young, 1 each, and in Gary 2 are removed; no moves between cities.
    real = table([(0, 0, 0)] * 5 + [(1, 1, 0)] * 5)
    synthetic = table([(2, 0, 0)] * 2 + [(0, 0, 0)] * 3 + [(1, 1, 0)] * 7)
    target = {"attributes": ["city", "age"]}
    (found,) = score(real, synthetic, marginals=[target], tolerance=0, worst_bins=2).marginals
    assert isinstance(found, EarthMover)
    assert found.aemc == pytest.approx(0.4)
    assert list(found.by_attribute.items()) == [("age", pytest.approx(0.2)), ("city", 0.0)]
    assert found.added_or_removed == pytest.approx(0.2)
    worst = [(b.labels, b.cost, b.real, b.synthetic) for b in found.worst_bins]
    assert worst == [
        (("Gary", "middle"), pytest.approx(0.2), 0.5, pytest.approx(7 / 12)),
        (("Chicago", "young"), pytest.approx(0.1), 0.5, pytest.approx(3 / 12)),
    ]


def test_null_is_no_place_on_a_line() -> None:
    # Null is the last code of "city"; were it ordered and on the line, Joliet to null would be a third of the way.
    real, synthetic = table([(0, 2, 0)] * 3), table([(0, 3, 0)] * 3)
    spec = MgdSpec(marginals=(ComparedMarginal(attributes=("city",)),), tolerance=0)
    ordered = {**ORDERED, "city": True}
    assert compute_mgd(real, synthetic, spec, LABELS, ordered, {"city": 3}).score == pytest.approx(1.0)
    assert compute_mgd(real, synthetic, spec, LABELS, ordered).score == pytest.approx(1 / 3)


def test_by_default_all_one_ways_and_the_smaller_pairs() -> None:
    def chosen(**spec: Any) -> list[tuple[str, ...]]:
        return [t.attributes for t in choose_default_marginals(MgdSpec(**spec), DOMAIN)]

    ones = [("age",), ("city",), ("happy",)]
    assert chosen() == [*ones, ("age", "happy"), ("city", "happy"), ("age", "city")]  # 6, 8 and 12 bins
    assert chosen(pair_cells=8) == [*ones, ("age", "happy"), ("city", "happy")]
    assert chosen(pairs=1) == [*ones, ("age", "happy")]
    result = score(REAL, NEAR)
    assert len(result.marginals) == 6
    assert result.score == 0  # every difference is within 2 records


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"hierarchies": {"town": ["a"]}}, "`hierarchies` names 'town', which is not a released column"),
        ({"bins_of_bins": {"town": [2]}}, "`bins_of_bins` names 'town'"),
        ({"bins_of_bins": {"city": [2]}}, "'city', which has no order"),
        ({"marginals": [{"attributes": ["town"]}]}, "`marginals` names 'town'"),
        ({"marginals": [{"attributes": ["age"], "levels": {"age": 2}}]}, "its leaves are at level 1"),
        ({"hierarchies": {"city": ["Chicago", "Gary"]}}, "misses the label 'Joliet'"),
        ({"hierarchies": {"happy": ["no", "maybe"]}}, "lists 'maybe'"),
    ],
)
def test_a_spec_that_does_not_fit_the_table_is_refused(spec: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        score(REAL, NEAR, **spec)


def test_tables_of_two_domains_are_refused() -> None:
    other = CodeTable(Domain.of({"age": 3}), (np.zeros(1, np.uint8),))
    with pytest.raises(ValueError, match="different domains"):
        score(REAL, other)


def test_marginals_too_large_to_solve_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("privsyn.tasks.metrics.mgd.MAX_BINS", 11)
    with pytest.raises(ValueError, match=r"age, city has 12 bins, and may have 11. Use coarser levels"):
        score(REAL, NEAR, marginals=[{"attributes": ["age", "city"]}])


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ({"attributes": []}, "at least 1"),
        ({"attributes": ["a", "a"]}, "twice"),
        ({"attributes": ["a"], "levels": {"b": 1}}, "`levels` names 'b'"),
        ({"attributes": ["a"], "levels": {"a": -1}}, "0 \\(the root\\) or more"),
        ({"attributes": ["a", "b"], "weights": {"a": 1}}, "every column"),
        ({"attributes": ["a", "b"], "weights": {"a": 0.5, "b": 0.4}}, "add up to 1"),
        ({"attributes": ["a", "b"], "weights": {"a": 1.5, "b": -0.5}}, "add up to 1"),
        ({"attributes": ["a"], "weights": {"a": "endless"}}, "infinite"),
        ({"attributes": ["a"], "weights": {"a": float("inf")}}, "finite number"),
        ({"attributes": ["a"], "tolerance": -1}, "greater than or equal to 0"),
        ({"attributes": ["a"], "weight": 0}, "greater than 0"),
    ],
)
def test_target_marginals_are_checked_on_their_own(target: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        MgdSpec.model_validate({"marginals": [target]})


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"hierarchies": {"a": {"x": ["1"], "y": {"z": ["2"]}}}}, "same depth"),
        ({"hierarchies": {"a": {"x": []}}}, "empty group"),
        ({"hierarchies": {"a": {"x": ["1"], "y": ["1"]}}}, "stands twice"),
        ({"hierarchies": {"a": ["1"]}, "bins_of_bins": {"a": [2]}}, "Give one of them"),
        ({"bins_of_bins": {"a": [1]}}, "2 or more"),
    ],
)
def test_hierarchies_are_checked_on_their_own(spec: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        MgdSpec.model_validate(spec)


def test_a_spec_survives_json_with_infinite_weights_and_labels_as_text() -> None:
    target = {"attributes": ["a", "b"], "weights": {"a": "infinite", "b": 1}}
    spec = EvaluationSpec.model_validate({"mgd": {"marginals": [target], "hierarchies": {"a": {"x": [1, True, 2.5]}}}})
    assert spec.mgd.hierarchies == {"a": {"x": ["1", "true", "2.5"]}}
    assert spec.mgd.marginals[0].weights == {"a": "infinite", "b": 1.0}
    assert EvaluationSpec.model_validate_json(spec.model_dump_json()) == spec
