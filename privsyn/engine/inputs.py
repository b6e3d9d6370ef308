"""The inputs of a step: the tables that it declares and, for a step that may look, access to private rows."""

from __future__ import annotations

import hashlib
import pickle
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NoReturn

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from privsyn.counting.engine import Engine, LocalEngine
from privsyn.counting.part_files import Make
from privsyn.counting.partitions import Partition
from privsyn.counting.row_work import RowWork
from privsyn.data_contracts.domain import Domain
from privsyn.data_contracts.receipts import Query
from privsyn.data_contracts.step_options import Compression
from privsyn.storage.table_files import StoredTable
from privsyn.tasks.codecs import EncodingPlan
from privsyn.tasks.codecs.binning import Binning
from privsyn.tasks.codecs.cells import CutCell
from privsyn.tasks.estimation import noisy
from privsyn.tasks.estimation.full_cells import read_cuts
from privsyn.tasks.estimation.recode import Recode, build_coarse_domain, pool_one_ways, recode_from_table, recompress
from privsyn.tasks.estimation.smooth_counts import smooth_one_ways
from privsyn.tasks.kernels.counting import CodeTable, Countable
from privsyn.tasks.steps import encode

Batches = Iterable[pa.RecordBatch]


@dataclass(frozen=True)
class PrivateAccess:
    """The one object of a run that can read private rows.

    Attributes:
        rows: Starts a fresh pass over the private table; only steps that encode it are handed that.
        unchanged: Says whether the table is what it was when the run was opened.
        engine: Counts stored rows.
        encode_parts: Returns what encodes a part of the table, with numbers or without, and its parts; None where it is
            one stream.
        further: Further table -> what starts a pass over its rows, each with the row above.
    """

    rows: encode.Batches
    unchanged: Callable[[], bool] = lambda: True
    engine: Engine = field(default_factory=LocalEngine)
    encode_parts: Callable[[EncodingPlan, bool], tuple[Make, list[Partition]] | None] = lambda plan, numbers: None
    further: Mapping[str, encode.Batches] = field(default_factory=dict)

    def of_table(self, name: str) -> PrivateAccess:
        """Return the access to the rows of a further table."""
        return replace(self, rows=self.further[name], encode_parts=lambda plan, numbers: None)

    def without_source(self) -> PrivateAccess:
        """Return the access of a step that counts stored rows: it does not know the private table."""
        return PrivateAccess(_refuse_to_read, engine=self.engine)


def _refuse_to_read(*_: object) -> NoReturn:
    """Raise TypeError: the private table is read when it is encoded, and never again."""
    raise TypeError("this step has no access to the private table")


_REFINED: dict[str, Recode] = {}
"""The last result of :meth:`Inputs.refined`, by a digest of what it follows from; released counts only."""


def _digest(tables: Sequence[pa.Table], *others: object) -> str:
    """Return the SHA-256 of tables and of other things that can be pickled."""
    digest = hashlib.sha256(pickle.dumps(others))
    for table in tables:
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write(table)
        digest.update(sink.getvalue())
    return digest.hexdigest()


class Inputs:
    """The tables that a step declared as its inputs, read when asked for.

    ``private``: the access to private rows, None for a plan and for post-processing, which cannot look.  ``work``:
    makes large tables in parts.
    """

    def __init__(
        self,
        read: Mapping[str, Callable[[], Any]],
        private: PrivateAccess | None = None,
        work: RowWork | None = None,
    ) -> None:
        self._read, self._private, self.work = dict(read), private, work or RowWork()
        self._recode: Recode | None = None

    @property
    def private(self) -> PrivateAccess:
        """The access to private rows.  Raises TypeError for a step that has none."""
        if self._private is None:
            raise TypeError("this step has no access to private rows")
        return self._private

    def rename(self, names: Mapping[str, str], table: str | None = None) -> Inputs:
        """Return the same tables under other names; ``names``: other name of a step -> its name.

        ``table``: the further table whose rows the access to private rows is of; None: as it is.
        """
        read: dict[str, Callable[[], Any]] = {}
        for other, step in names.items():
            tables = (name for name in self._read if name.split(".")[0] == step)
            read |= {f"{other}.{name.split('.')[1]}": self._read[name] for name in tables}
        private = self._private if self._private is None or table is None else self._private.of_table(table)
        return Inputs(read, private, self.work)

    def put_in_place(self, others: Mapping[str, str]) -> Inputs:
        """Return the same tables, some replaced; ``others``: name of a table -> of the declared one in its place."""
        read = {name: self._read[others.get(name, name)] for name in self._read}
        return Inputs(read, self._private, self.work)

    def cuts(self, name: str) -> tuple[CutCell, ...]:
        """Return the cut cells of the table ``name``; none without a name, and for a plan without released tables."""
        return read_cuts(self.table(name)) if name in self._read else ()

    def table(self, name: str) -> pa.Table:
        """Return a whole table.  Raises KeyError if the step did not declare it."""
        return self._read[name]()

    def batches(self, name: str) -> Batches:
        """Return a stream of batches.  Raises KeyError if the step did not declare it."""
        stored = self.stored(name)
        return stored.to_batches() if isinstance(stored, pa.Table) else stored.batches()

    def stored(self, name: str) -> pa.Table | StoredTable:
        """Return a table as it is held: in memory or in files.  Raises KeyError if the step did not declare it."""
        return self._read[name]()

    def countable(self, name: str, domain: Domain, *, padded: bool = False) -> Countable:
        """Return the private rows of a table of codes, to be counted.

        By the engine, or here where they are in memory.
        """
        stored = self.stored(name)
        if isinstance(stored, pa.Table):
            return CodeTable.from_arrow(stored, domain, padded=padded)
        return self.private.engine.rows(stored, domain, padded=padded)

    def recode(self) -> Recode:
        """Return the declared table ``recode``, parsed once."""
        if self._recode is None:
            self._recode = recode_from_table(self.table("compress_domain.recode"))
        return dict(self._recode)

    def refined(self, binning: Binning, settings: Compression, stages: Sequence[str]) -> Recode:
        """Return the recoding with the one-ways that ``stages`` measured pooled in, and what they say together.

        Several steps of a run ask for the same; it is worked out once.
        """
        names = ["compress_domain.recode", *(f"{stage}.{name}" for stage in stages for name in ("receipts", "noisy"))]
        key = _digest([self.table(name) for name in names], binning, settings)
        refined = _REFINED.get(key)
        if refined is None:
            queries, answers = self.measured(stages)
            pooled = pool_one_ways(self.recode(), queries, answers, binning)
            refined = recompress(pooled, queries, binning, settings)
            if settings.enabled and settings.equal_mass:
                refined = smooth_one_ways(pooled, refined, binning)
            _REFINED.clear()
            _REFINED[key] = refined
        return dict(refined)

    def measured(self, stages: Sequence[str]) -> tuple[list[Query], list[NDArray[Any]]]:
        """Return queries and noisy answers of these release steps, each marginal once."""
        receipts = [self.table(f"{stage}.receipts") for stage in stages]
        return noisy.list_all_measured(receipts, [self.table(f"{stage}.noisy") for stage in stages])

    def sums_beside(self, stages: Sequence[str]) -> tuple[list[Query], list[NDArray[Any]]]:
        """Return queries and noisy answers of the sums that these release steps asked beside marginals, each once."""
        receipts = [self.table(f"{stage}.receipts") for stage in stages]
        return noisy.list_all_sums(receipts, [self.table(f"{stage}.noisy") for stage in stages])

    def domain(self) -> Domain:
        """Return the compressed domain."""
        return build_coarse_domain(self.recode())

    def noisy(self, stage: str) -> tuple[list[Query], list[NDArray[np.int64]]]:
        """Return queries and noisy answers of an earlier release step."""
        queries = noisy.read_receipts(self.table(f"{stage}.receipts"))
        return queries, noisy.read_answers(self.table(f"{stage}.noisy"), queries)
