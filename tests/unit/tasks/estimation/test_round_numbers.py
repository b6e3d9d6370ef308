"""What people round to without being named: counted alone with a small part of the budget, kept where it stands out."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from benchmarks.relations import PublicTable, release_in_memory
from privsyn.data_contracts.columns import IntegerColumn, NumberColumn
from privsyn.data_contracts.domain import Domain
from privsyn.engine.inputs import PrivateAccess
from privsyn.engine.memory import MemoryRun
from privsyn.engine.request import Request
from privsyn.pipelines.registry import build_steps
from privsyn.tasks.codecs.cells import list_counted_alone
from privsyn.tasks.estimation import noisy
from privsyn.tasks.estimation.recode import AttributeRecode, weigh_by_chance
from privsyn.tasks.privacy.noise import SeededNoise
from privsyn.tasks.steps.measure_marginals import ROUNDING_WEIGHT, plan_one_ways
from tests.unit.tasks.estimation.test_single_values import plan_one

PAY = {"kind": "integer", "min": 0, "max": 250_000}


@pytest.mark.parametrize(
    ("column", "rounded"),
    [
        (IntegerColumn(**PAY), (10, 100, 1000)),
        (IntegerColumn(kind="integer", min=0, max=20_000), (10, 100)),
        (IntegerColumn(kind="integer", min=0, max=1_000), ()),
        (IntegerColumn(kind="integer", min=0, max=250_000, heaps=(500,)), ()),
        (NumberColumn(kind="number", min=0, max=20, step=0.01), (0.1,)),
        (NumberColumn(kind="number", min=0, max=200, decimals=1), (1.0,)),
        (NumberColumn(kind="number", min=0, max=200), ()),
    ],
)
def test_round_numbers_have_many_multiples_between_the_bounds(column: Any, rounded: tuple[float, ...]) -> None:
    assert column.round_numbers() == pytest.approx(rounded)


def test_codes_are_disjoint_and_zeros_and_bounds_are_none_of_them() -> None:
    pay, heaps = plan_one(PAY).codecs
    codes, _ = heaps.encode({"x": pa.array([0, 7, 20, 300, 4_000, 123_456, 250_000])})
    assert [heaps.labels()[code] for code in codes] == [
        "(no number)",
        "none",
        "10",
        "100",
        "1000",
        "none",
        "(no number)",
    ]
    assert heaps.chances is not None and heaps.chances == pytest.approx([0.9, 0.09, 0.009, 0.001, 0])
    assert pay.helpers == (heaps.attribute,)


def test_rounding_has_a_hundredth_of_a_column_and_all_costs_rho() -> None:
    domain = Domain.of({"pay": 66, "pay (rounded to)": 5})
    pay, rounded = plan_one_ways(domain, Fraction(1, 50), 1, equal=False, rounding={"pay (rounded to)"})
    spent = [1 / (2 * float(q.sigma) ** 2) for q in (pay, rounded)]
    assert spent[1] / spent[0] == pytest.approx(ROUNDING_WEIGHT / 66 ** (2 / 3), rel=0.01)
    assert sum(spent) <= 1 / 50


def given(rounds: bool) -> PublicTable:
    rng = np.random.default_rng(3)
    pay = rng.gamma(2.0, 20_000, 20_000).clip(1, 249_999)
    pay = np.where(rng.random(20_000) < 0.4, 0, np.round(pay / 100) * 100 if rounds else np.round(pay))
    table = pa.table({"pay": pay.astype(np.int64), "age": rng.integers(0, 90, 20_000)})
    return PublicTable("pay", table, {"pay": PAY, "age": {"kind": "integer", "min": 0, "max": 99}})


@pytest.mark.parametrize("rounds", [True, False])
def test_released_values_are_as_round_as_the_real_ones(rounds: bool) -> None:
    real = given(rounds)
    made = release_in_memory(real, real.spec(1.0), 0)
    for heap in (10, 100, 1000):
        one, other = (np.mean(t["pay"].to_numpy() % heap == 0) for t in (real.table, made))
        assert other == pytest.approx(one, abs=0.03)
    assert np.mean(made["pay"].to_numpy() == 0) == pytest.approx(0.4, abs=0.02)


def test_what_values_are_rounded_to_is_measured_once_and_related_to_nothing() -> None:
    real = given(rounds=True)
    request = Request(real.spec(1.0), tuple(real.table.column_names), 1)
    asked: dict[str, list[tuple[str, ...]]] = {}
    noise = SeededNoise(0)

    def draw(step: Any, queries: Any) -> noisy.Answers:
        asked[step.name] = [q.attributes for q in queries]
        return noisy.draw_for_queries(queries, lambda each: [noise.draw(s, c) for s, c in each])

    access = PrivateAccess(lambda repairs=None: real.table.to_batches(65_536))
    MemoryRun(request, build_steps(request), draw, access).run()
    looks = [name for name, cliques in asked.items() for clique in cliques if "pay (rounded to)" in clique]
    assert looks == ["one_way_marginals"]
    assert ("pay", "age") in asked["indif_scores"]
    assert list_counted_alone(request.encoding.binning) == ["pay (rounded to)"]


@pytest.mark.parametrize("decimals", [2, 1])
def test_relations_go_on_inside_cells_whether_values_are_rounded_or_not(decimals: int) -> None:
    """Three bins of 10 hold all rows, so that values drawn apart inside them have a correlation of .89.

    A row or two that noise puts far beyond them would move the correlation of all by more than what is asked here.
    """
    x = np.round(np.random.default_rng(5).uniform(0, 30, 20_000), decimals)
    column = {"kind": "number", "min": 0.0, "max": 320.0, "step": 0.01}
    given = PublicTable("x", pa.table({"x": x, "y": x}), {"x": column, "y": column})
    made = release_in_memory(given, given.spec(50.0), 1).to_pandas()
    inside = made[(made["x"] <= 30) & (made["y"] <= 30)]
    assert len(inside) > 0.999 * len(made)
    assert np.corrcoef(inside["x"], inside["y"])[0, 1] > 0.96


@pytest.mark.parametrize("low", [0, -300])
def test_at_even_places_the_multiples_of_a_heap_are_equally_likely_and_rise(low: int) -> None:
    """A cell of 250 numbers has 225 multiples of 1 alone, 22 or 23 of 10 alone and 2 or 3 of 100."""
    plan = plan_one({"kind": "integer", "min": low, "max": low + 15_999})
    pay, heaps = plan.codecs
    cell = int(pay.encode({"x": pa.array([low + 410])})[0][0])
    first, last = (int(side[cell]) for side in pay.value_bounds()["x"])
    inside = np.arange(first, last + 1)
    places = (np.arange(45_000) + 0.5) / 45_000
    for level, heap in enumerate((1, 10, 100)):
        wanted = {heaps.attribute: np.full(len(places), level)}
        made = pay.decode_rounded_at(np.full(len(places), cell), places, np.random.default_rng(1), wanted)["x"]
        larger = heap * 10 if heap < 100 else 1_000
        values, counts = np.unique(made.to_numpy(), return_counts=True)
        assert values.tolist() == [v for v in inside if v % heap == 0 and v % larger]
        assert counts == pytest.approx(np.full(len(values), len(places) / len(values)), rel=0.35)
        assert np.diff(made.to_numpy()).min() >= -2 * heap  # numbers of one step come in any order


BY_CHANCE = np.array([0.9, 0.09, 0.01, 0.0])


def weigh(counts: list[float], sigma: float) -> np.ndarray:
    y = np.array(counts)
    same = np.zeros(4, dtype=np.int32)
    found = weigh_by_chance(AttributeRecode(same, same == 0, BY_CHANCE, y, np.full(4, sigma**2)), BY_CHANCE)
    assert found.size == 1
    return found.weight


def test_shares_that_noise_could_have_made_are_those_of_chance() -> None:
    assert weigh([880.0, 110.0, 25.0, 40.0], 20.0) == pytest.approx(BY_CHANCE)
    assert weigh([-5.0, 1.0, 0.0, 0.0], 20.0) == pytest.approx(BY_CHANCE)
