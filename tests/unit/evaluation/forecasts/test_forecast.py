"""A forecast sees public things only, says what it assumed, and tells what a release of such a table then has."""

from __future__ import annotations

import inspect
import json
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from scipy.stats import norm

import privsyn
from privsyn.base.errors import RequestError
from privsyn.engine.request import Request
from privsyn.evaluation.forecasts.attacker import PUBLISHED, compute_risk
from privsyn.evaluation.forecasts.forecast import (
    SURE,
    SURE_SHIFT,
    ColumnForecast,
    find_threshold,
    forecast,
    take_units_for_rows,
)
from privsyn.tasks.kernels.counting import CodeTable
from privsyn.tasks.metrics.error_sources import compute_dependency
from privsyn.tasks.metrics.marginal_distance import list_all_cliques
from tests.support.linked_tables import make_tables_spec, make_tree_content
from tests.support.specs import make_spec
from tests.unit.tasks.estimation.test_rungs import WEIGHT, weights

COLUMNS: dict[str, dict[str, Any]] = {
    "age": {"kind": "integer", "min": 18, "max": 49, "bins": 8},
    "grade": {"kind": "integer", "min": 0, "max": 7},
    "happy": {"kind": "boolean"},
    "region": {"kind": "categorical", "values": ["north", "south"]},
    "caseid": {"kind": "drop"},
}
SPEC = make_spec(COLUMNS)


def related(rows: int) -> pa.Table:
    rng = np.random.default_rng(0)
    grade = rng.integers(0, 8, rows)
    regions = np.array(["north", "south"])[rng.integers(0, 2, rows)]
    return pa.table({"age": 18 + 4 * grade, "grade": grade, "happy": grade > 3, "region": regions})


@pytest.fixture(scope="module")
def public(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A public table of related columns."""
    path = tmp_path_factory.mktemp("public") / "public.parquet"
    pq.write_table(related(2_000), path)
    return path


def test_more_epsilon_or_rows_make_it_surer_and_the_noise_is_that_of_the_spec() -> None:
    few, many = (privsyn.forecast(SPEC, rows, epsilons=[0.1, 10], seeds=1) for rows in (300, 30_000))
    assert [a.epsilon for a in few.at] == [0.1, 1, 10]
    for made in (few, many):
        lost = [a.columns[0].misplaced for a in made.at]
        assert lost[0] > lost[1] > lost[2] and made.at[0].pairs <= made.at[2].pairs
        assert made.at[0].all_pairs == 6 and {c.column for c in made.at[0].columns} == {*COLUMNS} - {"caseid"}
    assert few.at[1].columns[0].misplaced > 3 * many.at[1].columns[0].misplaced
    assert few.at[0].sample is not None and few.at[0].sample < (many.at[2].sample or 0)
    plan = {c.column: c.noise for c in many.at[1].columns}
    assert all(noise > 0 for noise in plan.values()) and many.at[1].columns[0].mean_error
    assert many.at[1].columns[2].mean_error is None


def test_pairs_of_what_values_are_rounded_to_are_no_relations_of_a_forecast() -> None:
    columns = {"wage": {"kind": "integer", "min": 0, "max": 9_999}, "happy": {"kind": "boolean"}}
    spec = make_spec(columns, mechanism={"name": "adaptive"}, synthesis={"sweeps": 1})
    made = privsyn.forecast(spec, 3_000, seeds=1).at[0]
    assert made.pairs <= made.all_pairs == 1


def test_a_public_table_and_an_earlier_release_stand_in_for_the_private_one(public: Path, places: Path) -> None:
    known = privsyn.forecast(SPEC, 2_000, public=public, epsilons=[], seeds=1)
    assert known.at[0].pairs == 3 and known.at[0].seen is not None and "public table" in known.words[1]
    released = privsyn.release(related(2_000).append_column("caseid", pa.array(range(2_000))), SPEC)
    again = privsyn.forecast(SPEC, 2_000, earlier=released.folder, epsilons=[], seeds=1)
    assert again.at[0].pairs == 3 and "earlier release" in again.words[1]
    table = released.folder / "synthetic.parquet"
    released.folder.chmod(0o700)
    table.unlink()
    pq.write_table(related(2_000), table)
    with pytest.raises(RequestError, match="was changed after its publication") as caught:
        privsyn.forecast(SPEC, 2_000, earlier=released.folder, epsilons=[], seeds=1)
    assert caught.value.field == "forecast.earlier"


def test_a_public_table_with_full_cells_has_them_cut_as_a_release_does(tmp_path: Path) -> None:
    rows = weights(3_000)
    pq.write_table(rows, tmp_path / "public.parquet")
    spec = make_spec(dict.fromkeys(rows.column_names, WEIGHT), synthesis={"sweeps": 1})
    made = privsyn.forecast(spec, 3_000, public=tmp_path / "public.parquet", epsilons=[], seeds=1).at[0]
    strongest = max(made.relations, key=lambda relation: relation.strength)
    assert set(strongest.columns) == {"person", "household"} and strongest.strength > 0.3


def test_it_says_which_relations_are_measured_and_in_how_many_codes(public: Path) -> None:
    made = privsyn.forecast(SPEC, 2_000, public=public, epsilons=[0.1], seeds=2)
    strong, *_, weak = made.asked.relations
    assert made.asked.epsilon == 1 and len(made.asked.relations) == 6
    assert {*strong.columns} == {"age", "grade"} and strong.measured == 1 and strong.strength > 0.8
    assert "region" in weak.columns and weak.measured == 0 and weak.strength < 0.05
    codes = {column.column: column.codes for column in made.asked.columns}
    assert strong.codes == tuple(codes[name] for name in strong.columns) and codes["happy"] == 2
    shown = made.relation_rows()[0]
    assert shown == ["age × grade", shown[1], "yes", f"{codes['age']:g} × {codes['grade']:g}"]
    least = {column.column: column.codes for column in made.at[0].columns}
    assert least["age"] < codes["age"]  # less budget pays for fewer
    guess = privsyn.forecast(SPEC, 2_000, epsilons=[], seeds=1)
    assert guess.asked.relations == () and guess.asked.columns[0].codes > 2


def test_a_public_table_stands_in_where_columns_have_levels(public: Path) -> None:
    half = {"derive": {"happy": "region == 'north'"}}
    columns = {**COLUMNS, "region": {**COLUMNS["region"], "levels": ["happy"]}}
    made = privsyn.forecast(make_spec(columns, rules=[half]), 300, public=public, epsilons=[], seeds=1)
    assert {"region", "age"} <= {c.column for c in made.at[0].columns}
    independent = privsyn.forecast(make_spec(COLUMNS, preset="0.3"), 2_000, strength=0, epsilons=[], seeds=1)
    assert independent.at[0].pairs == 0 and independent.at[0].seen is None


def test_it_opens_no_private_table_and_takes_none(tmp_path: Path) -> None:
    table = tmp_path / "people.parquet"
    table.write_bytes(b"whoever reads this fails")
    spec = SPEC.model_copy(update={"data": str(table)})
    assert privsyn.forecast(spec, 50, epsilons=[], seeds=1).at[0].epsilon == 1
    with pytest.raises(RequestError, match="the spec's own table, which is private"):
        privsyn.forecast(spec, 50, public=table)
    assert {*inspect.signature(privsyn.forecast).parameters} == {
        "spec", "rows", "epsilons", "earlier", "public", "strength", "seeds", "progress"
    }  # fmt: skip


@pytest.mark.parametrize(
    ("asked", "names"),
    [
        ({"rows": 0}, "rows"),
        ({"rows": 10_000_000}, "rows"),
        ({"rows": 9, "seeds": 0}, "seeds"),
        ({"rows": 9, "epsilons": [0.0]}, "epsilons"),
        ({"rows": 9, "epsilons": [1e-12]}, "privacy.epsilon"),
        ({"rows": 9, "strength": 2.0}, "strength"),
        ({"rows": 9, "strength": 0.5, "earlier": "x"}, "earlier"),
        ({"rows": 9, "earlier": "no-such-release"}, "earlier"),
        ({"rows": 9, "public": "no-such-table.csv"}, "public"),
    ],
)
def test_a_wrong_argument_is_named(asked: dict[str, object], names: str) -> None:
    with pytest.raises(RequestError) as refused:
        privsyn.forecast(SPEC, **asked)  # type: ignore[arg-type]
    assert str(refused.value).startswith(f"{names}")


def test_it_is_drawn_shown_and_json(tmp_path: Path) -> None:
    made = privsyn.forecast(SPEC, 200, epsilons=[0.2], seeds=1)
    made.plot(tmp_path / "f.svg")
    assert "Forecast for about 200 rows" in (tmp_path / "f.svg").read_text()
    with pytest.raises(RequestError, match=r"neither \.png nor \.svg"):
        made.plot(tmp_path / "f.gif")
    content = json.loads(json.dumps(made.as_json()))
    assert content["rows"] == 200 and len(content["at"]) == 2 and content["at"][0]["columns"][0]["noise"] > 0
    assert "random sample" in made._repr_html_() and "200" in repr(made)


def test_one_row_and_one_release_are_named_as_one() -> None:
    made = privsyn.forecast(SPEC, 1, epsilons=[1], seeds=1)
    assert made.size == "1 row" and "One simulated release of 1 row." in made.words[1]
    single = privsyn.forecast(make_spec({"happy": {"kind": "boolean"}}), 100, epsilons=[1], seeds=1)
    assert single.epsilon_rows()[0][4] == "none"  # of no pairs


def test_strength_is_the_share_of_rows_out_of_place_and_as_many_pairs_reach_the_threshold() -> None:
    request = Request(make_spec({"a": {"kind": "boolean"}, "b": {"kind": "boolean"}}))
    codes = np.array([0, 1] * 50, dtype=np.uint8)
    bins = CodeTable(request.encoding.domain, (codes, codes))
    assert compute_dependency(bins, list_all_cliques(bins.domain, 2)) / 2 == pytest.approx([0.5])
    found = np.array([0.1, 0.4, 0.2, 0.3])
    assert find_threshold(found, 0.5) == pytest.approx((0.2 * 0.3) ** 0.5)
    assert find_threshold(found, 0.0) is None and find_threshold(found, 1e-6) == pytest.approx((0.3 * 0.4) ** 0.5)
    assert find_threshold(found, 1.0) == pytest.approx(0.1)


def test_with_a_prior_the_rows_are_like_the_priors_and_made_up_ones_are_refused(public: Path) -> None:
    digest = sha256(public.read_bytes()).hexdigest()
    stated = {"table": str(public), "sha256": digest, "statement": "Made up for this test."}
    spec = make_spec(COLUMNS, prior=stated, preset="0.3")
    known = privsyn.forecast(spec, 300, epsilons=[], seeds=1)
    alone = privsyn.forecast(make_spec(COLUMNS, preset="0.3"), 300, public=public, epsilons=[], seeds=1)
    assert "spec's prior, which cannot fit better" in known.words[1]
    assert known.at[0].columns[0].misplaced < alone.at[0].columns[0].misplaced / 2
    assert known.at[0].sample is not None and known.at[0].sample > (alone.at[0].sample or 0)
    with pytest.raises(RequestError, match=r"^strength: made-up rows are not like the spec's prior"):
        privsyn.forecast(spec, 300, strength=0.5)


def test_of_made_up_rows_no_error_of_a_mean_is_known_where_values_may_be_null(public: Path) -> None:
    spec = make_spec({**COLUMNS, "age": COLUMNS["age"] | {"nullable": True}})
    made_up = privsyn.forecast(spec, 300, epsilons=[], seeds=1)
    known = privsyn.forecast(spec, 300, public=public, epsilons=[], seeds=1)
    ages, grades = ([f.at[0].columns[i].mean_error for f in (made_up, known)] for i in (0, 1))
    assert ages[0] is None and None not in (ages[1], *grades) and "may be null" in made_up.words[3]
    assert [f.epsilon_rows()[0][4].startswith("~") for f in (made_up, known)] == [True, False]


def test_further_tables_have_forecasts_of_their_own_columns_and_their_pairs_with_those_above() -> None:
    """With their part of the budget, and without the rules about several rows."""
    rules = [{"never": "dose == 2 and previous.dose == 2"}]
    spec = make_tables_spec(make_tree_content(rules=rules), rules=[{"never": "visits.age < previous.age"}])
    made = privsyn.forecast(spec, 400, epsilons=[1], seeds=1)
    assert "covers the first two tables" in made.assumption and [*made.further_tables] == ["drugs", "buys"]
    drugs, buys = made.further_tables.values()
    assert [c.column for c in drugs.at[0].columns] == ["day", "dose"]
    assert [c.column for c in buys.at[0].columns] == ["week", "online"]
    # five columns above drugs and one above buys, whose pairs are made already
    assert (drugs.at[0].all_pairs, buys.at[0].all_pairs) == (2 * 5 + 1, 2 * 1 + 1)
    assert "a row of drugs with the columns above it" in drugs.assumption and drugs.unit == "persons"
    assert [*made.as_json()["further_tables"]] == ["drugs", "buys"] and "<h4>drugs</h4>" in made._repr_html_()
    alone = privsyn.forecast(take_units_for_rows(spec.table_pairs["drugs"]), 400, epsilons=[1], seeds=1)
    noise = {c.column: c.noise for c in alone.at[0].columns}
    assert all(1.5 < c.noise / noise[c.column] < 2 for c in drugs.at[0].columns)  # a third of rho: sqrt(3)


def test_a_column_is_sure_only_where_its_mean_is_near_too() -> None:
    assert ColumnForecast("wages", 1.0, 0.02, 9.0, mean_shift=0.04).words == "sure"
    assert ColumnForecast("wages", 1.0, 0.02, 9.0, mean_shift=0.2).words == "rough"  # 318 where 230 is true
    assert ColumnForecast("wages", 1.0, 0.02, 9.0, mean_shift=0.4).words == "lost"
    assert ColumnForecast("region", 1.0, 0.02, None).words == "sure"


def test_the_error_of_a_mean_day_is_in_days() -> None:
    """Answers about moments are in seconds."""
    day = {"kind": "date", "min": "2020-01-01", "max": "2023-12-31"}
    made = forecast(make_spec({"day": day, "age": {"kind": "integer", "min": 0, "max": 99}}), 2_000, seeds=1)
    columns = {c.column: c for c in made.at[0].columns}
    days, age = columns["day"], columns["age"]
    assert days.in_days and not age.in_days and 0 < (days.mean_error or 0) < 400
    assert [row[1].endswith(" days") for row in made.column_rows() if row[0] in ("day", "age")] == [True, False]


def test_a_mean_that_few_misplaced_rows_move_far_is_seen(tmp_path: Path) -> None:
    """Of 3,000 rows all are in the first of 50 bins: 1 % of the rows in far bins are few, and move the mean far."""
    columns = {"wages": {"kind": "integer", "min": 0, "max": 9_999, "bins": 50}}
    wages = np.append(np.random.default_rng(3).integers(0, 200, 2_990), np.arange(300, 2_300, 200))
    pq.write_table(pa.table({"wages": wages}), tmp_path / "public.parquet")
    made = privsyn.forecast(make_spec(columns), 3_000, public=tmp_path / "public.parquet", epsilons=[])
    (column,) = made.asked.columns
    assert column.misplaced <= SURE and column.mean_shift is not None and column.mean_shift > SURE_SHIFT
    assert column.words != "sure"


def test_other_epsilons_than_the_spec_s_are_simulated_half_as_often_and_said_so() -> None:
    steps: list[int] = []
    made = forecast(SPEC, 200, epsilons=[0.5, 2], seeds=2, progress=lambda done, total: steps.append(total))
    assert set(steps) == {4}  # twice at the spec's own, once at each other
    assert made.words[1].endswith(
        "Means over 2 simulated releases of 200 rows; at other epsilons than the spec's, over 1."
    )


@pytest.mark.parametrize("epsilon", [0.2, 1.0, 5.0])
def test_the_best_guess_is_that_of_the_likelihood_ratio(epsilon: float) -> None:
    found, rng = compute_risk(epsilon, 1e-9), np.random.default_rng(0)
    for guess in found.guesses:
        there = rng.random(400_000) < guess.prior
        seen = rng.standard_normal(there.size) + found.mu * there
        odds = guess.prior / (1 - guess.prior) * np.exp(found.mu * seen - found.mu**2 / 2)
        assert np.mean((odds > 1) == there) == pytest.approx(guess.after, abs=0.003)
        belief = odds[there] / (1 + odds[there])
        assert np.median(belief) == pytest.approx(guess.typical, rel=0.05)
        assert np.mean(belief > guess.most) == pytest.approx(found.beyond, abs=0.001)


def test_nobody_learns_more_than_the_promise_allows() -> None:
    last = 0.0
    for epsilon in (0.01, 0.1, 1.0, 3.0, 10.0):
        found = compute_risk(epsilon, 1e-6)
        for guess in found.guesses:
            assert guess.before <= guess.after <= guess.any_promise <= 1 and guess.typical <= guess.most
        assert found.found <= np.exp(epsilon) * 0.01 + 1e-6 and found.found > last
        last = found.found
    half = compute_risk(1.0, 1e-9).guesses[0]
    assert half.any_promise == pytest.approx(np.e / (1 + np.e), abs=1e-6)
    assert half.after == pytest.approx(float(norm.cdf(compute_risk(1.0, 1e-9).mu / 2)))


def test_the_table_of_epsilons_takes_those_of_a_spec() -> None:
    asked = make_spec(privacy={"epsilon": 3.0, "delta": 1e-7})
    found = privsyn.epsilon(asked, epsilons=[5, 0.5, 3.0])
    assert found["epsilon"].tolist() == [0.5, 3.0, 5.0] and set(found["delta"]) == {1e-7}
    even, tenth, _ = compute_risk(3.0, 1e-7).guesses
    row = found.iloc[1]
    assert (row.guess, row.any_promise, row.most_10) == (even.after, even.any_promise, tenth.most)
    assert len(found.attrs["published"]) == len(PUBLISHED)
    assert len(privsyn.epsilon()) == 7
    with pytest.raises(privsyn.RequestError, match="cannot be accounted"):
        privsyn.epsilon(epsilons=[-1.0])
