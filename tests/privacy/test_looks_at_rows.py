"""Bug classes 3, 4 and 7: private rows reach what is released through the noisy answers of release steps only.

It does not see readers of private tables in requests for counts of cells and of single values, named sets, trends,
linked rows, linked tables and itemsets: its releases have the default looks of one table of two to five columns under
records_per_person, and of each mechanism.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from privsyn.base.settings import Settings
from privsyn.data_contracts import tables
from privsyn.data_contracts.artifacts import StepKind, Zone
from privsyn.data_contracts.mechanism_options import Synthesis
from privsyn.data_contracts.receipts import Query
from privsyn.data_contracts.release_spec import ReleaseSpec
from privsyn.engine.execute import Run, StepFailedError
from privsyn.engine.inputs import Inputs, PrivateAccess
from privsyn.engine.memory import MemoryRun
from privsyn.engine.request import Request
from privsyn.engine.step import Progress, ReleaseStep, Step, get_step
from privsyn.ledgers.ledger import Ledger
from privsyn.pipelines import registry
from privsyn.pipelines.one_shot import STEPS
from privsyn.pipelines.registry import MECHANISMS, build_steps
from privsyn.publish.folder import ReleaseSummary
from privsyn.sources.file_source import FileSource
from privsyn.sources.private_table import Source
from privsyn.tasks.codecs import plan
from privsyn.tasks.estimation import noisy
from privsyn.tasks.estimation.recode import estimate_total, pool_one_ways, recode_from_table
from privsyn.tasks.privacy.noise import NoNoise
from privsyn.tasks.steps import compress_domain, synthesize
from tests.support.examples import keep_first
from tests.support.releases import QUICK, few, outputs, released, run
from tests.support.specs import make_spec, mechanism_fields, people, with_public_inputs

Save = Callable[..., str]

# 3: exact counts gate a decision


def readers_of_a_run(spec: ReleaseSpec, monkeypatch: pytest.MonkeyPatch) -> tuple[set[str], set[str]]:
    """Of a whole release: the steps that start a pass over the private table, and those that read private tables.

    The pass before the first step looks whether every row can be read at all.
    """
    passes: set[str] = set()
    readers: set[tuple[str, str]] = set()
    execute, reader, batches, running = Run.execute, Run._make_reader, Source.batches, ["preflight"]

    def noted(shell: Run, step: Step, inputs: Any) -> Any:
        running[0] = step.name
        return execute(shell, step, inputs)

    def noted_reader(shell: Run, ref: Any, *, wide: bool) -> Any:
        read = reader(shell, ref, wide=wide)

        def reading() -> Any:
            readers.add((running[0], str(ref.zone)))
            return read()

        return reading

    def noted_batches(source: Source, *arguments: Any) -> Iterator[pa.RecordBatch]:
        passes.add(running[0])
        return batches(source, *arguments)

    monkeypatch.setattr(Run, "execute", noted)
    monkeypatch.setattr(Run, "_make_reader", noted_reader)
    monkeypatch.setattr(Source, "batches", noted_batches)
    run(spec)
    return passes, {name for name, zone in readers if zone == Zone.PRIVATE}


@pytest.mark.parametrize("name", keep_first(sorted(MECHANISMS, key=lambda name: name not in ("privsyn", "prior")), 2))
def test_03_only_release_steps_and_transforms_read_private_rows(
    places: Path, save: Save, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    fields = mechanism_fields(name)
    if name == "prior":
        fields["prior"] = {
            "table": save(people(40, seed=9), "public.parquet"),
            "statement": "Rows that anybody may have.",
        }
    spec = with_public_inputs(few(save(people(300)), synthesis={}, **fields), places)
    passes, readers = readers_of_a_run(spec, monkeypatch)
    of_kind = {kind: {step.name for step in build_steps(Request(spec)) if step.kind is kind} for kind in StepKind}
    assert passes == {"preflight", "encode"}
    assert readers == of_kind[StepKind.RELEASE] | of_kind[StepKind.TRANSFORM] - {"encode"}


def planted(monkeypatch: pytest.MonkeyPatch, name: str, **fields: Any) -> None:
    """PrivSyn, of which the step ``name`` has other fields, in the place of PrivSyn."""
    original = MECHANISMS["privsyn"]

    def mechanism(request: Request) -> tuple[Step, ...]:
        return tuple(replace(step, **fields) if step.name == name else step for step in original(request))

    monkeypatch.setitem(registry.MECHANISMS, "privsyn", mechanism)


def starts_a_pass(request: Request, inputs: Inputs, *rest: Any) -> Any:
    list(inputs.private.rows())


def reads_encoded_rows(request: Request, inputs: Inputs, *rest: Any) -> Any:
    list(inputs.batches("encode.encoded_rows"))


@pytest.mark.parametrize(
    ("looks", "error"), [(starts_a_pass, "TypeError"), (reads_encoded_rows, "KeyError")], ids=["a pass", "a table"]
)
def test_03_mutant_post_processing_that_asks_for_private_rows(
    places: Path, save: Save, monkeypatch: pytest.MonkeyPatch, looks: Any, error: str
) -> None:
    """Planted mutants: consistency asks for a pass over the rows, or for their table, which it even declares."""
    inputs = ("encode.encoded_rows", *get_step(STEPS, "make_consistent").inputs)
    planted(monkeypatch, "make_consistent", run=looks, inputs=inputs)
    with pytest.raises(StepFailedError, match=f"'make_consistent' failed with {error}"):
        run(few(save(people(300))))
    assert list(Settings().released_root.iterdir()) == []


def test_03_mutant_rare_values_merged_by_their_exact_counts(
    places: Path, save: Save, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Planted mutant: the merger of rare values opens the private table."""
    original, sources = compress_domain.compress_domain, []
    start = FileSource.__init__

    def keep(source: FileSource, *arguments: Any, **named: Any) -> None:
        start(source, *arguments, **named)
        sources.append(source)

    def by_exact_counts(*arguments: Any, **named: Any) -> Any:
        sum(batch.num_rows for batch in sources[-1].batches())
        return original(*arguments, **named)

    monkeypatch.setattr(FileSource, "__init__", keep)
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
    counts = released(run(spec, noise=known, new_dataset="the same, compared"), "marginals/one_way.parquet")[
        "count"
    ].to_numpy()
    return counts - np.concatenate(known.drawn)[: len(counts)]


def exact_counts(spec: ReleaseSpec) -> np.ndarray:
    summary = run(spec.model_copy(update={"dataset": "again"}), noise=NoNoise(), new_dataset="the same, compared")
    return released(summary, "marginals/one_way.parquet")["count"].to_numpy()


def test_03_a_release_step_publishes_sums_with_noise_and_nothing_else(places: Path, save: Save) -> None:
    """In every cell, also in those whose count is 0: what is released less the noise is the exact count."""
    spec = few(save(people(300)))
    counts = exact_counts(spec)
    assert counts.min() == 0
    assert np.array_equal(published_less_noise(spec), counts)


def test_03_mutant_empty_cells_without_noise(places: Path, save: Save, monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted mutant: cells that nobody is in are published as they are, so that one person more shows."""
    original = noisy.tabulate_answers
    spec = few(save(people(300)))
    counts = exact_counts(spec)

    def zeros_stay(answers: Any) -> pa.Table:
        table = original(answers)
        if table.num_rows != len(counts):
            return table
        kept = np.where(counts == 0, 0, table["count"].to_numpy())
        return table.set_column(2, table.schema.field("count"), pa.array(kept))

    monkeypatch.setattr(noisy, "tabulate_answers", zeros_stay)
    assert not np.array_equal(published_less_noise(spec), counts)


# 4: exact n leaks through the size of the output


def rows_from_released(summary: ReleaseSummary, spec: ReleaseSpec) -> int:
    """The number of rows that follows from released tables: the one-ways, measured once or twice."""
    first = recode_from_table(released(summary, "marginals/recode.parquet"))
    queries = noisy.read_receipts(released(summary, "marginals/measured_receipts.parquet"))
    answers = noisy.read_answers(released(summary, "marginals/measured.parquet"), queries)
    recode = pool_one_ways(first, queries, answers, plan(spec).binning)
    return synthesize.compute_output_rows(estimate_total(recode), Synthesis())


def test_04_the_number_of_rows_follows_from_noisy_totals(places: Path, save: Save) -> None:
    spec = few(save(people(500)))
    counts = []
    for _ in range(2):
        summary = run(spec, fresh=True)
        assert summary.rows == rows_from_released(summary, spec)
        counts.append(summary.rows)
    assert len(set(counts)) > 1, counts


def test_04_mutant_as_many_rows_as_the_data_has(places: Path, save: Save, monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted mutant: the exact number of rows as the default."""
    spec = few(save(people(500)))
    with monkeypatch.context() as patched:
        patched.setattr(synthesize, "compute_output_rows", lambda total, settings: 500)
        summaries = [run(spec, fresh=True) for _ in range(2)]
    assert [summary.rows for summary in summaries] == [500, 500]
    assert {rows_from_released(summary, spec) for summary in summaries} != {500}


# 7: selection on un-noised or mis-scaled scores


SELECT_PAIRS = get_step(STEPS, "select_pairs")


def selected(spec: ReleaseSpec, found: dict[str, Any], step: Step = SELECT_PAIRS) -> list[dict[str, Any]]:
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

    def by_table(request: Request, inputs: Inputs, progress: Progress) -> Any:
        inputs.batches("recode_rows.recoded_rows")

    with pytest.raises(TypeError, match="no access to private rows"):
        selected(spec, found, replace(SELECT_PAIRS, run=starts_a_pass))
    with pytest.raises(KeyError, match="recoded_rows"):
        selected(spec, found, replace(SELECT_PAIRS, run=by_table))


def asks_as_many(batches: Any) -> list[Query]:
    """A question whose noise follows from private rows."""
    return [Query(("age", "region"), 1, 1, float(sum(batch.num_rows for batch in batches)))]


def by_recoded_rows(request: Request, inputs: Inputs, rho: Any) -> list[Query]:
    return asks_as_many(inputs.batches("recode_rows.recoded_rows"))


def by_a_pass(request: Request, inputs: Inputs, rho: Any) -> list[Query]:
    return asks_as_many(inputs.private.rows())


PLANS = {"a table": (by_recoded_rows, "KeyError"), "a pass": (by_a_pass, "TypeError")}


@pytest.mark.parametrize(("plan", "error"), PLANS.values(), ids=list(PLANS))
def test_07_mutant_a_plan_that_reads_rows(
    places: Path, save: Save, monkeypatch: pytest.MonkeyPatch, plan: Any, error: str
) -> None:
    """Planted mutants: what is asked, and with how much noise, would follow from private rows."""
    planted(monkeypatch, "indif_scores", plan=plan)
    looks: list[str] = []
    read_rows = ReleaseStep.read_rows

    def noted(step: ReleaseStep, *arguments: Any) -> Any:
        looks.append(step.name)
        return read_rows(step, *arguments)

    monkeypatch.setattr(ReleaseStep, "read_rows", noted)
    with pytest.raises(StepFailedError, match=f"'indif_scores' failed with {error}"):
        run(make_spec(data=save(people(300)), **QUICK))
    assert looks == ["one_way_marginals"]


def test_07_mutant_a_first_plan_that_reads_rows(places: Path, save: Save, monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted mutant: the same in the first look, whose questions are public; nothing is reserved."""
    planted(monkeypatch, "one_way_marginals", plan=by_a_pass)
    with pytest.raises(TypeError, match="no access to private rows"):
        run(few(save(people(300))))
    assert Ledger(Settings().ledger).entries("people") == []


@pytest.mark.parametrize(("plan", "error"), [(by_recoded_rows, KeyError), (by_a_pass, TypeError)], ids=list(PLANS))
def test_07_mutant_a_plan_that_reads_rows_in_memory(plan: Any, error: type[Exception]) -> None:
    """Planted mutants: the runner of comparisons and audits refuses such a plan, too."""
    spec = few("in-memory")
    request = Request(spec, tuple(spec.released_columns))
    steps = tuple(replace(s, plan=plan) if s.name == "indif_scores" else s for s in build_steps(request))
    access = PrivateAccess(lambda _=None: people(300).to_batches())
    with pytest.raises(error):
        MemoryRun(request, steps, lambda step, queries: [np.zeros(q.cells, np.int64) for q in queries], access).run()


def test_07_the_price_list_holds_noise_levels_and_no_counts(places: Path, save: Save) -> None:
    """The receipts of two very different tables are the same where the spec is."""
    priced = []
    for rows in (people(50), people(700, seed=4)):
        summary = run(few(save(rows)))
        queries: list[Query] = noisy.read_receipts(released(summary, "marginals/one_way_receipts.parquet"))
        priced.append([(q.attributes, q.cells, q.sensitivity, q.sigma) for q in queries])
    assert priced[0] == priced[1]
