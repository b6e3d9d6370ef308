"""The details of an evaluation: columns, pairs, marginal sizes and stages; and columns that the spec may misread.

A column with many repairs is likely misread.  With repairs it would agree with the synthetic column even if both are
wrong.  So the real table is also encoded without them, and repaired values count as values that no synthetic row has.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from privsyn.base.errors import RequestError
from privsyn.data_contracts.artifacts import LookKind
from privsyn.data_contracts.domain import choose_code_dtype
from privsyn.data_contracts.evaluation import MisreadColumn, OneWay, Pair, SizeError, StageError
from privsyn.data_contracts.release_spec import ReleaseSpec
from privsyn.data_contracts.tables import ValueRange
from privsyn.engine.step import list_looks
from privsyn.evaluation.coded_tables import CodedTable, EvaluatedRelease
from privsyn.pipelines.registry import plan_release
from privsyn.pipelines.table_pairs import split_step_name
from privsyn.specs.misread import (
    MISREAD_SHARE,
    Misread,
    count_repaired_rows,
    find_odd_texts,
    list_meant_repairs,
    list_misread_columns,
    suggest_cures,
)
from privsyn.tasks.codecs import Codec, EncodingPlan
from privsyn.tasks.codecs.codec import Codes, Columns
from privsyn.tasks.codecs.derived import SplitCodec
from privsyn.tasks.codecs.encode_rows import OF_RULE, Repairs
from privsyn.tasks.codecs.parsing import decode_dictionary, to_keys
from privsyn.tasks.estimation import marginals, noisy
from privsyn.tasks.estimation.marginals import Marginal
from privsyn.tasks.estimation.recode import (
    AttributeRecode,
    Recode,
    build_coarse_domain,
    pool_one_ways,
    recode_from_table,
)
from privsyn.tasks.kernels.counting import CodeTable, count
from privsyn.tasks.metrics.error_sources import (
    PairError,
    compute_clique_errors,
    compute_dependency,
    compute_expected_l1,
    compute_pair_errors,
    recode_codes,
    sum_bin_noise,
)
from privsyn.tasks.metrics.marginal_distance import PairFigures
from privsyn.tasks.steps.make_consistent import build_measured_marginals

SIZE_CLASSES = (1, 10, 100, 1_000, 10_000, 100_000, 1_000_000)
"""Upper ends of the classes of marginals by number of cells: 2..10, 11..100 and so on; the last class is open."""

MISREAD_BIN = "(misread)"
"""The bin of repaired values, which no synthetic row has."""

Stage = Literal["measured", "consistent", "synthetic", "not selected", "not selected, if independent"]

_TEXTS = 500
"""Largest number of distinct odd values per column that are kept for cures."""


@dataclass(frozen=True)
class ReleasedTables:
    """The noisy marginals that a release published, read from its folder; nothing private.

    Only columns measured in their own codes are included: no computed columns, and no columns that they split.
    ``recode``: pools all noisy one-ways; ``measured``: the larger marginals.
    """

    recode: Recode
    measured: tuple[Marginal, ...]
    consistent: tuple[Marginal, ...]

    @classmethod
    def read(cls, release: EvaluatedRelease) -> ReleasedTables:
        """Read the tables from the release's folder.

        Raises RequestError if they are missing, damaged or from another version.
        """
        try:
            return cls._read(release)
        except (OSError, KeyError, ValueError, pa.ArrowException) as error:
            where = release.folder / "marginals"
            raise RequestError(
                f"the tables in {where} are missing, damaged or from another version of this program",
                "Copy the release again, evaluate it with the version that its manifest names, or release again",
                "evaluate.release",
            ) from error

    @classmethod
    def _read(cls, release: EvaluatedRelease) -> ReleasedTables:
        where = release.folder / "marginals"
        steps = [step for step in plan_release(release.spec).steps if not split_step_name(step.name)[0]]
        first = recode_from_table(pq.read_table(where / "recode.parquet"))
        domain = build_coarse_domain(first)
        measured_in = [*list_looks(steps, LookKind.MARGINALS), *list_looks(steps, LookKind.ONE_WAYS)[1:]]

        def tables(name: str) -> list[pa.Table]:
            return [pq.read_table(release.folder / step.published[name].name) for step in measured_in]

        queries, answers = noisy.list_all_measured(tables("receipts"), tables("noisy"))
        recode = pool_one_ways(first, queries, answers, release.measured.binning)
        codecs = release.measured.codecs
        if {a: len(r.coarse) for a, r in recode.items()} != {codec.attribute: codec.size for codec in codecs}:
            raise ValueError("these are not the codes of the release's spec")
        # columns that share an attribute (dummies), and columns that are split, are left out
        split = {codec.attribute for codec in codecs if isinstance(codec, SplitCodec)}
        columns = {codec.attribute for codec in release.encoding.codecs} - split
        consistent = marginals.from_table(pq.read_table(where / "consistent.parquet"), domain)
        return cls(
            {a: r for a, r in recode.items() if a in columns},
            tuple(m for m in build_measured_marginals(queries, answers, domain) if columns >= set(m.attributes)),
            tuple(m for m in consistent if columns >= set(m.attributes)),
        )

    def recoded(self, real: CodedTable, synthetic: CodedTable) -> tuple[CodeTable, CodeTable]:
        """Return both tables in the compressed domain, with one more code for filtered and misread values."""
        recode = {a: _filter_rest(r, real.fine.domain.size(a)) for a, r in self.recode.items()}
        return recode_codes(real.fine, recode), recode_codes(synthetic.fine, recode)


def _filter_rest(recode: AttributeRecode, size: int) -> AttributeRecode:
    """Return a recoding of ``size`` fine codes; codes beyond the recoding's own are filtered."""
    more = size - len(recode.coarse)
    coarse = np.append(recode.coarse, np.full(more, recode.size, recode.coarse.dtype))
    return replace(recode, coarse=coarse, kept=np.append(recode.kept, np.zeros(more, bool)))


def describe_one_ways(
    release: EvaluatedRelease, encoding: EncodingPlan, real: CodedTable, synthetic: CodedTable, tables: ReleasedTables
) -> tuple[OneWay, ...]:
    """Return every column, in table order; ``encoding``: of the tables, which may have bins for misread values.

    A column that rules compute gets the largest noise of any measured column.
    """
    noise = sum_bin_noise(tables.recode, release.encoding.groups)
    unmeasured = max((float(sd.max()) for sd in noise.values()), default=0.0)
    rows = max(synthetic.bins.rows, 1)
    one_ways = []
    for codec in encoding.codecs:
        name = codec.attribute
        real_shares = count(real.bins, (name,)) / max(real.bins.rows, 1)
        synthetic_shares = count(synthetic.bins, (name,)) / rows
        bin_noise = noise.get(name, np.full(real_shares.shape, unmeasured))
        # a bin of misread values has no noise
        sd = np.append(bin_noise, np.zeros(len(real_shares) - len(bin_noise))) / rows
        one_ways.append(
            OneWay(
                column=name,
                ordered=codec.values(fine=False) is not None,
                labels=tuple(codec.bin_labels()),
                real=tuple(real_shares.tolist()),
                synthetic=tuple(synthetic_shares.tolist()),
                noise_sd=tuple(sd.tolist()),
                l1=float(np.abs(real_shares - synthetic_shares).sum()),
                noise_l1=compute_expected_l1(sd),
                misread=isinstance(codec, MisreadCodec),
            )
        )
    return tuple(one_ways)


def describe_pairs(
    figures: PairFigures,
    coarse: tuple[CodeTable, CodeTable],
    tables: ReleasedTables,
    threads: int,
    misread: Collection[str] = (),
) -> tuple[Pair, ...]:
    """Return every pair of columns, in table order, with the cause of its error; ``misread``: the misread columns."""
    parts = compute_pair_errors(*coarse, [m for m in tables.consistent if len(m.attributes) > 1], threads)
    pairs = []
    for i, (a, b) in enumerate(figures.pairs):
        part = parts.get((a, b))
        pairs.append(
            Pair(
                a=a,
                b=b,
                cells=int(figures.cells[i]),
                l1=float(figures.l1[i]),
                measured=part is not None,
                consistent_l1=None if part is None else part.consistent,
                cause="misread" if {a, b} & set(misread) else _find_cause(part),
                association_real=_compute_known(figures.association_real[i]),
                association_synthetic=_compute_known(figures.association_synthetic[i]),
            )
        )
    return tuple(pairs)


def _find_cause(largest_part: PairError | None) -> Literal["noise", "synthesis", "not selected"]:
    """Return the larger part of a pair's error, or "not selected" if no measured marginal contains the pair."""
    if largest_part is None:
        return "not selected"
    return "noise" if largest_part.consistent >= largest_part.synthesis else "synthesis"


def list_sizes(errors: Sequence[tuple[Sequence[int], NDArray[np.float64]]]) -> tuple[SizeError, ...]:
    """Return mean error by number of attributes and size class.

    ``errors[w - 1]``: cells and L1 errors of the w-way marginals.
    """
    sizes = []
    for ways, (cells, l1) in enumerate(errors, start=1):
        number = np.asarray(cells, dtype=np.int64)
        class_of = np.searchsorted(SIZE_CLASSES, number, side="left")
        for inside in (class_of == c for c in np.unique(class_of)):
            low, high, mean = int(number[inside].min()), int(number[inside].max()), float(l1[inside].mean())
            marginals = int(inside.sum())
            sizes.append(SizeError(ways=ways, cells_from=low, cells_to=high, marginals=marginals, mean_l1=mean))
    return tuple(sizes)


def list_stages(
    pairs: Sequence[Pair], real: CodedTable, coarse: tuple[CodeTable, CodeTable], tables: ReleasedTables, threads: int
) -> tuple[StageError, ...]:
    """Return mean errors of the measured marginals after each stage, and of the unmeasured pairs."""
    measured = compute_clique_errors(*coarse, tables.measured, tables.consistent, threads)
    errors: list[tuple[Stage, Sequence[float] | NDArray[np.float64]]] = []
    if measured:
        errors.append(("measured", [e.measured for e in measured]))
        errors.append(("consistent", [e.consistent for e in measured]))
        errors.append(("synthetic", [e.synthetic for e in measured]))
    if unmeasured := [p for p in pairs if not p.measured]:
        independent = compute_dependency(real.bins, [(p.a, p.b) for p in unmeasured], threads)
        errors.append(("not selected", [p.l1 for p in unmeasured]))
        errors.append(("not selected, if independent", independent))
    return tuple(StageError(stage=stage, marginals=len(l1), mean_l1=float(np.mean(l1))) for stage, l1 in errors)


def _compute_known(value: float) -> float | None:
    return None if np.isnan(value) else float(value)


@dataclass
class ColumnReading:
    """The repairs made while reading the real table; ``rows``: number of rows compared."""

    repairs: Repairs = field(default_factory=Repairs)
    rows: int = 0

    def misread(self) -> tuple[Misread, ...]:
        """Return columns with more than MISREAD_SHARE of values repaired, largest share first."""
        return list_misread_columns(self.repairs.counts, self.rows)

    def not_meant(self, spec: ReleaseSpec, columns: Collection[str]) -> tuple[str, ...]:
        """Return the ``columns`` with more than MISREAD_SHARE of values whose meaning a repair changed."""
        lost: Counter[str] = Counter()
        for (column, repair), values in self.repairs.counts.items():
            if column in columns and repair not in list_meant_repairs(spec, column):
                lost[column] += values
        return tuple(column for column in columns if lost[column] > MISREAD_SHARE * self.rows)


def list_broken_rules(reading: ColumnReading) -> tuple[str, ...]:
    """Return one sentence for each rule that real rows break."""
    starts = (f"{OF_RULE}[", f"{OF_RULE}.")
    return tuple(
        f"{many:,} of {reading.rows:,} real rows ({many / reading.rows:.1%}) break a rule, {words}; they were counted "
        "unchanged, and no synthetic row breaks it."
        for (place, words), many in sorted(reading.repairs.counts.items())
        if place.startswith(starts) and many
    )


class MisreadCodec(Codec):
    """A codec with one more code and bin, for the values that it repairs.

    ``keeping``: repairs that keep a value's meaning; ``odd``: text of the repaired values -> count.
    """

    def __init__(self, codec: Codec, keeping: frozenset[str]) -> None:
        self.attribute, self.sources, self.in_order = codec.attribute, codec.sources, codec.in_order
        self.groups = np.append(codec.groups, codec.groups.max() + 1).astype(np.int32)
        self.odd: Counter[str] = Counter()
        self._codec, self._keeping = codec, keeping

    def encode(self, columns: Columns) -> tuple[Codes, Counter[str]]:
        """Encode with the codec, but give repaired values the last code."""
        codes, repairs = self._codec.encode(columns)
        codes = codes.astype(choose_code_dtype(self.size))
        if set(repairs) - self._keeping:
            codes[self._mark_misread(columns, codes)] = self.size - 1
            self.odd = Counter(dict((self.odd + find_odd_texts(self._codec, columns, _TEXTS)).most_common(_TEXTS)))
        return codes, repairs

    def _mark_misread(self, columns: Columns, codes: Codes) -> NDArray[np.bool_]:
        """Return the mask of repaired values, without those that decode to themselves, such as an unlisted `other`."""
        mask = count_repaired_rows(self._codec, columns, self._keeping)
        texts = to_keys(decode_dictionary(columns[self.sources[0]]).filter(pa.array(mask)), pa.string())
        labels = pa.array(self._codec.labels(), pa.string()).take(pa.array(codes[mask]))
        mask[mask] = ~np.asarray(pc.fill_null(pc.equal(texts, labels), False))
        return mask

    def decode(self, codes: Codes, rng: np.random.Generator) -> dict[str, pa.Array]:
        """Raise NotImplementedError: a misread value cannot be decoded."""
        raise NotImplementedError

    def labels(self) -> list[str]:
        """Return the codec's labels, and MISREAD_BIN."""
        return [*self._codec.labels(), MISREAD_BIN]

    def bin_labels(self) -> list[str]:
        """Return the codec's bin labels, and MISREAD_BIN."""
        return [*self._codec.bin_labels(), MISREAD_BIN]

    def values(self, *, fine: bool) -> NDArray[np.float64] | None:
        """Return the codec's values, and NaN."""
        values = self._codec.values(fine=fine)
        return None if values is None else np.append(values, np.nan)

    def ranges(self) -> dict[str, ValueRange]:
        """Return the codec's ranges."""
        return self._codec.ranges()


def add_misread(plan: EncodingPlan, spec: ReleaseSpec, columns: Collection[str]) -> EncodingPlan:
    """Return the plan with a bin for the repaired values of each of the ``columns``."""
    return EncodingPlan(
        tuple(
            MisreadCodec(c, list_meant_repairs(spec, c.attribute)) if c.attribute in columns else c for c in plan.codecs
        )
    )


def describe_misread(reading: ColumnReading, plan: EncodingPlan, spec: ReleaseSpec) -> Iterator[MisreadColumn]:
    """Yield every misread column for the report, with its repairs and likely cures."""
    misread_codecs = {c.attribute: c for c in plan.codecs if isinstance(c, MisreadCodec)}
    for misread in reading.misread():
        column: Any = spec.columns.get(misread.column)
        odd = misread_codecs[misread.column].odd if misread.column in misread_codecs else Counter()
        yield MisreadColumn(
            column=misread.column,
            repairs=dict(misread.repairs),
            words=f"{misread.shares()}.",
            cures=tuple(f"{cure}." for cure in suggest_cures(column, odd, misread.repairs)),
            counted=misread.column in misread_codecs,
        )
