"""The evaluation under Prefect: its tasks, and that its database and pages hold no figure and no private value."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from uuid import UUID

import pyarrow as pa
import pytest
from prefect.artifacts import Artifact
from prefect.client.orchestration import get_client

from privsyn.base.errors import PrivsynError
from privsyn.base.settings import Settings
from privsyn.data_contracts.evaluation import EvaluationSpec
from privsyn.flows.evaluate import evaluate
from privsyn.publish.folder import ReleaseSummary
from tests.support.prefect_runs import log, read_database
from tests.support.releases import release_in_process
from tests.support.specs import make_spec, people

QUICK = EvaluationSpec(range_queries=20, nist_schemas=5, nist_queries=5, attack_rows=20)
CANARY = "zanzibar"

pytestmark = pytest.mark.usefixtures("prefect_server")


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
