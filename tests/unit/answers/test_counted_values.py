"""Answers about values inside cells: by the counts of single values, and where nulls share a code with numbers."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pyarrow as pa
import pytest

from privsyn.answers.cells import ColumnCells
from privsyn.answers.conditions import read_condition
from privsyn.answers.counted import answer_counts, answer_means, answer_shares, find_split_cells
from privsyn.answers.number_columns import answer_quantiles
from privsyn.answers.question import Question
from privsyn.answers.released_counts import MemoryCounts
from tests.support.answered import released
from tests.support.specs import make_spec


@cache
def release() -> tuple[pa.Table, MemoryCounts]:
    """Wages of which some amounts are frequent, and rates with two decimals, and a release of them."""
    rng = np.random.default_rng(1)
    chance, wages = rng.random(4_000), np.exp(rng.normal(9.5, 0.8, 4_000)).astype(int).clip(1, 99_999)
    wages = np.where(chance < 0.3, 1_781, np.where(chance < 0.5, 20_500, wages))
    rates = np.where(rng.random(4_000) < 0.4, 1.25, rng.integers(0, 9_999, 4_000) / 100)
    rows = pa.table({"wages": wages, "rate": rates})
    columns = {
        "wages": {"kind": "integer", "min": 0, "max": 200_000},
        "rate": {"kind": "number", "min": 0, "max": 100, "decimals": 2},
    }
    return rows, released(rows, make_spec(columns, synthesis={"sweeps": 1}, compression={"ladder": False}), 0)


@pytest.mark.parametrize(
    "text", ["wages == 20500", "wages != 1781", "wages + 1 == 1782", "wages in [1781, 20500]", "rate == 1.25"]
)
def test_a_value_that_was_counted_is_answered_by_its_count(text: str) -> None:
    """By its cell alone nothing is known but that none or all of the cell's rows have it."""
    rows, one = release()
    condition = read_condition(text, one.language)
    real = condition.holds({name: rows[name] for name in rows.column_names}).sum()
    count = answer_counts(Question.of(one, (), condition), 0.999)
    share = answer_shares(Question.of(one, (), None, condition.columns), condition, 0.999)
    for found, truth in ((count, real), (share, real / rows.num_rows)):
        assert found.source == "measured" and found.low[0] <= truth <= found.high[0]
    assert 0 < count.std_error[0] < 200


@pytest.mark.parametrize("text", ["rate < 1.25", "rate * 2 == 2.5", "rate > 1.254 and rate < 1.256"])
def test_what_lies_between_counted_values_stays_unknown(text: str) -> None:
    """Values of a column without a step may have more decimals than those that come out."""
    _, one = release()
    whole, condition = ColumnCells(one, ("rate",)), read_condition(text, one.language)
    cells = find_split_cells(whole, whole.fractions(condition))
    assert cells is not None and cells.split is not None
    part = cells.fractions(condition)[cells.split.rest]
    assert ((part > 0) & (part < 1)).any()


def test_answers_about_whole_cells_are_as_sure_as_without_counted_values() -> None:
    _, one = release()
    question = Question.of(one, ("wages",), None)
    assert find_split_cells(question.cells, question.cells.fractions(None)) is None
    cut = question.cells.fractions(read_condition("wages == 1781", one.language))
    cells, linear = find_split_cells(question.cells, cut), question.linear()
    assert cells is not None and linear is not None
    _, split = cells.indicators(("wages",))
    _, plain = question.cells.indicators(("wages",))
    errors = [np.sqrt(each.covariance(rows, rows)) for each, rows in ((cells.linear(), split), (linear, plain))]
    assert (errors[0] <= errors[1] * 1.001).all() and errors[0].min() > 1


def test_a_quantile_in_the_cell_above_0_has_an_interval_from_0() -> None:
    paid = np.where(np.arange(4_000) < 400, 0.0, 1.5)
    column = {"kind": "number", "min": 0, "max": 100_000, "decimals": 2}
    asked = make_spec({"paid": column}, synthesis={"sweeps": 1}, compression={"ladder": False})
    one = released(pa.table({"paid": paid}), asked, 0)
    found = answer_quantiles(Question.of(one, (), None, ("paid",)), "paid", [0.15], 0.95)
    assert found.low[0] == 0.0 and found.high[0] >= 1.5


COLUMNS = {
    "pay": {"kind": "number", "min": 0, "max": 1_000, "bins": 8, "exact": [9_999], "nullable": True},
    "group": {"kind": "categorical", "values": ["a", "b"]},
}


def test_a_mean_is_held_where_the_first_counts_say_that_a_combined_code_is_all_null() -> None:
    rng = np.random.default_rng(0)
    pay = np.append(rng.uniform(0, 400, 1_500), rng.uniform(500, 1_000, 1_500))
    pay[1_480:1_500] = 9_999
    group = np.repeat(["a", "b"], 1_500)
    rows = pa.table({"pay": pa.array(pay, mask=np.isin(np.arange(3_000), range(2_990, 3_000))), "group": group})
    asked = make_spec(COLUMNS, privacy={"epsilon": 0.7, "delta": 1e-9}, synthesis={"sweeps": 2})
    found = next(f for f in (released(rows, asked, seed) for seed in range(30)) if together(f.recode["pay"].coarse))
    recode = found.recode["pay"]
    weight = recode.weight.copy()
    weight[-2:] = 0.0, 1.0
    found.recode["pay"] = replace(recode, weight=weight)
    mean = answer_means(Question.of(found, ("group",), None, ("pay",)), "pay", 0.95)
    real = float(pay[:1_500].mean())
    assert mean.source == "implied" and mean.low[0] <= real <= mean.high[0]
    assert mean.estimate[0] < real - 50, "the estimate itself follows the shares"


def together(coarse: np.ndarray) -> bool:
    """Whether the exact value and null share a code of their own."""
    return bool(coarse[-1] == coarse[-2] != coarse[-3])
