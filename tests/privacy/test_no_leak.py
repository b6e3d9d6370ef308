"""What is released or shown depends on the private rows through the noisy tables only; planted mutants are found."""

from __future__ import annotations

import itertools
import json
import logging
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from data_contracts import tables
from data_contracts.artifacts import Kind, Zone
from data_contracts.domain import Domain
from data_contracts.receipts import Query
from data_contracts.spec import ReleaseSpec, Synthesis
from flows import steps
from flows.direct import release_directly
from flows.errors import LedgerError
from flows.ledger import Ledger
from flows.publish import ReleaseSummary
from flows.settings import Settings
from flows.shell import Shell
from flows.step import Inputs, ReleaseStep, Request, Step
from flows.steps import STEPS
from flows.store import Store, ZoneError
from tasks import noisy, synthesize
from tasks.codecs import plan
from tasks.compress_domain import noisy_total, recode_from_table
from tasks.privacy.noise import NoNoise, SeededNoise
from tests.specs import COLUMNS, make_spec, people

Save = Callable[..., str]
QUICK: dict[str, Any] = {"synthesis": {"iterations": 2}}
EXTREME = {"age": 10**9, "income": 1e300, "region": "Atlantis", "happy": None, "seen": None, "caseid": "extreme"}


def run(spec: ReleaseSpec, **how: Any) -> ReleaseSummary:
    return release_directly(spec, Settings(), **how)


def released(summary: ReleaseSummary, name: str) -> pa.Table:
    return pq.read_table(Path(summary.released) / name)


def public_things(spec: ReleaseSpec, summary: ReleaseSummary) -> dict[str, Any]:
    """All that must follow from the spec alone: schema, codes, bins, ranges, and what stage 1 asks at what noise."""
    encoding = plan(spec)
    manifest = json.loads((Path(summary.released) / "manifest.json").read_text(encoding="utf-8"))
    return {
        "schema": str(released(summary, "synthetic.parquet").schema),
        "labels": encoding.labels(),
        "bins": {name: group.tolist() for name, group in encoding.groups.items()},
        "ranges": [(n, r.low, r.high, r.values and r.values.to_pylist()) for n, r in encoding.ranges().items()],
        "receipts": released(summary, "marginals/one_way_receipts.parquet").to_pylist(),
        "fine codes": released(summary, "marginals/recode.parquet").select(["attribute", "code"]).to_pylist(),
        "spec": manifest["spec"],
        "order": manifest["column_order"],
    }


def test_an_extreme_row_changes_no_public_thing(places: Path, save: Save) -> None:
    plain = people(300)
    extreme = pa.concat_tables([plain, pa.Table.from_pylist([EXTREME], schema=plain.schema)])
    seen = []
    for table in (plain, extreme):
        spec = make_spec(data=save(table), **QUICK)
        seen.append(public_things(spec, run(spec)))
    assert seen[0] == seen[1]


def test_the_extreme_row_would_show_in_bounds_read_from_the_data(places: Path, save: Save) -> None:
    """The planted mutant: a plan whose bounds are the data's own."""
    plain = people(300)
    extreme = pa.concat_tables([plain, pa.Table.from_pylist([EXTREME], schema=plain.schema)])
    seen = []
    for table in (plain, extreme):
        ages = table["age"].drop_null().to_pylist()
        columns = {**COLUMNS, "age": {**COLUMNS["age"], "min": min(ages), "max": max(ages)}}
        spec = make_spec(columns, data=save(table), dataset=f"people{len(seen)}", **QUICK)
        seen.append(public_things(spec, run(spec)))
    assert seen[0] != seen[1]


def test_the_number_of_rows_is_noisy(places: Path, save: Save) -> None:
    spec = make_spec(data=save(people(500)), **QUICK)
    counts = []
    for _ in range(4):
        summary = run(spec, fresh=True)
        assert summary.rows == rows_from_released(summary)
        counts.append(summary.rows)
    assert len(set(counts)) > 1, counts
    assert set(counts) != {500}


def rows_from_released(summary: ReleaseSummary) -> int:
    """The number of rows that follows from a released table."""
    recode = recode_from_table(released(summary, "marginals/recode.parquet"))
    return synthesize.output_rows(noisy_total(recode), Synthesis())


def test_rows_as_many_as_the_data_has_would_be_found(places: Path, save: Save, monkeypatch: pytest.MonkeyPatch) -> None:
    """The planted mutant: the exact number of rows as the default."""
    spec = make_spec(data=save(people(500)), **QUICK)
    with monkeypatch.context() as patched:
        patched.setattr(synthesize, "output_rows", lambda total, settings: 500)
        summaries = [run(spec, fresh=True) for _ in range(3)]
    assert [summary.rows for summary in summaries] == [500, 500, 500]
    assert {rows_from_released(summary) for summary in summaries} != {500}


# selection, and every other step after a release


def selected(spec: ReleaseSpec, inputs: dict[str, Any], step: Step = steps.SELECT_PAIRS) -> list[dict[str, Any]]:
    """What the step selects when it is handed these tables."""
    assert step.run is not None
    request = Request(spec, tuple(spec.released_columns), no_rows)
    read = {name: (lambda name=name: inputs[name]) for name in inputs}
    made = step.run(request, Inputs(read), lambda done, total: None)
    table = made["pairs"]
    assert isinstance(table, pa.Table)
    return table.to_pylist()


def no_rows() -> Iterator[pa.RecordBatch]:
    raise AssertionError("a step after a release started a pass over the private rows")


def scores_of(summary: ReleaseSummary) -> dict[str, Any]:
    return {
        "indif_scores.noisy": released(summary, "marginals/scores.parquet"),
        "indif_scores.receipts": released(summary, "marginals/scores_receipts.parquet"),
        "compress_domain.recode": released(summary, "marginals/recode.parquet"),
    }


def test_selection_depends_on_the_noisy_table_only(places: Path, save: Save) -> None:
    """Same noisy scores, other private rows: same pairs; the step is handed nothing else, and a row would fail it."""
    spec = make_spec(data=save(people(2_000)), privacy={"epsilon": 8.0, "delta": 1e-9}, **QUICK)
    tables_of_run = scores_of(run(spec))
    pairs = selected(spec, tables_of_run)
    assert pairs
    save(people(10, seed=9))
    assert selected(spec, tables_of_run) == pairs
    changed = tables_of_run["indif_scores.noisy"].to_pydict()
    changed["count"] = changed["count"][::-1]
    other = {**tables_of_run, "indif_scores.noisy": pa.table(changed, schema=tables.NOISY.schema)}
    assert selected(spec, other) != pairs


def test_a_selection_that_reads_rows_is_found(places: Path, save: Save) -> None:
    """The planted mutants: a selection that starts a pass over the rows, and one that asks for their table."""
    spec = make_spec(data=save(people(300)), **QUICK)
    found = scores_of(run(spec))

    def by_a_pass(request: Request, inputs: Inputs, progress: steps.Progress) -> Any:
        list(request.rows())

    def by_table(request: Request, inputs: Inputs, progress: steps.Progress) -> Any:
        inputs.batches("recode_rows.recoded_rows")

    with pytest.raises(AssertionError, match="private rows"):
        selected(spec, found, replace(steps.SELECT_PAIRS, run=by_a_pass))
    with pytest.raises(KeyError, match="recoded_rows"):
        selected(spec, found, replace(steps.SELECT_PAIRS, run=by_table))


def test_no_step_after_a_release_starts_a_pass_over_the_rows(
    places: Path, save: Save, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whole runs: only encode reads the private table, and only release steps and transforms read private artifacts."""
    readers: set[tuple[str, str]] = set()
    passes: list[str] = []
    execute, reader, running = Shell.execute, Shell._reader, [""]

    def noted(shell: Shell, step: Step, inputs: Any) -> Any:
        running[0] = step.name
        return execute(shell, step, inputs)

    def noted_reader(shell: Shell, ref: Any, *, wide: bool) -> Any:
        read = reader(shell, ref, wide=wide)

        def reading() -> Any:
            readers.add((running[0], str(ref.zone)))
            return read()

        return reading

    monkeypatch.setattr(Shell, "execute", noted)
    monkeypatch.setattr(Shell, "_reader", noted_reader)
    monkeypatch.setattr("flows.source.Source.batches", watched(passes, running))
    run(make_spec(data=save(people(300)), **QUICK))
    assert set(passes) == {"encode"}
    kinds = {step.name: step.kind for step in STEPS}
    private = {name for name, zone in readers if zone == Zone.PRIVATE}
    assert private == {"recode_rows", "one_way_marginals", "indif_scores", "measure_marginals"}
    assert {kinds[name] for name in private} == {Kind.TRANSFORM, Kind.RELEASE}


def watched(passes: list[str], running: list[str]) -> Any:
    from flows.source import Source

    batches = Source.batches

    def reading(source: Source, *arguments: Any) -> Iterator[pa.RecordBatch]:
        passes.append(running[0])
        return batches(source, *arguments)

    return reading


def test_a_release_step_publishes_sums_with_noise_and_nothing_else(places: Path, save: Save) -> None:
    """With noise of known values, what is released less the noise is the exact count, in every cell."""

    class Known(NoNoise):
        def __init__(self) -> None:
            self.drawn: list[np.ndarray] = []

        def draw(self, sigma: float, cells: int) -> np.ndarray:
            self.drawn.append(np.arange(cells, dtype=np.int64) * 3 + len(self.drawn) * 7)
            return self.drawn[-1]

    spec = make_spec(data=save(people(300)), **QUICK)
    known = Known()
    summary = run(spec, noise=known)
    sums = released(summary, "marginals/one_way.parquet")["count"].to_numpy()
    exact = run(spec.model_copy(update={"dataset": "again"}), noise=NoNoise())
    counts = released(exact, "marginals/one_way.parquet")["count"].to_numpy()
    assert np.array_equal(sums - np.concatenate(known.drawn)[: len(sums)], counts)
    assert counts.min() >= 0


# charge first, then look


def test_nothing_is_read_before_it_is_reserved(places: Path, save: Save, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = make_spec(data=save(people(300)), **QUICK)
    assert order_of_events(spec, monkeypatch) == ["reserve", *(["noise", "look", "write", "settle"] * 3)]


def test_a_shell_that_looks_before_the_noise_is_found(
    places: Path, save: Save, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The planted mutant: the rows are read before the noise is drawn and kept."""
    draw = Shell._draw

    def look_first(shell: Shell, step: ReleaseStep, inputs: Any) -> Any:
        step.read_rows(shell.request, shell._inputs(step, inputs))
        return draw(shell, step, inputs)

    monkeypatch.setattr(Shell, "_draw", look_first)
    events = order_of_events(make_spec(data=save(people(300)), **QUICK), monkeypatch)
    assert events != ["reserve", *(["noise", "look", "write", "settle"] * 3)]


def order_of_events(spec: ReleaseSpec, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    events: list[str] = []

    def note(owner: Any, name: str, event: str) -> None:
        function = getattr(owner, name)

        def noted(*arguments: Any, **named: Any) -> Any:
            if event != "write" or named.get("name", arguments[3] if len(arguments) > 3 else "") == "noisy":
                events.append(event)
            return function(*arguments, **named)

        monkeypatch.setattr(owner, name, noted)

    note(Ledger, "reserve", "reserve")
    note(Ledger, "settle", "settle")
    note(ReleaseStep, "read_rows", "look")
    note(Store, "write_table", "write")
    note(Shell, "_noise", "noise")
    run(spec)
    return events


def test_a_step_without_a_reservation_reads_nothing(places: Path, save: Save, monkeypatch: pytest.MonkeyPatch) -> None:
    """The planted mutant: a run that never reserves."""
    monkeypatch.setattr(Ledger, "reserve", lambda *arguments, **named: None)
    looks: list[int] = []
    monkeypatch.setattr(ReleaseStep, "read_rows", lambda *arguments: looks.append(1))
    with pytest.raises(LedgerError, match="no reservation"):
        run(make_spec(data=save(people(300)), **QUICK))
    assert looks == []
    assert list(Settings().released_root.iterdir()) == []


# noise for tests


@pytest.mark.parametrize("noise", [SeededNoise(1), NoNoise()], ids=["seeded", "none"])
def test_test_noise_cannot_reach_the_released_root(places: Path, save: Save, noise: Any) -> None:
    summary = run(make_spec(data=save(people(300)), **QUICK), noise=noise)
    settings = Settings()
    assert list(settings.released_root.rglob("*")) == []
    assert Path(summary.released).is_relative_to(settings.private_root)
    assert (
        json.loads((Path(summary.released) / "manifest.json").read_text(encoding="utf-8"))["differentially_private"]
        is False
    )
    assert "NOT PRIVATE" in (Path(summary.released) / "README.md").read_text(encoding="utf-8")


def test_a_run_with_test_noise_is_never_published_later(places: Path, save: Save) -> None:
    """The planted trap: test noise first, then a real release of the same request finds those tables."""
    spec = make_spec(data=save(people(300)), **QUICK)
    fake = run(spec, noise=NoNoise())
    counts = released(fake, "marginals/one_way.parquet")
    real = run(spec)
    assert real.drawn == tuple(step.name for step in STEPS if step.kind is Kind.RELEASE)
    assert not released(real, "marginals/one_way.parquet").equals(counts)
    for path in Settings().released_root.rglob("manifest.json"):
        assert json.loads(path.read_text(encoding="utf-8"))["differentially_private"] is True


def test_a_private_table_is_refused_by_the_released_root(places: Path, save: Save) -> None:
    """The planted mutant: publishing the encoded rows."""
    spec = make_spec(data=save(people(50)), **QUICK)
    run(spec)
    store = Store(Settings().private_root, Settings().released_root, spec.dataset)
    domain = Domain.of({"x": 3})
    rows = pa.table({"x": pa.array([0, 1, 2], pa.uint8())}, schema=tables.code_schema(domain))
    ref = store.write_table(rows, rows.schema, "encoded_rows", "encode", "0" * 64, Zone.PRIVATE)
    with pytest.raises(ZoneError):
        store.publish("mutant", lambda folder: store.add_released(ref, folder, "rows.parquet"))
    lying = ref.model_copy(update={"zone": Zone.RELEASED})
    with pytest.raises(Exception, match="not the file that was written"):
        store.publish("mutant", lambda folder: store.add_released(lying, folder, "rows.parquet"))
    assert not (Settings().released_root / "mutant").exists()


# side outputs

CANARIES = {
    "caseid": "CANARY-DROPPED-4711",
    "region": "CANARY-UNLISTED-4712",
    "age": "CANARY-UNPARSEABLE-4713",
    "income": "987654321.125",
    "seen": "CANARY-MOMENT-4714",
    "happy": "CANARY-TRUTH-4715",
}


def canary_csv(path: Path) -> str:
    table = people(200).to_pandas().astype(str)
    for i, (column, canary) in enumerate(CANARIES.items()):
        table.loc[i, column] = canary
    table.to_csv(path, index=False)
    return str(path)


def traces(folder: Path, *, texts: tuple[str, ...] = ()) -> list[str]:
    """Files under the folder, and texts, in which a canary stands (Parquet is read cell by cell)."""
    found = []
    for path in sorted(p for p in folder.rglob("*") if p.is_file()):
        content = path.read_bytes()
        if path.suffix == ".parquet":
            table = pq.read_table(path)
            content += "\n".join(str(c.to_pylist()) for c in table.columns).encode() + str(table.schema).encode()
        found += [f"{path.name}: {c}" for c in CANARIES.values() if c.encode() in content]
    return found + [f"text: {c}" for text in texts for c in CANARIES.values() if c in text]


def test_canaries_reach_nothing_released_or_shown(
    places: Path,
    prefect_server: str,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A release and a failing one under Prefect, with everything logged: no canary anywhere but in the source."""
    from prefect.logging.handlers import APILogWorker
    from prefect.settings import PREFECT_LOCAL_STORAGE_PATH, get_current_settings, temporary_settings

    from flows.release import release

    source = places / "source"
    source.mkdir()
    spec = make_spec(data=canary_csv(source / "people.csv"), budget={"epsilon": 50.0, "delta": 1e-8}, **QUICK)
    messages = []
    results = temporary_settings({PREFECT_LOCAL_STORAGE_PATH: places / "results"})
    with caplog.at_level(logging.DEBUG), results:
        summary = release(spec)
        for place in ("tasks.encode.encode", "tasks.one_way_marginals.exact", "tasks.select_pairs.select_pairs"):
            with monkeypatch.context() as patched:
                patched.setattr(place, fail_with_canaries)
                if place == "tasks.one_way_marginals.exact":
                    patched.setattr(ReleaseStep, "read_rows", fail_with_canaries)
                with pytest.raises(Exception, match=r".") as error:
                    release(
                        make_spec(
                            data=spec.data,
                            privacy={"epsilon": 1.5, "delta": 1e-9},
                            budget={"epsilon": 50.0, "delta": 1e-8},
                            null_values=["", place],
                            **QUICK,
                        )
                    )
                messages.append(str(error.value))
        APILogWorker.instance().drain()
    out, err = capfd.readouterr()
    assert Path(summary.released).is_dir()
    assert all("failed with ValueError" in message for message in messages)
    assert traces(Path(summary.released)) == []
    assert traces(Settings().private_root / "prefect") == []
    assert list((Settings().private_root / "prefect").rglob("*.lock")) == []
    url = get_current_settings().server.database.connection_url
    assert url is not None
    database = Path(url.get_secret_value().partition(":///")[2])
    assert b"one_way_marginals" in b"".join(p.read_bytes() for p in database.parent.glob("*.db*"))
    assert list((places / "results").rglob("*"))
    assert traces(database.parent, texts=(out, err, caplog.text, *messages)) == []
    assert traces(places / "results") == []
    assert traces(Settings().released_root) == []
    for found in traces(Settings().private_root):  # the whole error, for the operator, in the private zone only
        assert found.startswith("failure.txt: ")


def fail_with_canaries(*arguments: Any, **named: Any) -> Any:
    raise ValueError(" ".join(CANARIES.values()))


def test_the_search_for_canaries_finds_planted_ones(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_text(f"row {CANARIES['age']} was bad", encoding="utf-8")
    pq.write_table(pa.table({"x": [CANARIES["region"]]}), tmp_path / "b.parquet", compression="zstd")
    pq.write_table(pa.table({CANARIES["seen"]: [1]}), tmp_path / "c.parquet")
    assert len(traces(tmp_path, texts=(CANARIES["caseid"],))) == 4


# row order


def test_row_order_of_the_source_does_not_matter(places: Path, save: Save) -> None:
    table = people(400)
    unit = {"person_id": "caseid", "max_records": 2}
    doubled = pa.concat_tables([table, table.slice(0, 100), table.slice(50, 100)])
    order = np.random.default_rng(3).permutation(doubled.num_rows)
    found = []
    for rows in (doubled, doubled.take(order)):
        summary = run(make_spec(data=save(rows), unit=unit, **QUICK), noise=NoNoise())
        names = ("one_way", "scores", "measured", "consistent", "recode")
        found.append({name: released(summary, f"marginals/{name}.parquet") for name in names})
        found[-1]["synthetic"] = released(summary, "synthetic.parquet")
    for name, first in found[0].items():
        assert first.equals(found[1][name]), name


def test_a_truncation_by_position_would_depend_on_row_order(
    places: Path, save: Save, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The planted mutant: the first rows of the file, whoever they are."""
    original = steps.encode.encode

    def first_rows(rows: Callable[[], Any], *arguments: Any) -> Any:
        return original(lambda: itertools.islice((b.slice(0, 200) for b in rows()), 1), *arguments)

    monkeypatch.setattr(steps.encode, "encode", first_rows)
    table = people(400)
    found = []
    for rows in (table, table.take(np.random.default_rng(3).permutation(400))):
        summary = run(make_spec(data=save(rows), **QUICK), noise=NoNoise())
        found.append(released(summary, "marginals/one_way.parquet"))
    assert not found[0].equals(found[1])


def test_synthetic_rows_do_not_follow_the_sources_order(places: Path, save: Save) -> None:
    """Sorted private rows do not give sorted synthetic ones."""
    table = people(400).sort_by("income")
    summary = run(make_spec(data=save(table), **QUICK), noise=NoNoise())
    income = released(summary, "synthetic.parquet")["income"].to_numpy()
    place = np.arange(len(income))
    assert abs(np.corrcoef(income, place)[0, 1]) < 0.2


def test_receipts_hold_noise_levels_and_no_counts(places: Path, save: Save) -> None:
    """The price list of two very different tables is the same where the spec is."""
    priced = []
    for rows in (people(50), people(700, seed=4)):
        summary = run(make_spec(data=save(rows), **QUICK))
        queries: list[Query] = noisy.receipts_from_table(released(summary, "marginals/one_way_receipts.parquet"))
        priced.append([(q.attributes, q.cells, q.sensitivity, q.sigma) for q in queries])
    assert priced[0] == priced[1]
