"""Full cells: found by rough counts, cut into parts before all else is counted, and relations inside them kept."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from scipy.stats import spearmanr

from privsyn.data_contracts.columns.grid import Grid
from privsyn.data_contracts.receipts import Query
from privsyn.engine.request import Request
from privsyn.pipelines.full_cell_steps import CELL_COUNTS, share_full_cells
from privsyn.pipelines.registry import build_steps
from privsyn.tasks.codecs import plan
from privsyn.tasks.codecs.cells import CutCell, build_cells, cut_cells
from privsyn.tasks.estimation.full_cells import MOST_PARTS, find_full_cells, list_looked_at, read_cuts, tabulate_cuts
from privsyn.tasks.steps.encode import Repairs, iterate_kept_batches
from tests.support.answered import released
from tests.support.specs import make_spec
from tests.unit.answers.test_computed import Asked
from tests.unit.tasks.estimation.test_frequent_values import noisy_counts
from tests.unit.tasks.estimation.test_single_values import WAGE, plan_one

WEIGHT = {"kind": "integer", "min": 0, "max": 9_999}


def weights(rows: int = 8_000) -> pa.Table:
    """Two related weights that lie in one cell each, and a column without such a cell."""
    rng = np.random.default_rng(0)
    first = np.exp(rng.normal(4.4, 0.35, rows))
    second = first * np.exp(rng.normal(0, 0.12, rows))
    even = rng.integers(0, 9_999, rows)
    return pa.table({"person": first.astype(int), "household": second.astype(int), "even": even})


def look(counts: np.ndarray, sigma: float = 50.0) -> dict[str, tuple[Query, np.ndarray]]:
    """A rough look at the cells of x."""
    return {"x": (Query(("x",), len(counts), 1, sigma), counts)}


def test_a_cut_cell_has_parts_that_are_bins_of_its_section_and_nothing_else_changes() -> None:
    grid = Grid.of(1)
    whole = build_cells([0, 100, 200, 300], [150], grid=grid, points=[0])
    cut = cut_cells(whole, grid, {1: 3})
    assert [(c.low, c.high) for c in cut.fine[:6]] == [(0, 1), (1, 17), (17, 33), (33, 50), (50, 100), (100, 125)]
    assert cut.points == whole.points
    assert cut.fine[6:] == whole.fine[4:]
    assert len(cut.sections) == len(whole.sections)
    alone = [len(np.flatnonzero(cut.bin_of == b)) for b in range(5)]
    assert alone == [1, 1, 1, 1, 1]
    covered = [n for c in cut.fine for n in (range(int(c.low), int(c.low) + 1) if c.exact else c.steps(grid))]
    assert sorted(covered) == sorted(n for c in whole.fine for n in ([150] if c.exact else c.steps(grid)))


def test_values_come_back_from_the_parts_that_they_are_encoded_in() -> None:
    made = plan(make_spec({"x": WEIGHT}), cuts=[CutCell("x", 1, 16)])
    codec, values = made.codecs[0], np.arange(0, 400)
    codes, _ = codec.encode({"x": pa.array(values)})
    assert codec.size == plan_one(WEIGHT).codecs[0].size + 15
    assert len(np.unique(codes[:156])) == 17
    labels = codec.labels()
    for value, code in zip(values.tolist(), codes.tolist(), strict=True):
        low, _, high = labels[code].partition("..")
        assert int(low) <= value <= int(high or low)
    again = codec.decode(codes, np.random.default_rng(0))["x"].to_numpy()
    assert np.array_equal(codec.encode({"x": pa.array(again)})[0], codes)


@pytest.mark.parametrize(
    ("in_cell", "elsewhere", "sigma", "parts"),
    [
        (9_000, 1_000, 10.0, MOST_PARTS),
        (9_000, 1_000, 75.0, 10),  # as many as have twelve standard deviations of noise
        (9_000, 1_000, 500.0, None),  # noise would hide any part
        (5_000, 5_000, 10.0, None),  # not most rows
    ],
)
def test_cells_that_hold_most_rows_are_cut_as_far_as_noise_allows(
    in_cell: int, elsewhere: int, sigma: float, parts: int | None
) -> None:
    made = plan_one(WEIGHT)
    counts = noisy_counts(made, {100: in_cell, 5_000: elsewhere})
    found = find_full_cells(list_looked_at(made), look(counts), {"x": sigma})
    assert [cut.parts for cut in found] == ([] if parts is None else [parts])
    assert read_cuts(tabulate_cuts(found)) == tuple(found)


@pytest.mark.parametrize(
    ("column", "looked_at"),
    [
        (WAGE, True),
        ({"kind": "integer", "min": 0, "max": 120}, False),  # cells of few values
        ({"kind": "integer", "min": 0, "max": 9_999, "bins": 8}, False),  # bins of the spec stay
        ({"kind": "number", "min": 0, "max": 9_999}, False),  # without a step
        ({"kind": "number", "min": 0, "max": 9_999, "step": 0.5}, True),
    ],
)
def test_columns_are_looked_at_whose_open_cells_have_many_values(column: dict[str, Any], looked_at: bool) -> None:
    assert bool(list_looked_at(plan_one(column))) == looked_at


def test_a_value_of_most_rows_is_not_cut_off_where_it_has_a_cell_of_its_own() -> None:
    made = plan_one(WEIGHT)
    counts = noisy_counts(made, {0: 9_000, 5_000: 1_000})
    assert not find_full_cells(list_looked_at(made), look(counts), {"x": 10.0})


def test_no_cell_is_cut_that_noise_alone_may_have_made() -> None:
    made = plan_one(WEIGHT)
    counts = noisy_counts(made, {100: 900, 5_000: 100})
    found = [find_full_cells(list_looked_at(made), look(counts, sigma), {"x": 1.0}) for sigma in (200.0, 400.0)]
    assert [len(cuts) for cuts in found] == [1, 0]


def test_relations_inside_a_cell_of_most_rows_are_kept_and_the_release_knows_its_cells() -> None:
    rows = weights()
    promise = {"epsilon": 1.0, "delta": 1e-9}
    counts = released(rows, make_spec(dict.fromkeys(rows.column_names, WEIGHT), privacy=promise), 0)
    assert [cut.attribute for cut in counts.request.cuts] == ["person", "household"]
    assert spearmanr(counts.table["person"], counts.table["household"])[0] > 0.8  # without cuts nothing of it is
    for attribute, recode in counts.recode.items():
        assert len(recode.coarse) == counts.encoding.domain.size(attribute)
    median = Asked(counts).quantile("person", 0.5).iloc[0]
    assert median.low - 1 <= np.median(rows["person"]) <= median.high + 1
    assert median.high - median.low < 20


def test_rows_that_are_kept_of_a_person_are_the_same_after_cells_are_cut() -> None:
    """Which they are follows from a hash of the rows' codes, which cut cells would change."""
    rows = pa.table({"who": np.arange(600) // 6, "x": np.arange(600) % 157, "y": np.arange(600) * 7 % 50})
    unit = {"person_id": "who", "max_records": 2}
    asked = make_spec({"who": {"kind": "drop"}, "x": WEIGHT, "y": {"kind": "integer", "min": 0, "max": 49}}, unit=unit)
    kept = []
    for cuts in ((), (CutCell("x", 1, 16),)):
        encoding = Request(asked).cut_cells(cuts).encoding
        batches = iterate_kept_batches(lambda repairs=None: rows.to_batches(), encoding, asked.unit, Repairs())
        kept.append(pa.Table.from_batches(batches))
    assert kept[0].num_rows == 200 and kept[0].equals(kept[1])


@pytest.mark.parametrize("changes", [{"preset": "0.3"}, {"mechanism": {"name": "independent"}}])
def test_other_methods_have_no_such_look(changes: dict[str, Any]) -> None:
    columns = {"x": WEIGHT, "y": WEIGHT}
    assert share_full_cells(Request(make_spec(columns))) > 0
    assert CELL_COUNTS not in [step.name for step in build_steps(Request(make_spec(columns, **changes)))]
