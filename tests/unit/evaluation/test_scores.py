"""Scores and figures where little or nothing is compared: no value and a reason, never the best score."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from privsyn.data_contracts.evaluation import EvaluationSpec, Metric
from privsyn.data_contracts.panels import Panel
from privsyn.evaluation.coded_tables import CodedTable, encode_table
from privsyn.evaluation.linked_figures import list_panel_figures, list_table_pair_figures
from privsyn.evaluation.scores import Scorer
from privsyn.tasks.codecs import EncodingPlan, plan
from privsyn.tasks.metrics.membership import Membership
from privsyn.tasks.metrics.panels import PanelTable
from tests.support.linked_tables import make_tables_spec, make_tree_content
from tests.support.specs import make_spec, people

QUICK = {"range_queries": 20, "nist_schemas": 5, "nist_queries": 5, "attack_rows": 20}
ONE = ("happy",)
TWO = ("happy", "region")
THREE = ("happy", "region", "age")


def encoded(columns: tuple[str, ...]) -> EncodingPlan:
    spec = make_spec()
    kept = {n: c if n in columns else {"kind": "drop"} for n, c in spec.model_dump(mode="json")["columns"].items()}
    return plan(make_spec(kept))


def table(columns: tuple[str, ...], rows: int, seed: int = 0) -> CodedTable:
    return encode_table(people(300, seed).slice(0, rows).select(list(columns)).to_batches(), encoded(columns))


def scorer(columns: tuple[str, ...], rows: int = 300, **settings: Any) -> Scorer:
    spec = EvaluationSpec.model_validate({**QUICK, **settings})
    return Scorer(table(columns, rows), None, encoded(columns), spec, threads=1)


def scored(columns: tuple[str, ...], real: int = 300, made: int = 300, **settings: Any) -> dict[str, Metric]:
    """Every metric of a table with other rows, with its subsample."""
    this = scorer(columns, real, **settings)
    return {m.name: m for m in this.score(table(columns, made, seed=1), subsamples=True)}


def test_a_model_predicts_what_the_steward_names_and_nothing_else() -> None:
    assert scorer(THREE).labels() == () and scorer(THREE, labels=("region",)).labels() == ("region",)
    assert scorer(THREE, labels="auto").labels() == ("happy",)
    assert not any(name.startswith("svm") for name in scored(THREE))


def test_one_column_has_no_score_of_pairs_and_triples() -> None:
    found = scored(ONE)
    for name, note in (("l1_2way", "two"), ("l1_3way", "three"), ("correlation", "two")):
        assert (found[name].value, found[name].subsample, found[name].note) == (None, None, f"needs {note} columns")
    assert found["l1_1way"].value and found["l1_1way"].subsample is not None


@pytest.mark.parametrize(("columns", "k"), [(ONE, 2), (ONE, 3), (TWO, 3)])
def test_the_k_marginal_of_fewer_columns_is_over_all_of_them(columns: tuple[str, ...], k: int) -> None:
    """(2 - L1) 500 of the one marginal there is: of one column the error of columns, of two that of pairs."""
    found = scored(columns, k=k)
    error = found["l1_1way" if columns == ONE else "l1_2way"]
    assert error.value and found["k_marginal"].value == pytest.approx((2 - error.value) * 500)
    assert found["k_marginal"].subsample == pytest.approx(error.subsample)
    assert f"fewer than {k} columns" in found["k_marginal"].note


def test_two_columns_have_pairs_but_no_triples_and_three_have_all() -> None:
    two, three = scored(TWO), scored(THREE)
    assert two["l1_2way"].value and two["k_marginal"].value and two["correlation"].value is not None
    assert (two["l1_3way"].value, two["l1_3way"].note) == (None, "needs three columns")
    assert all(three[n].value is not None and not three[n].note for n in ("l1_2way", "l1_3way", "k_marginal"))


def test_one_row_has_no_correlation() -> None:
    found = scored(THREE, made=1)["correlation"]
    assert (found.value, found.note) == (None, "no pair has a defined association in both tables")


def test_two_tables_without_rows_have_no_score_at_all() -> None:
    found = scored(THREE, real=0, made=0, groups=["region"])
    assert {m.value for m in found.values()} == {None}
    assert all(m.note and m.subsample is None for m in found.values())


@pytest.mark.parametrize(("real", "made", "which"), [(300, 0, "the synthetic table"), (0, 300, "the real table")])
def test_one_table_without_rows_is_told(real: int, made: int, which: str) -> None:
    """All shares of the one are 0, those of the other sum to 1."""
    found = scored(THREE, real=real, made=made, labels=("happy",))
    assert found["l1_2way"].value == pytest.approx(1.0)
    assert found["l1_2way"].note == f"{which} has no rows: all its shares count as 0"
    assert (found["unique_match"].value, found["unique_match"].note) == (None, "a table has no rows")
    assert (found["svm:happy"].value is None) == (real == 0)


def test_groups_without_another_column_have_no_score() -> None:
    assert scored(TWO, groups=list(TWO))["group_k_marginal"].note == "no column outside the groups"
    assert scored(TWO, groups=["region"])["group_k_marginal"].value is not None


@pytest.mark.parametrize(("auc", "value"), [(0.5, 0.5), (0.3, 0.7), (0.7, 0.7), (0.0, 1.0), (1.0, 1.0)])
def test_an_attack_that_is_wrong_more_often_than_not_is_turned_over(
    auc: float, value: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An AUC of 0.3 gives away as much as one of 0.7: who lies far away was in the data."""
    monkeypatch.setattr(
        "privsyn.evaluation.scores.measure_membership", lambda *_, **__: Membership(20, 100, auc, 0.01, 0.2)
    )
    this = scorer(THREE)
    this.holdout = table(THREE, 100, seed=2)
    (found,) = this.score(table(THREE, 100, seed=1), ["membership"])
    assert found.value == pytest.approx(value)
    assert found.references["area under the curve"] == auc
    assert (found.low, found.high, found.better) == (0.5, 1, "lower")


def make_table(persons: int, *columns: str) -> PanelTable:
    person, step = np.repeat(np.arange(persons), 3), np.arange(3 * persons)
    return PanelTable(
        person, step, dict.fromkeys(columns, step % 2), dict.fromkeys(columns, 2), dict.fromkeys(columns, step % 2.0)
    )


def test_a_release_without_a_person_has_figures() -> None:
    """At a small epsilon a release of few persons has none: what is not known is no figure, and the others stand."""
    figures = {
        f.name: f for f in list_panel_figures(make_table(4, "job"), make_table(0, "job"), Panel("pid", 3, "year"))
    }
    assert figures["rows per person"].real == 3 and figures["persons like a random one"].distance is None


def test_a_further_table_without_a_row_has_figures() -> None:
    pair_spec = make_tables_spec(make_tree_content()).table_pairs["drugs"]
    assert pair_spec.panel is not None
    tables = make_table(4, *pair_spec.panel.constant, "dose"), make_table(0, *pair_spec.panel.constant, "dose")
    figures = {f.name: f for f in list_table_pair_figures(tables, (6, 5), pair_spec, "drugs", "visits")}
    assert (figures["drugs: rows per row of visits"].real, figures["drugs: rows per row of visits"].synthetic) == (2, 0)
