"""The ladder: rungs of a first look, the cells that follow from it, and what wide bounds leave of a column."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from scipy.stats import spearmanr

from privsyn.api.check import check
from privsyn.data_contracts.public_counts import Prior
from privsyn.data_contracts.receipts import Query
from privsyn.engine.checks import compute_row_bytes
from privsyn.engine.inputs import PrivateAccess
from privsyn.engine.memory import MemoryRun, draw_from_seed
from privsyn.engine.request import Request
from privsyn.engine.step import ReleaseStep
from privsyn.pipelines.budget import split_budget
from privsyn.pipelines.registry import build_steps
from privsyn.pipelines.rung_steps import CUTS, RUNG_COUNTS
from privsyn.sources.open_source import open_source
from privsyn.storage.named_files import compute_sha256
from privsyn.tasks.codecs import plan
from privsyn.tasks.codecs.cells import LEAST_RUNGS, AttributeBins, CutCell, Points, list_rungs
from privsyn.tasks.codecs.encode_rows import Repairs, encode_batch, encode_batch_with_numbers, encode_finer
from privsyn.tasks.codecs.numbers import ANY_COLUMN, fit_tail_counts
from privsyn.tasks.codecs.ordered import OrderedCodec
from privsyn.tasks.estimation.fine_weights import empty_doubtful
from privsyn.tasks.estimation.rungs import (
    bound_domain,
    choose_cells,
    list_looked_at,
    pool_rungs,
    read_cuts,
    tabulate_cuts,
)
from privsyn.tasks.steps.encode import iterate_kept_batches
from tests.support.answered import released
from tests.support.linked_records import choose_and_encode
from tests.support.linked_tables import make_tables_spec, make_tree, make_tree_content, make_visits_content
from tests.support.panels import PANEL_COLUMNS, make_panel, make_panel_spec
from tests.support.specs import make_spec
from tests.unit.answers.test_computed import Asked
from tests.unit.tasks.estimation.test_frequent_values import noisy_counts
from tests.unit.tasks.estimation.test_single_values import WAGE, plan_one

WEIGHT = {"kind": "integer", "min": 0, "max": 9_999}


def weights(rows: int = 8_000) -> pa.Table:
    """Two related weights that lie in a hundredth of their bounds, and a column that fills these."""
    rng = np.random.default_rng(0)
    first = np.exp(rng.normal(4.4, 0.35, rows))
    second = first * np.exp(rng.normal(0, 0.12, rows))
    even = rng.integers(0, 9_999, rows)
    return pa.table({"person": first.astype(int), "household": second.astype(int), "even": even})


def look(counts: np.ndarray, sigma: float = 50.0) -> dict[str, tuple[Query, np.ndarray]]:
    """A first look at the rungs of x."""
    return {"x": (Query(("x",), len(counts), 1, sigma), counts)}


@pytest.mark.parametrize(
    ("edges", "unit", "origin", "expected"),
    [
        ((0, 40), 1, 0, [0, 1, 2, 4, 8, 16, 32, 40]),
        ((-5, 9), 1, 0, [-5, -4, -2, -1, 0, 1, 2, 4, 8, 9]),
        ((-100, 0), 1, 0, [-100, -64, -32, -16, -8, -4, -2, -1, 0]),  # such as days before the last one
        ((0, 4), 1, 0, [0, 1, 2, 3, 4]),  # no more than there are values
    ],
)
def test_rungs_double_outwards_and_the_widest_are_halved(
    edges: tuple[float, float], unit: float, origin: float, expected: list[float]
) -> None:
    rungs = list_rungs(edges, unit, origin)
    assert set(expected) <= set(rungs)
    assert len(rungs) == min(LEAST_RUNGS + 1, round((edges[1] - edges[0]) / unit) + 1)
    assert all((rung - origin) % unit == 0 for rung in rungs)


@pytest.mark.parametrize(
    ("column", "looked_at"),
    [
        (WAGE, True),
        ({"kind": "integer", "min": 0, "max": 60}, False),  # each value has a cell of its own
        ({"kind": "integer", "min": 0, "max": 127}, False),  # no more values than rungs
        ({"kind": "integer", "min": 0, "max": 128}, True),
        ({"kind": "integer", "min": 0, "max": 9_999, "bins": 8}, False),  # bins of the spec stay
        ({"kind": "number", "min": 0, "max": 9_999}, True),
        ({"kind": "number", "min": 0, "max": 9_999, "decimals": 2}, True),
        ({"kind": "number", "min": 0, "max": 9_999, "edges": [0, 10, 9_999]}, False),
        ({"kind": "date", "min": "1900-01-01", "max": "2020-12-31"}, True),
        ({"kind": "date", "min": "2020-12-01", "max": "2020-12-31"}, False),
        ({"kind": "datetime", "min": "1900-01-01", "max": "2020-12-31"}, True),
        ({"kind": "time"}, False),
    ],
)
def test_ordered_columns_are_looked_at_whose_bins_are_open(column: dict[str, Any], looked_at: bool) -> None:
    assert bool(list_looked_at(plan_one(column))) == looked_at


def choose(column: dict[str, Any], values: dict[int, float], sigma: float, fine: float) -> list[CutCell]:
    """The cells of a column with so many rows at these values; noise of both looks."""
    made = plan_one(column)
    return choose_cells(list_looked_at(made), look(noisy_counts(made, values), sigma), {"x": fine})


def test_cells_are_narrow_where_rows_are_and_wide_ones_are_in_doubt() -> None:
    found = choose({"kind": "integer", "min": 0, "max": 10**6}, {70: 5_000, 90: 4_000, 140: 1_000}, 50.0, 20.0)
    assert read_cuts(tabulate_cuts(found)) == tuple(found)
    lows = np.array([cell.low for cell in found])
    near = lows[(lows >= 64) & (lows < 128)]
    assert np.diff(near).max() <= 2  # 64 values in 43 parts, on a grid of halves
    assert all(cell.doubtful == (cell.low >= 512) for cell in found)  # one rung beyond 128..255 is not


@pytest.mark.parametrize(
    ("column", "values"),
    [
        # noise hides most values, so that one seems to hold nearly all rows
        ({"kind": "integer", "min": 20, "max": 200}, {33: 2_400, 50: 900, 85: 900, 110: 900, 140: 900, 180: 900}),
        # one rung holds most rows, but it is half of the bounds
        ({"kind": "integer", "min": 0, "max": 2**20}, dict.fromkeys(range(530_000, 1_040_000, 5_000), 90.0)),
    ],
)
def test_a_rung_that_seems_to_hold_most_rows_of_bounds_that_fit_is_not_split(
    column: dict[str, Any], values: dict[int, float]
) -> None:
    assert len(choose(column, values, 444.0, 131.0)) == 1


def test_bounds_that_fit_keep_the_cells_of_the_column() -> None:
    spread = dict.fromkeys(range(0, 10_000, 100), 100.0)
    (only,) = choose({"kind": "integer", "min": 0, "max": 9_999}, spread, 10.0, 10.0)
    column = {"x": {"kind": "integer", "min": 0, "max": 9_999}}
    own = plan(make_spec(column, mechanism={"name": "privsyn", "compression": {"ladder": False}})).codecs[0]
    kept = plan(make_spec(column), cuts=[only]).codecs[0]
    assert kept.labels() == own.labels() and kept.doubtful is None


MOST: dict[str, dict[str, Any]] = {
    "integers": {"kind": "integer", "min": -(10**6), "max": 10**6, "exact": [-(10**7)]},
    "reals": {"kind": "number", "min": 0, "max": 1e9, "nullable": True},
    "money": {"kind": "number", "min": -5e6, "max": 5e6, "decimals": 2},
    "days": {"kind": "date", "min": "1900-01-01", "max": "2020-12-31"},
}


@pytest.mark.parametrize("kind", MOST)
def test_cells_are_at_most_as_many_as_the_plan_says(kind: str) -> None:
    """Memory, disk and spec check count with this public bound; rules' and questions' barriers count in it."""
    rng, never = np.random.default_rng(1), {"integers": "x > 77", "reals": "x > 0.5", "money": "x > 12.34"}.get(kind)
    asked = make_spec({"x": MOST[kind], "y": WEIGHT}, rules=[{"never": never}] if never else [])
    uncut = Request(asked)
    codec = next(codec for codec in list_looked_at(uncut.encoding) if codec.attribute == "x")
    most, noise, reached = bound_domain(uncut.encoding).size("x"), (100.0, 10.0, 1.0), 0
    for sigma in noise * 12:
        counts = rng.normal(0, sigma, codec.size) + 10_000 * rng.dirichlet(np.full(codec.size, rng.choice([0.02, 1.0])))
        cuts = choose_cells([codec], look(counts, sigma), {"x": sigma / 10})
        reached = max(reached, uncut.cut_cells(tuple(cuts)).encoding.domain.size("x"))
    assert codec.size < reached <= most
    report = check(asked)
    (line,) = (line for line in report.columns if line.column == "x")
    assert line.chosen and line.codes == most and report.columns_rows()[0][2] == f"at most {most}"


def test_relations_inside_a_rung_are_kept_and_the_release_knows_its_cells() -> None:
    rows = weights()
    promise = {"epsilon": 1.0, "delta": 1e-9}
    counts = released(rows, make_spec(dict.fromkeys(rows.column_names, WEIGHT), privacy=promise), 0)
    assert {cut.attribute for cut in counts.request.cuts} == {"person", "household", "even"}
    assert len([cut for cut in counts.request.cuts if cut.attribute == "even"]) == 1
    assert spearmanr(counts.table["person"], counts.table["household"])[0] > 0.8  # without cuts nothing of it is
    for attribute, recode in counts.recode.items():
        assert len(recode.coarse) == counts.encoding.domain.size(attribute)
    median = Asked(counts).quantile("person", 0.5).iloc[0]
    assert median.low - 1 <= np.median(rows["person"]) <= median.high + 1
    assert median.high - median.low < 20


def test_rows_that_are_kept_of_a_person_are_the_same_whatever_cells_are_chosen() -> None:
    """Which they are follows from a hash of the rows' codes, which chosen cells would change."""
    rows = pa.table({"who": np.arange(600) // 6, "x": np.arange(600) % 157, "y": np.arange(600) * 7 % 50})
    unit = {"person_id": "who", "max_records": 2}
    asked = make_spec({"who": {"kind": "drop"}, "x": WEIGHT, "y": {"kind": "integer", "min": 0, "max": 49}}, unit=unit)
    kept = []
    for cuts in ((), (CutCell("x", 0, False), CutCell("x", 20, False), CutCell("x", 90, True))):
        encoding = Request(asked).cut_cells(cuts).encoding
        batches = iterate_kept_batches(lambda repairs=None: rows.to_batches(), encoding, asked.unit, Repairs())
        kept.append(pa.Table.from_batches(batches))
    assert kept[0].num_rows == 200 and kept[0].equals(kept[1])


@pytest.mark.parametrize("preset", ["0.3", "paper"])
def test_earlier_defaults_and_the_paper_have_no_such_look(preset: str) -> None:
    columns = {"x": WEIGHT, "y": WEIGHT}
    assert split_budget(Request(make_spec(columns)))[RUNG_COUNTS] > 0
    assert RUNG_COUNTS not in [step.name for step in build_steps(Request(make_spec(columns, preset=preset)))]


@pytest.mark.parametrize("name", ["adaptive", "independent", "mst", "privbayes", "aim"])
def test_every_mechanism_without_a_prior_chooses_cells(name: str) -> None:
    """A release of each has narrow cells where rows are, and its looks cost the budget as before."""
    asked = make_spec({"person": WEIGHT, "household": WEIGHT, "even": WEIGHT}, mechanism={"name": name})
    request = Request(asked)
    looks = {step.name: step.share for step in build_steps(request) if isinstance(step, ReleaseStep)}
    assert looks[RUNG_COUNTS] > 0 and sum(looks.values()) == 1
    made = released(weights(4_000), asked, 0)
    assert abs(np.median(made.table["person"]) - np.median(weights(4_000)["person"])) < 5


MIXED: dict[str, tuple[dict[str, Any], list[Any]]] = {
    "as many cells as rungs": ({"kind": "number", "min": -3e7, "max": 3e7, "decimals": 2}, [-2e7, 1.5, 3e7, 0.01]),
    "steps": (
        {"kind": "number", "min": 0, "max": 5_000, "step": 0.05},
        [0.0, 0.05, 4_999.95, -3.0, 9e9, *(0.05 * i for i in range(0, 400, 7))],
    ),
    "reals": ({"kind": "number", "min": 0, "max": 10_000}, [0, 1e-9, 0.3, 7.25, 9_999.9999, 10_000]),
    "reals far from 0": ({"kind": "number", "min": 1e12, "max": 1e12 + 10}, [1e12, 1e12 + 5.25, 1e12 + 5.5]),
    "decimals up to the bound": ({"kind": "number", "min": 0, "max": 99.9, "decimals": 1}, [0, 0.1, 50.5, 99.9]),
    "decimals below 0": ({"kind": "number", "min": -50_000, "max": 0, "decimals": 2}, [-50_000, -0.01, 0]),
    "nulls and exact values": (
        {"kind": "integer", "min": 0, "max": 10**6, "nullable": True, "exact": [-1, 7]},
        [-1, 7, 0, 8, 10**6, None],
    ),
    "moments": (
        {"kind": "datetime", "min": "1990-01-01", "max": "2020-12-31", "resolution": "hour"},
        ["1990-01-01", "2019-07-01 11:59:59.5", "2020-12-30 23:00"],
    ),
    "days of moments": (
        {"kind": "datetime", "type": "date", "min": "1990-01-01", "max": "2020-12-31"},
        ["1990-01-01", "2019-07-01 11:59", "2020-12-31"],
    ),
    "dates": ({"kind": "date", "min": "1900-01-01", "max": "2020-12-31"}, ["1900-01-01", "1999-05-05", "2020-12-31"]),
}


@pytest.mark.parametrize("case", MIXED)
@pytest.mark.parametrize("seed", range(2))
def test_codes_in_chosen_cells_are_those_of_the_values_themselves(case: str, seed: int) -> None:
    """Whatever cells the first look chooses: from stored numbers each row has the code that its value has."""
    column, values = MIXED[case]
    request = Request(make_spec({"x": column}), ("x",))
    batch = pa.record_batch({"x": pa.array(values * 20)})
    codes, numbers = encode_batch_with_numbers(batch, request.encoding, Repairs())
    (codec,) = list_looked_at(request.encoding)
    rng = np.random.default_rng(seed)
    counts = rng.normal(0, 30, codec.size) + 10_000 * rng.dirichlet(np.full(codec.size, 0.05))
    cuts = choose_cells([codec], look(counts, 30.0), {"x": 10.0})
    after = request.cut_cells(tuple(cuts)).encoding
    assert after.uncut is not None
    finer = encode_finer(codes, numbers, after.uncut, after)
    assert finer.to_pydict() == encode_batch(batch, after, Repairs()).to_pydict()


@pytest.mark.parametrize("top", [99.9, 10_000.0])
@pytest.mark.parametrize("decimals", [{}, {"decimals": 1}])
def test_rows_at_a_bound_stay_there(top: float, decimals: dict[str, int]) -> None:
    values = np.where(np.arange(4_000) % 10 < 3, top, np.arange(4_000) % 10 * (np.arange(4_000) % 7))
    column = {"kind": "number", "min": 0, "max": top, **decimals}
    asked = make_spec({"x": column, "y": WEIGHT}, privacy={"epsilon": 2.0, "delta": 1e-9})
    made = released(pa.table({"x": values, "y": np.arange(4_000) * 2}), asked, 0).table["x"].to_numpy()
    assert abs((made == top).mean() - 0.3) < 0.05
    assert abs((made == 0).mean() - (values == 0).mean()) < 0.08


def test_where_one_value_has_most_rows_the_others_have_narrow_cells_or_whole_rungs() -> None:
    """Of claims that are 0 in most rows the others are few: the look shows them as a run, or not at all."""
    column = {"kind": "integer", "min": 0, "max": 5_999}
    seen = choose(column, {0: 5_500.0, 1: 550.0, 2: 500.0}, 150.0, 40.0)
    assert {1.0, 2.0} <= {cell.low for cell in seen if not cell.doubtful}
    hidden = choose(column, {0: 5_500.0, 3: 350.0}, 150.0, 40.0)
    assert [cell.low for cell in hidden if not cell.doubtful] == [0.0]
    assert {1.0, 2.0, 4.0, 8.0} <= {cell.low for cell in hidden if cell.doubtful} and len(hidden) < 20


def test_where_no_rung_stands_out_equal_bins_stay_if_the_widest_rungs_have_rows() -> None:
    column = {"kind": "integer", "min": 0, "max": 5_999}
    widest = choose(column, dict.fromkeys((1500, 2500, 3500, 4500, 5500), 120.0), 150.0, 40.0)
    assert [cell.doubtful for cell in widest] == [False]
    assert all(cell.doubtful for cell in choose(column, {3: 350.0}, 150.0, 40.0))


@pytest.mark.parametrize(
    ("doubtful", "points", "noisy", "kept"),
    [
        (0b011111, 0, [500, 10, 30, 15, -20, 39], 0b100000),  # faint cells have no rows
        (0b011111, 0, [500, 10, 39, 39, -20, 39], 0b101100),  # but in a run that is clear
        (0b011111, 1, [500, 10, 39, 39, -20, 39], 0b111110),  # and beside it, where only single values stand out
        (0b111111, 0, [15, 30, 10, -30, -20, -5], 0b111000),  # rows are somewhere
        (0b001111, 0, [500, 10, 10, 80, -20, 39], 0b110100),
    ],
)
def test_doubtful_cells_without_clear_rows_become_empty(
    doubtful: int, points: int, noisy: list[float], kept: int
) -> None:
    bits = lambda number: np.array([number >> place & 1 for place in range(5, -1, -1)], bool)  # noqa: E731
    first = np.arange(points)
    single = Points(first, first + 1, np.full(points, 0.5)) if points else None
    bins = AttributeBins(np.arange(6, dtype=np.int32), ((0, 6),), points=single, doubtful=bits(doubtful))
    counts = np.array(noisy, float)
    assert empty_doubtful(counts, 10.0, bins).tolist() == np.where(bits(kept), counts, 0.0).tolist()


@pytest.mark.parametrize("place", [0, 3])
def test_a_single_value_without_width_keeps_its_count_if_it_alone_is_clear(place: int) -> None:
    """Cells outside the clear ones lose their counts; a clear one at an end of the bounds is not outside itself."""
    width = np.where(np.arange(4) == place, 0.0, 1.0)
    point = Points(np.array([place]), np.array([abs(place - 1)]), np.zeros(1))
    bins = AttributeBins(np.arange(4, dtype=np.int32), ((0, 4),), widths=width, points=point, doubtful=np.ones(4, bool))
    counts = np.where(np.arange(4) == place, 45.0, [1.0, -2.0, 2.0, -1.0])
    assert empty_doubtful(counts, 10.0, bins).tolist() == np.where(np.arange(4) == place, 45.0, 0.0).tolist()


@pytest.mark.parametrize("nullable", [False, True])
def test_few_rows_of_one_value_at_the_end_of_the_bounds_are_released_as_that_value(nullable: bool) -> None:
    """Noise hides all rungs but that value; the rows then crashed the release, or became null."""
    column = {"kind": "number", "min": 0, "max": 1_000_000, "nullable": nullable}
    asked = make_spec({"x": column, "y": {"kind": "boolean"}})
    rows = pa.table({"x": np.full(30, 1e6), "y": np.arange(30) % 2 == 0})
    tables = [released(rows, asked, seed).table["x"] for seed in range(8)]
    assert all(x.null_count < len(x) for x in tables if len(x))


def test_noise_alone_places_no_rows_far_from_others() -> None:
    """All but 4 % of the rows have 0; in one of the noises a far rung of the first look stands out by 3.3 sigma."""
    rng = np.random.default_rng(1)
    values = np.where(rng.random(3_000) < 0.04, 1 + rng.geometric(0.4, 3_000), 0)
    asked = make_spec({"x": {"kind": "integer", "min": 0, "max": 99_999}}, privacy={"epsilon": 0.3, "delta": 1e-9})
    means = [released(pa.table({"x": values}), asked, seed).table["x"].to_numpy().mean() for seed in range(7)]
    assert max(means) < 20 * values.mean() and 0.5 < np.median(means) / values.mean() < 2


def make_widened_panel(width: float, **changes: Any) -> Any:
    """The spec of the small panel with bounds of incomes so many times as wide."""
    income = {"kind": "number", "min": 0, "max": 100 * width, "decimals": 1}
    return make_panel_spec(columns={**PANEL_COLUMNS, "income": income}, **changes)


def test_records_and_rows_of_persons_are_encoded_in_the_chosen_cells() -> None:
    """From stored numbers each record, and each kept row, has the codes that its values have in these cells."""
    panel = make_panel(40, most=7)
    panel = panel.set_column(4, "income", pc.round(panel["income"], 1))
    request = Request(make_widened_panel(50), tuple(name for name in panel.column_names if name != "pid"))
    (codec,) = list_looked_at(request.encoding)
    counts = np.bincount(codec.encode({"income": panel["income"].combine_chunks()})[0], minlength=codec.size)
    cuts = choose_cells([codec], {"income": (Query(("income",), codec.size, 1, 1.0), counts)}, {"income": 1.0})
    after = request.cut_cells(tuple(cuts))
    assert after.encoding.uncut is not None and after.encoding.row_plan.uncut is not None
    (_, stored), (_, expected) = (choose_and_encode(panel, asked) for asked in (request, after))
    for made, whole in zip(stored, expected, strict=True):
        plans = after.encoding, after.encoding.row_plan, after.encoding.row_plan
        numbers = made.numbers, made.numbers_of_rows, made.numbers_without_rows
        for codes, own, chosen, wanted in zip(made[:3], numbers, plans, whole[:3], strict=True):
            assert encode_finer(codes, own, chosen.uncut, chosen).to_pydict() == wanted.to_pydict()


def test_each_pair_of_tables_has_its_own_look() -> None:
    """Of three tables and more each pair's steps read its own cells, whose file lies beside its counts."""
    for content, tables in ((make_visits_content(), [""]), (make_tree_content(), ["", "drugs__"])):
        steps = build_steps(Request(make_tables_spec(content)))
        looks = [step for step in steps if step.name.endswith(RUNG_COUNTS)]
        assert [look.name for look in looks] == [f"{table}{RUNG_COUNTS}" for table in tables]
        cut = {step.name: step.cuts for step in steps if step.cuts}
        assert all(cuts == f"{name[: name.rfind('__') + 2 if '__' in name else 0]}{CUTS}" for name, cuts in cut.items())
        files = {file.name for step in steps for file in step.published.values() if "cut_cells" in file.name}
        assert files == {f"marginals/{table.replace('__', '/')}cut_cells.parquet" for table in tables}


def test_wide_bounds_cost_a_tree_of_tables_little() -> None:
    """Prices of drugs, two tables below persons, and incomes above them, in a hundredth of their bounds."""
    tables = make_tree(1_500)
    full = pc.equal(tables["drugs"]["dose"], 1).to_numpy(zero_copy_only=False)
    price = np.round(np.exp(np.random.default_rng(0).normal(3.4 + 0.2 * full, 0.3)), 1)
    tables["drugs"] = tables["drugs"].append_column("price", pa.array(price))
    content = make_tree_content()
    content["drugs"]["columns"]["price"] = {"kind": "number", "min": 0, "max": 30_000, "decimals": 1}
    content["visits"]["columns"]["income"] = {"kind": "number", "min": 0, "max": 10_000, "decimals": 1}
    asked = make_tables_spec(content, privacy={"epsilon": 3.0, "delta": 1e-9})
    made = {}
    for name, spec in (("chosen", asked), ("equal", asked.without_ladder())):
        source = open_source(tables, spec)
        request = Request(spec, tuple(c for c in source.columns if c in spec.released_columns), 1)
        further = {name: of_table.batches for name, of_table in source.further_tables.items()}
        access = PrivateAccess(source.batches, further_tables=further)
        steps = MemoryRun(request, build_steps(request), draw_from_seed(0), access).run()
        made[name] = steps["drugs__decode"]["synthetic"]["price"].to_numpy(), steps["decode"]["synthetic"]["income"]
    errors = {name: abs(np.median(prices) - np.median(price)) for name, (prices, _) in made.items()}
    assert errors["chosen"] < 0.15 * np.median(price) < errors["equal"]
    income = tables["visits"]["income"].to_numpy()
    assert abs(np.median(made["chosen"][1]) - np.median(income)) < 0.15 * np.median(income)


def test_rows_of_a_prior_are_read_in_the_chosen_cells(tmp_path: Path) -> None:
    """Plans of as many cells that lie elsewhere are not taken for each other."""
    file = tmp_path / "prior.parquet"
    pq.write_table(pa.table({"x": [5, 700, 700], "y": [1, 2, 3]}), file)
    stated = Prior(table=str(file), statement="Rows that a test made up.", sha256=compute_sha256(file))
    request = Request(make_spec({"x": WEIGHT, "y": WEIGHT}, prior=stated), ("x", "y"))
    for low in (600.0, 800.0):
        cut = request.cut_cells((CutCell("x", 0.0, doubtful=False), CutCell("x", low, doubtful=False)))
        assert cut.prior is not None and cut.public.prior is not None
        codes = cut.encoding.codecs[0].encode({"x": pa.array([5, 700, 700])})[0].tolist()
        assert cut.prior.column("x").tolist() == codes
        held = replace(request, prior_rows=request.prior).cut_cells(cut.cuts).prior
        assert held is not None and held.domain == cut.encoding.domain and held.column("x")[0] == codes[0]


def test_a_prior_with_wide_bounds_is_of_use() -> None:
    """With equal cells between them nearly all rows of both tables lie in one."""
    rng = np.random.default_rng(0)
    tables = [
        pa.table({"x": np.exp(rng.normal(3, 0.4, n)).astype(int), "y": rng.integers(0, 9_999, n)})
        for n in (2_000, 5_000)
    ]
    with TemporaryDirectory() as folder:
        file = Path(folder) / "prior.parquet"
        pq.write_table(tables[1], file)
        stated = Prior(table=str(file), statement="Rows that a test made up.", sha256=compute_sha256(file))
        made = released(tables[0], make_spec({"x": WEIGHT, "y": WEIGHT}, prior=stated), 0).table["x"].to_numpy()
    real = tables[0]["x"].to_numpy()
    assert abs(np.median(made) - np.median(real)) < 2 and abs(made.std() / real.std() - 1) < 0.5


def test_disk_is_reserved_for_the_most_cells() -> None:
    """Codes of few rungs fit in a byte, and codes of the cells chosen from them may not."""
    rules = [{"never": f"x > {100_000 + 7 * i} and y < {i}"} for i in range(1, 90)]
    asked = Request(make_spec({"x": {"kind": "integer", "min": 0, "max": 10**6}, "y": WEIGHT}, rules=rules))
    sizes = (asked.encoding.domain.size("x"), bound_domain(asked.encoding).size("x"))
    assert sizes[0] <= 256 < sizes[1]
    fewer = replace(asked, spec=asked.spec.without_ladder())
    assert compute_row_bytes(asked) >= compute_row_bytes(fewer) + 3


def compute_persistence(rows: pd.DataFrame) -> float:
    """The correlation of incomes between a row and the person's next one."""
    rows = rows.sort_values(["pid", "year"], kind="stable")
    return float(rows["income"].corr(rows.groupby("pid")["income"].shift()))


def test_incomes_persist_whatever_the_bounds_of_linked_rows() -> None:
    panel = make_panel(3_000, most=5)
    made = release_panel(make_widened_panel(100), panel).to_pandas()
    real = panel.to_pandas()
    assert compute_persistence(made) > 0.8 * compute_persistence(real)  # as with bounds that fit; with equal cells 0
    assert abs(made["income"].median() - real["income"].median()) < 0.05 * real["income"].std()
    assert abs(made["income"].std() / real["income"].std() - 1) < 0.4


def release_panel(asked: Any, panel: pa.Table) -> pa.Table:
    """Synthetic rows of a panel, with seeded noise."""
    request = Request(asked, tuple(name for name in panel.column_names if name != "pid"), 1)
    access = PrivateAccess(lambda repairs=None: panel.to_batches())
    return MemoryRun(request, build_steps(request), draw_from_seed(0), access).run()["decode"]["synthetic"]


def test_a_rare_value_beside_a_frequent_one_is_not_made_up() -> None:
    """Zeros that nobody has: mass beside a spike says nothing of a value that counts show to be rare."""
    rng = np.random.default_rng(0)
    rows = pa.table({"x": np.minimum(rng.geometric(0.75, 8_000), 100), "y": rng.integers(0, 2, 8_000)})
    promise = {"epsilon": 1.0, "delta": 1e-9}
    for top in (200, 5_000):
        columns = {"x": {"kind": "integer", "min": 0, "max": top}, "y": {"kind": "integer", "min": 0, "max": 1}}
        made = released(rows, make_spec(columns, privacy=promise), 0).table["x"].to_numpy()
        assert (made == 0).mean() < 0.02
        assert abs((made == 1).mean() - 0.75) < 0.03


@pytest.mark.parametrize("width", [1, 100])
def test_bounds_may_be_far_wider_than_the_data(width: int) -> None:
    """Cents, without a step: medians and ranks stay, and tails do not reach the bounds."""
    rng = np.random.default_rng(0)
    pay = np.round(np.exp(rng.normal(7.6, 0.5, 8_000)), 2)
    rows = pa.table({"pay": pay, "bonus": np.round(pay * np.exp(rng.normal(-2, 0.4, 8_000)), 2)})
    columns = {
        "pay": {"kind": "number", "min": 0, "max": 12_000 * width, "decimals": 2},
        "bonus": {"kind": "number", "min": -4_000 * width, "max": 4_000 * width, "decimals": 2},
    }
    made = released(rows, make_spec(columns, privacy={"epsilon": 1.0, "delta": 1e-9}), 0).table.to_pandas()
    assert spearmanr(made["pay"], made["bonus"])[0] > 0.85 * spearmanr(rows["pay"], rows["bonus"])[0]
    for name in columns:
        real = rows[name].to_numpy()
        spread = np.quantile(real, 0.75) - np.quantile(real, 0.25)
        assert abs(np.median(made[name]) - np.median(real)) < 0.05 * spread
        assert abs(made[name].mean() - real.mean()) < 0.1 * spread
        assert made[name].std() < 1.5 * real.std()


def test_rungs_make_the_counts_of_their_cells_surer() -> None:
    rng, spec = np.random.default_rng(0), make_spec(columns={"x": WEIGHT})
    rungs = plan(spec).get_codec("x")
    lows = [0.0, 50.0, 90.0, *map(float, range(100, 200, 10)), 200.0, 3_000.0]  # some lie in several rungs
    cells = plan(spec, cuts=[CutCell("x", low, doubtful=False) for low in lows]).get_codec("x")
    assert isinstance(rungs, OrderedCodec)
    assert isinstance(cells, OrderedCodec)
    values = pa.table({"x": weights()["person"]}).to_batches()[0].to_pydict()
    columns = {"x": pa.array(values["x"])}
    exact = np.bincount(cells.encode(columns)[0], minlength=cells.size)
    looked = np.bincount(rungs.encode(columns)[0], minlength=rungs.size)
    errors: dict[bool, list[float]] = {False: [], True: []}
    for _ in range(200):
        noisy = exact + rng.normal(0, 100, cells.size)
        pooled = pool_rungs(noisy, 100.0, cells, rungs, look(looked + rng.normal(0, 100, rungs.size), 100.0)["x"])
        inside = slice(cells.size // 2 - 4, cells.size // 2 + 3)
        for by_rungs, counts in ((False, noisy), (True, pooled)):
            errors[by_rungs].append(float((counts - exact)[inside].sum()) ** 2)
    assert np.mean(errors[True]) < 0.7 * np.mean(errors[False])
    settled = pool_rungs(exact, 1e-3, cells, rungs, look(looked, 100.0)["x"])
    np.testing.assert_allclose(settled, exact, atol=1)


def test_an_end_of_any_column_may_be_even_or_have_a_value_that_many_rows_share() -> None:
    fit = lambda y: fit_tail_counts(y, np.full(20, 25.0), np.ones(20), ANY_COLUMN, 1.0)  # noqa: E731
    assert np.abs(fit(np.full(20, 100.0)) - 100).max() < 10
    falling = np.append(100 * 0.5 ** np.arange(19), 200.0)
    assert np.abs(fit(falling) - falling).max() < 10
