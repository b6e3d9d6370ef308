"""Encode the real table without repairs: values that a release would repair get a separate bin.

A column with many repairs is likely misread.  With repairs it would agree with the synthetic column even if both are
wrong, so repaired values count as values that no synthetic row has.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from privsyn.data_contracts.domain import choose_code_dtype
from privsyn.data_contracts.evaluation_results import MisreadColumn
from privsyn.data_contracts.release_spec import ReleaseSpec
from privsyn.data_contracts.tables import ValueRange
from privsyn.specs.likely_cures import suggest_cures
from privsyn.specs.misread import (
    MISREAD_SHARE,
    Misread,
    count_repaired_rows,
    find_odd_texts,
    list_meant_repairs,
    list_misread_columns,
)
from privsyn.tasks.codecs import Codec, EncodingPlan
from privsyn.tasks.codecs.codec import Codes, Columns
from privsyn.tasks.codecs.encode_rows import OF_RULE, Repairs
from privsyn.tasks.codecs.parsing import decode_dictionary, to_keys

MISREAD_BIN = "(misread)"
"""The bin of repaired values, which no synthetic row has."""

_TEXTS = 500
"""Largest number of distinct odd values per column that are kept for cures."""


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
        counts, misread = self.repairs.counts, []
        for column in columns:
            meant = list_meant_repairs(spec, column)
            lost = sum(n for (c, repair), n in counts.items() if c == column and repair not in meant)
            if lost > MISREAD_SHARE * self.rows:
                misread.append(column)
        return tuple(misread)


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
