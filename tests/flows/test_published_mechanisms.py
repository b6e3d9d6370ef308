"""The mechanisms of other papers, `mst`, `privbayes`, `aim`, end to end: ledger, certificate, note, rows, readers."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

import privsyn
from privsyn.api.after_release import evaluate
from privsyn.api.ledger import LedgerView
from privsyn.api.rerun import rerun
from privsyn.base.settings import Settings
from privsyn.comparison.method import MethodInput, MethodSettings
from privsyn.comparison.methods import METHODS
from privsyn.data_contracts.release_spec import ReleaseSpec
from privsyn.engine.open_run import open_run
from privsyn.engine.step_list import run_steps
from privsyn.evaluation.coded_tables import encode_table, open_release
from privsyn.evaluation.details import ReleasedTables
from privsyn.ledgers.ledger import Ledger
from privsyn.pipelines.release_plan import plan_release, propose_release
from privsyn.publish.folder import ReleaseSummary
from privsyn.publish.noise_overview import ReleasedInputs, build_overview
from privsyn.sources.open_source import open_source
from privsyn.tasks.codecs import plan
from privsyn.tasks.estimation.noisy import read_receipts
from privsyn.tasks.privacy.noise import SeededNoise
from tests.support.evaluations import slight_settings
from tests.support.examples import keep_first
from tests.support.kept import Kept
from tests.support.releases import release_in_process
from tests.support.specs import make_spec, people

LOOKS = ("one_way_marginals", "indif_scores", "measure_marginals", "residual_scores_2", "measure_again_2")
SHARES = {
    "mst": (Fraction(1, 3),) * 3,
    "privbayes": (Fraction(2, 10), Fraction(1, 10), Fraction(7, 10)),
    "aim": tuple(Fraction(n, 300) for n in (90, 7, 63, 14, 126)),
}
every = pytest.mark.parametrize("name", SHARES)
some = pytest.mark.parametrize("name", keep_first(["aim", "mst", "privbayes"]))
"""All of them among the slow tests."""


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Kept]:
    return {name: Kept(tmp_path_factory.mktemp(name) / "home") for name in SHARES}


@pytest.fixture
def spec(kept: dict[str, Kept], name: str, monkeypatch: pytest.MonkeyPatch) -> ReleaseSpec:
    data = kept[name].begin(monkeypatch) / "people.parquet"
    pq.write_table(people(2_000), data)
    return make_spec(data=str(data), privacy={"epsilon": 4.0, "delta": 1e-9}, mechanism=options(name))


def options(name: str, **values: Any) -> dict[str, Any]:
    rounds = {"rounds": 2} if name == "aim" else {}
    return {"name": name, "synthesis": {"seed": 3}, **rounds, **values}


@pytest.fixture
def made(kept: dict[str, Kept], name: str, spec: ReleaseSpec) -> ReleaseSummary:
    return kept[name].once(lambda: release_in_process(spec, Settings()))


@every
def test_its_looks_are_charged_their_parts_and_nothing_else(name: str, spec: ReleaseSpec, made: ReleaseSummary) -> None:
    assert made.drawn == LOOKS[: len(SHARES[name])]
    rho = plan_release(spec).rho
    charged = {e.step: e.rho for e in Ledger(Settings().ledger).entries("people") if e.event == "reserve"}
    assert charged == {look: rho * share for look, share in zip(made.drawn, SHARES[name], strict=True)}
    certificate = json.loads((Path(made.released) / "certificate.json").read_text(encoding="utf-8"))
    for stage in certificate["stages"]:
        assert Fraction(stage["rho_budget"]) == charged[stage["step"]]
        assert Fraction(999_999, 10**6) < Fraction(stage["rho_spent"]) / charged[stage["step"]] <= 1
        assert {group["sensitivity"] for group in stage["groups"]} == {1} and stage["reason"]
    found = LedgerView(Settings()).verify()
    assert (found.verified, found.problems, found.certificates) == (True, (), 1)


@every
def test_what_is_measured_has_the_paper_s_shape_and_equal_noise(name: str, made: ReleaseSummary) -> None:
    queries = read_receipts(pq.read_table(Path(made.released) / "marginals/measured_receipts.parquet"))
    columns = {a for q in queries for a in q.attributes}
    assert len({q.sigma for q in queries}) == 1
    if name == "mst":
        assert (len(queries), {len(q.attributes) for q in queries}, len(columns)) == (4, {2}, 5)
    elif name == "aim":
        assert 1 <= len(queries) <= 3 and {len(q.attributes) for q in queries} == {2}
    else:
        assert 1 <= len(queries) <= 4 and {len(q.attributes) for q in queries} <= {2, 3, 4}


@every
def test_the_note_says_what_was_done(name: str, made: ReleaseSummary) -> None:
    folder = Path(made.released)
    note, entry = ((folder / file).read_text(encoding="utf-8") for file in ("README.md", "registry.yaml"))
    said = {
        "mst": "one tree that links all columns",
        "privbayes": "drawn from noisy counts that were not brought into",
        "aim": "The rows keep the relations of few columns, those that were measured",
    }
    words = {
        "mst": "tree of pairs that links all columns",
        "privbayes": "every column drawn given its parents",
        "aim": "say which few marginals are measured next",
    }
    assert [other for other in said if said[other] in note] == [name]
    assert [other for other in words if words[other] in " ".join(entry.split())] == [name]
    assert "three and more columns" not in note  # the limit of `privsyn`


@every
def test_it_is_made_again_byte_for_byte_and_found_again(name: str, spec: ReleaseSpec, made: ReleaseSummary) -> None:
    assert release_in_process(spec, Settings()).drawn == ()
    found = rerun(str(made.released), Settings(out=Path(made.released).parents[1] / "elsewhere", threads=1))
    assert (found.agrees, found.problems, found.unknown) == (True, (), ())


@pytest.mark.slow
@pytest.mark.parametrize("name", ["aim", *(pytest.param(n, marks=pytest.mark.slow) for n in SHARES if n != "aim")])
def test_it_is_read_asked_and_evaluated(name: str, spec: ReleaseSpec, made: ReleaseSummary, tmp_path: Path) -> None:
    tables = ReleasedTables.read(open_release(made.run, Settings()))
    assert tables.measured and {m.attributes for m in tables.measured} <= {m.attributes for m in tables.consistent}
    release = privsyn.open_release(made.released)
    assert abs(release.count("happy", "region").estimate.sum() - 2_000) < 200
    assert release.regress("income ~ age").estimate.iloc[-1] > 0  # simulated: rows are made anew, again and again
    assert len(evaluate(made.run, settings=slight_settings(tmp_path)).scores) == 1


@some
def test_the_run_page_shows_its_noise(name: str, spec: ReleaseSpec, made: ReleaseSummary) -> None:
    with open_run(propose_release(spec, Settings())) as run:
        shown = build_overview(ReleasedInputs.of_run(run, run_steps(run.steps, run.execute)))
    assert shown.pairs_measured > 0 and run.drawn == []


@pytest.mark.slow
@every
def test_the_method_that_is_compared_makes_the_same_rows_and_age_goes_with_income(
    name: str, spec: ReleaseSpec, tmp_path: Path
) -> None:
    own = Settings(out=tmp_path / "out", ledger=str(tmp_path / "ledger.sqlite"))
    summary = release_in_process(spec, own, noise=SeededNoise(7))
    encoding = plan(spec)
    expected = encode_table(pq.read_table(Path(summary.released) / "synthetic.parquet").to_batches(), encoding).bins
    rows = encode_table(open_source(spec.data, spec).batches(), encoding).fine
    settings = MethodSettings.of(spec)
    trial = MethodInput(rows, encoding.binning, 4.0, 1e-9, 1, SeededNoise(7), 3, settings=settings)
    found = METHODS[name].run(trial).table
    assert all(np.array_equal(a, b) for a, b in zip(found.columns, expected.columns, strict=True))
    assert np.corrcoef(found.column("age"), found.column("income"))[0, 1] > 0.3


@some
def test_rows_in_shards_and_another_number_cost_nothing(name: str, spec: ReleaseSpec, made: ReleaseSummary) -> None:
    other = spec.with_rows(rows=900, shard_rows=400)
    summary = release_in_process(other, Settings())
    assert (summary.drawn, summary.rows) == ((), 900)
    assert len(list((Path(summary.released) / "synthetic.parquet").parent.glob("synthetic/part-*.parquet"))) == 3


@some
def test_one_column_is_released(name: str, places: Path, save: Any) -> None:
    one = {
        "happy": {"kind": "boolean"},
        **{column: {"kind": "drop"} for column in ("age", "income", "region", "seen", "caseid")},
    }
    summary = release_in_process(make_spec(one, data=save(people(500)), mechanism=name), Settings())
    assert summary.drawn[:2] == ("one_way_marginals", "measure_marginals") and summary.rows > 300
    assert summary.drawn[2:] == (tuple(f"measure_again_{n}" for n in (2, 3, 4)) if name == "aim" else ())
