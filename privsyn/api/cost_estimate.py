"""The time, memory and disk of a release, estimated beforehand without its table by extrapolating a rehearsal.

Costs that grow with rows were measured at two numbers of rows, and are extrapolated along a line.
"""

from __future__ import annotations

import math
import tempfile
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from privsyn.api.rehearsal import PUBLISH, Cost, Rehearsal, compute_quarter
from privsyn.base.errors import RequestError
from privsyn.base.settings import Settings
from privsyn.counting.engine import PART_ROWS
from privsyn.data_contracts.promise import Guarantee, Unit
from privsyn.data_contracts.release_spec import ReleaseSpec
from privsyn.data_contracts.tables import choose_batch_rows
from privsyn.engine.progress import format_html_table, format_paragraph
from privsyn.engine.request import Request
from privsyn.evaluation.forecasts.forecast import OF_UNITS, describe_records, take_units_for_rows
from privsyn.pipelines.registry import plan_release
from privsyn.tasks.kernels.blocks import BLOCK_BYTES, PASS_CELLS
from privsyn.tasks.kernels.counting import choose_thread_count
from privsyn.tasks.privacy.accountant import convert_rho_to_epsilon

MOST_ROWS = 10**12
"""Rows of a table at most."""

MOST_WORKERS = 10_000

WORKER_START = 6.0
"""CPU seconds of a worker's process until it can count: starting, loading and connecting."""

CLUSTER_START, WAITING, HANDING_SECONDS = 1.2, 0.008, 0.012
"""CPU seconds of the process that runs the release, measured at 3 and 10 million rows.

They are for starting a cluster, for a second of waiting for workers, and for a MB of a table that workers have made:
checking, hashing and handing it on.
"""

RELATED_FACTOR = 2.0
"""Time of work that depends on relations, as a multiple of the rehearsal's.

Relations of the public tables that were measured (docs/operations/scale.md) are stronger than relations of made-up
rows.
"""

PARALLEL_SHARE = 0.72
"""How much of the work on rows, counts and noise is done on several threads: of 37.5 and 283.7 CPU seconds on two cores
0.62 and 0.65 were waited for (docs/operations/scale.md)."""

MOVED_SHARE = 0.38
"""How much of the work on shards is moving them together, one after another, whatever the number of workers: sampled on
two workers with two shards of 1,100,000 rows."""

LEAST_POWER = 0.75
"""The power of the rows with which the time of a shard grows at least: more rows need fewer sweeps, but longer ones."""

COUNT_BYTES, VALUE_BYTES, CODE_COPIES = 8, 24, 6
"""Bytes of a count, of a value while it is read and encoded or decoded, and of a code while rows are made."""

COPY_SECONDS = 0.005
"""CPU seconds of copying and hashing a MB of released files."""

START = "start"
"""The part before all: loading the program and its compiled code."""

HEADINGS = ("step", "CPU", "wall", "peak memory", "disk")
WORKER_HEADING = "CPU of workers"


FULL_CELLS = (
    "No interval of numbers holds most of the made-up rows; where one holds most of yours, they are encoded once more, "
    "in the parts that it is cut into."
)
"""Said where a release looks for such intervals."""


@dataclass(frozen=True)
class StepEstimate:
    """The cost of one step: CPU and wall seconds, the process's peak memory meanwhile, and written data, in MB (2^20).

    ``worker_cpu``: CPU seconds of all workers together; 0 without workers.
    """

    step: str
    cpu: float
    wall: float
    peak_mb: float
    disk_mb: float
    worker_cpu: float = 0.0


@dataclass(frozen=True)
class Estimate:
    """The cost, by step, of releasing a table of ``rows`` rows on this machine; ``rows_out``: the synthetic rows.

    ``workers``: workers that count, 0: this process; ``pairs``: pairs that the rehearsal scored; ``marginals``:
    marginals of several columns that it measured; ``words``: the assumptions. Privacy: a function of the spec, the
    given numbers and this machine; no table was read.
    """

    rows: int
    rows_out: int
    columns: int
    workers: int
    pairs: int
    marginals: int
    steps: tuple[StepEstimate, ...]
    words: tuple[str, ...]

    @property
    def whole(self) -> StepEstimate:
        """All steps together: sums, and the largest of the peaks."""
        sums = {name: sum(getattr(s, name) for s in self.steps) for name in ("cpu", "wall", "disk_mb", "worker_cpu")}
        return StepEstimate("all", peak_mb=max(s.peak_mb for s in self.steps), **sums)

    def as_json(self) -> dict[str, Any]:
        """Return the same, JSON-ready."""
        return {**asdict(self), "whole": asdict(self.whole)}

    def step_rows(self) -> list[list[str]]:
        """Return one row of text per step, and one for the total, under :meth:`headings`."""
        return [
            [
                s.step,
                f"{s.cpu:,.1f} s",
                *([f"{s.worker_cpu:,.1f} s"] if self.workers else []),
                f"{s.wall:,.1f} s",
                f"{s.peak_mb:,.0f} MB",
                f"{s.disk_mb:,.1f} MB",
            ]
            for s in (*self.steps, self.whole)
        ]

    def headings(self) -> list[str]:
        """Return the headings of :meth:`step_rows`."""
        return [*HEADINGS[:2], *([WORKER_HEADING] if self.workers else []), *HEADINGS[2:]]

    def __repr__(self) -> str:
        whole = self.whole
        return f"<Estimate for {self.rows:,} rows: {whole.cpu:,.0f} CPU s, {whole.peak_mb:,.0f} MB>"

    def _repr_html_(self) -> str:
        return format_html_table(self.headings(), self.step_rows()) + format_paragraph(*self.words)


def estimate_cost(spec: ReleaseSpec, rows: int, *, workers: int = 0, loading: float = 0.0) -> Estimate:
    """Estimate the cost of releasing a table of ``rows`` rows; arguments and errors as privsyn.estimate.

    ``loading``: CPU seconds that a new process takes to load, which are added; 0: for a running process.
    """
    _check_numbers(spec, rows, workers)
    plan = plan_release(spec)
    plan.check()
    plan.check_noise()
    wanted = spec.mechanism.synthesis.rows
    rows_out = rows if wanted == "auto" else wanted
    by_table = _split_tables(spec)
    threads, engine = choose_thread_count(Settings().threads), spec.engine
    by = workers or (engine.workers or choose_thread_count(0) if engine.kind == "dask" else 0)
    estimates, rehearsals = [], []
    with tempfile.TemporaryDirectory(prefix="privsyn-estimate-") as folder:
        start = loading + _measure_start(Path(folder) / "start")
        for table, table_spec in by_table.items():
            rehearsal = Rehearsal(table_spec, Path(folder) / f"rehearsal {table}", rows, rows_out)
            rehearsal.run()
            steps = [
                _continue(rehearsal, name, cost, threads, by, _count_parts(rehearsal, name, spec))
                for name, cost in rehearsal.costs.items()
            ]
            estimates += [replace(step, step=f"{table}: {step.step}") if table else step for step in steps]
            rehearsals.append(rehearsal)
    start += CLUSTER_START if by else 0.0
    wall = start + (WORKER_START if by else 0.0)  # workers load beside each other, while this process waits
    first = StepEstimate(START, start, wall, estimates[0].peak_mb, 0.0, WORKER_START * by)
    marginals = sum(cost.marginals for rehearsal in rehearsals for cost in rehearsal.costs.values())
    pairs = sum(rehearsal.pairs for rehearsal in rehearsals)
    words = (
        f"From a rehearsal on this machine: a release of {rehearsals[0].rows_in:,} made-up rows with the counts "
        f"expected of {rows:,} row{'s' * (rows != 1)}. Their columns are related like most tables' columns. "
        f"{pairs:,} pair{'s were' if pairs != 1 else ' was'} scored, "
        f"{marginals:,} joint marginal{'s' * (marginals != 1)} measured.",
        "How many are worth their noise depends on your table, and time and memory depend on them. Wall time is for "
        "a machine that does nothing else.",
        *((FULL_CELLS,) if any(step.name == "rung_counts" for step in plan.steps) else ()),
        *((f"{OF_UNITS[spec.unit.one]}.",) if spec.panel is not None else ()),
        *(f"{name}: {describe_records(spec, name)}." for name in spec.further_tables),
    )
    columns = len({name for table_spec in by_table.values() for name in table_spec.released_columns})
    return Estimate(rows, rows_out, columns, by, pairs, marginals, (first, *estimates), words)


def _split_tables(spec: ReleaseSpec) -> dict[str, ReleaseSpec]:
    """Return table -> its spec of one row per person and its part of rho; the first two tables have the empty name."""
    table_pairs = spec.table_pairs or {"": spec}
    rho = Request(spec).total_rho / len(table_pairs)
    by_table = {}
    for number, (name, pair_spec) in enumerate(table_pairs.items()):
        plain = take_units_for_rows(pair_spec)  # without totals, which made-up rows cannot have
        plain = plain.with_columns(plain.columns, Unit(records_per_person=plain.records))
        if spec.table_pairs:
            epsilon = convert_rho_to_epsilon(rho, spec.privacy.delta, spec.effective_accountant)
            plain = plain.at_price(Guarantee(epsilon=epsilon, delta=spec.privacy.delta))
        by_table[name if number else ""] = plain
    return by_table


def _check_numbers(spec: ReleaseSpec, rows: int, workers: int) -> None:
    if not 1 <= rows <= MOST_ROWS:
        cure = f"Give about how many rows the table has, from public knowledge, 1 to {MOST_ROWS:,}"
        raise RequestError(f"{rows:,} rows cannot be estimated", cure, "estimate.rows")
    if not 0 <= workers <= MOST_WORKERS:
        problem = f"{workers:,} workers are not 0 to {MOST_WORKERS:,}"
        raise RequestError(problem, "Choose another number", "estimate.workers")
    if spec.improves is not None:
        problem = "an improvement goes on from the tables of another release, and is not estimated"
        raise RequestError(problem, "Ask about the release that it improves", "improves")


def _measure_start(folder: Path) -> float:
    """Return the CPU seconds of a first, tiny release, which loads all that a release needs."""
    promise = {"epsilon": 100.0, "delta": 1e-6}
    columns = {name: {"kind": "integer", "min": 0, "max": 7, "bins": 8} for name in ("a", "b", "c")}
    content = {"dataset": "start", "unit": {"records_per_person": 1}, "privacy": promise, "budget": promise}
    start = time.process_time()
    Rehearsal(ReleaseSpec.model_validate({**content, "columns": columns}), folder, 400, 400).run()
    return time.process_time() - start


def _continue(rehearsal: Rehearsal, name: str, cost: Cost, threads: int, workers: int, parts: int) -> StepEstimate:
    """Return a step's cost with all rows; of several ``parts`` of its table, workers make each."""
    cpu, factor = cost.cpu, _choose_factor(rehearsal, name, cost)
    makes_rows = name == PUBLISH or rehearsal.makes_rows(name)
    disk = sum(size * _compute_growth(rehearsal, rows, makes_rows=makes_rows) for size, rows in cost.files) / 2**20
    if name == PUBLISH:
        cpu += COPY_SECONDS * (disk - sum(size for size, _ in cost.files) / 2**20)
    elif rehearsal.makes_rows(name):
        shards, few = _count_shards(rehearsal), rehearsal.rows_made
        follow = _continue_power if name in rehearsal.related else _continue_line  # of many rows sweeps settle sooner
        factor = 1.0 if shards > 1 else factor  # in large ones they do whatever the relations
        fewer = rehearsal.fewer_out[name].cpu
        cpu = shards * follow(compute_quarter(few), fewer, few, cpu, rehearsal.rows_out / shards)
    elif rehearsal.reads_rows(name):
        read, fewer = rehearsal.rows_in, rehearsal.fewer_in.get(name, Cost(cpu / 4, 0.0)).cpu
        cpu = _continue_line(compute_quarter(read), fewer, read, cpu, rehearsal.rows)
    cpu *= factor
    by_workers = (cost.counting if workers else 0.0) + (cpu if workers and parts > 1 else 0.0)
    moved = MOVED_SHARE if parts > 1 and rehearsal.makes_rows(name) and name in rehearsal.related else 0.0
    wall = cpu * (moved + (1 - moved) / (min(workers, parts) or 1)) + cost.counting / (workers or 1)
    if not workers and (makes_rows or cost.cells or rehearsal.reads_rows(name)):
        wall *= 1 - PARALLEL_SHARE + PARALLEL_SHARE / threads
    own_time = cpu + cost.counting - by_workers
    if workers:
        own_time += WAITING * wall + (HANDING_SECONDS * disk if parts > 1 else 0.0)
    return StepEstimate(
        name.replace("_", " "), own_time, wall, cost.peak_mb + _grow_memory(rehearsal, name, cost), disk, by_workers
    )


def _choose_factor(rehearsal: Rehearsal, name: str, cost: Cost) -> float:
    """Return the factor on the rehearsed time of a part whose time depends on relations; 1 for other parts.

    A real release may measure RELATED_FACTOR times the rehearsed marginals, up to all cells of all scored pairs.
    """
    if name not in rehearsal.related:
        return 1.0
    if cost.marginals and RELATED_FACTOR * cost.marginals >= rehearsal.pairs:
        return max(1.0, rehearsal.pair_cells / cost.cells)
    return RELATED_FACTOR


def _continue_line(first: int, low: float, second: int, high: float, rows: float) -> float:
    """Return the cost at ``rows`` on a line through both points, which does not fall with the rows."""
    slope = max(0.0, high - low) / (second - first) if second > first else 0.0
    return high + slope * (rows - second)


def _continue_power(first: int, low: float, second: int, high: float, rows: float) -> float:
    """Return the same for a cost that grows as a power of the rows, LEAST_POWER to 1."""
    between = math.log(high / low) / math.log(second / first) if 0.0 < low < high and first < second else 0.0
    return high * math.pow(rows / second, min(1.0, max(LEAST_POWER, between))) if second else high


def _count_parts(rehearsal: Rehearsal, name: str, spec: ReleaseSpec) -> int:
    """Return the number of parts in which a step makes its table; ``spec``: the estimated request."""
    if rehearsal.makes_rows(name):
        return _count_shards(rehearsal)
    in_parts = name == "recode_rows" or (name == "encode" and spec.unit.person_id is None and not spec.tables)
    return math.ceil(rehearsal.rows / PART_ROWS) if in_parts else 1


def _count_shards(rehearsal: Rehearsal) -> int:
    return max(1, math.ceil(rehearsal.rows_out / rehearsal.spec.mechanism.synthesis.shard_rows))


def _compute_growth(rehearsal: Rehearsal, rows: int, *, makes_rows: bool) -> float:
    """Return the growth factor of a file with so many rows; ``makes_rows``: whether its step makes rows."""
    few, many = (rehearsal.rows_made, rehearsal.rows_out) if makes_rows else (rehearsal.rows_in, rehearsal.rows)
    return many / few if rows == few > 0 else 1.0


def _grow_memory(rehearsal: Rehearsal, name: str, cost: Cost) -> float:
    """Return a part's memory beyond its rehearsal, in MB: blocks of rows, and counts that the rehearsal made up."""
    columns, more = len(rehearsal.encoding.domain.attributes), 0.0
    if rehearsal.makes_rows(name):
        shard = rehearsal.rows_out / _count_shards(rehearsal)
        more += CODE_COPIES * columns * (shard - rehearsal.rows_made)
    if rehearsal.reads_rows(name):
        most = choose_batch_rows(columns)
        more += VALUE_BYTES * columns * (min(rehearsal.rows, most) - min(rehearsal.rows_in, most))
    if cost.cells:
        more += COUNT_BYTES * min(cost.cells, PASS_CELLS) + 2 * min(columns * rehearsal.rows, BLOCK_BYTES)
    return max(0.0, more) / 2**20
