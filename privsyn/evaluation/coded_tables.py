"""The tables of an evaluation: a release, the real rows and other tables, all as codes of one public domain.

Everything read here, except the released folder, is private and stays in memory.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from privsyn.base.errors import RequestError
from privsyn.base.places import expand_path, resolve_place
from privsyn.base.settings import Settings
from privsyn.base.wording import mention, refer_to_action
from privsyn.data_contracts.certificate import Manifest
from privsyn.data_contracts.domain import Domain, choose_code_dtype
from privsyn.data_contracts.evaluation import MgdSpec
from privsyn.data_contracts.frozen_model import FieldError
from privsyn.data_contracts.promise import Unit
from privsyn.data_contracts.release_spec import ReleaseSpec
from privsyn.sources.open_source import AnyPlace, list_table_columns, open_source
from privsyn.sources.private_table import Source
from privsyn.storage.released_files import (
    CUTS_FILE,
    VersionError,
    check_table,
    list_synthetic_names,
    read_manifest,
    request_of,
)
from privsyn.storage.store import read_row_key
from privsyn.tasks.codecs import EncodingPlan, find_two_celled_columns, plan, plan_every_column
from privsyn.tasks.codecs.cells import CutCell
from privsyn.tasks.codecs.encode_rows import Repairs, encode_batch
from privsyn.tasks.estimation.rungs import read_cuts
from privsyn.tasks.kernels.counting import CodeTable
from privsyn.tasks.metrics.mgd import MgdResult, compute_mgd
from privsyn.tasks.panels.choose_rows import RowsOfPersons
from privsyn.tasks.panels.row_order import RowOrder
from privsyn.tasks.steps.encode import iterate_kept_batches


@dataclass(frozen=True, eq=False)
class CodedTable:
    """One table in two codings: fine cells, and public bins for the metrics."""

    fine: CodeTable
    bins: CodeTable


@dataclass(frozen=True)
class EvaluatedRelease:
    """A published run: its folder, manifest and spec, and the private table, a path or a table in memory.

    ``order``: the order by which the release chose each person's rows.
    """

    folder: Path
    manifest: Manifest
    spec: ReleaseSpec
    private_table: AnyPlace
    order: RowOrder = field(default_factory=RowOrder)

    @property
    def encoding(self) -> EncodingPlan:
        """A codec for every released column, in the released order, for comparisons.

        Attributes beside a column, such as its weekday, are left out: errors of their rough counts are not errors of
        columns.
        """
        every = plan_every_column(self.spec, tuple(self.manifest.column_order), self._evenly_cut, self._cuts)
        return replace(every, codecs=tuple(codec for codec in every.codecs if codec.chances is None))

    @property
    def measured(self) -> EncodingPlan:
        """The codecs of the release's attributes: no computed columns, and dummies of one rule as one attribute."""
        return plan(self.spec, tuple(self.manifest.column_order), self._evenly_cut, self._cuts)

    @cached_property
    def _cuts(self) -> tuple[CutCell, ...]:
        return read_released_cuts(self.folder)

    @cached_property
    def _evenly_cut(self) -> frozenset[str]:
        """The columns whose wide bins have two cells in this release; empty if its tables cannot be read."""
        encoding = plan(self.spec, tuple(self.manifest.column_order), cuts=self._cuts)
        if not encoding.wide:
            return frozenset()
        try:
            attributes = pq.read_table(self.folder / "marginals" / "recode.parquet")["attribute"].to_pylist()
        except (OSError, KeyError, pa.ArrowException):
            return frozenset()  # reported when the tables are used
        return find_two_celled_columns(encoding, Counter(attributes))

    @property
    def synthetic(self) -> tuple[Path, ...]:
        """The files of the synthetic table."""
        return tuple(self.folder / name for name in list_synthetic_names(self.manifest))


def read_released_cuts(folder: Path, further_table: str = "") -> tuple[CutCell, ...]:
    """Return the cells that a release chose, of a further table if named; empty if its tables cannot be read."""
    name = CUTS_FILE.replace("/", f"/{further_table}/") if further_table else CUTS_FILE
    try:
        return read_cuts(pq.read_table(folder / name))
    except (OSError, KeyError, TypeError, pa.ArrowException):
        return ()  # reported when the tables are used


def open_release(release: str | Path, settings: Settings, data: AnyPlace | None = None) -> EvaluatedRelease:
    """Return the release with this run name or folder; ``data`` replaces the private table recorded with the run.

    Raises RequestError that names the argument if there is no release, or if no private table is known.
    """
    folder = _locate_folder(release, settings)
    try:
        manifest = read_manifest(folder)
    except VersionError as error:
        raise error.about("evaluate.release") from None
    except RequestError:
        raise RequestError(
            f"{release} is not a release: no readable manifest.json in {folder}",
            "Name a run (" + refer_to_action("list_runs") + " lists them) or its folder under released/",
            "evaluate.release",
        ) from None
    check_table(manifest, "evaluate.release")
    if data is None:
        data = _read_remembered(manifest.run, settings)
    elif isinstance(data, str | os.PathLike):
        data = resolve_place(str(data), "evaluate.data")
    elif isinstance(data, Mapping):
        data = {n: resolve_place(str(t), "evaluate.data") if isinstance(t, str | Path) else t for n, t in data.items()}
    spec = request_of(manifest, "evaluate.release")
    where = data if isinstance(data, str) else ""
    order = RowOrder(read_row_key(settings.private_root))
    return EvaluatedRelease(folder, manifest, spec.read_at(where), data, order)


def _locate_folder(release: str | Path, settings: Settings) -> Path:
    if not str(release).strip():
        raise RequestError("is empty", "Name a run or its folder under released/", "evaluate.release")
    path = expand_path(release, "evaluate.release")
    if path.is_dir():
        return path.absolute()
    named = path.name == str(release) and (settings.released_root / path.name).is_dir()
    return settings.released_root / path.name if named else path.absolute()


def _read_remembered(run: str, settings: Settings) -> str | dict[str, str]:
    note = settings.private_root / "runs" / run / "run.json"
    try:
        remembered = json.loads(note.read_text(encoding="utf-8"))["data"]
        data = {n: str(place) for n, place in remembered.items()} if isinstance(remembered, dict) else str(remembered)
    except (OSError, ValueError, KeyError):
        raise RequestError(
            f"the place of the private table of {run} is not known (there is no {note})",
            "Name it with " + mention("evaluate.data"),
            "evaluate.data",
        ) from None
    if not data or (isinstance(data, dict) and not all(data.values())):
        raise RequestError(
            f"the private table of {run} was handed over in memory, not as a file",
            "Hand it over again, or name a file of it, with " + mention("evaluate.data"),
            "evaluate.data",
        )
    return data


@dataclass(frozen=True)
class OpenTable:
    """A table whose structure fits a release's spec.

    ``kept_by``: the plan that decides which rows of each person are kept; ``order``: the order for that choice.
    """

    source: Source
    encoding: EncodingPlan
    unit: Unit
    kept_by: EncodingPlan
    order: RowOrder

    def read(self, repairs: Repairs | None = None, as_if: EncodingPlan | None = None) -> CodedTable:
        """Return all rows in codes; if the unit has an identifier, the rows of each person that a release keeps.

        ``repairs``: gets the repairs of reading; ``as_if``: another plan to encode the same rows with.
        """
        counted_repairs = Repairs() if repairs is None else repairs
        codes = as_if or self.encoding
        kept_batches = self._iterate_kept(counted_repairs if as_if is None else Repairs())
        return encode_table(kept_batches, codes, counted_repairs)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Return the same rows as stored."""
        return self._iterate_kept(Repairs())

    def _iterate_kept(self, repairs: Repairs) -> Iterator[pa.RecordBatch]:
        rows = RowsOfPersons(self.source.batches, self.order)
        return iterate_kept_batches(rows, self.kept_by, self.unit, repairs)


ALL_ROWS = Unit(records_per_person=1)
"""A unit without a person's identifier: every row is kept."""


def open_table(
    table: AnyPlace,
    encoding: EncodingPlan,
    spec: ReleaseSpec,
    field: str,
    *,
    kept_by: EncodingPlan | None = None,
    order: RowOrder | None = None,
) -> OpenTable:
    """Return a table (a CSV or Parquet path, or in memory) with checked structure; ``field`` names it in errors.

    ``kept_by``: the plan that decides which rows of each person are kept (None: all rows); ``order``: the order for
    that choice.  Columns that the release drops may be absent, except the unit's identifier with ``kept_by``.  Raises
    RequestError for a table that does not fit.
    """
    if isinstance(table, str) and not table.strip():
        raise RequestError("is empty", "Name a path, or leave the option out", field)
    unit = ALL_ROWS if kept_by is None else spec.unit
    needed = {*spec.measured_columns, unit.identifier}
    try:
        names = set(list_table_columns(table, spec))
        columns = {n: c for n, c in spec.columns.items() if n in names or n in needed}
        source = open_source(table, spec.with_columns(columns, unit), order)
    except RequestError as error:
        raise error.about(field, {"release.data": field}) from None
    return OpenTable(source, encoding, unit, kept_by or encoding, order or RowOrder())


def encode_table(
    batches: Iterable[pa.RecordBatch], encoding: EncodingPlan, repairs: Repairs | None = None
) -> CodedTable:
    """Return rows of the spec's columns as codes; only the codes stay in memory.  ``repairs``: gets the repairs."""
    counted = Repairs() if repairs is None else repairs
    table = CodeTable.from_arrow([encode_batch(batch, encoding, counted) for batch in batches], encoding.domain)
    return CodedTable(table, to_bins(table, encoding.groups))


def to_bins(fine: CodeTable, groups: Mapping[str, NDArray[np.int32]]) -> CodeTable:
    """Return a table of fine codes in codes of the public bins."""
    domain = Domain.of({a: int(g.max()) + 1 for a, g in groups.items()})
    sized = zip(domain.attributes, domain.sizes, strict=True)
    columns = (groups[a].astype(choose_code_dtype(size))[fine.column(a)] for a, size in sized)
    return CodeTable(domain, tuple(columns))


def compare_by_mgd(real: CodeTable, synthetic: CodeTable, spec: MgdSpec, encoding: EncodingPlan) -> MgdResult:
    """Return MGD's score of two tables of public bins, and its marginals, worst first.

    Raises RequestError for settings that do not fit the columns.
    """
    labels, ordered, null_codes = {}, {}, {}
    for codec in encoding.codecs:
        name, texts, values = codec.attribute, codec.bin_labels(), codec.values(fine=False)
        seen = Counter(texts)  # very close edges can have the same label
        labels[name] = [text if seen[text] == 1 else f"{text} #{i}" for i, text in enumerate(texts)]
        ordered[name] = values is not None
        if values is not None and np.isnan(values[-1]):  # null of a nominal column is a value like any other
            null_codes[name] = len(values) - 1
    try:
        return compute_mgd(real, synthetic, spec, labels, ordered, null_codes)
    except FieldError as error:
        raise RequestError(error.problem, error.cure or "Correct it in the settings", "mgd") from None
