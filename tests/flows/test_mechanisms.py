"""Every mechanism but `privsyn` end to end: ledger, certificate, note, rows, and all that reads a release."""

from __future__ import annotations

import json
import re
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

import privsyn
from privsyn.api.after_release import evaluate
from privsyn.api.ledger import LedgerView
from privsyn.api.release import propose_release
from privsyn.base.settings import Settings
from privsyn.data_contracts.release_spec import ReleaseSpec
from privsyn.engine.open_run import open_run
from privsyn.engine.request import Request
from privsyn.engine.step import run_steps
from privsyn.evaluation.coded_tables import encode_table, open_release
from privsyn.evaluation.comparison.compare_methods import METHODS
from privsyn.evaluation.comparison.method import MethodInput, MethodSettings
from privsyn.evaluation.details import ReleasedTables
from privsyn.ledgers.ledger import Ledger
from privsyn.pipelines.registry import plan_release
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
from tests.support.specs import make_spec, people, with_public_inputs

ONE_WAYS, SCORES, MARGINALS = "one_way_marginals", "indif_scores", "measure_marginals"
LOOKS: dict[str, dict[str, Fraction]] = {
    "independent": {ONE_WAYS: Fraction(1)},
    "mst": dict.fromkeys((ONE_WAYS, SCORES, MARGINALS), Fraction(1, 3)),
    "privbayes": {ONE_WAYS: Fraction(2, 10), SCORES: Fraction(1, 10), MARGINALS: Fraction(7, 10)},
    "aim": {
        look: Fraction(n, 300)
        for look, n in zip(
            (ONE_WAYS, SCORES, MARGINALS, "residual_scores_2", "measure_again_2"), (90, 7, 63, 14, 126), strict=True
        )
    },
    "adaptive": {
        ONE_WAYS: Fraction(25, 100),
        SCORES: Fraction(2, 100),
        MARGINALS: Fraction(73, 100) * Fraction(4, 10),
        "residual_scores_2": Fraction(73, 100) * Fraction(6, 10) / 5,
        "measure_again_2": Fraction(73, 100) * Fraction(6, 10) * Fraction(4, 5),
    },
    "prior": dict.fromkeys((ONE_WAYS, MARGINALS, "measure_groups", "measure_in_groups"), Fraction(1, 4)),
}
"""Mechanism -> its looks in order, with their shares of the budget."""
OPTIONS: dict[str, dict[str, Any]] = {
    "aim": {"rounds": 2},
    "adaptive": {"rounds": 1, "rounds_share": 0.6, "scores_share": 0.2},
    "prior": {"group": ["region"]},
}
STATEMENT = "People of another register, who published their rows themselves."
every = pytest.mark.parametrize("name", LOOKS)
some = pytest.mark.parametrize("name", keep_first(["aim", *(name for name in LOOKS if name != "aim")]))
"""All of them among the slow tests."""


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Kept]:
    return {name: Kept(tmp_path_factory.mktemp(name) / "home") for name in LOOKS}


@pytest.fixture
def spec(kept: dict[str, Kept], name: str, monkeypatch: pytest.MonkeyPatch) -> ReleaseSpec:
    home = kept[name].begin(monkeypatch)
    pq.write_table(people(2_000), home / "people.parquet")
    pq.write_table(people(1_500, seed=1).drop_columns(["caseid"]), home / "last_year.parquet")
    asked = make_spec(
        data=str(home / "people.parquet"),
        privacy={"epsilon": 4.0, "delta": 1e-9},
        formats=["parquet", "csv"],
        mechanism={"name": name, "synthesis": {"seed": 3}, **OPTIONS.get(name, {})},
        **({"prior": {"table": "last_year.parquet", "statement": STATEMENT}} if name == "prior" else {}),
    )
    return with_public_inputs(asked, home)


@pytest.fixture
def made(kept: dict[str, Kept], name: str, spec: ReleaseSpec) -> ReleaseSummary:
    return kept[name].once(lambda: release_in_process(spec, Settings()))


@every
def test_its_looks_are_charged_their_parts_and_nothing_else(name: str, spec: ReleaseSpec, made: ReleaseSummary) -> None:
    rho = plan_release(spec).rho
    entries = Ledger(Settings().ledger).entries("people")
    charged = {e.step: e.rho for e in entries if e.event == "reserve"}
    assert made.drawn == tuple(charged) and charged == {look: rho * share for look, share in LOOKS[name].items()}
    assert len(entries) == 2 * len(charged)  # reserved and spent
    certificate = json.loads((Path(made.released) / "certificate.json").read_text(encoding="utf-8"))
    for stage in certificate["stages"]:
        assert Fraction(stage["rho_budget"]) == charged[stage["step"]]
        assert Fraction(999_999, 10**6) < Fraction(stage["rho_spent"]) / charged[stage["step"]] <= 1
        assert {group["sensitivity"] for group in stage["groups"]} == {1} and stage["reason"]
    found = LedgerView(Settings()).verify()
    assert (found.verified, found.problems, found.certificates) == (True, (), 1)


@pytest.mark.parametrize("name", ["mst", "aim", "privbayes"])
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


SAID = {
    "independent": "the rows show no relation between columns, even where there is one",
    "mst": "one tree that links all columns",
    "privbayes": "drawn from noisy counts that were not brought into",
    "aim": "The rows keep the relations of few columns, those that were measured",
    "prior": "Every row is a row of the public table",
}
"""What the note of one mechanism alone says."""
DESCRIBED = {
    "mst": "tree of pairs that links all columns",
    "privbayes": "every column drawn given its parents",
    "aim": "say which few marginals are measured next",
}
"""What the registry's entry of one mechanism alone says."""


@every
def test_the_note_and_the_descriptions_say_what_was_done_and_name_files_that_are_there(
    name: str, made: ReleaseSummary
) -> None:
    folder = Path(made.released)
    note, entry = ((folder / file).read_text(encoding="utf-8") for file in ("README.md", "registry.yaml"))
    assert [other for other in SAID if SAID[other] in note] == ([name] if name in SAID else [])
    assert [other for other in DESCRIBED if DESCRIBED[other] in " ".join(entry.split())] == [
        n for n in DESCRIBED if n == name
    ]
    assert ("three and more columns" in note) == (name == "adaptive")  # the limit of what measures pairs
    assert (STATEMENT in note) == (name == "prior") and (" of a score |" in note) == (SCORES in LOOKS[name])
    assert ("counts of every column on its own" in entry, "joint counts" in entry)[name != "independent"]
    named = set(re.findall(r"`([A-Za-z0-9_*/-]+\.(?:parquet|csv|json|yaml)|marginals/)`", note))
    assert {"synthetic.parquet", "synthetic.csv", "one_way.parquet", "recode.parquet", "certificate.json"} <= named
    for file in ("datapackage.json", "croissant.json", "registry.yaml", "manifest.json"):
        named |= set(re.findall(r"marginals/[a-z0-9_]+\.parquet", (folder / file).read_text(encoding="utf-8")))
    assert [file for file in named if not [*folder.glob(file), *(folder / "marginals").glob(file)]] == []


@every
def test_it_is_made_again_byte_for_byte_and_found_again(name: str, spec: ReleaseSpec, made: ReleaseSummary) -> None:
    again = release_in_process(spec, Settings())
    assert (again.run, again.drawn) == (made.run, ())
    home = Path(made.released).parents[2]
    prior = home / "last_year.parquet" if name == "prior" else None
    found = privsyn.rerun(made.released, prior=prior, out=home / "elsewhere")
    assert (found.agrees, found.problems, found.unknown) == (True, (), ())


@pytest.mark.slow
@every
def test_it_is_read_asked_and_evaluated(name: str, spec: ReleaseSpec, made: ReleaseSummary, tmp_path: Path) -> None:
    tables = ReleasedTables.read(open_release(made.run, Settings()))
    assert bool(tables.measured) == (name != "independent")
    assert {m.attributes for m in tables.measured} <= {m.attributes for m in tables.consistent} or name == "prior"
    release = privsyn.open_release(made.released)
    assert abs(release.count("happy", "region").estimate.sum() - 2_000) < 200
    slope = release.regress("income ~ age").estimate.iloc[-1]  # simulated: rows are made anew, again and again
    assert slope > 0 or name == "independent"
    assert len(evaluate(made.run, settings=slight_settings(tmp_path)).scores) == 1


@some
def test_the_run_page_shows_its_noise(name: str, spec: ReleaseSpec, made: ReleaseSummary) -> None:
    with open_run(propose_release(spec, Settings())) as run:
        shown = build_overview(ReleasedInputs.of_run(run, run_steps(run.steps, run.execute)))
    assert [column.column for column in shown.columns] == list(run.request.column_order)
    assert all(column.noise_sd > 0 for column in shown.columns)
    assert (shown.pairs_measured > 0) == (name != "independent") and run.drawn == []


@pytest.mark.parametrize("name", keep_first(["prior", *(name for name in LOOKS if name != "prior")]))
def test_the_method_that_is_compared_makes_the_same_rows_and_age_goes_with_income(
    name: str, spec: ReleaseSpec, tmp_path: Path
) -> None:
    own = Settings(out=tmp_path / "out", ledger=str(tmp_path / "ledger.sqlite"))
    summary = release_in_process(spec, own, noise=SeededNoise(7))
    encoding = plan(spec)
    expected = encode_table(pq.read_table(Path(summary.released) / "synthetic.parquet").to_batches(), encoding).bins
    rows = encode_table(open_source(spec.data, spec).batches(), encoding).fine
    settings, public = MethodSettings.of(spec), Request(spec, tuple(spec.released_columns)).prior
    method = METHODS["default" if name in ("prior", "adaptive") else name]

    def compare(seed: int) -> Any:
        noise = SeededNoise(seed)
        return method.run(
            MethodInput(rows, encoding.binning, 4.0, 1e-9, 1, noise, 3, prior=public, settings=settings)
        ).table

    found, other = compare(7), compare(8)
    assert all(np.array_equal(a, b) for a, b in zip(found.columns, expected.columns, strict=True))
    assert other.rows != found.rows or not np.array_equal(other.columns[0], found.columns[0])
    correlation = np.corrcoef(found.column("age"), found.column("income"))[0, 1]
    assert correlation > 0.3 if name != "independent" else abs(correlation) < 5 / np.sqrt(found.rows)


@some
def test_rows_in_shards_and_another_number_cost_nothing(name: str, spec: ReleaseSpec, made: ReleaseSummary) -> None:
    summary = release_in_process(spec.with_rows(rows=900, shard_rows=400), Settings())
    assert (summary.drawn, summary.rows) == ((), 900)
    assert len(list(Path(summary.released).glob("synthetic/part-*.parquet"))) == 3


@pytest.mark.parametrize("name", keep_first(["aim", "adaptive", "mst", "privbayes"]))
def test_one_column_is_released(name: str, places: Path, save: Any) -> None:
    dropped = {column: {"kind": "drop"} for column in ("age", "income", "region", "seen", "caseid")}
    one = {"happy": {"kind": "boolean"}, **dropped}
    summary = release_in_process(make_spec(one, data=save(people(500)), mechanism=name), Settings())
    assert summary.drawn[:2] == (ONE_WAYS, MARGINALS) and summary.rows > 300
    rounds = {"aim": (2, 3, 4), "adaptive": (2,)}.get(name, ())
    assert summary.drawn[2:] == tuple(f"measure_again_{n}" for n in rounds)
