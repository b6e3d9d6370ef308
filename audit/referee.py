"""The referee: the true answers of every look, on one table and on others beside it, against what each look declares.

The base is released with noise as always.  Every other table follows in lockstep: private transforms run on each of
them, post-processing runs once, on what was released of the base.  So the answers that are compared differ by the
tables' rows alone.  A table with the same rows in another order must have equal answers.  A neighbour, which has one
person more or fewer, may move each query by its declared sensitivity, and all looks together by their price.

Not looked at here: the noise itself (tests/privacy/test_drawn_noise.py), contracts and the ledger; files in one case.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from audit.lockstep import make_tables
from privsyn.data_contracts.artifacts import StepKind
from privsyn.data_contracts.receipts import Query, sum_rho
from privsyn.data_contracts.release_spec import ReleaseSpec
from privsyn.engine.inputs import Inputs, PrivateAccess
from privsyn.engine.plan import Plan
from privsyn.engine.request import Request
from privsyn.engine.step import ReleaseStep, Step
from privsyn.sources.open_source import AnyPlace, open_source
from privsyn.storage.table_files import StoredTable
from privsyn.tasks.estimation import noisy
from privsyn.tasks.panels.choose_rows import RowsOfPersons
from privsyn.tasks.panels.row_order import RowOrder
from privsyn.tasks.privacy.noise import NoiseSource, SeededNoise

KEY = b"the referee's key"
"""The key of the order of rows: the release's own is a secret of its private folder."""

ROUNDING = 1e-9
"""Relative error of sums of prices in floats."""


class Relation(Enum):
    """How a table is related to the base; ``value``: how many times the declared sensitivity an answer may move."""

    REORDERED = 0
    NEIGHBOUR = 1
    REPLACED = 2


class Other(NamedTuple):
    """A table beside the base.

    ``batch_rows``: how many rows a pass over it yields at once at most; None: as in a release.
    """

    name: str
    data: Any
    relation: Relation
    batch_rows: int | None = None


class Violation(NamedTuple):
    """What a table may not move: an answer, or the price of all answers.

    ``what``: the attributes of the query, or words; ``moved`` and ``allowed``: L2 distances, or prices (rho).
    """

    look: str
    table: str
    relation: Relation
    what: tuple[str, ...]
    moved: float
    allowed: float


@dataclass
class Verdict:
    """What the referee found.

    ``violations``: empty where all is as declared; ``asked``: looks that asked at least one query; ``shares``: look ->
    the largest share of its declared sensitivity that a neighbour moved; ``price_share``: the largest share of the
    whole price that a neighbour moved; ``replaced_share``: the largest share of a declared sensitivity, at most 2, that
    one row more of a person moved; ``tried``: tables by their relation; ``released``: what was released of the base.
    """

    violations: list[Violation] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)
    shares: dict[str, float] = field(default_factory=dict)
    price_share: float = 0.0
    replaced_share: float = 0.0
    tried: dict[Relation, int] = field(default_factory=lambda: dict.fromkeys(Relation, 0))
    released: dict[str, pa.Table] = field(default_factory=dict, repr=False)

    @property
    def sensitivity_share(self) -> float:
        """The largest share of the declared sensitivity of all looks."""
        return max(self.shares.values(), default=0.0)


OpenPrivate = Callable[[Any, int | None], PrivateAccess]
"""Opens a private table, whose passes yield at most so many rows at once."""

Keep = Callable[[pa.Table], pa.Table | StoredTable]
"""Says how a private table is held until it is counted."""

Watch = Callable[[str, Sequence[Query], noisy.Answers, Sequence[noisy.Answers]], None]
"""Is told of each look that asks: its name, its queries, the noisy answers, and the true ones of base and others."""


def open_private(spec: ReleaseSpec, data: AnyPlace, batch_rows: int | None = None) -> PrivateAccess:
    """Return the access to a private table, as a run has it (privsyn/engine/draw.py)."""
    order = RowOrder(KEY)
    source = open_source(data, spec, order)
    source.check_rows()
    rows = RowsOfPersons(partial(source.batches, batch_rows=batch_rows), order)
    further = {
        n: RowsOfPersons(partial(s.batches, batch_rows=batch_rows), order) for n, s in source.further_tables.items()
    }
    return PrivateAccess(rows, further_tables=further)


def compare_answers(
    request: Request,
    steps: Sequence[Step],
    open_rows: OpenPrivate,
    base: Any,
    others: Iterable[Other],
    noise: NoiseSource | None = None,
    watch: Watch = lambda look, queries, noisy_answers, answers: None,
    keep: Keep = lambda table: table,
) -> Verdict:
    """Return what the tables ``others`` move of the true answers, when ``base`` is released by these steps.

    ``noise``: that of the released answers; None: from a seed.  ``watch``: is told of each look.  ``keep``: how a
    private table is held until it is counted, such as :class:`KeptInFiles`.
    """
    sides = [_Side(Other("base", base, Relation.REORDERED), open_rows(base, None))]
    sides += [_Side(other, open_rows(other.data, other.batch_rows)) for other in others]
    return _Lockstep(Plan(request, tuple(steps)), sides, noise or SeededNoise(0), watch, keep).run()


@dataclass
class KeptInFiles:
    """Holds tables in ``folder``, in Parquet files of a few rows each, which the engine counts part by part."""

    folder: Path
    rows_a_file: int = 37
    _number: int = 0

    def write(self, table: pa.Table) -> Path:
        """Write a table into a folder of files, and return that."""
        self._number += 1
        place = self.folder / str(self._number)
        place.mkdir()
        for start in range(0, max(table.num_rows, 1), self.rows_a_file):
            pq.write_table(table.slice(start, self.rows_a_file), place / f"{start:06}.parquet", row_group_size=10)
        return place

    def keep(self, table: pa.Table) -> StoredTable:
        """Write a table, and return it as a run holds it."""
        files = tuple(sorted(self.write(table).iterdir()))
        return StoredTable(files, lambda: (batch for file in files for batch in pq.ParquetFile(file).iter_batches()))


class _Side:
    """One table, its private tables by name, and the price of what it moved."""

    def __init__(self, other: Other, private: PrivateAccess) -> None:
        self.other, self.private, self.price = other, private, 0.0
        self.tables: dict[str, pa.Table | StoredTable] = {}


class _Lockstep:
    """One release of the first side, with the others beside it."""

    def __init__(self, plan: Plan, sides: Sequence[_Side], noise: NoiseSource, watch: Watch, keep: Keep) -> None:
        self.plan, self.request, self.sides, self.noise, self.watch = plan, plan.request, sides, noise, watch
        self.keep = keep
        self.price, self.verdict = Fraction(0), Verdict()
        self.released = self.verdict.released
        for side in sides[1:]:
            self.verdict.tried[side.other.relation] += 1

    def run(self) -> Verdict:
        """Run all steps up to the last look."""
        steps = self.plan.steps
        last = max(place for place, step in enumerate(steps) if isinstance(step, ReleaseStep))
        for step in steps[: last + 1]:
            if isinstance(step, ReleaseStep):
                self._look(step)
            elif step.kind is StepKind.TRANSFORM:
                for side in self.sides:
                    made = make_tables(step, *step.open(self.request, self._read_private(step, side)))
                    side.tables |= {name: self.keep(table) for name, table in made.items()}
            else:
                self.released |= make_tables(step, *step.open(self.request, self._read_released(step)))
        self._check_prices()
        return self.verdict

    def _read_released(self, step: Step) -> Inputs:
        """Return the step's released inputs: all that a plan and post-processing may read."""
        names = (name for name in self.plan.released_inputs(step) if name in self.released)
        return Inputs({name: partial(self.released.__getitem__, name) for name in names})

    def _read_private(self, step: Step, side: _Side) -> Inputs:
        """Return the step's inputs on one side; only a step that encodes is handed the private table."""
        tables = {**self.released, **side.tables}
        private = side.private if step.encodes else side.private.without_source()
        return Inputs({n: partial(tables.__getitem__, n) for n in step.inputs if n in tables}, private)

    def _look(self, step: ReleaseStep) -> None:
        queries = self.plan.queries(step, self._read_released(step))
        price, allowed = sum_rho(queries), step.rho(self.request)
        self.price += price
        if price > allowed:
            self._report(step.name, self.sides[0], ("price of the look",), float(price), float(allowed))
        answers = [self._count(step, queries, side) for side in self.sides] if queries else [[] for _ in self.sides]
        if queries:
            self.verdict.asked.append(step.name)
            self.verdict.shares.setdefault(step.name, 0.0)
        for side, moved in zip(self.sides[1:], answers[1:], strict=True):
            self._compare(step.name, queries, answers[0], side, moved)
        drawn = noisy.draw_for_queries(queries, lambda sizes: [self.noise.draw(sigma, cells) for sigma, cells in sizes])
        with_noise = [counts + more for counts, more in zip(answers[0], drawn, strict=True)]
        if queries:
            self.watch(step.name, queries, with_noise, answers)
        self.released[f"{step.name}.receipts"] = noisy.tabulate_receipts(queries)
        self.released[f"{step.name}.noisy"] = noisy.tabulate_answers(with_noise)

    def _count(self, step: ReleaseStep, queries: list[Query], side: _Side) -> list[NDArray[np.int64]]:
        """Return the true answers of one side."""
        request, inputs = step.open(self.request, self._read_private(step, side))
        return [np.asarray(counts) for counts in step.exact(request, inputs, step.read_rows(request, inputs), queries)]

    def _compare(
        self,
        look: str,
        queries: Sequence[Query],
        base: Sequence[NDArray[np.int64]],
        side: _Side,
        answers: Sequence[NDArray[np.int64]],
    ) -> None:
        """Compare the answers of one side with those of the base, query by query."""
        factor, shares = side.other.relation.value, self.verdict.shares
        for query, before, after in zip(queries, base, answers, strict=True):
            if before.shape != after.shape or before.size != query.cells:
                self._report(look, side, query.attributes, math.inf, 0.0)
                continue
            squared = _square(before, after)
            if squared > (factor * query.sensitivity) ** 2:
                self._report(look, side, query.attributes, math.sqrt(squared), factor * query.sensitivity)
            side.price += float(query.rho) * squared / query.sensitivity**2
            share = math.sqrt(squared) / query.sensitivity
            if side.other.relation is Relation.NEIGHBOUR:
                shares[look] = max(shares[look], share)
            elif side.other.relation is Relation.REPLACED:
                self.verdict.replaced_share = max(self.verdict.replaced_share, share)

    def _check_prices(self) -> None:
        """Compare the price of all queries with the request's, and what each side moved with the price."""
        total = self.request.total_rho
        if self.price > total:
            self._report("all looks", self.sides[0], ("price",), float(self.price), float(total))
        for side in self.sides[1:]:
            allowed = float(total) * side.other.relation.value**2
            if side.price > allowed * (1 + ROUNDING):
                self._report("all looks", side, ("price",), side.price, allowed)
            if side.other.relation is Relation.NEIGHBOUR:
                self.verdict.price_share = max(self.verdict.price_share, side.price / float(total))

    def _report(self, look: str, side: _Side, what: tuple[str, ...], moved: float, allowed: float) -> None:
        self.verdict.violations.append(Violation(look, side.other.name, side.other.relation, what, moved, allowed))


def _square(before: NDArray[np.int64], after: NDArray[np.int64]) -> int:
    """Return the squared L2 distance of two vectors of counts, exactly."""
    moved = (after - before)[after != before]
    return sum(int(change) ** 2 for change in moved)
