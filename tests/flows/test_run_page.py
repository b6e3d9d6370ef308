"""What the run page shows of a release: figures by hand, a function of the released folder, and no reason to fail."""

from __future__ import annotations

import json
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any
from uuid import UUID

import numpy as np
import pyarrow.parquet as pq
import pytest
from prefect.artifacts import Artifact
from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import ArtifactFilter, ArtifactFilterFlowRunId, LogFilter, LogFilterFlowRunId

from privsyn.api.release import propose_release
from privsyn.base.settings import Settings
from privsyn.data_contracts.receipts import Query
from privsyn.data_contracts.release_spec import ReleaseSpec
from privsyn.engine.step import ReleaseStep
from privsyn.evaluation.coded_tables import open_release, open_table
from privsyn.evaluation.private_evaluation import FIGURES, REPORT
from privsyn.flows import run_page as progress
from privsyn.flows.release import release
from privsyn.flows.run_page import (
    count_held,
    format_budget_page,
    format_certificate_page,
    format_files_page,
    read_budget,
)
from privsyn.ledgers.ledger import Ledger
from privsyn.pipelines.one_shot import STEPS
from privsyn.publish import noise_overview as overviews
from privsyn.publish import overview_chart, release_note
from privsyn.publish import overview_chart as pictures
from privsyn.publish.folder import ReleaseSummary
from privsyn.publish.noise_overview import Overview, ReleasedInputs, build_overview, write_overview
from privsyn.publish.overview_chart import draw_in_subprocess
from privsyn.publish.release_note import list_looks
from privsyn.storage.released_files import read_certificate, read_manifest
from privsyn.tasks.codecs import plan
from privsyn.tasks.estimation.marginals import Marginal
from privsyn.tasks.estimation.recode import AttributeRecode, build_coarse_domain, recode_from_table
from privsyn.tasks.kernels import blocks
from privsyn.tasks.kernels.counting import CodeTable
from privsyn.tasks.metrics.error_sources import recode_codes
from tests.support.examples import keep_first
from tests.support.kept import Kept
from tests.support.linked_tables import make_tables_spec, make_tree, make_tree_content, save_tables
from tests.support.releases import QUICK
from tests.support.specs import make_spec, people_with

First = tuple[ReleaseSummary, dict[str, Artifact]]
"""What a run of the flow returned, and the artifacts of its run page by key."""

SHOWN = tuple(
    f"{kind}-people"
    for kind in ("release-note", "certificate", "budget", "files", "contracts", "columns", "overview", "private-report")
)


# by hand

SPEC = make_spec(
    {
        "age": {"kind": "integer", "min": 0, "max": 3},
        "happy": {"kind": "boolean", "nullable": False},
    }
)


def recode(coarse: list[int], kept: list[bool], estimate: list[float]) -> AttributeRecode:
    weight, variance = np.ones(len(coarse)), np.full(len(coarse), 4.0)
    return AttributeRecode(np.array(coarse, np.int32), np.array(kept), weight, np.array(estimate), variance)


def by_hand() -> ReleasedInputs:
    """Ages 0 and 1 are kept, 2 and 3 left out (sigma 2 each); noisy total 10; four synthetic rows."""
    encoding = plan(SPEC)
    found = {
        "age": recode([0, 1, 2, 2], [True, True, False, False], [4.0, 5.0, 0.0, 1.0]),
        "happy": recode([0, 1], [True, True], [6.0, 4.0]),
    }
    codes = np.array([[0, 0, 1, 1], [0, 1, 1, 1]], np.uint8)
    consistent = (
        Marginal(("age",), np.array([4.0, 6.0])),
        Marginal(("happy",), np.array([6.0, 4.0])),
        Marginal(("age", "happy"), np.array([[4.0, 0.0], [2.0, 4.0]])),
    )
    measured = (Query(("age", "happy"), 4, 1, 2.0),)
    return ReleasedInputs(encoding, found, measured, consistent, CodeTable(build_coarse_domain(found), tuple(codes)))


def test_figures_by_hand() -> None:
    """age: noisy 4 5 1 of 10, sd 2 2 sqrt(8) of 10, synthetic 2 2 0 of 4; L1 to 0.4 0.6: 0.1 + 0.1.

    The pair: synthetic 0.25 0.25 / 0 0.5 against 0.4 0 / 0.2 0.4: 0.15 + 0.25 + 0.2 + 0.1 = 0.7; the noise of 4 cells
    of sd 0.2 has an expected L1 of 4 x 0.2 x sqrt(2 / pi).
    """
    found = build_overview(by_hand())
    age, happy = found.one_ways
    assert age.noisy == pytest.approx((0.4, 0.5, 0.1))
    assert age.noise_sd == pytest.approx((0.2, 0.2, 0.8**0.5 * 10**0.5 / 10))
    assert age.synthetic == (0.5, 0.5, 0.0)
    assert age.labels == ("0", "1", "left out: 2 rare")
    assert happy.labels == tuple(plan(SPEC).codecs[1].labels())
    assert [(c.column, c.bins) for c in found.columns] == [("age", 2), ("happy", 2)]
    assert found.columns[0].synthesis_l1 == pytest.approx(0.2)
    (pair,) = found.marginals
    assert (pair.attributes, pair.cells) == (("age", "happy"), 4)
    assert pair.synthesis_l1 == pytest.approx(0.7)
    assert pair.expected_noise_l1 == pytest.approx(0.8 * (2 / np.pi) ** 0.5)
    assert (found.pairs_measured, found.pairs) == (1, 1)
    assert "1 of 1 pairs" in write_overview(found)
    assert "| age × happy | 4 | 0.64 | 0.7 |" in write_overview(found)


def test_neighbours_are_named_by_the_first_and_the_last_and_others_by_how_many() -> None:
    whole = by_hand()
    labels = {}
    for coarse in ([0, 1, 1, 1], [0, 1, 1, 0]):
        found = {**whole.recode, "age": recode(coarse, [True] * 4, [4.0, 5.0, 0.0, 1.0])}
        codes = CodeTable(build_coarse_domain(found), whole.codes.columns)
        consistent = [m for m in whole.consistent if len(m.attributes) == 1]
        shown = build_overview(ReleasedInputs(whole.encoding, found, (), tuple(consistent), codes)).one_ways[0]
        labels[tuple(coarse)] = shown.labels
    assert labels == {(0, 1, 1, 1): ("0", "1 to 3"), (0, 1, 1, 0): ("1 to 2", "together: 2 rare")}


def test_no_rows_and_nothing_measured_are_shown_too() -> None:
    whole = by_hand()
    none = CodeTable(whole.codes.domain, tuple(c[:0] for c in whole.codes.columns))
    empty = [Marginal(m.attributes, 0 * m.counts) for m in whole.consistent]
    found = build_overview(ReleasedInputs(whole.encoding, whole.recode, (), tuple(empty), none))
    assert [c.synthesis_l1 for c in found.columns] == [0.0, 0.0]
    assert (found.marginals, found.pairs_measured) == ((), 0)
    assert "No relation was measured" in write_overview(found)
    assert pictures.draw_overview(found.one_ways, found.marginals).startswith(b"\x89PNG")


# under Prefect


@pytest.fixture(autouse=True)
def no_step_is_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """However busy the machine is: a bar is shown where a test asks for it."""
    monkeypatch.setattr(progress, "BAR_AFTER_SECONDS", 600.0)


@pytest.fixture
def spec(kept: Kept, monkeypatch: pytest.MonkeyPatch) -> ReleaseSpec:
    return make_spec(data=kept.begin_with(monkeypatch, people_with("zanzibar", 600)), synthesis={"sweeps": 1})


@pytest.fixture
def first(kept: Kept, spec: ReleaseSpec, prefect_server: str) -> First:
    """What the first run of ``spec`` returned, and its artifacts, the same for every test that asks for it.

    A process of its own drew its picture.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(overview_chart, "draw_in_subprocess", draw_in_subprocess)
        return kept.once(lambda: run(spec))


def run(spec: ReleaseSpec) -> tuple[ReleaseSummary, dict[str, Artifact]]:
    """Run the flow; what it returned, and the artifacts of its run page by key."""
    state = release(spec, return_state=True)
    flow_run = state.state_details.flow_run_id
    assert flow_run is not None
    return state.result(), artifacts(flow_run)


def artifacts(flow_run: UUID) -> dict[str, Any]:
    mine = ArtifactFilter(flow_run_id=ArtifactFilterFlowRunId(any_=[flow_run]))
    with get_client(sync_client=True) as client:
        return {str(a.key): a for a in client.read_artifacts(artifact_filter=mine)}


def from_folder(folder: Path) -> Overview:
    """The overview from a released folder alone: the codes are read back from the synthetic rows."""
    opened = open_release(folder, Settings(), "nowhere")
    names = ("recode", "measured_receipts", "measured", "consistent")
    recode, receipts, answers, consistent = (pq.read_table(folder / f"marginals/{n}.parquet") for n in names)
    fine = open_table(folder / "synthetic.parquet", opened.encoding, opened.spec, "folder").read().fine
    codes = recode_codes(fine, recode_from_table(recode))
    rows = CodeTable(codes.domain, codes.columns).to_arrow().to_batches()
    return build_overview(ReleasedInputs.of(opened.encoding, recode, [receipts], [answers], consistent, rows))


def test_the_run_page_shows_what_the_released_folder_says_and_nothing_else(first: First, tmp_path: Path) -> None:
    """Everything shown is computed once more from a copy of the released folder, with the private zone out of reach."""
    summary, shown = first
    assert set(shown) == set(SHOWN)
    folder = Path(summary.released)
    Settings().private_root.rename(tmp_path / "gone")
    found = from_folder(folder)
    drawing = (folder / release_note.NAME).read_text()
    linked, held = f"({release_note.NAME})", f"({release_note.make_data_uri(drawing)})"
    readme = (folder / "README.md").read_text()
    assert linked in readme
    note = readme.replace(linked, held) + "\n" + write_overview(found)
    assert shown["release-note-people"].data == note
    assert json.loads(str(shown["columns-people"].data)) == found.column_rows()
    title = f"Release {summary.run} of people"
    picture = pictures.make_data_uri(pictures.draw_overview(found.one_ways, found.marginals, title=title))
    assert shown["overview-people"].type == "image"
    assert shown["overview-people"].data == picture
    assert shown["certificate-people"].data == format_certificate_page(read_certificate(folder), list_looks(STEPS))
    promise = json.loads((folder / "certificate.json").read_text())
    told = [f"| {float(Fraction(stage['rho_spent'])):.6g} |" for stage in promise["stages"]]
    told.append(f"({summary.epsilon:g}, {summary.delta:g})-differential privacy")
    assert [words for words in told if words not in str(shown["certificate-people"].data)] == []
    private = Settings().private_root
    places = (folder, private / "runs" / summary.run, private / "reports" / summary.run / "report.html")
    assert shown["files-people"].data == format_files_page(read_manifest(folder), *places, "")
    ledger = Ledger(Settings().ledger)
    budget = read_budget(ledger, "people", {e.key for e in ledger.entries("people")})
    assert budget is not None
    drawn = "This run drew the noise of: One-way marginals, InDif scores, Measure marginals."
    assert shown["budget-people"].data == format_budget_page(budget, ledger.name, drawn)
    assert all("zanzibar" not in str(a.data) + str(a.description) for a in shown.values())


def test_great_expectations_validated_every_rule_of_every_table_and_the_page_shows_them(
    first: First, spec: ReleaseSpec
) -> None:
    """Rules come from the declared contracts, and beside them the receipts of each release step against its total."""
    _, shown = first
    told = json.loads(str(shown["contracts-people"].data))
    wanted = {
        (step.title, contract.name, expectation.type)
        for step in STEPS
        for contract in step.outputs.values()
        if contract.name != "empty_cells"  # this release found none, and a table without rows breaks no rule
        for expectation in contract.expectations
    } | {
        (step.title, f"receipts of {step.name}", "expect_column_sum_to_be_between")
        for step in STEPS
        if isinstance(step, ReleaseStep)
    }
    assert {(row["step"], row["table"], row["rule"]) for row in told} == wanted
    assert {row["held"] for row in told} == {"yes"} and {row["step"] for row in told} == {s.title for s in STEPS}
    said = str(shown["contracts-people"].description)
    assert said.startswith(f"{len(told)} of {len(told)} rules held: people-")  # before the rules themselves
    kept = sorted((Settings().private_root).rglob("contracts-*.json"))
    assert len(kept) == len(STEPS)
    assert not any(word in path.read_text() for path in kept for word in ("observed", "element_count", "zanzibar"))
    assert json.loads(str(run(spec)[1]["contracts-people"].data)) == told  # a cached run shows what was found then


def test_rules_that_held_are_counted_by_hand() -> None:
    held = [("a", "yes"), ("b", "no"), ("c", "yes"), ("", "no tables")]
    assert count_held([{"rule": rule, "held": word} for rule, word in held]) == "2 of 3 rules held"


@pytest.mark.slow
def test_the_budget_tells_this_release_from_others_and_a_run_that_costs_nothing(
    spec: ReleaseSpec, first: First
) -> None:
    summary, _ = first
    again = str(run(spec)[1]["budget-people"].data)
    assert "This run drew no noise and cost nothing" in again
    assert "| other releases | 0 % | 0 |" in again
    assert f" | {summary.rho:.6g} |\n| left" in again and "used; " in again
    other = spec.model_copy(update={"privacy": spec.privacy.model_copy(update={"epsilon": 2.0})})
    second, shown = run(other)
    page = str(shown["budget-people"].data)
    assert f" % | {summary.rho:.6g} |\n| this release" in page
    assert f" % | {second.rho:.6g} |\n| left" in page


def test_a_refused_run_shows_what_is_left(spec: ReleaseSpec, first: First) -> None:
    large = spec.model_copy(update={"privacy": spec.budget.model_copy(update={"epsilon": 9.99})})
    state = release(large, return_state=True)
    assert (state.type.value, state.name) == ("FAILED", "Refused")
    flow_run = state.state_details.flow_run_id
    assert flow_run is not None
    shown = artifacts(flow_run)
    assert set(shown) == {"budget-people"}
    assert f"**Refused.** {state.message}" in str(shown["budget-people"].data)
    assert "still fits" in str(state.message)
    assert "| this release | 0 % | 0 |" in str(shown["budget-people"].data)


def test_a_refused_first_run_has_no_budget_to_show_and_no_ledger_is_made_for_it(
    spec: ReleaseSpec, prefect_server: str
) -> None:
    beyond = spec.model_copy(update={"privacy": spec.budget.model_copy(update={"epsilon": 11.0})})
    state = release(beyond, return_state=True)
    flow_run = state.state_details.flow_run_id
    assert (state.name, flow_run is None) == ("Refused", False)
    assert artifacts(flow_run) == {}


@pytest.mark.slow
def test_a_long_step_has_a_bar_on_the_run_and_not_over_the_steps_names_on_its_graph(
    spec: ReleaseSpec, prefect_server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "BAR_AFTER_SECONDS", 0.0)
    bars: list[Artifact] = []

    def delete(artifact: UUID) -> None:
        with get_client(sync_client=True) as client:
            bars.extend(
                client.read_artifacts(artifact_filter=ArtifactFilter.model_validate({"id": {"any_": [artifact]}}))
            )
        delete_bar(artifact)

    delete_bar = progress.delete_bar
    monkeypatch.setattr(progress, "delete_bar", delete)
    _, shown = run(spec)
    assert {str(bar.key) for bar in bars} == {f"progress-{step.name.replace('_', '-')}" for step in STEPS}
    assert {bar.data for bar in bars} == {100.0} and all(bar.task_run_id is None for bar in bars)
    assert not any(key.startswith("progress-") for key in shown)


def test_the_link_says_where_the_private_report_lies(spec: ReleaseSpec, first: First) -> None:
    summary, shown = first
    place = Settings().private_root / "reports" / summary.run / REPORT
    assert place.as_uri() in str(shown["private-report-people"].data)
    words = str(shown["private-report-people"].description)
    assert f"`{place}`" in words
    assert f"not there yet: `privsyn evaluate {summary.run}`" in words
    assert FIGURES not in str(shown["private-report-people"].data)
    place.parent.mkdir(parents=True)
    place.write_text("a figure of zanzibar")
    again = str(run(spec)[1]["private-report-people"].description)
    assert "It is there." in again


@pytest.mark.parametrize(
    "place",
    keep_first([(overviews, "build_overview"), (overview_chart, "draw_in_subprocess")]),
    ids=["figures", "picture"],
)
def test_an_error_in_the_overview_fails_nothing_and_is_told_by_its_type(
    spec: ReleaseSpec, first: First, monkeypatch: pytest.MonkeyPatch, place: tuple[Any, str]
) -> None:
    def fail(*arguments: object, **named: object) -> None:
        raise ZeroDivisionError("zanzibar")

    monkeypatch.setattr(*place, fail)
    state = release(spec, return_state=True)
    assert state.is_completed()
    flow_run = state.state_details.flow_run_id
    assert flow_run is not None
    shown = artifacts(flow_run)
    assert (
        {f"{k}-people" for k in ("certificate", "budget", "files", "private-report", "release-note")}
        <= set(shown)
        < set(SHOWN)
    )
    from prefect.logging.handlers import APILogWorker

    APILogWorker.instance().drain()
    with get_client(sync_client=True) as client:
        said = [log.message for log in client.read_logs(LogFilter(flow_run_id=LogFilterFlowRunId(any_=[flow_run])))]
    assert [m for m in said if "ZeroDivisionError" in m]
    assert not [m for m in said if "zanzibar" in m]


def test_nothing_is_drawn_outside_a_flow_run(spec: ReleaseSpec, first: First, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(overview_chart, "draw_in_subprocess", lambda *a, **k: pytest.fail("drawn"))
    monkeypatch.setattr(overviews, "build_overview", lambda *a, **k: pytest.fail("computed"))
    assert release.fn(spec).rows > 0


def test_a_private_table_is_refused_by_the_overview(spec: ReleaseSpec, monkeypatch: pytest.MonkeyPatch) -> None:
    """The planted mutant: the private rows' table in place of the synthetic codes' one."""
    from privsyn.data_contracts.artifacts import Zone
    from privsyn.engine.open_run import open_run
    from privsyn.engine.step import run_steps
    from privsyn.storage.released_root import ZoneError
    from tests.support.releases import release_in_process

    release_in_process(spec, Settings())
    with open_run(propose_release(spec, Settings())) as opened:
        refs = run_steps(opened.steps, opened.execute)
        ReleasedInputs.of_run(opened, refs)
        rows = refs["recode_rows"].tables["recoded_rows"]
        assert rows.zone is Zone.PRIVATE
        mutant = refs["append_attributes"].model_copy(update={"tables": {"codes": rows}})
        with pytest.raises(ZoneError):
            ReleasedInputs.of_run(opened, {**refs, "append_attributes": mutant})


def test_the_overview_counts_stored_rows_block_by_block(spec: ReleaseSpec, monkeypatch: pytest.MonkeyPatch) -> None:
    """3,000 synthetic rows in blocks of 1,024: the same figures as from all of them in memory, and never more held."""
    from privsyn.engine.open_run import open_run
    from privsyn.engine.step import run_steps
    from tests.support.releases import release_in_process

    larger = spec.with_rows(rows=3_000)
    release_in_process(larger, Settings())
    held: list[int] = []
    read = CodeTable.from_arrow

    def watched(*arguments: Any, **named: Any) -> CodeTable:
        found = read(*arguments, **named)
        held.append(found.rows)
        return found

    with open_run(propose_release(larger, Settings())) as opened:
        refs = run_steps(opened.steps, opened.execute)
        monkeypatch.setattr(blocks, "BLOCK_BYTES", 1)
        monkeypatch.setattr(CodeTable, "from_arrow", watched)
        inputs = ReleasedInputs.of_run(opened, refs)
        found = build_overview(inputs, threads=2)
        rows = list(opened.store.read_batches(refs["append_attributes"].tables["codes"]))
        whole = read(rows, inputs.codes.domain)
    assert 0 < max(held) <= 1_024
    assert whole.rows == 3_000
    assert found == build_overview(replace(inputs, codes=whole))


@pytest.mark.slow
@pytest.mark.usefixtures("prefect_server", "places")
def test_the_flow_makes_a_tree_of_tables_and_finds_them_again(tmp_path: Path) -> None:
    spec = make_tables_spec(save_tables(tmp_path, make_tree(200), make_tree_content()), **QUICK)
    summary = release(spec)
    made = {path.stem: pq.read_table(path) for path in (Path(summary.released) / "tables").glob("*.parquet")}
    assert set(made) == {"persons", "visits", "drugs", "buys"}
    again, shown = run(spec)
    assert again.released == summary.released
    for name, table in made.items():
        card = shown[f"table-{name}-{spec.dataset}"]
        assert f"{name}: {table.num_rows:,} synthetic rows" in str(card.description)
        assert [list(row) for row in json.loads(str(card.data))] == [table.column_names] * min(5, table.num_rows)
