"""The rehearsal of a release: a small release of made-up rows by the steps of a real one, in its own folder.

It uses the counts expected for the given number of rows (privsyn/evaluation/forecasts/stand_in.py).  So noise,
selection, consistency and files are as for a table of that size.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from privsyn.base.process_memory import forget_peak_memory, memory_mb
from privsyn.base.settings import Settings
from privsyn.counting.engine import LocalEngine, PartFile, WritePart
from privsyn.data_contracts import tables
from privsyn.data_contracts.artifacts import LookKind, StepKind
from privsyn.data_contracts.domain import Clique, Domain
from privsyn.data_contracts.mechanism_options import Synthesis
from privsyn.data_contracts.release_spec import ReleaseSpec
from privsyn.engine.execute import Run
from privsyn.engine.open_run import open_run
from privsyn.engine.proposal import Proposal
from privsyn.engine.request import Request
from privsyn.engine.step import ReleaseStep, Step, run_steps
from privsyn.engine.step_tables import StepRefs
from privsyn.evaluation.forecasts.stand_in import DEFAULT_STRENGTH, AssumedRows, ScaledRows, assume_chances, assume_rows
from privsyn.pipelines.registry import plan_release
from privsyn.publish.folder import publish
from privsyn.storage.disk import translate_os_errors
from privsyn.storage.table_files import StoredTable
from privsyn.tasks.codecs import EncodingPlan
from privsyn.tasks.estimation.recode import Recode, recode_from_table
from privsyn.tasks.kernels.blocks import PASS_CELLS
from privsyn.tasks.kernels.counting import CodeTable
from privsyn.tasks.steps.decode import as_released
from privsyn.tasks.synthesis.implied_pairs import compute_row_factor

VALUES_IN, VALUES_OUT = 2_000_000, 2_000_000
"""Values of the made-up table, and of the rows that are made of it, about."""

MORE_OF_SHARDS = 4
"""How many times as many values are made where there are several shards."""

FEW_ROWS = 400
"""Rows of a rehearsal at least, unless the table itself has fewer."""

SAMPLE = 64
"""Marginals of a look whose counting is timed, at most."""

TIMED_ROWS = 1 << 18
"""Rows of codes on which that is timed."""

BEFORE, PUBLISH = "before the first step", "publish"
"""The parts that are no step: checks and fingerprint of the table, and the released folder."""


@dataclass
class Cost:
    """The cost of one part of a rehearsal.

    ``cpu``: CPU seconds.  ``peak_mb``: peak memory of the process meanwhile, in MB (2^20 bytes).  ``counting``: CPU
    seconds of counting all rows instead of the made-up ones.  ``cells``: cells of the counted marginals.
    ``marginals``: the number of counted marginals of several columns, without scores.  ``files``: size in bytes and
    rows of each written table.
    """

    cpu: float
    peak_mb: float
    counting: float = 0.0
    cells: int = 0
    marginals: int = 0
    files: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True)
class _Asked:
    """The marginals that a look counts in a stored table."""

    stored: StoredTable
    rows: AssumedRows | ScaledRows
    cliques: tuple[Clique, ...]


@dataclass(frozen=True)
class _NotedRows:
    """Assumed rows that record which marginals are counted in them."""

    assumed: AssumedRows | ScaledRows
    stored: StoredTable
    asked: list[_Asked]

    @property
    def domain(self) -> Domain:
        """The attributes and how many codes each has."""
        return self.assumed.domain

    @property
    def padded(self) -> bool:
        """Whether an attribute may hold one code more, for filtered values."""
        return self.assumed.padded

    def counts(
        self, cliques: Iterable[Clique], *, threads: int = 0, padded_result: bool = False
    ) -> Iterator[np.ndarray]:
        """Return the expected counts of each clique, in order, lazily."""
        wanted = tuple(cliques)
        if wanted:
            self.asked.append(_Asked(self.stored, self.assumed, wanted))
        return self.assumed.counts(wanted, threads=threads, padded_result=padded_result)


@dataclass
class _AssumedEngine:
    """Counts ``rows`` assumed rows, whatever rows are stored, and records the counted marginals.

    ``recode``: the run's recoding, once it is released.
    """

    chances: Mapping[str, np.ndarray]
    rows_asked: int
    recode: Recode | None = None
    asked: list[_Asked] = field(default_factory=list)

    def open(self) -> None:
        """Do nothing."""

    def rows(self, stored: StoredTable, domain: Domain, *, padded: bool = False) -> _NotedRows:
        """Return the assumed rows, in the run's recoding if their codes may include filtered values.

        For other codes, such as the merged codes of named sets, return the same share of rows as is stored.
        """
        assumed: AssumedRows | ScaledRows
        sizes = {a: chances.shape[1] for a, chances in self.chances.items()}
        if padded and self.recode is not None:  # of a column whose cells were cut no chances are assumed
            sizes = {a: r.size for a, r in self.recode.items() if len(r.coarse) == sizes.get(a)}
        if all(sizes.get(a) == domain.size(a) for a in domain.attributes):
            assumed = AssumedRows.of(domain, self.rows_asked, self.chances, self.recode if padded else None)
        else:
            stored_rows = LocalEngine().rows(stored, domain, padded=padded)
            assumed = ScaledRows(stored_rows, self.rows_asked / max(stored.num_rows, 1))
        return _NotedRows(assumed, stored, self.asked)

    def make_parts(self, write: WritePart, tasks: Sequence[tuple[Any, str]], threads: int) -> Iterator[PartFile]:
        """Yield the parts, made here."""
        return LocalEngine().make_parts(write, tasks, threads)

    def close(self) -> None:
        """Do nothing: there is nothing to give back."""


@dataclass
class Rehearsal:
    """A release of a few made-up rows with the columns of ``spec``, and the counts that ``rows`` rows would have.

    ``rows_out``: the rows that a real release makes; ``folder``: an empty folder.  After the run: ``costs`` of each
    part by name; ``fewer_in`` and ``fewer_out``, the same with a quarter of the rows read, or made.  ``pairs``: the
    number of scored pairs, with ``pair_cells`` cells in all.
    """

    spec: ReleaseSpec
    folder: Path
    rows: int
    rows_out: int
    costs: dict[str, Cost] = field(default_factory=dict)
    fewer_in: dict[str, Cost] = field(default_factory=dict)
    fewer_out: dict[str, Cost] = field(default_factory=dict)
    pairs: int = 0
    pair_cells: int = 0

    @cached_property
    def encoding(self) -> EncodingPlan:
        """The codecs of the spec's columns."""
        return Request(self.spec).encoding

    @property
    def rows_in(self) -> int:
        """Rows of the made-up private table."""
        return min(self.rows, max(FEW_ROWS, VALUES_IN // len(self.encoding.domain.attributes)))

    @property
    def rows_made(self) -> int:
        """Rows to synthesize: at most one shard, and more rows if the release has several shards."""
        shard = self.spec.mechanism.synthesis.shard_rows
        values = VALUES_OUT * (MORE_OF_SHARDS if self.rows_out > shard else 1)
        return min(self.rows_out, shard, max(FEW_ROWS, values // len(self.encoding.domain.attributes)))

    @cached_property
    def steps(self) -> dict[str, Step]:
        """The steps by their names."""
        return {step.name: step for step in plan_release(self.spec).steps}

    def run(self) -> None:
        """Release with few rows read, with more, and again with few rows made from the same noisy counts."""
        self._release("few", compute_quarter(self.rows_in), self.rows_made, self.fewer_in, steps=1)
        self._release("all", self.rows_in, self.rows_made, self.costs)
        self._release("all", self.rows_in, compute_quarter(self.rows_made), self.fewer_out)

    def makes_rows(self, name: str) -> bool:
        """Return whether a part's cost grows with the synthetic rows."""
        outputs = self.steps[name].outputs.values() if name in self.steps else ()
        return any(contract in (tables.SYNTHETIC_CODES, tables.SYNTHETIC) for contract in outputs)

    @property
    def related(self) -> tuple[str, ...]:
        """The parts whose cost grows with the relations: from the first count of several columns to the first rows."""
        names = list(self.costs)
        first = next((i for i, name in enumerate(names) if self.costs[name].marginals), len(names))
        last = next((i for i, name in enumerate(names) if i >= first and self.makes_rows(name)), len(names))
        return tuple(names[first : last + 1])

    def reads_rows(self, name: str) -> bool:
        """Return whether a part's cost, without counting, grows with the private rows."""
        return name == BEFORE or (name in self.steps and self.steps[name].kind is StepKind.TRANSFORM)

    def _release(
        self, name: str, rows_in: int, rows_out: int, costs: dict[str, Cost], steps: int | None = None
    ) -> None:
        folder = self.folder / name
        path = folder / "table.parquet"
        if not path.exists():
            folder.mkdir(parents=True)
            _write_made_up_rows(self.spec, self.encoding, rows_in, path)
        spec = self.spec.read_at(str(path)).with_rows(rows=rows_out, **self._choose_oversample())
        engine = _AssumedEngine(assume_chances(self.encoding, DEFAULT_STRENGTH, 0), self.rows)
        values = {name: f.get_default() for name, f in Settings.model_fields.items() if f.default_factory is None}
        values |= {"out": folder / "out", "ledger": str(folder / "ledger.sqlite"), "threads": 1}
        settings = Settings(**values)  # nothing of the installation: nothing leaves the folder
        proposal = Proposal(plan=plan_release(spec), settings=settings, engine=engine)
        with ExitStack() as stack:
            with _measured(BEFORE, costs):
                run = stack.enter_context(open_run(proposal))
            refs = run_steps(run.steps[:steps], lambda step, inputs: self._execute(run, engine, costs, step, inputs))
            if steps is None:
                with _measured(PUBLISH, costs):
                    publish(run, refs)
                costs[PUBLISH].files = _list_sizes(run.released_folder)

    def _execute(
        self, run: Run, engine: _AssumedEngine, costs: dict[str, Cost], step: Step, inputs: Mapping[str, StepRefs]
    ) -> StepRefs:
        engine.asked.clear()
        with _measured(step.name, costs):
            refs = run.execute(step, inputs)
        cost = costs[step.name]
        if "recode" in refs.tables:
            engine.recode = recode_from_table(run.store.read_table(refs.tables["recode"]))
        cost.files = tuple(size for ref in refs.tables.values() for size in _list_sizes(Path(ref.path)))
        for counted in engine.asked if costs is self.costs else ():
            self._note_counting(step, cost, counted)
        return refs

    def _note_counting(self, step: Step, cost: Cost, counted: _Asked) -> None:
        """Add the cost of counting so many rows, and subtract the cost of making the counts up."""
        cost.cpu -= counted.rows.seconds[0]
        cost.counting += _time_counting(counted, self.rows)
        cells = sum(counted.rows.domain.cells(clique) for clique in counted.cliques)
        cost.cells += cells
        joint = sum(len(clique) > 1 for clique in counted.cliques)
        if isinstance(step, ReleaseStep) and step.measures is LookKind.SCORES:
            self.pairs += joint
            self.pair_cells += cells
        else:
            cost.marginals += joint

    def _choose_oversample(self) -> dict[str, int]:
        """Return how many times the rows are made first, as in a release of all rows."""
        settings = self.spec.mechanism.synthesis
        if not isinstance(settings, Synthesis):
            return {}
        if self.rows_out > settings.shard_rows:
            return {"oversample": 1}
        columns = len(self.encoding.domain.attributes)
        return {"oversample": compute_row_factor(self.rows_out, columns, settings.oversample)}


def compute_quarter(rows: int) -> int:
    """Return a quarter of the rows, at least one."""
    return max(1, rows // 4)


@contextmanager
def _measured(name: str, costs: dict[str, Cost]) -> Iterator[None]:
    forget_peak_memory()
    start = time.process_time()
    yield
    costs[name] = Cost(time.process_time() - start, memory_mb("VmHWM"))


def _list_sizes(place: Path) -> tuple[tuple[int, int], ...]:
    """Return the size and rows of each table under a place; other files have no rows."""
    files = [place] if place.is_file() else [file for file in place.rglob("*") if file.is_file()]
    rows = [pq.read_metadata(file).num_rows if file.suffix == ".parquet" else 0 for file in files]
    return tuple((file.stat().st_size, number) for file, number in zip(files, rows, strict=True))


def _time_counting(counted: _Asked, rows: int) -> float:
    """Return the CPU seconds of counting the marginals in ``rows`` rows, timed on a sample and in the stored rows."""
    domain, padded = counted.rows.domain, counted.rows.padded
    sample = counted.cliques[:: max(1, -(-len(counted.cliques) // SAMPLE))]
    start = time.process_time()
    for _ in LocalEngine().rows(counted.stored, domain, padded=padded).counts(sample[:1], threads=1):
        pass
    codes = CodeTable.from_arrow(list(counted.stored.batches()), domain, padded=padded)
    reading = (time.process_time() - start) / codes.rows
    named = Domain.of({a: domain.size(a) for a in domain.attributes if any(a in clique for clique in sample)})
    times = -(-TIMED_ROWS // codes.rows)
    many = CodeTable(named, tuple(np.tile(codes.column(a), times) for a in named.attributes), padded)
    none = CodeTable(named, tuple(column[:0] for column in many.columns), padded)
    empty, full = _time_counts(none, sample), _time_counts(many, sample)
    each = max(0.0, full - empty) / many.rows
    passes = max(1, -(-sum(domain.cells(clique) for clique in counted.cliques) // PASS_CELLS))
    return len(counted.cliques) / len(sample) * (empty + each * rows) + passes * reading * rows


def _time_counts(codes: CodeTable, cliques: Iterable[Clique]) -> float:
    start = time.process_time()
    for _ in codes.counts(cliques, threads=1):
        pass
    return time.process_time() - start


def _write_made_up_rows(spec: ReleaseSpec, encoding: EncodingPlan, rows: int, path: Path) -> None:
    """Write made-up rows of the spec's columns as Parquet; columns that are not read are null."""
    table = assume_rows(encoding, rows, DEFAULT_STRENGTH, 0)
    codes = dict(zip(table.domain.attributes, table.columns, strict=True))
    columns, ranges = encoding.decode(codes, np.random.default_rng(0)), encoding.ranges()
    arrays = {
        name: as_released(columns[name], ranges[name]) if name in columns else pa.nulls(rows) for name in spec.columns
    }
    with translate_os_errors(path):
        pq.write_table(pa.table(arrays), path)
