"""The evaluation under Prefect: its tasks, and that its database and pages hold no figure and no private value."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from prefect.artifacts import Artifact
from prefect.settings import get_current_settings

from data_contracts.evaluation_spec import EvaluationSpec
from flows.direct import release_directly
from flows.errors import PrivsynError
from flows.evaluate_flow import evaluate
from flows.publish import ReleaseSummary
from flows.settings import Settings
from tests.specs import make_spec, people

QUICK = EvaluationSpec(range_queries=20, nist_schemas=5, nist_queries=5, attack_rows=20)
CANARY = "zanzibar"

pytestmark = pytest.mark.usefixtures("prefect_server")


@pytest.fixture
def made(places: Path, save: Callable[..., str]) -> ReleaseSummary:
    table = people(300)
    table = table.set_column(2, "region", pa.array([CANARY] * table.num_rows))
    return release_directly(make_spec(data=save(table), synthesis={"iterations": 2}), Settings())


def database() -> bytes:
    url = get_current_settings().server.database.connection_url
    assert url is not None
    file = Path(url.get_secret_value().split(":///")[1])
    return b"".join(p.read_bytes() for p in file.parent.glob(f"{file.name}*"))


def test_the_report_is_written_and_prefect_holds_no_figure_of_it(made: ReleaseSummary) -> None:
    summary = evaluate(made.run, settings=QUICK)
    assert summary.report is not None and Path(summary.report).is_file()
    figures = json.loads(Path(str(summary.figures)).read_text(encoding="utf-8"))
    link = Artifact.get("private-report")
    assert link is not None and made.run in str(link.description)
    rows = database()
    assert made.run.encode() in rows  # the right file, and written
    values = [m["value"] for m in figures["scores"][0]["metrics"]] + [p["l1"] for p in figures["pairs"]]
    long = [repr(v).encode() for v in values if v is not None and len(repr(v)) > 8]
    assert len(long) > 10
    assert all(value not in rows for value in long)
    assert CANARY.encode() not in rows


def test_a_stage_that_fails_shows_its_type_only(made: ReleaseSummary, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> None:
        raise ValueError(f"could not convert {CANARY!r}")

    monkeypatch.setattr("flows.scores.classification", broken)
    with pytest.raises(PrivsynError) as caught:
        evaluate(made.run, settings=QUICK)
    assert "unexpected ValueError" in str(caught.value) and CANARY not in str(caught.value)
    assert caught.value.__cause__ is None
    assert CANARY.encode() not in database()
    assert CANARY in (Settings().private_root / "failure.txt").read_text(encoding="utf-8")


def test_noisy_figures_are_released_only_when_asked_for(made: ReleaseSummary) -> None:
    before = {p.name for p in Settings().released_root.iterdir()}
    summary = evaluate(made.run, settings=QUICK, epsilon_report=0.5)
    assert summary.quality is not None and summary.report is None
    assert not (Settings().private_root / "reports").exists()
    assert {p.name for p in Settings().released_root.iterdir()} - before == {summary.quality.run}
