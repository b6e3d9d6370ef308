"""Bug classes 3, 4 and 7: private rows reach what is released through the noisy answers of release steps only."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from data_contracts import tables
from data_contracts.artifacts import Kind, Zone
from data_contracts.receipts import Query
from data_contracts.spec import ReleaseSpec, Synthesis
from flows import steps
from flows.publish import ReleaseSummary
from flows.shell import Shell, StepFailedError
from flows.source import Source
from flows.step import Inputs, Request, Step
from flows.steps import STEPS
from tasks import compress_domain, noisy, synthesize
from tasks.codecs import plan
from tasks.compress_domain import noisy_total, recode_from_table
from tasks.privacy.noise import NoNoise
from tests.releases import QUICK, few, outputs, released, run
from tests.specs import make_spec, people

Save = Callable[..., str]

# 3: exact counts gate a decision


def readers_of_a_run(spec: ReleaseSpec, monkeypatch: pytest.MonkeyPatch) -> tuple[set[str], set[str]]:
    """Of a whole release: the steps that start a pass over the private table, and those that read private tables.

    The pass before the first step looks whether every row can be read at all.
    """
    passes: set[str] = set()
    readers: set[tuple[str, str]] = set()
    execute, reader, batches, running = Shell.execute, Shell._reader, Source.batches, ["preflight"]

    def noted(shell: Shell, step: Step, inputs: Any) -> Any:
        running[0] = step.name
        return execute(shell, step, inputs)

    def noted_reader(shell: Shell, ref: Any, *, wide: bool) -> Any:
        read = reader(shell, ref, wide=wide)

        def reading() -> Any:
            readers.add((running[0], str(ref.zone)))
            return read()

        return reading

    def noted_batches(source: Source, *arguments: Any) -> Iterator[pa.RecordBatch]:
        passes.add(running[0])
        return batches(source, *arguments)

    monkeypatch.setattr(Shell, "execute", noted)
    monkeypatch.setattr(Shell, "_reader", noted_reader)
    monkeypatch.setattr(Source, "batches", noted_batches)
    run(spec)
    return passes, {name for name, zone in readers if zone == Zone.PRIVATE}


def allowed(kind: Kind) -> set[str]:
    return {step.name for step in STEPS if step.kind is kind}


def test_03_only_release_steps_and_transforms_read_private_rows(
    places: Path, save: Save, monkeypatch: pytest.MonkeyPatch
) -> None:
    passes, readers = readers_of_a_run(make_spec(data=save(people(300)), **QUICK), monkeypatch)
    assert passes == {"preflight", "encode"}
    assert readers == allowed(Kind.RELEASE) | {"recode_rows"}
    assert readers <= allowed(Kind.RELEASE) | allowed(Kind.TRANSFORM)


def test_03_mutant_rare_values_merged_by_their_exact_counts(
    places: Path, save: Save, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Planted mutant: the merger of rare values opens the private table."""
    original, sources = compress_domain.compress_domain, []
    start = Source.__init__

    def keep(source: Source, *arguments: Any, **named: Any) -> None:
        start(source, *arguments, **named)
        sources.append(source)

    def by_exact_counts(*arguments: Any) -> Any:
        sum(batch.num_rows for batch in sources[-1].batches())
        return original(*arguments)

    monkeypatch.setattr(Source, "__init__", keep)
    monkeypatch.setattr(compress_domain, "compress_domain", by_exact_counts)
    passes, _ = readers_of_a_run(few(save(people(300))), monkeypatch)
    assert passes == {"preflight", "encode", "compress_domain"}


class Known(NoNoise):
    """Noise of known values."""

    def __init__(self) -> None:
        self.drawn: list[np.ndarray] = []

    def draw(self, sigma: float, cells: int) -> np.ndarray:
        self.drawn.append(np.arange(cells, dtype=np.int64) * 3 + len(self.drawn) * 7)
        return self.drawn[-1]


def published_less_noise(spec: ReleaseSpec) -> np.ndarray:
    """The published one-ways less the noise that was drawn for them."""
    known = Known()
    counts = released(run(spec, noise=known), "marginals/one_way.parquet")["count"].to_numpy()
    return counts - np.concatenate(known.drawn)[: len(counts)]


def exact_counts(spec: ReleaseSpec) -> np.ndarray:
    summary = run(spec.model_copy(update={"dataset": "again"}), noise=NoNoise())
    return released(summary, "marginals/one_way.parquet")["count"].to_numpy()


def test_03_a_release_step_publishes_sums_with_noise_and_nothing_else(places: Path, save: Save) -> None:
    """In every cell, also in those whose count is 0: what is released less the noise is the exact count."""
    spec = few(save(people(300)))
    counts = exact_counts(spec)
    assert counts.min() == 0
    assert np.array_equal(published_less_noise(spec), counts)


def test_03_mutant_empty_cells_without_noise(places: Path, save: Save, monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted mutant: cells that nobody is in are published as they are, so that one person more shows."""
    original = noisy.answers_to_table
    spec = few(save(people(300)))
    counts = exact_counts(spec)

    def zeros_stay(answers: Any) -> pa.Table:
        table = original(answers)
        if table.num_rows != len(counts):
            return table
        kept = np.where(counts == 0, 0, table["count"].to_numpy())
        return table.set_column(2, table.schema.field("count"), pa.array(kept))

    monkeypatch.setattr(noisy, "answers_to_table", zeros_stay)
    assert not np.array_equal(published_less_noise(spec), counts)


# 4: exact n leaks through the size of the output


def rows_from_released(summary: ReleaseSummary, spec: ReleaseSpec) -> int:
    """The number of rows that follows from released tables: the one-ways, measured once or twice."""
    first = recode_from_table(released(summary, "marginals/recode.parquet"))
    queries = noisy.receipts_from_table(released(summary, "marginals/measured_receipts.parquet"))
    answers = noisy.answers_from_table(released(summary, "marginals/measured.parquet"), queries)
    recode = compress_domain.refined(first, queries, answers, plan(spec).groups)
    return synthesize.output_rows(noisy_total(recode), Synthesis())


def test_04_the_number_of_rows_follows_from_noisy_totals(places: Path, save: Save) -> None:
    spec = few(save(people(500)))
    counts = []
    for _ in range(4):
        summary = run(spec, fresh=True)
        assert summary.rows == rows_from_released(summary, spec)
        counts.append(summary.rows)
    assert len(set(counts)) > 1, counts


def test_04_mutant_as_many_rows_as_the_data_has(places: Path, save: Save, monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted mutant: the exact number of rows as the default."""
    spec = few(save(people(500)))
    with monkeypatch.context() as patched:
        patched.setattr(synthesize, "output_rows", lambda total, settings: 500)
        summaries = [run(spec, fresh=True) for _ in range(3)]
    assert [summary.rows for summary in summaries] == [500, 500, 500]
    assert {rows_from_released(summary, spec) for summary in summaries} != {500}


# 7: selection on un-noised or mis-scaled scores


def selected(spec: ReleaseSpec, found: dict[str, Any], step: Step = steps.SELECT_PAIRS) -> list[dict[str, Any]]:
    """What the step selects when it is handed these tables and nothing else."""
    return outputs(step, found, spec)["pairs"].to_pylist()


def scores_of(summary: ReleaseSummary) -> dict[str, Any]:
    return {
        "indif_scores.noisy": released(summary, "marginals/scores.parquet"),
        "indif_scores.receipts": released(summary, "marginals/scores_receipts.parquet"),
        "compress_domain.recode": released(summary, "marginals/recode.parquet"),
    }


def test_07_selection_depends_on_the_noisy_table_only(places: Path, save: Save) -> None:
    """Same noisy scores, other private rows: same pairs; the step is handed nothing else, and a row would fail it."""
    spec = make_spec(data=save(people(2_000)), privacy={"epsilon": 8.0, "delta": 1e-9}, **QUICK)
    found = scores_of(run(spec))
    pairs = selected(spec, found)
    assert pairs
    save(people(10, seed=9))
    assert selected(spec, found) == pairs
    changed = found["indif_scores.noisy"].to_pydict()
    changed["count"] = changed["count"][::-1]
    assert selected(spec, {**found, "indif_scores.noisy": pa.table(changed, schema=tables.NOISY.schema)}) != pairs


def test_07_mutant_a_selection_that_reads_rows(places: Path, save: Save) -> None:
    """Planted mutants: a selection that starts a pass over the rows, and one that asks for their table."""
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


def test_07_mutant_a_plan_that_reads_rows(places: Path, save: Save, monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted mutant: what is asked, and with how much noise, would follow from private rows."""

    def by_rows(request: Request, inputs: Inputs) -> list[Query]:
        rows = sum(batch.num_rows for batch in inputs.batches("recode_rows.recoded_rows"))
        return [Query(("age", "region"), 1, 1, float(rows))]

    monkeypatch.setattr(steps, "INDIF_SCORES", replace(steps.INDIF_SCORES, plan=by_rows))
    with pytest.raises(StepFailedError, match="'indif_scores' failed with KeyError"):
        run(make_spec(data=save(people(300)), **QUICK))


def test_07_the_price_list_holds_noise_levels_and_no_counts(places: Path, save: Save) -> None:
    """The receipts of two very different tables are the same where the spec is."""
    priced = []
    for rows in (people(50), people(700, seed=4)):
        summary = run(few(save(rows)))
        queries: list[Query] = noisy.receipts_from_table(released(summary, "marginals/one_way_receipts.parquet"))
        priced.append([(q.attributes, q.cells, q.sensitivity, q.sigma) for q in queries])
    assert priced[0] == priced[1]
