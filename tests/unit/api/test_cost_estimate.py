"""Estimates of a release: which parts they have, what grows with the rows, what they refuse, and that nothing stays."""

from __future__ import annotations

import json
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import privsyn
from privsyn.api.cost_estimate import Estimate, _choose_factor, _compute_growth
from privsyn.api.rehearsal import Cost, Rehearsal, _AssumedEngine
from privsyn.base.errors import RequestError
from privsyn.engine.request import Request
from privsyn.evaluation.forecasts.stand_in import AssumedRows, ScaledRows, assume_chances, assume_rows
from privsyn.pipelines.registry import plan_release
from privsyn.tasks.codecs import plan
from privsyn.tasks.codecs.cells import CutCell
from privsyn.tasks.estimation.recode import AttributeRecode
from tests.support.commands import privsyn as run_command
from tests.support.linked_tables import make_tables_spec, make_tree_content
from tests.support.places import ROOT
from tests.support.specs import PEOPLE_YAML, make_spec


@pytest.fixture(scope="module")
def few() -> Estimate:
    return privsyn.estimate(make_spec(), 2_000)


@pytest.fixture(scope="module")
def many() -> Estimate:
    return privsyn.estimate(make_spec(), 2_000_000_000, workers=3)


def test_each_step_is_estimated_in_its_order_and_all_of_them_are_summed(few: Estimate) -> None:
    steps = [step.name.replace("_", " ") for step in plan_release(make_spec()).steps]
    assert [s.step for s in few.steps] == ["start", "before the first step", *steps, "publish"]
    assert few.whole.cpu == pytest.approx(sum(s.cpu for s in few.steps)) and few.rows_out == few.rows == 2_000
    assert few.whole.disk_mb == pytest.approx(sum(s.disk_mb for s in few.steps))
    assert few.whole.peak_mb == max(s.peak_mb for s in few.steps)
    assert len(few.step_rows()) == len(few.steps) + 1 and {len(row) for row in few.step_rows()} == {5}
    assert json.loads(json.dumps(few.as_json()))["whole"]["cpu"] == few.whole.cpu
    assert "made-up rows" in few.words[0] and "<td>" in few._repr_html_()


@pytest.mark.slow
def test_what_handles_rows_grows_with_them(few: Estimate, many: Estimate) -> None:
    one, other = ({s.step: s for s in made.steps} for made in (few, many))
    for name in ("encode", "recode rows", "synthesize", "decode", "publish"):
        assert other[name].disk_mb > 10_000 * one[name].disk_mb / 1_000
    for name in ("encode", "synthesize", "decode"):
        assert other[name].cpu + other[name].worker_cpu > one[name].cpu
    assert other["compress domain"].disk_mb < 10 * one["compress domain"].disk_mb


@pytest.mark.slow
def test_merged_codes_and_single_values_are_counted_in_the_made_up_rows() -> None:
    """Of their codes no chances are assumed."""
    columns = {"paid": {"kind": "integer", "min": 0, "max": 5_000}, "ok": {"kind": "boolean"}}
    found = privsyn.estimate(make_spec(columns, workload=[{"columns": ["paid", "ok"]}]), 20_000)
    assert {"value counts", "measure sets"} < {s.step for s in found.steps}


def test_of_a_column_whose_cells_were_chosen_made_up_rows_are_counted() -> None:
    """Chances are assumed of rungs, and the codes of chosen cells are others."""
    spec = make_spec({"x": {"kind": "integer", "min": 0, "max": 9_999}, "y": {"kind": "boolean"}})
    whole, cut = plan(spec), plan(spec, cuts=[CutCell("x", low, False) for low in (0, 10, 20, 5_000)])
    engine = _AssumedEngine(assume_chances(whole, 0.5, 0), 1_000)
    stored: Any = SimpleNamespace(files=(), num_rows=10)
    kinds = []
    for domain in (whole.domain, cut.domain):
        ones = {a: np.ones(domain.size(a)) for a in domain.attributes}
        engine.recode = {a: AttributeRecode(np.arange(len(y), dtype=np.int32), y > 0, y, y, y) for a, y in ones.items()}
        kinds.append(type(engine.rows(stored, domain, padded=True).assumed))
    assert kinds == [AssumedRows, ScaledRows]


def test_a_rehearsal_makes_no_more_rows_than_a_shard_has(tmp_path: Path) -> None:
    columns = {"a": {"kind": "boolean"}, "b": {"kind": "boolean"}}
    spec = make_spec(columns, synthesis={"shard_rows": 50_000})
    assert Rehearsal(spec, tmp_path, 10**7, 10**7).rows_made == 50_000
    assert Rehearsal(make_spec(columns), tmp_path, 10**9, 10**9).rows_made == 2_000_000


def test_files_of_rows_that_are_made_grow_with_those_and_others_with_the_table(tmp_path: Path) -> None:
    rehearsal = Rehearsal(make_spec(), tmp_path, 5_000_000, 1_000_000)
    assert rehearsal.rows_in == rehearsal.rows_made == 400_000
    assert _compute_growth(rehearsal, 400_000, makes_rows=True) == 2.5
    assert _compute_growth(rehearsal, 400_000, makes_rows=False) == 12.5
    assert _compute_growth(rehearsal, 24, makes_rows=True) == 1.0


def test_where_twice_the_rehearsed_marginals_are_all_scored_pairs_these_have_noise() -> None:
    """Of many rows all pairs of few columns are worth their noise, and the largest ones come last."""
    rehearsal: Any = SimpleNamespace(related=("measure_marginals", "make_consistent"), pairs=190, pair_cells=350_000)
    some, most = (Cost(1.0, 0.0, cells=100_000, marginals=n) for n in (94, 95))
    assert _choose_factor(rehearsal, "measure_marginals", some) == 2.0
    assert _choose_factor(rehearsal, "measure_marginals", most) == 3.5
    assert _choose_factor(rehearsal, "measure_marginals", Cost(1.0, 0.0, cells=400_000, marginals=190)) == 1.0
    assert _choose_factor(rehearsal, "make_consistent", Cost(1.0, 0.0)) == 2.0
    assert _choose_factor(rehearsal, "encode", Cost(1.0, 0.0)) == 1.0


@pytest.mark.slow
def test_a_release_that_makes_no_rows_is_estimated() -> None:
    columns = {"a": {"kind": "boolean"}, "b": {"kind": "boolean"}}
    found = privsyn.estimate(make_spec(columns, synthesis={"rows": 0}), rows=1_000)
    assert found.rows_out == 0 and found.whole.cpu > 0
    assert " 1 pair was scored, " in found.words[0]


def test_estimates_of_the_page_were_within_a_factor_of_two_of_what_was_found() -> None:
    """Time, memory and disk of every release in its tables."""
    page = (ROOT / "docs" / "operations" / "scale.md").read_text(encoding="utf-8")
    pairs = re.findall(r"\| ([\d.,]+) / ([\d.,]+) (?:s|MB)(?= \|)", page.partition("## What a release will take")[2])
    ratios = [float(guess.replace(",", "")) / float(real.replace(",", "")) for guess, real in pairs]
    assert len(ratios) >= 18 and all(0.5 <= ratio <= 2 for ratio in ratios), ratios


@pytest.mark.slow
def test_further_tables_are_estimated_each_by_its_steps() -> None:
    rules = [{"never": "dose == 2 and previous.dose == 2"}]
    found = privsyn.estimate(make_tables_spec(make_tree_content(rules=rules)), 2_000)
    steps = [s.step for s in found.steps]
    assert {"encode", "drugs: encode", "drugs: measure marginals", "buys: publish"} < {*steps}
    assert steps.count("start") == 1 and len(steps) == len({*steps})
    assert found.columns == 9 and any(
        word.startswith("drugs: Each person is assumed to have one record") for word in found.words
    )
    assert found.whole.cpu == pytest.approx(sum(s.cpu for s in found.steps))


@pytest.mark.slow
def test_workers_count_and_make_parts_of_large_tables(few: Estimate, many: Estimate) -> None:
    assert not any(s.worker_cpu for s in few.steps) and few.workers == 0 and many.workers == 3
    steps = {s.step: s for s in many.steps}
    working = {name for name, s in steps.items() if s.worker_cpu}
    assert {"one way marginals", "indif scores", "encode", "recode rows", "synthesize", "decode"} < working
    assert not {"before the first step", "make consistent", "publish"} & working
    assert steps["encode"].wall == pytest.approx(steps["encode"].worker_cpu / 3)
    assert 0 < steps["encode"].cpu < steps["encode"].worker_cpu / 10  # waiting, and handing on what was made
    assert "CPU of workers" in many.headings() and "CPU of workers" not in few.headings()


@pytest.mark.parametrize(("rows", "workers", "words"), [(0, 0, "rows"), (10**13, 0, "rows"), (10, -1, "workers")])
def test_numbers_that_cannot_be_are_refused_in_words(rows: int, workers: int, words: str) -> None:
    with pytest.raises(RequestError, match=words):
        privsyn.estimate(make_spec(), rows, workers=workers)


def test_the_command_reads_no_table_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    places = {"PRIVSYN_OUT": "out", "PRIVSYN_LEDGER": "ledger.sqlite", "PRIVSYN_RELEASED_STORE": "store", "TMPDIR": "t"}
    for name, place in places.items():
        monkeypatch.setenv(name, str(tmp_path / place))
    (tmp_path / "t").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "t"))
    spec = tmp_path / "people.yaml"
    spec.write_text(PEOPLE_YAML)
    done = run_command("estimate", spec, "--rows-about", 500, "--json")
    assert done.exit_code == 0, done.stderr
    assert json.loads(done.stdout)["rows"] == 500 and "Estimate for about 500 rows" in done.stderr
    assert "nothing was charged" in done.stderr
    assert sorted(p.name for p in tmp_path.rglob("*")) == ["people.yaml", "t"]
    refused = run_command("estimate", spec)
    assert refused.exit_code == 2 and "--rows-about" in refused.stderr


def test_assumed_counts_are_those_of_made_up_rows() -> None:
    encoding, rows = Request(make_spec()).encoding, 200_000
    made = assume_rows(encoding, rows, 0.9, 0)
    assumed = AssumedRows.of(encoding.domain, rows, assume_chances(encoding, 0.9, 0))
    names = encoding.domain.attributes
    for clique in ((), names[:1], names[:2], names[:3]):
        (real,), (expected,) = made.counts([clique]), assumed.counts([clique])
        assert real.shape == expected.shape and expected.sum() == pytest.approx(rows, rel=0.01)
    ordered = [
        c.attribute
        for c in encoding.codecs
        if c.in_order and int(c.groups.max()) + 1 == sum(b - a for a, b in c.in_order)
    ]
    (real,), (expected,) = made.counts([tuple(ordered[:2])]), assumed.counts([tuple(ordered[:2])])
    assert np.abs(real - expected).sum() / rows < 0.1  # PLACES of the hidden quantity, and chance
