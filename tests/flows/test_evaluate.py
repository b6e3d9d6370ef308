"""The evaluation: what it compares, where its report lies, what it leaves alone, and how it refuses."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner, Result

from privsyn import cli
from privsyn.base.errors import RequestError
from privsyn.base.settings import Settings
from privsyn.data_contracts.evaluation import Evaluation, EvaluationSpec, Metric
from privsyn.evaluation.private_evaluation import AskedEvaluation, Report, evaluate
from privsyn.publish.folder import ReleaseSummary
from tests.support.releases import release_in_process
from tests.support.specs import make_spec, people

Save = Callable[..., str]
ROWS = 900
QUICK = {"range_queries": 50, "nist_schemas": 20, "nist_queries": 20, "attack_rows": 100}


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with one release of ``people`` that the tests only read."""
    folder = tmp_path_factory.mktemp("evaluate")
    pq.write_table(people(ROWS), folder / "people.parquet")
    return folder


@pytest.fixture(scope="module")
def made(home: Path) -> ReleaseSummary:
    data = str(home / "people.parquet")
    spec = make_spec(data=data, synthesis={"iterations": 5}, compression={"sigmas": 1.0})
    return release_in_process(spec, Settings(out=home / "out", ledger=str(home / "ledger.sqlite")))


@pytest.fixture(scope="module")
def report(made: ReleaseSummary, home: Path) -> Report:
    """The plain report on it."""
    spec = EvaluationSpec.model_validate(QUICK)
    return evaluate(AskedEvaluation(made.run, spec=spec), Settings(out=home / "out"))


@pytest.fixture(autouse=True)
def at_home(request: pytest.FixtureRequest, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if "places" in request.fixturenames:  # a test with a folder of its own
        return
    for name in ("PRIVSYN_RELEASED", "PRIVSYN_PRIVATE", "PRIVSYN_THREADS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PRIVSYN_OUT", str(home / "out"))
    monkeypatch.setenv("PRIVSYN_LEDGER", str(home / "ledger.sqlite"))


def report_on(made: ReleaseSummary, spec: dict[str, Any] | None = None, **how: Any) -> Report:
    settings = EvaluationSpec.model_validate({**QUICK, **(spec or {})})
    return evaluate(AskedEvaluation(made.run, spec=settings, **how), Settings())


def by_name(metrics: tuple[Metric, ...]) -> dict[str, Metric]:
    return {m.name: m for m in metrics}


def contents(folder: Path) -> dict[str, str]:
    return {str(p): hashlib.sha256(p.read_bytes()).hexdigest() for p in folder.rglob("*") if p.is_file()}


def test_the_report_is_private_and_the_figures_are_its_json(made: ReleaseSummary, report: Report) -> None:
    private = Settings().private_root
    assert report.html == private / "reports" / made.run / "report.html"
    for path in (report.html, report.figures):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(report.html.parent.stat().st_mode) == 0o700
    text = report.html.read_text(encoding="utf-8")
    assert Evaluation.model_validate_json(report.figures.read_text(encoding="utf-8")) == report.evaluation
    assert "PRIVATE. Do not release this page." in re.sub(r"<[^>]+>|\s+", " ", text).replace("  ", " ")
    for metric in report.evaluation.release.metrics:
        if metric.value is not None:
            assert metric.low <= metric.value <= (np.inf if metric.high is None else metric.high), metric.name


def test_it_changes_nothing_but_its_report_spends_nothing_and_repeats_itself(
    made: ReleaseSummary, report: Report, home: Path
) -> None:
    def others() -> dict[str, str]:
        return {p: digest for p, digest in contents(home).items() if "/reports/" not in p}

    before, first = others(), report.figures.read_bytes()
    assert report_on(made).figures.read_bytes() == first
    assert others() == before


def test_errors_by_hand(made: ReleaseSummary, report: Report) -> None:
    """The one-way errors of two columns, counted with nothing of ours."""
    real = people(ROWS).to_pandas()
    synthetic = pq.read_table(Path(made.released) / "synthetic.parquet").to_pandas()
    found = {o.column: o for o in report.evaluation.one_ways}
    happy = abs(real["happy"].mean() - synthetic["happy"].mean()) * 2
    assert found["happy"].l1 == pytest.approx(happy)
    regions = real["region"].where(real["region"].isin(["north", "south", "east"]), "other")
    shares = [t.value_counts(normalize=True).reindex(["north", "south", "east", "other"]).fillna(0) for t in
              (regions, synthetic["region"])]  # fmt: skip
    assert found["region"].l1 == pytest.approx(float((shares[0] - shares[1]).abs().sum()))
    assert found["region"].labels == ("north", "south", "east", "other")
    assert found["age"].ordered and not found["region"].ordered
    # The noise band is the budget s.
    folder, precision = Path(made.released) / "marginals", 0.0
    for name in ("one_way_receipts", "measured_receipts"):
        receipts = pq.read_table(folder / f"{name}.parquet").to_pylist()
        precision += sum(r["sigma"] ** -2 for r in receipts if r["attributes"] == ["happy"])
    sigma = precision**-0.5
    one_way = next(o for o in report.evaluation.one_ways if o.column == "happy")
    assert one_way.noise_sd == pytest.approx((sigma / made.rows, sigma / made.rows))
    assert one_way.noise_l1 == pytest.approx(2 * sigma / made.rows * np.sqrt(2 / np.pi))


@pytest.mark.slow
def test_analyses_of_both_tables(made: ReleaseSummary, home: Path) -> None:
    """The median by group of the file and of the released rows; a wrong one is refused before anything is read."""
    wanted = {"kind": "quantile", "column": "age", "by": ["region"], "where": "happy"}
    (found,) = report_on(made, {"analyses": [wanted]}).evaluation.analyses
    real = people(ROWS).to_pandas()
    north = real[real["happy"].astype(bool) & (real["region"] == "north")]["age"]
    figures = {f.name: f for f in found.figures}
    assert figures["region=north"].real == north.quantile(0.5, interpolation="lower")
    made_rows = pq.read_table(Path(made.released) / "synthetic.parquet").to_pandas()
    mine = made_rows[made_rows["happy"].astype(bool) & (made_rows["region"] == "north")]["age"]
    assert figures["region=north"].synthetic == pytest.approx(mine.quantile(0.5, interpolation="lower"), abs=1)
    with pytest.raises(RequestError, match=r"analyses\[0\].column: `agee` names 'agee'"):
        report_on(made, {"analyses": [{"kind": "quantile", "column": "agee"}]}, data=str(home / "nowhere.parquet"))


def test_the_real_table_against_itself_is_perfect(made: ReleaseSummary, home: Path) -> None:
    report = report_on(made, against=[str(home / "people.parquet")])
    assert [s.table for s in report.evaluation.scores] == ["release", "people.parquet"]
    metrics = by_name(report.evaluation.scores[1].metrics)
    for name in ("l1_1way", "l1_2way", "l1_3way", "range_query", "mgd", "correlation"):
        assert metrics[name].value == pytest.approx(0.0, abs=1e-12)
    assert metrics["k_marginal"].value == pytest.approx(1000)
    assert metrics["nist_density"].value == pytest.approx(1e6)
    assert metrics["l1_2way"].subsample == 1.0
    release = by_name(report.evaluation.release.metrics)
    assert release["l1_2way"].value is not None and release["l1_2way"].value > 0.01
    assert release["l1_2way"].subsample is not None and release["l1_2way"].subsample < 1


def test_causes_follow_what_was_measured(made: ReleaseSummary, report: Report) -> None:
    evaluation = report.evaluation
    queries = pq.read_table(Path(made.released) / "marginals" / "measured_receipts.parquet").to_pylist()
    inside = {(a, b) for q in queries for a in q["attributes"] for b in q["attributes"] if a != b}
    assert queries
    for pair in evaluation.pairs:
        assert pair.measured == ((pair.a, pair.b) in inside)
        misread = {"age", "seen"} & {pair.a, pair.b}  # more than 5 % of each lie outside their bounds
        assert pair.cause == "misread" if misread else (pair.cause == "not selected") == (not pair.measured)
    assert len(evaluation.pairs) == 10  # five columns
    stages = {s.stage: s for s in evaluation.stages}
    assert stages["measured"].marginals == sum(len(q["attributes"]) > 1 for q in queries)
    assert {"measured", "consistent", "synthetic"} <= set(stages)


def test_a_hold_out_brings_the_attack_and_an_honest_test(made: ReleaseSummary, report: Report, save: Save) -> None:
    later = save(people(300, seed=9), "later.parquet")
    with_it = by_name(report_on(made, {"labels": "auto"}, holdout=later).evaluation.release.metrics)
    without = by_name(report.evaluation.release.metrics)
    assert with_it["membership"].value is not None and 0.5 <= with_it["membership"].value <= 1
    assert without["membership"].value is None and "hold-out" in without["membership"].note
    assert "hold-out rows" in with_it["unique_match"].references
    svm = next(m for m in with_it.values() if m.name.startswith("svm:"))
    assert not svm.note and set(svm.references) == {"Majority", "NonPriv"}


@pytest.mark.slow
def test_optional_metrics_are_there_when_asked_for(made: ReleaseSummary) -> None:
    spec = {
        "labels": ["happy", "region"],
        "groups": ["region"],
        "pie": {"place": "region", "time": "happy", "kind": "age"},
        "income": {"place": "region", "sex": "happy", "wage": "income"},
        "k": 3,
    }
    metrics = by_name(report_on(made, spec).evaluation.release.metrics)
    assert {"svm:happy", "svm:region", "group_k_marginal", "pie_chart", "gini", "pay_gap"} <= set(metrics)
    assert all(m.value is not None for n, m in metrics.items() if n != "membership")


def privsyn(*arguments: object) -> Result:
    return CliRunner().invoke(cli.app, ["evaluate", *map(str, arguments)])


def test_the_command_shows_headlines_and_where_the_report_lies(made: ReleaseSummary, tmp_path: Path) -> None:
    settings = tmp_path / "settings.yaml"
    settings.write_text(json.dumps(QUICK), encoding="utf-8")
    result = privsyn(made.run, "--settings", settings, "--label", "happy", "--json")
    assert result.exit_code == 0, result.stderr
    answer = json.loads(result.stdout)
    assert answer["private"] is True
    assert Path(answer["report"]).is_file()
    assert answer["scores"]["release"]["l1_2way"] > 0
    assert "svm:happy" in answer["scores"]["release"]
    shown = " ".join(result.stderr.split())
    assert "private, computed from the real rows" in shown and "Error of pairs of columns" in shown


WRONG: list[tuple[list[str], list[str]]] = [
    (["nowhere"], ["RELEASE", "nowhere"]),
    (["{run}", "--data", "missing.parquet"], ["--data", "missing.parquet"]),
    (["{run}", "--data", ""], ["--data", "is empty"]),
    (["{run}", "--holdout", "missing.parquet"], ["--holdout: ", "with --holdout"]),
    (["{run}", "--against", "missing.csv"], ["--against"]),
    (["{run}", "--label", "weight"], ["labels", "weight"]),
    (["{run}", "--settings", "missing.yaml"], ["--settings: ", "missing.yaml"]),
    (["{run}", "--epsilon-report", "1", "--label", "happy"], ["--epsilon-report"]),
]


@pytest.mark.parametrize(("arguments", "words"), WRONG, ids=[" ".join(w[0]) for w in WRONG])
def test_wrong_requests_are_2_name_the_field_and_leave_nothing(
    made: ReleaseSummary, arguments: list[str], words: list[str], home: Path
) -> None:
    before = contents(home)
    result = privsyn(*(a.format(run=made.run) for a in arguments))
    shown = " ".join(result.stderr.split())
    assert result.exit_code == 2, shown
    assert all(word in shown for word in words), shown
    assert "Traceback" not in shown and contents(home) == before


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("range_query: 3", ["range_query", "Did you mean `range_queries`?"]),
        ("range_queries: many", ["range_queries (line 1)", "whole number"]),
        ("groups: [weight]", ["groups", "'weight'"]),
        ("pie: {place: region, time: weight, kind: age}", ["pie.time", "'weight'"]),
        ("income: {place: age, sex: happy, wage: region}", ["income.wage", "numeric"]),
        ("income: {place: region, sex: happy, wage: income, sexes: [true, maybe]}", ["income.sexes"]),
        ("- a", ["settings.yaml"]),
        ("mgd: {marginals: [{attributes: [weight]}]}", ["mgd", "weight"]),
        ("mgd: {hierarchies: {region: {a: [north, nowhere]}}}", ["mgd", "region"]),
    ],
)
def test_wrong_settings_name_the_field(made: ReleaseSummary, tmp_path: Path, text: str, words: list[str]) -> None:
    path = tmp_path / "settings.yaml"
    path.write_text(text, encoding="utf-8")
    result = privsyn(made.run, "--settings", path)
    shown = " ".join(result.stderr.split())
    assert result.exit_code == 2, shown
    assert all(word in shown for word in words), shown


def test_a_release_whose_data_is_not_known_asks_for_it(made: ReleaseSummary, places: Path) -> None:
    with pytest.raises(RequestError, match="Name it with data"):
        evaluate(AskedEvaluation(made.released), Settings(out=places / "elsewhere"))


@pytest.mark.parametrize("damage", ["missing", "cut", "other columns"])
def test_a_release_with_damaged_tables_is_refused(made: ReleaseSummary, tmp_path: Path, damage: str) -> None:
    folder = tmp_path / "copy"
    shutil.copytree(made.released, folder)
    table = folder / "marginals" / "consistent.parquet"
    if damage == "missing":
        table.unlink()
    elif damage == "cut":
        table.write_bytes(table.read_bytes()[:100])
    else:
        pq.write_table(pq.read_table(table).drop_columns(["counts"]), table)
    result = privsyn(folder)
    shown = " ".join(result.stderr.split())
    assert result.exit_code == 2 and "RELEASE" in shown and "damaged" in shown, shown


def rename(name: str) -> Callable[[dict[str, Any]], Any]:
    """What sends the report to another run's place."""
    return lambda manifest: manifest.update(run=name)


EDITED: dict[str, tuple[Callable[[dict[str, Any]], Any], str]] = {
    **{repr(name): (rename(name), "") for name in ("../../released/leak", "", "a/b", "x\0y", ".")},
    "other codes": (lambda manifest: manifest["spec"]["columns"]["age"].update(bins=25), "from another version"),
    "figures": (lambda manifest: manifest["files"].pop("synthetic.parquet"), "Name the release itself"),
}


@pytest.mark.parametrize("edit", EDITED)
def test_a_folder_with_another_manifest_is_refused_and_nothing_is_written(
    made: ReleaseSummary, home: Path, tmp_path: Path, edit: str
) -> None:
    folder, (change, words) = tmp_path / "copy", EDITED[edit]
    shutil.copytree(made.released, folder)
    manifest = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
    change(manifest)
    (folder / "manifest.json").write_text(json.dumps(manifest), encoding="utf-8")
    before = contents(home), contents(tmp_path)
    result = privsyn(folder, *([] if words else ["--data", tmp_path.parent / "nothing.parquet"]))
    shown = " ".join(result.stderr.split())
    assert result.exit_code == 2 and words in shown and "Read tables" not in shown, shown
    assert (contents(home), contents(tmp_path)) == before


def test_overlapping_roots_are_refused_before_anything_is_read(
    made: ReleaseSummary, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PRIVSYN_PRIVATE", str(home / "out" / "released" / "private"))
    result = privsyn(made.run, "--data", home / "people.parquet")
    shown = " ".join(result.stderr.split())
    assert result.exit_code == 2 and "overlap" in shown
    assert not (home / "out" / "released" / "private").exists()


@pytest.mark.slow
def test_a_new_private_root_is_its_owners_only(made: ReleaseSummary, home: Path, tmp_path: Path) -> None:
    result = privsyn(made.released, "--data", home / "people.parquet", "--out", tmp_path / "fresh")
    assert result.exit_code == 0, result.stderr
    for folder in (tmp_path / "fresh" / "private").rglob("*"):
        if folder.is_dir():
            assert stat.S_IMODE(folder.stat().st_mode) == 0o700, folder
    assert stat.S_IMODE((tmp_path / "fresh" / "private").stat().st_mode) == 0o700


@pytest.mark.slow
def test_only_the_rows_that_a_release_keeps_are_compared(places: Path, save: Save) -> None:
    """Ten rows of one person, of which two are kept, and three people with one row each."""
    rows = pa.table({"pid": ["a"] * 10 + ["b", "c", "d"], "happy": [True] * 10 + [False] * 3})
    spec = make_spec(
        {"pid": {"kind": "drop"}, "happy": {"kind": "boolean"}},
        data=save(rows),
        unit={"person_id": "pid", "max_records": 2},
    )
    report = report_on(release_in_process(spec, Settings()))
    assert report.evaluation.rows_real == 5
    assert report.evaluation.one_ways[0].real == pytest.approx((3 / 5, 2 / 5))
    # of all rows 10 of 13 are happy, of the kept ones 2 of 5: an L1 of 2 (10/13 - 2/5)
    assert "at most 2 per person, 5 of the 13 real rows" in report.evaluation.notes[1]
    assert f"is {2 * (10 / 13 - 2 / 5):.3g} for the kept rows" in report.evaluation.notes[1]
    without = save(rows.drop_columns(["pid"]), "without.parquet")
    with pytest.raises(RequestError, match=r"^data: .*pid"):
        evaluate(AskedEvaluation(report.evaluation.run, without), Settings())


def test_errors_show_no_private_value(made: ReleaseSummary, save: Save) -> None:
    secret = save(pa.table({"age": ["zanzibar-1"], "weight": ["zanzibar-2"]}), "odd.parquet")
    result = privsyn(made.run, "--against", secret)
    assert result.exit_code == 2
    assert "zanzibar" not in result.stderr + result.stdout


def test_released_figures_at_a_large_epsilon_warn(made: ReleaseSummary) -> None:
    """The warning comes before the refusal of the budget, which is 2 here."""
    assert "Warning: epsilon 30 is above 10" in " ".join(privsyn(made.run, "--epsilon-report", "30").stderr.split())


def test_noisy_figures_are_released_at_a_cost_and_the_report_stays_away(places: Path, save: Save) -> None:
    release = release_in_process(make_spec(data=save(people(300)), synthesis={"iterations": 2}), Settings())
    result = privsyn(release.run, "--epsilon-report", "0.5", "--json", "--out", places / "out")
    assert result.exit_code == 0, result.stderr
    answer = json.loads(result.stdout)
    assert answer["epsilon"] == 0.5 and answer["drawn"] == ["quality_figures"]
    assert (Path(answer["released"]) / "figures.json").is_file()
    assert not (places / "out" / "private" / "reports").exists()
    shown = " ".join(result.stderr.split())
    assert "Columns: mean difference of the counts" in shown and "epsilon 0.5" in shown
