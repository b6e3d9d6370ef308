"""The mechanism ``independent`` from end to end: one look with the whole budget, and all that reads a release."""

from __future__ import annotations

import json
import re
import shutil
from fractions import Fraction
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

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
from privsyn.tasks.privacy.noise import SeededNoise
from tests.support.releases import release_in_process
from tests.support.specs import COLUMNS, make_spec, people

ROWS = 800
FORMATS = ["parquet", "csv"]


def spec_at(data: Path) -> ReleaseSpec:
    return make_spec(
        data=str(data),
        privacy={"epsilon": 2.0, "delta": 1e-9},
        formats=FORMATS,
        mechanism={"name": "independent", "synthesis": {"seed": 3}},
    )


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where one release was made, with its private table, its private folder and its ledger."""
    home = tmp_path_factory.mktemp("independent")
    pq.write_table(people(ROWS), home / "people.parquet")
    return home


@pytest.fixture(scope="module")
def settings(home: Path) -> Settings:
    return Settings(out=home / "out", ledger=str(home / "ledger.sqlite"), threads=2)


@pytest.fixture(scope="module")
def made(home: Path, settings: Settings) -> ReleaseSummary:
    return release_in_process(spec_at(home / "people.parquet"), settings)


def test_one_look_is_charged_the_whole_budget(home: Path, settings: Settings, made: ReleaseSummary) -> None:
    spec = spec_at(home / "people.parquet")
    assert made.drawn == ("one_way_marginals",)
    ledger = Ledger(settings.ledger)
    assert [(e.event, e.step) for e in ledger.entries("people")] == [
        ("reserve", "one_way_marginals"),
        ("spent", "one_way_marginals"),
    ]
    (stage,) = plan_release(spec).stages
    assert stage.rho == plan_release(spec).rho
    (summary,) = ledger.summary("people")
    assert stage.rho * Fraction(999_999, 10**6) < summary.rho <= stage.rho


def test_the_ledger_agrees_with_the_certificate(settings: Settings, made: ReleaseSummary) -> None:
    found = LedgerView(settings).verify()
    assert (found.verified, found.problems, found.notes, found.certificates) == (True, (), (), 1)


def test_the_same_request_finds_its_release(home: Path, settings: Settings, made: ReleaseSummary) -> None:
    again = release_in_process(spec_at(home / "people.parquet"), settings)
    assert (again.run, again.drawn) == (made.run, ())


def test_the_certificate_has_one_stage_of_one_query_a_column(made: ReleaseSummary) -> None:
    certificate = json.loads((Path(made.released) / "certificate.json").read_text(encoding="utf-8"))
    (stage,) = certificate["stages"]
    assert stage["step"] == "one_way_marginals"
    assert stage["rho_budget"] == certificate["rho_budget"]
    released = [column for column in COLUMNS.values() if column["kind"] != "drop"]
    assert sum(group["queries"] for group in stage["groups"]) == len(released)


def test_the_folder_has_the_files_of_its_steps_and_no_others(made: ReleaseSummary) -> None:
    folder = Path(made.released) / "marginals"
    assert sorted(path.name for path in folder.iterdir()) == [
        "consistent.parquet",
        "one_way.parquet",
        "one_way_receipts.parquet",
        "recode.parquet",
    ]


def test_the_note_says_that_no_relation_is_kept_and_names_files_that_are_there(made: ReleaseSummary) -> None:
    folder = Path(made.released)
    note = (folder / "README.md").read_text(encoding="utf-8")
    assert "the rows show no relation between columns, even where there is one" in note
    assert "three and more columns" not in note  # the limit of a mechanism that measures pairs
    assert note.count(" of a count |") == 1 and " of a score |" not in note
    named = set(re.findall(r"`([A-Za-z0-9_*/-]+\.(?:parquet|csv|json|yaml)|marginals/)`", note))
    assert {"synthetic.parquet", "synthetic.csv", "one_way.parquet", "recode.parquet", "certificate.json"} <= named
    for name in named:
        assert [*folder.glob(name), *(folder / "marginals").glob(name)], name


def test_the_descriptions_name_files_that_are_there(made: ReleaseSummary) -> None:
    folder = Path(made.released)
    for name in ("datapackage.json", "croissant.json", "registry.yaml", "manifest.json"):
        text = (folder / name).read_text(encoding="utf-8")
        for file in re.findall(r"marginals/[a-z0-9_]+\.parquet", text):
            assert (folder / file).exists(), (name, file)
    entry = (folder / "registry.yaml").read_text(encoding="utf-8")
    assert "counts of every column on its own" in entry
    assert not any(words in entry for words in ("pair of columns", "joint counts"))


def test_it_is_made_again_byte_for_byte_from_its_folder(made: ReleaseSummary, tmp_path: Path) -> None:
    moved = shutil.copytree(made.released, tmp_path / "moved")
    found = rerun(str(moved), Settings(out=tmp_path / "elsewhere", threads=1))
    assert (found.agrees, found.problems, found.unknown) == (True, (), ())
    words = {file.name: file.words() for file in found.files}
    anew = {name for name, said in words.items() if said == "agrees (made anew)"}
    assert {"synthetic.parquet", "synthetic.csv", "README.md", "marginals/consistent.parquet"} <= anew
    assert set(words) - anew == {"certificate.json", "marginals/one_way.parquet", "marginals/one_way_receipts.parquet"}


def test_what_it_released_is_read_for_an_evaluation(settings: Settings, made: ReleaseSummary) -> None:
    release = open_release(made.run, settings)
    tables = ReleasedTables.read(release)
    columns = tuple(codec.attribute for codec in release.encoding.codecs)
    assert tuple(tables.recode) == columns
    assert (tables.measured, tables.sigmas) == ((), ())
    assert {m.attributes for m in tables.consistent} == {(column,) for column in columns}


@pytest.mark.slow
def test_it_is_evaluated(home: Path, settings: Settings, made: ReleaseSummary) -> None:
    (home / "evaluation.yaml").write_text("{range_queries: 20, nist_schemas: 5, nist_queries: 5}\n", encoding="utf-8")
    report = evaluate(made.run, settings=home / "evaluation.yaml", out=settings.out)
    assert report.html.is_file()
    (scores,) = report.scores.values()
    assert scores


def test_the_run_page_shows_its_noise(made: ReleaseSummary, settings: Settings, home: Path) -> None:
    spec = spec_at(home / "people.parquet")
    with open_run(propose_release(spec, settings)) as run:
        refs = run_steps(run.steps, run.execute)
        shown = build_overview(ReleasedInputs.of_run(run, refs))
    assert run.drawn == []
    assert [column.column for column in shown.columns] == list(run.request.column_order)
    assert all(column.noise_sd > 0 for column in shown.columns)
    assert (shown.marginals, shown.pairs_measured) == ((), 0)


def test_columns_are_as_far_from_independent_as_chance_makes_them(home: Path, made: ReleaseSummary) -> None:
    """In the private table age and income are strongly related."""
    spec = spec_at(home / "people.parquet")
    correlations = []
    for path in (home / "people.parquet", Path(made.released) / "synthetic.parquet"):
        codes = encode_table(pq.read_table(path, columns=list(spec.released_columns)).to_batches(), plan(spec)).bins
        correlations.append(abs(np.corrcoef(codes.column("age"), codes.column("income"))[0, 1]))
    assert correlations[0] > 0.5
    assert correlations[1] < 5 / np.sqrt(made.rows)


def test_the_method_that_is_compared_makes_the_same_rows_from_the_same_noise(home: Path, tmp_path: Path) -> None:
    spec = spec_at(home / "people.parquet")
    settings = Settings(out=tmp_path / "out", ledger=str(tmp_path / "ledger.sqlite"))
    summary = release_in_process(spec, settings, noise=SeededNoise(7))
    encoding = plan(spec)
    expected = encode_table(pq.read_table(Path(summary.released) / "synthetic.parquet").to_batches(), encoding).bins

    def compared(seed: int) -> MethodInput:
        rows = encode_table(open_source(spec.data, spec).batches(), encoding).fine
        promise = (spec.privacy.epsilon, spec.privacy.delta, spec.unit.records)
        return MethodInput(
            rows,
            encoding.binning,
            *promise,
            noise=SeededNoise(seed),
            seed=spec.mechanism.synthesis.seed,
            settings=MethodSettings.of(spec),
        )

    same, other = (METHODS["independent"].run(compared(seed)).table for seed in (7, 8))
    assert expected.rows > ROWS / 2
    assert all(np.array_equal(a, b) for a, b in zip(same.columns, expected.columns, strict=True))
    assert other.rows != expected.rows or not np.array_equal(other.columns[0], expected.columns[0])
