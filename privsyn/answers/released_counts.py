"""The noisy counts of a released folder, as measured, with their noise; every file is checked by its hash."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from privsyn.answers.conditions import Language
from privsyn.base.errors import RequestError
from privsyn.data_contracts.artifacts import LookKind
from privsyn.data_contracts.certificate import Manifest, ManifestFile
from privsyn.data_contracts.domain import Clique, Domain, Merge
from privsyn.data_contracts.linked_tables import list_path
from privsyn.data_contracts.receipts import Query
from privsyn.data_contracts.rules import infer_type
from privsyn.engine.request import Request
from privsyn.engine.step import Step, list_looks, release_steps
from privsyn.pipelines.named_sets import MERGES_FILE
from privsyn.pipelines.registry import build_steps
from privsyn.pipelines.rung_steps import COUNT_RUNGS
from privsyn.storage.released_files import (
    CUTS_FILE,
    check_released_file,
    list_synthetic_names,
    read_manifest,
    read_public_spec,
    read_table_pair,
)
from privsyn.tasks.codecs import EncodingPlan, find_two_celled_columns
from privsyn.tasks.codecs.codec import Codec
from privsyn.tasks.codecs.encoding_plan import plan_every_column
from privsyn.tasks.codecs.parsing import get_value_type
from privsyn.tasks.estimation.noisy import count_marginals, pool_answers, read_answers, read_receipts
from privsyn.tasks.estimation.recode import Recode, build_coarse_domain, merge_coarse, recode_from_table
from privsyn.tasks.estimation.rungs import RungCounts, read_cuts
from privsyn.tasks.knowledge.totals import KNOWN_SIGMA, KnownTotals
from privsyn.tasks.panels.choose_rows import draw_one_row_each
from privsyn.tasks.rules.compiled_rules import CompiledRules
from privsyn.tasks.steps.measure_marginals import read_merges

Floats = NDArray[np.float64]
Value = TypeVar("Value")
FIELD = "query.release"


class Counts(NamedTuple):
    """Noisy counts of one query: ``counts`` has an axis for each attribute; ``sigma`` is per cell, in records.

    ``merges``: for each attribute of a named set, from its coarse codes to the codes of the counts; else empty.
    """

    attributes: Clique
    counts: Floats
    sigma: float
    merges: tuple[Merge, ...] = ()


class Score(NamedTuple):
    """A pair's noisy distance from independence, in records, with the standard deviation of its noise."""

    distance: float
    sigma: float


@dataclass(frozen=True)
class ReleasedCounts:
    """The measured counts, read from the released folder ``folder`` alone.

    Single columns are in fine codes, larger sets in the coarse codes of :attr:`recode`.  ``cache``: values computed
    once; ``child_table``: in a tree of tables, the table whose rows were counted; empty for the first.
    """

    folder: Path
    manifest: Manifest
    cache: dict[Any, Any] = field(default_factory=dict, repr=False, compare=False)
    child_table: str = ""

    @classmethod
    def of(cls, folder: Path, child_table: str = "") -> ReleasedCounts:
        """Read a released folder.  Raises RequestError if it is not one."""
        return cls(folder, read_manifest(folder), child_table=child_table)

    def remember(self, key: Any, compute: Callable[[], Value]) -> Value:
        """Return ``compute()``, called once for each ``key``."""
        if key not in self.cache:
            self.cache[key] = compute()
        value: Value = self.cache[key]
        return value

    @cached_property
    def request(self) -> Request:
        """The public request, its columns in the table's order, with the counted cells."""
        request = Request(read_public_spec(self.manifest, FIELD), tuple(self.manifest.column_order))
        first = next(iter(request.table_pairs.values()), request)  # in a tree of tables, the request of the first two
        request = request.table_pairs[self.child_table] if self.child_table else first
        if CUTS_FILE in self.manifest.files:
            request = request.cut_cells(read_cuts(self.read(CUTS_FILE)))
        two_celled = find_two_celled_columns(request.encoding, {a: len(r.coarse) for a, r in self.recode.items()})
        return replace(request, two_celled=two_celled) if two_celled else request

    @property
    def record_unit(self) -> str:
        """The word for the unit with one record for all its rows: person, household, or row of a table in between."""
        if not self._is_further:
            return self.request.spec.unit.one
        spec = read_public_spec(self.manifest, FIELD)
        above, _ = spec.get_parent_table(self.child_table)
        return spec.unit.one if above == spec.table_names[0] else f"row of {above}"

    @property
    def record_units(self) -> str:
        """The plural of :attr:`record_unit`."""
        first, _, rest = self.record_unit.partition(" ")
        return f"{first}s {rest}".rstrip()

    @cached_property
    def tables(self) -> tuple[str, ...]:
        """The names of the tables whose columns it has: the table of rows and those above it; empty for one table."""
        if not self._is_further:
            return tuple(self.request.spec.tables)
        above = {name: table.of for name, table in read_public_spec(self.manifest, FIELD).tables.items()}
        return list_path(above, self.child_table)

    @cached_property
    def steps(self) -> tuple[Step, ...]:
        """The steps that made the release."""
        return build_steps(self.request)

    @cached_property
    def encoding(self) -> EncodingPlan:
        """The codecs of its columns."""
        return self.request.encoding

    @cached_property
    def codecs(self) -> dict[str, Codec]:
        """Attribute -> its codec."""
        return {codec.attribute: codec for codec in self.encoding.codecs}

    @cached_property
    def columns(self) -> tuple[str, ...]:
        """The columns counted by themselves, in the table's order; without columns that rules compute or tie."""
        single = {a for a, columns in self.written.items() if columns == (a,)}
        return tuple(name for name in self.request.column_order if name in single)

    @cached_property
    def attributes(self) -> tuple[str, ...]:
        """The counted columns, and the attribute behind the dummies of a ``one_of``."""
        return tuple(a for a, columns in self.written.items() if columns)

    @cached_property
    def written(self) -> dict[str, tuple[str, ...]]:
        """Attribute -> the released columns that its codes become; none for a rounding attribute."""
        return {a: tuple(codec.ranges()) for a, codec in self.codecs.items()}

    @cached_property
    def language(self) -> Language:
        """What a condition may name: every released column."""
        spec = self.request.spec
        types = {name: infer_type(column) for name, column in spec.released_columns.items()}
        attributes = {column: a for a in self.attributes for column in self.written[a]}
        rules = self.encoding.rules or CompiledRules.compile(spec)
        return Language(types, rules, attributes, spec.unmeasured_columns.keys(), self.tables)

    @cached_property
    def every_codec(self) -> dict[str, Codec]:
        """Released column -> a codec for it alone, including computed columns and dummies."""
        spec = self.request.spec
        plan = plan_every_column(spec, self.request.column_order)
        return {c.attribute: c for c in plan.codecs if c.attribute in spec.released_columns}

    @cached_property
    def reach(self) -> dict[str, tuple[Floats, Floats] | None]:
        """Attribute -> smallest and largest number in each fine code, NaN for null; None if values are not numbers."""
        return {a: _compute_reach(self.codecs[a]) if a in self.columns else None for a in self.attributes}

    @cached_property
    def recode(self) -> Recode:
        """Fine code -> coarse code, by column."""
        return recode_from_table(self.read("marginals/recode.parquet"))

    @cached_property
    def domain(self) -> Domain:
        """The coarse domain."""
        return build_coarse_domain(self.recode)

    @cached_property
    def single(self) -> dict[str, list[Counts]]:
        """The one-ways of each attribute in fine codes: every noisy measurement, and the known counts."""
        by_column: dict[str, list[Counts]] = {name: [] for name in self.codecs}
        for counts in (*(c for step in self.measured.values() for c in step), *self.known):
            if len(counts.attributes) == 1:
                by_column[counts.attributes[0]].append(counts)
        return by_column

    @cached_property
    def totals(self) -> KnownTotals | None:
        """The known totals in the spec; None without any."""
        return self.request.public.totals

    @cached_property
    def known(self) -> list[Counts]:
        """The known totals of single columns, in fine codes, as measurements with next to no noise."""
        one_way = {} if self.totals is None else self.totals.one_way
        return [Counts((a,), counts.astype(np.float64), KNOWN_SIGMA) for a, counts in one_way.items()]

    @cached_property
    def known_pairs(self) -> list[Counts]:
        """The known totals of pairs of columns, in coarse codes, as measurements with next to no noise."""
        pairs = [] if self.totals is None else self.totals.coarse_pairs(self.recode)
        return [Counts(m.attributes, m.counts, m.sigma) for m in pairs]

    @cached_property
    def joint(self) -> list[Counts]:
        """Every measurement of two or more columns in coarse codes, and the known pairs."""
        return [
            counts._replace(counts=counts.counts.reshape(self.domain.shape(counts.attributes)))
            for step in self.measured.values()
            for counts in step
            if len(counts.attributes) > 1 and not counts.merges
        ] + self.known_pairs

    @cached_property
    def sets(self) -> list[CountsOfSet]:
        """The release as seen in the merged codes of each measured named set."""
        counts_of_sets = [counts for step in self.measured.values() for counts in step if counts.merges]
        return [
            CountsOfSet(self.folder, self.manifest, child_table=self.child_table, whole=self, counts=counts)
            for counts in counts_of_sets
        ]

    @cached_property
    def holding(self) -> dict[str, list[Counts]]:
        """Attribute -> the measurements of two or more columns that contain it."""
        by_column: dict[str, list[Counts]] = {name: [] for name in self.codecs}
        for counts in self.joint:
            for name in counts.attributes:
                by_column[name].append(counts)
        return by_column

    @cached_property
    def scores(self) -> dict[Clique, Score]:
        """Scored pair -> its noisy distance from independence, pooled over all looks; empty without scores."""
        queries, answers = list[Query](), list[Floats]()
        for file in self.list_files(LookKind.SCORES).values():
            pairs, distances, sigmas = self._read_queries(file)
            queries += [Query(tuple(pair), 1, 1, sigma) for pair, sigma in zip(pairs, sigmas, strict=True)]
            answers += distances
        return {q.attributes: Score(float(y[0]), q.sigma) for q, y in zip(*pool_answers(queries, answers), strict=True)}

    def find_reach(self, column: str) -> tuple[Floats, Floats]:
        """Return the smallest and largest number in each fine code.  Raises RequestError for a column of no numbers."""
        reach = self.reach[column]
        if reach is None:
            raise RequestError(f"the column {column!r} holds no numbers", "Name a column of numbers", "query.columns")
        return reach

    def find_noisy(self, look: str, attribute: str) -> tuple[Floats, float]:
        """Return the noisy counts, flat, and their sigma, of a look's query about an attribute."""
        queries = self._read_queries(self.noisy_files[look])
        return next((y, sigma) for names, y, sigma in zip(*queries, strict=True) if attribute in names)

    def read_look(self, file: str) -> dict[str, pa.Table]:
        """Return the noisy answers of a look and their receipts, as its step has them."""
        return {"noisy": self.read(f"{file}.parquet"), "receipts": self.read(f"{file}_receipts.parquet")}

    def _read_queries(self, file: str) -> tuple[list[list[str]], list[Floats], list[float]]:
        """Return attributes, answers and sigma of every query of a look."""
        noisy, receipts = self.read_look(file).values()
        ends = np.cumsum(receipts["cells"].to_numpy())[:-1]
        counts = noisy["count"].to_numpy().astype(np.float64)
        answers = np.split(counts, ends) if receipts.num_rows else []
        return receipts["attributes"].to_pylist(), list(answers), receipts["sigma"].to_pylist()

    @cached_property
    def table(self) -> pa.Table:
        """The synthetic rows; categories as values, not as dictionary codes.

        With linked rows, one row of each synthetic person, since the counts have one row of each person.
        """
        panel = self.request.spec.panel
        if panel is None:
            return self._rows
        drawn = draw_one_row_each(self._rows[panel.person].to_numpy(), household=panel.household)
        return self._rows.take(pa.array(drawn)).drop_columns([panel.person])

    @cached_property
    def _rows(self) -> pa.Table:
        """All synthetic rows; categories as values; a further table's rows include the columns above."""
        if self._is_further:
            spec = self.request.spec
            rows = read_table_pair(read_public_spec(self.manifest, FIELD), self.child_table, self.read)
            rows = rows.select([str(spec.unit.identifier), *spec.released_columns])
        else:
            rows = pa.concat_tables(self.read(name) for name in list_synthetic_names(self.manifest))
        return rows.cast(pa.schema([field.with_type(get_value_type(field.type)) for field in rows.schema]))

    @cached_property
    def _is_further(self) -> bool:
        return self.child_table in read_public_spec(self.manifest, FIELD).further_tables

    @cached_property
    def persons(self) -> tuple[pa.Table, NDArray[np.bool_]]:
        """The rows of linked synthetic persons, and the first row of each.  Raises ValueError for unlinked rows."""
        panel = self.request.spec.panel
        if panel is None:
            raise ValueError("the rows of this release are not linked")
        return self._rows, np.diff(self._rows[panel.person].to_numpy(), prepend=-1) != 0

    @property
    def noisy_files(self) -> dict[str, str]:
        """Release step -> the file of its noisy answers, without its extension."""
        return {
            step.name: step.published["noisy"].name.removesuffix(".parquet")
            for step in release_steps(self.steps)
            if "noisy" in step.published
        }

    @cached_property
    def rungs(self) -> dict[str, RungCounts]:
        """Attribute -> the first look at its rungs; empty without such a look."""
        name = COUNT_RUNGS.published["noisy"].name
        if self._place(name) not in self.manifest.files:  # the cells are equal, or an earlier release's
            return {}
        queries = read_receipts(self.read(COUNT_RUNGS.published["receipts"].name))
        answers = read_answers(self.read(name), queries)
        return {q.attributes[0]: (q, y) for q, y in zip(queries, answers, strict=True)}

    def list_files(self, kind: LookKind) -> dict[str, str]:
        """Return look of this kind -> the file of its noisy answers, without its extension; empty without any."""
        looks = {look.name for look in list_looks(self.steps, kind)}
        return {name: file for name, file in self.noisy_files.items() if name in looks}

    def _place(self, name: str) -> str:
        """Return a file's place in the folder; marginals of a further table have a folder of its name."""
        further = self._is_further and name.startswith("marginals/")
        return name.replace("/", f"/{self.child_table}/", 1) if further else name

    def read(self, name: str) -> pa.Table:
        """Return a table of the folder.  Raises RequestError unless the file matches its hash in the manifest."""
        content = check_released_file(self.folder, self.manifest, self._place(name), FIELD).read_bytes()
        # Not read_table: a thread of its scanner can outlive the interpreter, which then ends with SIGABRT.
        return pq.ParquetFile(pa.BufferReader(content), pre_buffer=False).read(use_threads=False)

    @cached_property
    def measured(self) -> dict[str, list[Counts]]:
        """Release step -> its counts, flat, in the order of its receipts."""
        by_step, sets = {}, {look.name for look in list_looks(self.steps, LookKind.SETS)}
        for name, answers in self._asked.items():
            if name not in sets:
                by_step[name] = answers[: count_marginals([counts.attributes for counts in answers])]
            else:
                planned = read_merges(self.read(MERGES_FILE))
                pairs = zip(answers, planned, strict=True)
                by_step[name] = [counts._replace(merges=planned.merges) for counts, planned in pairs]
        return by_step

    @cached_property
    def sums_beside(self) -> dict[str, list[Counts]]:
        """Release step -> the sums of scores (trends) asked after its counts, one cell each; usually empty."""
        return {name: answers[len(self.measured[name]) :] for name, answers in self._asked.items()}

    @cached_property
    def _asked(self) -> dict[str, list[Counts]]:
        """Counting release step -> all its answers, flat, in the order of its receipts."""
        steps = {step.name: step for step in release_steps(self.steps)}
        by_step = {}
        for name, file in self.noisy_files.items():
            if steps[name].measures in (LookKind.ONE_WAYS, LookKind.MARGINALS, LookKind.SETS):
                queries = zip(*self._read_queries(file), strict=True)
                by_step[name] = [Counts(tuple(clique), y, sigma) for clique, y, sigma in queries]
        return by_step


@dataclass(frozen=True, kw_only=True)
class CountsOfSet(ReleasedCounts):
    """The release ``whole`` as seen in the merged codes of one named set, ``counts``.

    Single columns are as measured; the set is the only joint measurement.
    """

    whole: ReleasedCounts = field(repr=False, compare=False)
    counts: Counts = field(repr=False, compare=False)

    @property
    def request(self) -> Request:
        """The public request of the release."""
        return self.whole.request

    @cached_property
    def recode(self) -> Recode:
        """Fine code -> merged code for the set's columns, coarse code for other columns."""
        return merge_recode(self.whole.recode, self.counts)

    @cached_property
    def joint(self) -> list[Counts]:
        """The counts of the set."""
        counts, sizes = self.counts, [int(m.max()) + 1 for m in self.counts.merges]
        return [counts._replace(counts=counts.counts.reshape(sizes), merges=())]

    @property
    def measured(self) -> dict[str, list[Counts]]:
        """The counts of the release's steps."""
        return self.whole.measured

    def read(self, name: str) -> pa.Table:
        """Return a table of the release."""
        return self.whole.read(name)


def merge_recode(recode: Recode, counts: Counts) -> Recode:
    """Return the recoding with the merged codes of ``counts``, if they have any."""
    merged = zip(counts.attributes, counts.merges, strict=False)
    return {**recode, **{a: merge_coarse(recode[a], merge) for a, merge in merged}}


def describe_kept_rows(released: ReleasedCounts) -> list[str]:
    """Return the notes on capped rows for an answer; empty if every row was counted."""
    unit = released.request.spec.unit
    if unit.identifier is None:
        return []
    if released.request.has_parent_rows:
        above = released.request.spec.table_names[0]
        return [
            f"Every answer counts persons, or households, each by one row of {released.child_table}. The row is drawn "
            f"at random from the rows of one row of {above}, itself drawn if there are several. Counts, shares and "
            "means of all rows differ."
        ]
    if released.request.spec.panel is not None:
        return [
            f"Every answer is about {unit.one}s, each represented by one row, drawn at random from at most "
            f"{unit.records} kept rows of the {unit.one}. Counts, shares and means of all rows differ: a {unit.one} "
            f"with many rows counts in them more often.{describe_without_rows(released)}"
        ]
    return [
        f"A{unit.describe_kept()[1:]}, and every answer is about the kept rows: counts, "
        "shares and means of the whole private table differ."
    ]


def describe_without_rows(released: ReleasedCounts) -> str:
    """Return the sentence, after a blank, that units without rows are left out; empty if all have rows."""
    spec = released.request.spec
    if spec.panel is None or not spec.panel.above:
        return ""
    return f" {released.record_units.capitalize()} without rows are not included; they are counted separately."


def describe_known_totals(released: ReleasedCounts, columns: Clique) -> list[str]:
    """Return the note on ``columns`` with known totals; nothing where none has.

    Without columns, for the number of all rows, known totals of any column are in the answer.
    """
    with_totals = [] if released.totals is None else [a for a in released.totals.one_way if a in columns or not columns]
    if not with_totals:
        return []
    names = ", ".join(with_totals)
    return [
        f"Not measured: counts of {names} are the spec's known totals, taken as published. Intervals assume that they "
        "are right."
    ]


def _compute_reach(codec: Codec) -> tuple[Floats, Floats] | None:
    bounds = codec.counted_bounds()[codec.attribute]
    if isinstance(bounds, tuple):
        return bounds
    if pa.types.is_string(get_value_type(bounds.type)):
        return None
    bounds = bounds.cast(get_value_type(bounds.type))
    numbers = bounds.cast(pa.float64()).to_numpy(zero_copy_only=False).astype(np.float64)
    return numbers, numbers


class MemoryCounts(ReleasedCounts):
    """The counts of a run in memory, as if read from a folder."""

    @classmethod
    def of_run(cls, request: Request, tables: Mapping[str, pa.Table]) -> MemoryCounts:
        """Return the counts from tables by the names of their released files; the rows are synthetic.parquet."""
        manifest = Manifest(
            run=f"{request.spec.dataset}-00000000",
            differentially_private=True,
            rows=tables["synthetic.parquet"].num_rows,
            spec=request.spec.public(),
            column_order=list(request.column_order),
            seeds={},
            versions={},
            steps=[],
            files={name: ManifestFile(sha256="", bytes=0) for name in tables},
        )
        return cls(Path(), manifest, {"tables": tables})

    def read(self, name: str) -> pa.Table:
        """Return one of the tables."""
        table: pa.Table = self.cache["tables"][name]
        return table
