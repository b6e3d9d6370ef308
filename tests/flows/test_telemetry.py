"""Traces and lineage of a release: what receivers are told, what they are not, and that they fail no release."""

from __future__ import annotations

import builtins
import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from privsyn.base.errors import PrivsynError, RequestError
from privsyn.base.settings import Settings
from privsyn.data_contracts.evaluation import EvaluationSpec
from privsyn.data_contracts.release_spec import ReleaseSpec
from privsyn.engine.execute import Run
from privsyn.evaluation.private_evaluation import AskedEvaluation, evaluate
from privsyn.evaluation.quality_release import publish_quality
from privsyn.extras.itemsets.itemset_spec import ItemsetSpec
from privsyn.extras.itemsets.publish_itemsets import publish_itemsets
from privsyn.ledgers.ledger import Ledger
from privsyn.pipelines.one_shot import STEPS
from tests.support.releases import few, release_in_process
from tests.support.specs import people_with
from tests.support.webhook import listen

CANARY = "zanzibar"


@pytest.fixture
def spec(places: Path) -> ReleaseSpec:
    pq.write_table(people_with(CANARY, 200), places / "secret-place.parquet")
    return few(str(places / "secret-place.parquet"))


@contextmanager
def receiver(code: int = 200) -> Iterator[tuple[str, list[bytes]]]:
    """A web address, and what is posted there."""
    heard: list[bytes] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            heard.append(self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(code)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Nothing."""

    with listen(Handler) as server:
        yield f"http://127.0.0.1:{server.server_port}", heard


def spans(heard: list[bytes]) -> list[Any]:
    import gzip

    trace = pytest.importorskip("opentelemetry.proto.collector.trace.v1.trace_service_pb2")
    requests = [trace.ExportTraceServiceRequest() for _ in heard]
    for request, content in zip(requests, heard, strict=True):
        request.ParseFromString(gzip.decompress(content) if content[:2] == b"\x1f\x8b" else content)
    return [s for r in requests for whole in r.resource_spans for scope in whole.scope_spans for s in scope.spans]


def attributes(span: Any) -> dict[str, str]:
    return {a.key: a.value.string_value for a in span.attributes}


def test_a_trace_has_a_span_for_each_step_within_the_release(spec: ReleaseSpec) -> None:
    pytest.importorskip("opentelemetry.exporter.otlp.proto.http")
    with receiver() as (url, heard):
        summary = release_in_process(spec, Settings(traces=f"{url}/v1/traces"))
        found = spans(heard)
    (whole,) = [s for s in found if s.name == "release"]
    assert attributes(whole) == {"privsyn.dataset": "people", "privsyn.run": summary.run}
    steps = [s for s in found if s.parent_span_id == whole.span_id]
    assert {s.name for s in steps} == {step.name for step in STEPS}
    assert {frozenset(attributes(s)) for s in steps} == {frozenset({"privsyn.step", "privsyn.kind"})}
    assert attributes(next(s for s in steps if s.name == "encode"))["privsyn.kind"] == "transform"
    told = b"".join(heard)
    for private in (CANARY, "secret-place", str(Path(spec.data).parent)):
        assert private.encode() not in told


def test_a_step_that_fails_leaves_its_error_s_type_and_no_text(
    spec: ReleaseSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("opentelemetry.exporter.otlp.proto.http")
    execute = Run.execute

    def fails(self: Run, step: Any, inputs: Any) -> Any:
        if step.name == "select_pairs":
            raise PrivsynError(f"the row {CANARY}", "")
        return execute(self, step, inputs)

    monkeypatch.setattr(Run, "execute", fails)
    with receiver() as (url, heard):
        with pytest.raises(PrivsynError):
            release_in_process(spec, Settings(traces=url))
        failed = {s.name: s.status.message for s in spans(heard) if s.status.code == 2}
    assert failed == {"select_pairs": "PrivsynError", "release": "PrivsynError"}
    assert [s for s in spans(heard) if s.events] == []
    assert CANARY.encode() not in b"".join(heard)


def test_lineage_names_the_data_set_and_the_released_folder_and_nothing_else(spec: ReleaseSpec, places: Path) -> None:
    pytest.importorskip("openlineage.client")
    file = places / "lineage.json"
    summary = release_in_process(spec, Settings(lineage=str(file)))
    with receiver() as (url, heard):
        release_in_process(spec, Settings(lineage=url))
    first = [json.loads(line) for line in file.read_text().splitlines()]
    for begin, end in (first, list(map(json.loads, heard))):
        assert (begin["eventType"], end["eventType"]) == ("START", "COMPLETE")
        assert begin["run"]["runId"] == end["run"]["runId"]
        for event in (begin, end):
            assert [(d["namespace"], d["name"]) for d in event["inputs"]] == [("privsyn", "people")]
            assert (event["job"]["namespace"], event["job"]["name"]) == ("privsyn", "release")
            assert str(places) not in json.dumps(event) and CANARY not in json.dumps(event)
            assert "secret-place" not in json.dumps(event)
        assert begin["outputs"] == []
        assert [(d["namespace"], d["name"]) for d in end["outputs"]] == [("privsyn.released", summary.run)]


def test_a_release_that_fails_says_so_in_its_lineage(
    spec: ReleaseSpec, places: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("openlineage.client")
    monkeypatch.setattr(Run, "execute", lambda *_: (_ for _ in ()).throw(PrivsynError(CANARY, "")))
    with pytest.raises(PrivsynError):
        release_in_process(spec, Settings(lineage=str(places / "lineage.json")))
    text = (places / "lineage.json").read_text()
    assert [json.loads(line)["eventType"] for line in text.splitlines()] == ["START", "FAIL"]
    assert CANARY not in text


@pytest.mark.slow
def test_an_evaluation_is_traced_and_told_with_the_release_that_it_reads(spec: ReleaseSpec, places: Path) -> None:
    pytest.importorskip("openlineage.client")
    pytest.importorskip("opentelemetry.exporter.otlp.proto.http")
    made = release_in_process(spec, Settings())
    (places / f"{CANARY}.parquet").write_bytes(Path(spec.data).read_bytes())
    file = places / "lineage.json"
    quick = EvaluationSpec(range_queries=5, nist_schemas=2, nist_queries=2, attack_rows=20)
    asked = AskedEvaluation(made.run, against=[str(places / f"{CANARY}.parquet")], spec=quick)
    with receiver() as (url, heard):
        settings = Settings(traces=f"{url}/v1/traces", lineage=str(file))
        evaluate(asked, settings)
        figures = publish_quality(made.run, 0.5, settings)
        found = spans(heard)
    first, second = (s for s in found if s.name == "evaluation")
    assert attributes(first) == {"privsyn.dataset": "people", "privsyn.run": made.run}
    assert {s.name for s in found if s.parent_span_id == first.span_id} == {
        "read", "score", "compute", "find", "write",
    }  # fmt: skip
    assert {s.name for s in found if s.parent_span_id == second.span_id} == {"encode", "quality_figures"}
    events = [json.loads(line) for line in file.read_text().splitlines()]
    assert [e["eventType"] for e in events] == ["START", "COMPLETE"] * 2
    for event in events:
        assert event["job"]["name"] == "evaluation"
        assert [d["name"] for d in event["inputs"]] == ["people", made.run]
    assert [d["name"] for e in events for d in e["outputs"]] == [figures.run]
    assert CANARY.encode() not in b"".join(heard) + file.read_bytes()


def test_itemsets_are_released_with_a_trace(places: Path) -> None:
    pytest.importorskip("openlineage.client")
    (places / "baskets.csv").write_text("basket\n" + "apples;bread\n" * 300)
    asked = ItemsetSpec(
        dataset="tills", data=str(places / "baskets.csv"), items=("apples", "bread"),
        layout={"kind": "list", "column": "basket", "separator": ";"}, max_items=2, top=3,
        privacy={"epsilon": 1.0, "delta": 1e-9}, budget={"epsilon": 2.0, "delta": 1e-9}, transactions_per_person=1,
    )  # fmt: skip
    made = publish_itemsets(asked, Settings(lineage=str(places / "lineage.json")))
    ended = json.loads((places / "lineage.json").read_text().splitlines()[1])
    assert [d["name"] for d in ended["outputs"]] == [made.run] and ended["job"]["name"] == "release"


@pytest.mark.usefixtures("prefect_server")
def test_a_prefect_run_is_traced_alike(spec: ReleaseSpec, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("opentelemetry.exporter.otlp.proto.http")
    from privsyn.flows.release import release

    with receiver() as (url, heard):
        monkeypatch.setenv("PRIVSYN_TRACES", url)
        release(spec)
        assert {s.name for s in spans(heard)} == {"release", *(step.name for step in STEPS)}


def test_receivers_that_are_away_or_refuse_fail_no_release(spec: ReleaseSpec, caplog: pytest.LogCaptureFixture) -> None:
    pytest.importorskip("openlineage.client")
    pytest.importorskip("opentelemetry.exporter.otlp.proto.http")
    away = "http://127.0.0.1:9"
    assert release_in_process(spec, Settings(traces=away, lineage=away)).rows > 0
    assert "A lineage event (COMPLETE) could not be delivered" in caplog.text
    with receiver(400) as (url, _):
        assert release_in_process(spec, Settings(traces=url, lineage=url)).rows > 0


@pytest.mark.parametrize(("setting", "extra"), [("traces", "traces"), ("lineage", "lineage")])
def test_without_its_package_a_receiver_is_refused_before_anything(
    spec: ReleaseSpec, monkeypatch: pytest.MonkeyPatch, setting: str, extra: str
) -> None:
    plain = builtins.__import__

    def imports(name: str, *more: Any) -> Any:
        if name.startswith(("opentelemetry.sdk", "opentelemetry.exporter", "openlineage")):
            raise ImportError(name)
        return plain(name, *more)

    monkeypatch.setattr(builtins, "__import__", imports)
    with pytest.raises(RequestError, match=rf"not installed.*privsyn-flows\[{extra}\]") as refused:
        release_in_process(spec, Settings(**{setting: "http://127.0.0.1:9"}))
    assert refused.value.field == f"settings.{setting}"
    assert not Path(Settings().ledger).exists()


def test_by_default_nothing_is_sent(spec: ReleaseSpec, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("privsyn.base.telemetry.load_part", lambda *_: pytest.fail("it is opened"))
    release_in_process(spec, Settings())
    assert Ledger(Settings().ledger).verify() == []
