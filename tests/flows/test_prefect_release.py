"""Release and evaluation under Prefect: names, Cached, damage, and that its database and pages hold nothing private."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest
from prefect.artifacts import Artifact
from prefect.client.orchestration import get_client
from prefect.states import State

from privsyn.base.errors import ContractError, PrivsynError
from privsyn.base.settings import Settings
from privsyn.data_contracts.artifacts import ArtifactRef
from privsyn.data_contracts.evaluation import EvaluationSpec
from privsyn.data_contracts.release_spec import ReleaseSpec
from privsyn.engine.step_tables import StepRefs
from privsyn.flows.evaluate import evaluate
from privsyn.flows.release import release
from privsyn.pipelines import one_shot as steps
from privsyn.pipelines.one_shot import STEPS
from privsyn.publish.folder import ReleaseSummary
from tests.support.kept import Kept
from tests.support.prefect_runs import list_states, log, read_database
from tests.support.releases import release_in_process, spent
from tests.support.specs import make_spec, people, people_with

LABELS = [step.label for step in STEPS]
DRAWING = ("one_way_marginals", "indif_scores", "measure_marginals")
SECRET = b"zanzibar"
"""Found in private rows, in a column that is dropped, too, and in nothing public."""

pytestmark = pytest.mark.usefixtures("prefect_server")


@pytest.fixture
def spec(kept: Kept, monkeypatch: pytest.MonkeyPatch) -> ReleaseSpec:
    return make_spec(data=kept.begin_with(monkeypatch, people_with("zanzibar", 600)), compression={"sigmas": 1.0})


def attempt(spec: ReleaseSpec, **how: Any) -> tuple[State[Any], UUID]:
    state = release(spec, return_state=True, **how)
    assert state.state_details.flow_run_id is not None
    return state, state.state_details.flow_run_id


def run(spec: ReleaseSpec, **how: Any) -> tuple[ReleaseSummary, dict[str, str]]:
    """Run the flow; what it returned, and the final state of every task run by its name."""
    state, flow_run = attempt(spec, **how)
    return state.result(), published(flow_run)


@dataclass(frozen=True)
class First:
    """The first run of ``spec``: what it returned, the states of its tasks, what it cost."""

    summary: ReleaseSummary
    ran: dict[str, str]
    cost: Fraction


@pytest.fixture
def first(kept: Kept, spec: ReleaseSpec) -> First:
    """A finished run of ``spec`` on this server, the same for every test that asks for it."""
    return kept.once(lambda: First(*run(spec), spent()))


def published(flow_run: UUID) -> dict[str, str]:
    """The states of all steps of a run that went through; the task after them publishes, and is never cached."""
    found = list_states(flow_run, len(STEPS) + 1)
    assert found.pop("Publish") == "Completed"
    return found


def results() -> list[Path]:
    return sorted((Settings().private_root / "prefect" / "results").iterdir())


def test_every_step_is_a_task_of_its_title_and_the_second_run_finds_all_cached(spec: ReleaseSpec, first: First) -> None:
    assert first.ran == dict.fromkeys(LABELS, "Completed")
    assert first.summary.drawn == DRAWING
    again, found = run(spec)
    assert found == dict.fromkeys(LABELS, "Cached")
    assert again.drawn == ()
    assert (again.run, spent()) == (first.summary.run, first.cost)
    # Prefect holds references and no private value.
    assert SECRET in Path(spec.data).read_bytes()
    stored = [json.loads(p.read_text())["data"] for p in results()]
    refs = [StepRefs.model_validate(content) for content in stored]
    assert {r.step for r in refs} == {s.name for s in STEPS}
    assert all(type(table) is ArtifactRef for r in refs for table in r.tables.values())
    rows = read_database()
    assert b"synthesize" in rows  # the right file, and written
    assert not any(SECRET in content for content in (rows, *(p.read_bytes() for p in results())))


def test_results_that_another_runner_keeps_elsewhere_are_not_used(
    spec: ReleaseSpec, first: First, tmp_path: Path
) -> None:
    moved = tmp_path / "moved"
    (Settings().private_root / "prefect" / "results").rename(moved)
    for record in (Settings().private_root / "prefect" / "records").iterdir():
        content = json.loads(record.read_text())
        record.write_text(json.dumps({**content, "storage_key": str(moved / record.name)}))
    again, ran = run(spec)
    assert ran == dict.fromkeys(LABELS, "Completed")
    assert again.drawn == ()


def test_damaged_results_and_records_are_made_again_without_noise(spec: ReleaseSpec, first: First) -> None:
    """Each step's result or record is damaged in a way of its own."""
    records = sorted((Settings().private_root / "prefect" / "records").iterdir())
    ways = [b"", b"{}", b'{"result": 1', b"[]", b"\xff\xfe", b'{"data": {"step": "encode"}}']
    for i, file in enumerate([*results()[:6], *records[6:]]):
        file.write_bytes(ways[i % len(ways)])
    again, ran = run(spec)
    assert ran == dict.fromkeys(LABELS, "Completed")
    assert again.drawn == ()


def test_a_broken_contract_is_a_state_and_a_table_on_the_run_page(
    spec: ReleaseSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrong = pa.table({"a": ["zanzibar"], "b": ["income"], "score": ["high"]})
    monkeypatch.setattr(steps.select_marginals, "select", lambda *how, **options: wrong)
    state, flow_run = attempt(spec)
    assert (state.name, state.type.value) == ("ContractFailed", "FAILED")
    assert "'pairs' breaks its contract" in str(state.message)
    assert b"breaks its contract" in read_database() and b"zanzibar" not in read_database()
    with pytest.raises(ContractError) as broken:
        state.result()
    assert broken.value.exit_code == 1
    assert list_states(flow_run, 6)["Select pairs (postprocess)"] == "Failed"
    shown = Artifact.get("contract-failures-people")
    assert shown is not None
    assert shown.flow_run_id == flow_run
    rows = json.loads(str(shown.data))
    assert rows
    assert {row["table"] for row in rows} == {"pairs"}
    assert {"table": "pairs", "column": "score (double)", "expectation": "schema: missing"} in rows
    assert {"table": "pairs", "column": "score (string)", "expectation": "schema: not asked for"} in rows
    assert not (Settings().released_root / "people").exists()


def test_the_run_form_has_every_field_with_its_description() -> None:
    schema = release.parameters.model_dump()
    models = schema["definitions"]
    assert schema["properties"]["spec"]["$ref"] == "#/definitions/ReleaseSpec"
    assert schema["required"] == ["spec"]
    assert set(models["ReleaseSpec"]["properties"]) == set(ReleaseSpec.model_fields)
    for name, model in models.items():
        for field, content in model["properties"].items():
            assert content.get("description") or field == "kind", f"{name}.{field} has no description"


QUICK = EvaluationSpec(range_queries=20, nist_schemas=5, nist_queries=5, attack_rows=20)
CANARY = "zanzibar"


@pytest.fixture
def made(places: Path, save: Callable[..., str]) -> ReleaseSummary:
    table = people(300)
    table = table.set_column(2, "region", pa.array([CANARY] * table.num_rows))
    return release_in_process(make_spec(data=save(table), synthesis={"iterations": 2}), Settings())


LOGGED = (
    r"Beginning flow run '[^']+' for flow 'evaluate'",
    r"View at https?://\S+",
    r"Finished in state Completed\(\)",
)
"""All that a whole evaluation may log, its flow and its tasks together."""


def artifacts() -> dict[UUID, str | None]:
    """Key of every artifact on the server."""
    with get_client(sync_client=True) as client:
        return {a.id: a.key for a in client.read_artifacts(limit=200) if a.id is not None}


def written(value: float) -> set[bytes]:
    """The value in full and to 7 to 10 decimals, as a share and as a percentage.

    Fewer decimals stand in a database by chance, in its times of day; that logs and artifacts hold no shorter figure
    is checked on their whole texts.
    """
    texts = {f"{v:.{n}f}" for v in (value, 100 * value) for n in range(7, 11)} | {repr(value)}
    return {t.encode() for t in texts if "." in t and len(set(t.rstrip("0")) - set("0.-e")) >= 4 and len(t) >= 9}


def test_the_report_is_written_and_prefect_holds_no_figure_of_it(made: ReleaseSummary) -> None:
    before = artifacts()
    with log() as logged:
        summary = evaluate(made.run, settings=QUICK)
    assert [key for id_, key in artifacts().items() if id_ not in before] == ["private-report-people"]
    assert len(logged) > 5  # the flow's and its five tasks'
    assert [m for m in logged if not any(re.fullmatch(p, m) for p in LOGGED)] == []
    assert summary.report is not None and Path(summary.report).is_file()
    figures = json.loads(Path(str(summary.figures)).read_text(encoding="utf-8"))
    link = Artifact.get("private-report-people")
    assert link is not None and made.run in str(link.description)
    rows = read_database()
    assert made.run.encode() in rows  # the right file, and written
    values = [m["value"] for m in figures["scores"][0]["metrics"]] + [p["l1"] for p in figures["pairs"]]
    texts = set().union(*(written(v) for v in values if v is not None))
    assert len(texts) > 50
    assert [text for text in texts if text in rows] == []
    assert CANARY.encode() not in rows


def test_a_stage_that_fails_shows_its_type_only(made: ReleaseSummary, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> None:
        raise ValueError(f"could not convert {CANARY!r}")

    monkeypatch.setattr("privsyn.evaluation.scores.average_correlation_difference", broken)
    with pytest.raises(PrivsynError) as caught:
        evaluate(made.run, settings=QUICK)
    assert "unexpected ValueError" in str(caught.value) and CANARY not in str(caught.value)
    assert caught.value.__cause__ is None
    assert CANARY.encode() not in read_database()
    kept = Settings().private_root / "failure.txt"
    assert CANARY in kept.read_text(encoding="utf-8") and kept.stat().st_mode & 0o077 == 0


def test_noisy_figures_are_released_only_when_asked_for(made: ReleaseSummary) -> None:
    before = {p.name for p in Settings().released_root.iterdir()}
    summary = evaluate(made.run, settings=QUICK, epsilon_report=0.5)
    assert summary.quality is not None and summary.report is None
    assert not (Settings().private_root / "reports").exists()
    assert {p.name for p in Settings().released_root.iterdir()} - before == {summary.quality.run}
