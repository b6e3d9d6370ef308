"""Comparing: the in-memory method is the release, results are private, failures are told, figures add up."""

from __future__ import annotations

import json
import stat
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from privsyn.base.errors import RequestError
from privsyn.base.pictures import draw_chart
from privsyn.base.settings import Settings
from privsyn.data_contracts.evaluation import NOTICE, ComparedMethod, Comparison, EvaluationSpec, MethodRun, Metric
from privsyn.data_contracts.release_spec import ReleaseSpec
from privsyn.evaluation.coded_tables import encode_table
from privsyn.evaluation.comparison.compare_methods import METHODS, AskedComparison, compare, run_all, run_method
from privsyn.evaluation.comparison.method import LaplaceQuery, Method, MethodInput, MethodResult, MethodSettings
from privsyn.evaluation.comparison.results import (
    SECONDS,
    build_chart,
    build_table,
    describe_missing,
    format_markdown,
    list_lines,
    list_markdown_table,
)
from privsyn.evaluation.settings_file import load_evaluation_spec
from privsyn.sources.open_source import open_source
from privsyn.tasks.codecs import plan
from privsyn.tasks.privacy.noise import SeededNoise
from tests.support.commands import privsyn
from tests.support.releases import release_in_process
from tests.support.specs import PEOPLE_YAML, changed, make_spec, people

Save = Callable[..., str]


@pytest.fixture
def spec(places: Path, save: Save) -> ReleaseSpec:
    return make_spec(data=save(people(3_000)), synthesis={"iterations": 3, "seed": 4})


def trial(spec: ReleaseSpec, seed: int) -> MethodInput:
    encoding = plan(spec)
    return MethodInput(
        rows=encode_table(open_source(spec.data, spec).batches(), encoding).fine,
        binning=encoding.binning,
        epsilon=spec.privacy.epsilon,
        delta=spec.privacy.delta,
        records=spec.unit.records,
        noise=SeededNoise(seed),
        seed=spec.mechanism.synthesis.seed,
        settings=MethodSettings.of(spec),
    )


@pytest.mark.parametrize(
    "changes",
    [
        {},
        pytest.param({"accountant": "paper", "unit": {"records_per_person": 2}}, marks=pytest.mark.slow),
        pytest.param(
            {"split": {"one_way": 0.3, "selection": 0.2, "measurement": 0.5}, "selection": {"combine_cliques": False}},
            marks=pytest.mark.slow,
        ),
        {"compression": {"enabled": False}, "consistency": {"rounds": 2}},
    ],
)
def test_the_default_method_is_the_release_row_for_row(spec: ReleaseSpec, changes: dict[str, Any]) -> None:
    """The same seeded noise through files, ledger and shell, and in memory: the same rows in the same order."""
    spec = changed(spec, **changes)
    summary = release_in_process(spec, Settings(), noise=SeededNoise(7))
    released = pq.read_table(Path(summary.released) / "synthetic.parquet")
    expected = encode_table(released.to_batches(), plan(spec)).bins
    made = METHODS["default"].run(trial(spec, 7))
    assert expected.rows > 2_000
    for attribute in expected.domain.attributes:
        assert np.array_equal(made.table.column(attribute), expected.column(attribute)), attribute
    other = METHODS["default"].run(trial(spec, 8))
    assert other.table.rows != expected.rows or not np.array_equal(other.table.columns[0], expected.columns[0])


def test_a_question_of_the_workload_is_measured_as_the_set_of_its_columns(spec: ReleaseSpec) -> None:
    made = METHODS["default"].run(trial(changed(spec, workload=[{"question": "region where age < 40"}]), 7))
    assert {"age", "region"} in [set(attributes) for attributes in made.marginals]


def stub(name: str, run: Callable[[MethodInput], MethodResult], *, private: bool = True) -> Method:
    return Method(name, name.title(), "for this test", "here", run, private)


def same_bins(this: MethodInput) -> MethodResult:
    return MethodResult(this.to_bins(this.rows))


def no_metrics(coded_table: object) -> tuple[Metric, ...]:
    return ()


def test_a_method_of_the_public_bins_only_is_scored(spec: ReleaseSpec) -> None:
    seen: list[Any] = []

    def keep(found: Any) -> tuple[Metric, ...]:
        seen.append(found)
        return ()

    this = trial(spec, 0)
    run = run_method(stub("copy", same_bins), this, keep)
    assert (run.outcome, run.rows, run.receipts_epsilon) == ("done", 3_000, None)
    assert run.seconds is not None and run.seconds >= 0
    bins = this.to_bins(seen[0].fine)  # fine codes were spread inside the bins
    assert all(np.array_equal(a, b) for a, b in zip(bins.columns, seen[0].bins.columns, strict=True))


@pytest.mark.parametrize(
    ("error", "outcome", "note"),
    [
        (ModuleNotFoundError("No module named 'mbi'", name="mbi"), "not installed", "mbi"),
        (TimeoutError("CANARY"), "did not finish", "TimeoutError"),
        (MemoryError(), "did not finish", "MemoryError"),
        (ValueError("CANARY"), "failed", "ValueError at fail:"),
    ],
)
def test_a_method_that_gives_up_is_told_and_stops_nothing(
    spec: ReleaseSpec, error: Exception, outcome: str, note: str
) -> None:
    def fail(this: MethodInput) -> MethodResult:
        raise error

    run = run_method(stub("broken", fail), trial(spec, 0), no_metrics)
    assert run.outcome == outcome
    assert note in run.note
    assert "CANARY" not in run.note  # an error's text can hold a private value
    assert (run.seconds, run.rows, run.metrics) == (None, None, ())


def test_a_method_whose_receipts_cost_too_much_is_no_result(spec: ReleaseSpec) -> None:
    def greedy(this: MethodInput) -> MethodResult:
        return replace(same_bins(this), pure=(LaplaceQuery(("age",), 25, 1, 0.99 / this.epsilon),))

    def honest(this: MethodInput) -> MethodResult:
        return replace(same_bins(this), pure=(LaplaceQuery(("age",), 25, 1, 1.0 / this.epsilon),))

    assert run_method(stub("honest", honest), trial(spec, 0), no_metrics).outcome == "done"
    run = run_method(stub("greedy", greedy), trial(spec, 0), no_metrics)
    assert run.outcome == "failed"
    assert "its receipts cost epsilon 1.01" in run.note


def test_a_failing_method_leaves_the_others(spec: ReleaseSpec, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(this: MethodInput) -> MethodResult:
        raise ImportError("not here", name="peer")

    monkeypatch.setitem(METHODS, "peer", stub("peer", fail))
    request = AskedComparison(spec, ("peer", "independent"), (1.0,), 2)
    found = run_all(request, 1, only=["l1_1way"])
    assert [(r.method, r.outcome) for r in found.runs] == [
        *[("peer", "not installed")] * 2,
        *[("independent", "done")] * 2,
    ]
    assert "not installed" in format_markdown(found)


@pytest.mark.slow
def test_results_are_private_and_charge_nothing(spec: ReleaseSpec, places: Path) -> None:
    settings = Settings()
    request = AskedComparison(spec, ("default", "independent"), (1.0,), 2)
    done = compare(request, settings, only=["l1_1way", "l1_2way"])
    assert done.folder == settings.private_root / "compare" / "people-1"
    assert {p.name for p in done.folder.iterdir()} == {"results.json", "table.md", "plot.svg", "plot.png"}
    assert stat.S_IMODE(done.folder.stat().st_mode) == 0o700
    assert NOTICE in (done.folder / "table.md").read_text(encoding="utf-8").splitlines()[2]
    assert "PRIVATE" in (done.folder / "plot.svg").read_text(encoding="utf-8")
    stored = json.loads((done.folder / "results.json").read_text(encoding="utf-8"))
    assert next(iter(stored)) == "notice"
    assert stored["private"] is True
    assert Comparison.model_validate(stored) == done.results
    assert not settings.released_root.exists()
    assert not Path(settings.ledger).exists()
    assert compare(request, settings, only=["l1_1way"]).folder.name == "people-2"


def test_rows_of_a_person_beyond_the_bound_do_not_train(places: Path, save: Save) -> None:
    """A release would keep one row of each of 200 people; the metrics look at all 1,000."""
    rows = pa.table({"x": [i % 7 for i in range(1_000)], "pid": [f"p{i % 200}" for i in range(1_000)]})
    spec = make_spec(
        {"x": {"kind": "integer", "min": 0, "max": 6}, "pid": {"kind": "drop"}},
        data=save(rows),
        unit={"person_id": "pid", "max_records": 1},
        privacy={"epsilon": 50.0, "delta": 1e-9},
        budget={"epsilon": 100.0, "delta": 1e-8},
    )
    found = run_all(AskedComparison(spec, ("independent",), (50.0,), 1), 1, only=["l1_1way"])
    assert found.rows_real == 1_000
    assert found.runs[0].rows is not None
    assert abs(found.runs[0].rows - 200) < 20


def metric(value: float | None, better: str = "lower", note: str = "", **references: float) -> Metric:
    return Metric(
        name="m", title="A metric", group="marginals", value=value, unit="points", low=0, high=1,
        better=better, source="s", meaning="m", note=note, references=references,
    )  # fmt: skip


def comparison(runs: list[MethodRun], seeds: int = 2) -> Comparison:
    methods = tuple(
        ComparedMethod(name=n, title=n.upper(), description="d", source="s", private=True) for n in ("a", "b")
    )
    return Comparison(
        dataset="people", rows_real=10, rows_holdout=None, columns=("x",), delta=1e-9, unit_of_protection="one person",
        settings=EvaluationSpec(), machine="this one", methods=methods, epsilons=(1.0, 2.0), seeds=seeds,
        runs=tuple(runs),
    )  # fmt: skip


def run(method: str, epsilon: float, seed: int, value: float | None, **changes: Any) -> MethodRun:
    made = MethodRun(
        method=method, epsilon=epsilon, seed=seed, outcome="done", seconds=1.0 + seed, rows=10, metrics=(metric(value),)
    )
    return made.model_copy(update=changes)


def by_hand() -> Comparison:
    return comparison(
        [
            run("a", 1.0, 0, 0.1), run("a", 1.0, 1, 0.3),
            run("a", 2.0, 0, 0.1), run("a", 2.0, 1, None),
            run("b", 1.0, 0, 0.5), run("b", 1.0, 1, 0.5),
            run("b", 2.0, 0, 0.0, outcome="failed", metrics=(), seconds=None),
            run("b", 2.0, 1, 0.0, outcome="failed", metrics=(), seconds=None),
        ]
    )  # fmt: skip


def test_means_and_spreads_by_hand() -> None:
    """0.1 and 0.3: mean 0.2, sample sd sqrt(2 * 0.1^2 / 1) = 0.1414; one value has no spread; none has no mean."""
    line, seconds = list_lines(by_hand())
    first, one, equal, none = (line.cells[key] for key in (("a", 1.0), ("a", 2.0), ("b", 1.0), ("b", 2.0)))
    assert (first.mean, first.sd) == (pytest.approx(0.2), pytest.approx(0.141421, abs=1e-6))
    assert (one.mean, one.sd, one.values) == (0.1, None, 1)
    assert (equal.mean, equal.sd) == (0.5, 0.0)
    assert (none.mean, none.text()) == (None, "failed")
    assert first.text() == "0.2 ±0.14"
    assert (line.best(1.0), line.best(2.0)) == (pytest.approx(0.2), 0.1)
    assert (seconds.name, seconds.cells["a", 1.0].mean) == (SECONDS, 1.5)


def test_the_markdown_has_every_figure_and_marks_the_best() -> None:
    rows = list_markdown_table(by_hand())
    assert rows[2:] == [
        "| A metric ↓ | 1 | **0.2 ±0.14** | 0.5 ±0 |",
        "| A metric ↓ | 2 | **0.1** | failed |",
        "| Wall time, seconds | 1 | **1.5 ±0.71** | **1.5 ±0.71** |",
        "| Wall time, seconds | 2 | **1.5 ±0.71** | failed |",
    ]
    higher = comparison([run(m, 1.0, 0, None, metrics=(metric(v, "higher"),)) for m, v in (("a", 0.2), ("b", 0.4))], 1)
    assert list_markdown_table(higher, ["m"])[2] == "| A metric ↑ | 1 | 0.2 | **0.4** |"
    assert build_table(by_hand()).row_count == 4


def test_a_metric_that_nobody_has_is_told_below_the_table() -> None:
    nothing = comparison([run(m, 1.0, 0, None, metrics=(metric(None, note="needs a hold-out"),)) for m in "ab"])
    assert describe_missing(nothing) == ["A metric: needs a hold-out."]
    assert "A metric ↓" not in "\n".join(list_markdown_table(nothing))
    assert format_markdown(nothing).rstrip().endswith("A metric: needs a hold-out.")
    assert describe_missing(by_hand()) == []


def test_repeated_labels_and_groups_are_refused() -> None:
    with pytest.raises(RequestError) as refusal:
        load_evaluation_spec(None, ["happy", "region", "happy"])
    assert (refusal.value.field, refusal.value.problem) == (
        "evaluate.labels",
        "names the column 'happy' more than once",
    )
    with pytest.raises(ValueError, match="names the column 'a' more than once"):
        EvaluationSpec(groups=("a", "a"))
    assert EvaluationSpec(labels=("a", "b"), groups=("a",)).labels == ("a", "b")


def test_the_picture_shows_methods_metrics_and_references() -> None:
    runs = [run("a", e, 0, None, metrics=(metric(0.2, Majority=0.4, NonPriv=0.1, other=3.0),)) for e in (1.0, 2.0)]
    plot = draw_chart(build_chart(comparison(runs, 1)), "svg").decode()
    for word in ("A metric", "Majority", "NonPriv", "epsilon", "Wall time", ">A<"):
        assert word in plot, word
    assert ">other<" not in plot
    titled = draw_chart(build_chart(comparison(runs, 1), ["m"], "A title"), "svg").decode()
    assert "A title" in titled and "Wall time" not in titled
    assert draw_chart(build_chart(by_hand()), "png")[:8] == b"\x89PNG\r\n\x1a\n"


@pytest.mark.parametrize(
    ("changes", "field", "words"),
    [
        ({"methods": ("defalt",)}, "comparison.methods", "no method 'defalt'"),
        ({"methods": ()}, "comparison.methods", "names no method"),
        ({"methods": ("default", "default")}, "comparison.methods", "twice"),
        ({"epsilons": ()}, "comparison.epsilons", "names no epsilon"),
        ({"epsilons": (1.0, 1.0)}, "comparison.epsilons", "twice"),
        ({"epsilons": (0.0,)}, "comparison.epsilons", "0 is not above 0"),
        ({"epsilons": (float("nan"),)}, "comparison.epsilons", "nan"),
        ({"epsilons": (float("inf"),)}, "comparison.epsilons", "inf"),
        ({"seeds": 0}, "comparison.seeds", "0 is not from 1"),
        ({"seeds": 1_001}, "comparison.seeds", "1001"),
        ({"evaluation": EvaluationSpec(labels=("caseid",))}, "comparison.labels", "no column 'caseid'"),
    ],
)
def test_a_wrong_request_is_refused_before_anything_is_read(changes: dict[str, Any], field: str, words: str) -> None:
    request = replace(AskedComparison(make_spec(data="/nowhere/at/all.parquet")), **changes)
    with pytest.raises(RequestError) as refusal:
        run_all(request, 1)
    assert refusal.value.field == field
    assert words in refusal.value.problem


@pytest.fixture
def yaml(places: Path, save: Save) -> Path:
    save(people(300))
    path = places / "people.yaml"
    path.write_text(PEOPLE_YAML, encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--methods", "magic"), "--methods: there is no method 'magic'"),
        (("--epsilons", "0.2,one"), "--epsilons: 'one' is not a number"),
        (("--label", "happy", "--label", "happy"), "--label: names the column 'happy' more than once"),
        (("--holdout", ""), "--holdout: is empty"),
        (("--holdout", "/nowhere.parquet"), "--holdout: "),
        (("--data", "/nowhere.parquet"), "nowhere.parquet"),
    ],
)
def test_a_wrong_option_is_2_and_one_sentence_that_names_it(yaml: Path, arguments: tuple[str, ...], words: str) -> None:
    result = privsyn("compare", yaml, *arguments)
    assert result.exit_code == 2, result.output
    assert result.stdout == ""
    (said,) = [line for line in result.stderr.splitlines() if line.startswith("privsyn: ")]
    assert words in said
    assert result.stderr.rstrip().endswith(said.rstrip())
    assert "Traceback" not in result.output
    assert not Settings().private_root.exists()


@pytest.mark.slow
def test_the_command_prints_one_table_or_one_object(yaml: Path, places: Path) -> None:
    common = ("compare", yaml, "--methods", "default,independent", "--epsilons", "1", "--seeds", 2)
    shown = privsyn(*common)
    assert shown.exit_code == 0, shown.output
    assert "Not private" in shown.stderr
    assert "Charges nothing" in shown.stderr
    assert "privsyn compare people: private" in shown.stdout
    for words in (
        "default",
        "independent",
        "Error of pairs of columns",
        "Misclassification of happy",
        "Wall time",
        "Look next at:",
        "±",
    ):
        assert words in shown.stdout, words
    fewer = ("compare", yaml, "--methods", "independent", "--epsilons", "0.5,1", "--seeds", 1)
    result = privsyn(*fewer, "--label", "region", "--out", places / "elsewhere", "--json")
    assert result.exit_code == 0, result.output
    answer = json.loads(result.stdout)
    assert (answer["private"], answer["runs"], answer["done"]) == (True, 2, 2)
    assert Path(answer["folder"]) == places / "elsewhere" / "private" / "compare" / "people-1"
    assert {"svm:region", "l1_2way", SECONDS} <= {f["metric"] for f in answer["figures"]}
    assert [said for said in answer["not_computed"] if "hold-out" in said]
    assert {(f["method"], f["epsilon"]) for f in answer["figures"]} == {("independent", 0.5), ("independent", 1.0)}
    assert not Path(Settings().ledger).exists()


def test_no_run_done_is_1(yaml: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(this: MethodInput) -> MethodResult:
        raise ValueError("CANARY")

    monkeypatch.setitem(METHODS, "broken", stub("broken", fail))
    result = privsyn("compare", yaml, "--methods", "broken", "--epsilons", "1", "--seeds", 1)
    assert result.exit_code == 1
    assert "broken: 1 runs failed (ValueError at fail:" in result.stdout
    assert "CANARY" not in result.output
