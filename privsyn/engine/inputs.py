"""The inputs of a step: its declared tables and, for a step that may look, access to private rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any, NoReturn, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from privsyn.base.errors import RequestError
from privsyn.counting.engine import Engine, LocalEngine, Make, Partition, RowWork
from privsyn.data_contracts.artifacts import LookKind
from privsyn.data_contracts.domain import Domain
from privsyn.data_contracts.receipts import Query
from privsyn.storage.table_files import StoredTable
from privsyn.tasks.codecs import EncodingPlan
from privsyn.tasks.codecs.cells import CutCell
from privsyn.tasks.estimation import noisy
from privsyn.tasks.estimation.known_zeros import KnownZeros, read_empty_cells
from privsyn.tasks.estimation.recode import Recode, build_coarse_domain, recode_from_table
from privsyn.tasks.estimation.rungs import read_cuts
from privsyn.tasks.kernels.counting import CodeTable, Countable
from privsyn.tasks.steps import encode

Batches = Iterable[pa.RecordBatch]
Made = TypeVar("Made")


@dataclass(frozen=True)
class PrivateAccess:
    """The one object of a run that can read private rows.

    Attributes:
        rows: Starts a new pass over the private table; only steps that encode it get this.
        unchanged: Returns whether the table is the same as when the run was opened.
        engine: Counts stored rows.
        encode_parts: Returns a function that encodes a part of the table, with or without numbers, and the parts; None
            for a table that is one stream.
        further_tables: Further table -> a function that starts a pass over its rows, each with the row above.
    """

    rows: encode.Batches
    unchanged: Callable[[], bool] = lambda: True
    engine: Engine = field(default_factory=LocalEngine)
    encode_parts: Callable[[EncodingPlan, bool], tuple[Make, list[Partition]] | None] = lambda plan, numbers: None
    further_tables: Mapping[str, encode.Batches] = field(default_factory=dict)

    def refuse_changed(self) -> None:
        """Raise RequestError if the private table changed since the run was opened."""
        if not self.unchanged():
            raise RequestError(
                "the private table changed while it was read", "Run again once it is complete", "release.data"
            )

    def check_unchanged(self, batches: Iterable[Made]) -> Iterator[Made]:
        """Yield the batches; raise RequestError at the end, before anything is kept, if the data changed."""
        yield from batches
        self.refuse_changed()

    def open_table(self, name: str) -> PrivateAccess:
        """Return the access to the rows of a further table."""
        return replace(self, rows=self.further_tables[name], encode_parts=lambda plan, numbers: None)

    def without_source(self) -> PrivateAccess:
        """Return the access of a step that counts stored rows, without the private table."""
        return PrivateAccess(_refuse_to_read, engine=self.engine)


def _refuse_to_read(*_: object) -> NoReturn:
    """Raise TypeError: the private table is read only when it is encoded."""
    raise TypeError("this step has no access to the private table")


class Inputs:
    """The tables that a step declared as its inputs, read on demand.

    ``private``: the access to private rows; None for a plan and for post-processing, which cannot look.  ``work``:
    makes large tables in parts.
    """

    def __init__(
        self, read: Mapping[str, Callable[[], Any]], private: PrivateAccess | None = None, work: RowWork | None = None
    ) -> None:
        self._read, self._private, self.work = dict(read), private, work or RowWork()
        self._recode: Recode | None = None
        self._refined: Recode | None = None
        self._looks: Mapping[LookKind, tuple[str, ...]] = {}
        self.rho: Mapping[str, Fraction] = {}

    @property
    def private(self) -> PrivateAccess:
        """The access to private rows.  Raises TypeError for a step without it."""
        if self._private is None:
            raise TypeError("this step has no access to private rows")
        return self._private

    def rename(self, names: Mapping[str, str], table: str | None = None) -> Inputs:
        """Return the same tables under other names; ``names``: new name of a step -> its name.

        ``table``: the further table whose private rows are accessed; None: no change.
        """
        read: dict[str, Callable[[], Any]] = {}
        for other, step in names.items():
            tables = (name for name in self._read if name.split(".")[0] == step)
            read |= {f"{other}.{name.split('.')[1]}": self._read[name] for name in tables}
        private = self._private if self._private is None or table is None else self._private.open_table(table)
        return Inputs(read, private, self.work)

    def replace_tables(self, others: Mapping[str, str]) -> Inputs:
        """Return the same tables, some replaced; ``others``: name of a table -> name of its replacement."""
        read = {name: self._read[others.get(name, name)] for name in self._read}
        return Inputs(read, self._private, self.work)

    def with_looks(self, looks: Mapping[LookKind, tuple[str, ...]], rho: Mapping[str, Fraction]) -> Inputs:
        """Return the same tables; ``looks``: kind -> the names of the earlier looks that made them.

        ``rho``: look -> its exact budget, for the step itself and its declared ``budgets``; 0 if the look is not taken.
        """
        inputs = Inputs(self._read, self._private, self.work)
        inputs._looks, inputs.rho = looks, rho
        return inputs

    def cuts(self, name: str) -> tuple[CutCell, ...]:
        """Return the cut cells in the table ``name``; empty without a name, and for a plan without released tables."""
        return read_cuts(self.table(name)) if name in self._read else ()

    def table(self, name: str) -> pa.Table:
        """Return a whole table.  Raises KeyError if the step did not declare it."""
        return self._read[name]()

    def batches(self, name: str) -> Batches:
        """Return a stream of batches.  Raises KeyError if the step did not declare it."""
        stored = self.stored(name)
        return stored.to_batches() if isinstance(stored, pa.Table) else stored.batches()

    def stored(self, name: str) -> pa.Table | StoredTable:
        """Return a table as stored: in memory or in files.  Raises KeyError if the step did not declare it."""
        return self._read[name]()

    def countable(self, name: str, domain: Domain, *, padded: bool = False) -> Countable:
        """Return the private rows of a table of codes for counting: by the engine, or here if they are in memory."""
        stored = self.stored(name)
        if isinstance(stored, pa.Table):
            return CodeTable.from_arrow(stored, domain, padded=padded)
        return self.private.engine.rows(stored, domain, padded=padded)

    def recode(self) -> Recode:
        """Return the declared table ``recode``, parsed once."""
        if self._recode is None:
            self._recode = recode_from_table(self.table("compress_domain.recode"))
        return dict(self._recode)

    def read_pooled_recode(self) -> Recode:
        """Return the declared table ``refined`` of the step that pooled all one-ways, parsed once."""
        if self._refined is None:
            self._refined = recode_from_table(self.table(self._find("refined")))
        return dict(self._refined)

    def empty_cells(self, *, unmeasured: bool = False) -> KnownZeros:
        """Return the joint codes with null that the same step found to be empty.

        ``unmeasured``: also cells of pairs that were not measured.
        """
        domain = build_coarse_domain(self.read_pooled_recode())
        return read_empty_cells(self.table(self._find("empty_cells")), domain, unmeasured=unmeasured)

    def _find(self, table: str) -> str:
        """Return the full name of the one declared table called ``table``, whichever step made it."""
        (name,) = (name for name in self._read if name.split(".")[1] == table)
        return name

    def has(self, name: str) -> bool:
        """Return whether the table ``name`` is among the step's inputs."""
        return name in self._read

    def list_looks(self, kind: LookKind) -> tuple[str, ...]:
        """Return the names of the earlier looks of this kind.  Raises KeyError if the step did not declare the kind."""
        return self._looks[kind]

    def measured(self, *, alone: bool = False) -> tuple[list[Query], list[NDArray[Any]]]:
        """Return queries and noisy answers of the looks at marginals, each marginal once.

        ``alone``: adds every look at single columns but the first, whose answers are in the recoding.
        """
        looks = (*self.list_looks(LookKind.MARGINALS), *(self.list_looks(LookKind.ONE_WAYS)[1:] if alone else ()))
        return noisy.list_all_measured(*self._read_looks(looks))

    def one_ways_again(self) -> tuple[list[Query], list[NDArray[Any]]]:
        """Return queries and noisy answers of the looks at single columns after the first, each column once."""
        return noisy.list_all_measured(*self._read_looks(self.list_looks(LookKind.ONE_WAYS)[1:]))

    def sums_beside(self) -> tuple[list[Query], list[NDArray[Any]]]:
        """Return queries and noisy answers of the sums that looks at marginals asked in addition, each once."""
        return noisy.list_all_measured(*self._read_looks(self.list_looks(LookKind.MARGINALS)), sums=True)

    def all_noisy(self, kind: LookKind) -> tuple[list[Query], list[NDArray[np.int64]]]:
        """Return queries and noisy answers of all looks of this kind, concatenated."""
        answered = [self.noisy(look) for look in self.list_looks(kind)]
        return [q for queries, _ in answered for q in queries], [y for _, answers in answered for y in answers]

    def _read_looks(self, names: Iterable[str]) -> tuple[list[pa.Table], list[pa.Table]]:
        """Return the receipts and the noisy answers of release steps."""
        looks = list(names)
        return [self.table(f"{name}.receipts") for name in looks], [self.table(f"{name}.noisy") for name in looks]

    def domain(self) -> Domain:
        """Return the compressed domain."""
        return build_coarse_domain(self.recode())

    def noisy_counts(self, stage: str) -> list[tuple[Query, NDArray[np.float64]]]:
        """Return the queries of an earlier release step, each with its noisy answer as floats."""
        return [(query, answer.astype(np.float64)) for query, answer in zip(*self.noisy(stage), strict=True)]

    def noisy_scores(self, stage: str) -> tuple[list[Query], list[float]]:
        """Return the queries of an earlier release step, and their noisy answers of one number each."""
        queries, answers = self.noisy(stage)
        return queries, [float(answer[0]) for answer in answers]

    def noisy(self, stage: str) -> tuple[list[Query], list[NDArray[np.int64]]]:
        """Return queries and noisy answers of an earlier release step."""
        queries = noisy.read_receipts(self.table(f"{stage}.receipts"))
        return queries, noisy.read_answers(self.table(f"{stage}.noisy"), queries)
