"""The real table as it means itself: values that a release would repair stand in a bin of their own.

A column of which much is repaired is likely misread.  Compared as repaired, it agrees with its synthetic one however
wrong both are; so its repaired values count as values that no synthetic row has.
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
"""The bin of repaired values; no synthetic row is in it."""

_TEXTS = 500
"""Most different odd values of a column that are looked at for a cure."""


@dataclass
class ColumnReading:
    """What reading the real table repaired; ``rows``: of the table that is compared."""

    repairs: Repairs = field(default_factory=Repairs)
    rows: int = 0

    def misread(self) -> tuple[Misread, ...]:
        """Return columns of which more than MISREAD_SHARE was repaired, most first."""
        return list_misread_columns(self.repairs.counts, self.rows)

    def not_meant(self, spec: ReleaseSpec, columns: Collection[str]) -> tuple[str, ...]:
        """Return the ``columns`` of which more than MISREAD_SHARE no longer means what it says."""
        counts, misread = self.repairs.counts, []
        for column in columns:
            meant = list_meant_repairs(spec, column)
            lost = sum(n for (c, repair), n in counts.items() if c == column and repair not in meant)
            if lost > MISREAD_SHARE * self.rows:
                misread.append(column)
        return tuple(misread)


def list_broken_rules(reading: ColumnReading) -> tuple[str, ...]:
    """Return what real rows break, one sentence a rule."""
    starts = (f"{OF_RULE}[", f"{OF_RULE}.")
    return tuple(
        f"{many:,} of {reading.rows:,} real rows ({many / reading.rows:.1%}) break a rule, {words}; they were counted "
        "as they are, and no synthetic row does."
        for (place, words), many in sorted(reading.repairs.counts.items())
        if place.startswith(starts) and many
    )


class MisreadCodec(Codec):
    """A codec with one code, one bin more: that of the values which it repairs.

    ``keeping``: repairs that keep what a value means.  ``odd``: values that cannot be read, as text.
    """

    def __init__(self, codec: Codec, keeping: frozenset[str]) -> None:
        self.attribute, self.sources, self.in_order = codec.attribute, codec.sources, codec.in_order
        self.groups = np.append(codec.groups, codec.groups.max() + 1).astype(np.int32)
        self.odd: Counter[str] = Counter()
        self._codec, self._keeping = codec, keeping

    def encode(self, columns: Columns) -> tuple[Codes, Counter[str]]:
        """Encode as the codec does, and keep apart the values that it repairs."""
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
        """Return nothing: a misread value has none."""
        raise NotImplementedError

    def labels(self) -> list[str]:
        """Return the codec's, and MISREAD_BIN."""
        return [*self._codec.labels(), MISREAD_BIN]

    def bin_labels(self) -> list[str]:
        """Return the codec's, and MISREAD_BIN."""
        return [*self._codec.bin_labels(), MISREAD_BIN]

    def values(self, *, fine: bool) -> NDArray[np.float64] | None:
        """Return the codec's, and NaN."""
        values = self._codec.values(fine=fine)
        return None if values is None else np.append(values, np.nan)

    def ranges(self) -> dict[str, ValueRange]:
        """Return the codec's."""
        return self._codec.ranges()


def add_misread(plan: EncodingPlan, spec: ReleaseSpec, columns: Collection[str]) -> EncodingPlan:
    """Return the plan with a bin for the repaired values of these ``columns``."""
    return EncodingPlan(
        tuple(
            MisreadCodec(c, list_meant_repairs(spec, c.attribute)) if c.attribute in columns else c for c in plan.codecs
        )
    )


def describe_misread(reading: ColumnReading, plan: EncodingPlan, spec: ReleaseSpec) -> Iterator[MisreadColumn]:
    """Yield every misread column for the report: what was repaired, and likely cures."""
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
