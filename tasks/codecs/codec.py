"""The codec interface: encode values of source columns as integer codes, and decode codes to values.

Codes are *fine*: each bin of an ordered column is cut again, into at most FINE_CELLS cells, or more for wide bins.  A
finer one-way marginal costs nothing and lets decode place values inside a bin.  ``groups`` maps each fine code to the
public bin that joint marginals use.

A codec reads one *or more* source columns (``sources``) and writes one attribute, so a group of columns recoded into
one attribute is simply another codec.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from privsyn.data_contracts.domain import choose_code_dtype
from privsyn.data_contracts.tables import ValueRange
from privsyn.tasks.codecs.cells import Points

Columns = Mapping[str, pa.Array]
Codes = NDArray[Any]
Bounds = tuple[NDArray[np.float64], NDArray[np.float64]]
"""Smallest and largest value of every code, as numbers; moments in seconds since 1970; NaN for null."""


class Codec(ABC):
    """Source column(s) <-> one attribute of fine codes 0 .. size - 1, null (if any) the last code.

    ``groups[code]`` is the public bin of a fine code, shape (size,), ascending from 0.  ``in_order``: the sections of
    bins that are intervals, ascending, each as (first bin, first bin after it); intervals of one section may be
    combined.  ``helpers``: other attributes whose codes ``decode`` reads, as a mapping.  ``added``: the bin of unlisted
    values, released only if its noisy count is not low.  ``widths``: the width of every fine code, 0 if it is no
    interval, for an ordered attribute without bins or edges in the spec; None for others.  ``points``: its single-value
    cells, if any.  ``chances``: each code's share by chance, for an attribute counted alone and related to no other;
    None for others.  ``doubtful``: cells where a first look showed no rows, null left out; None without such a look.
    """

    attribute: str
    helpers: tuple[str, ...] = ()
    added: int | None = None
    sources: tuple[str, ...]
    groups: NDArray[np.int32]
    in_order: tuple[tuple[int, int], ...] = ()
    widths: NDArray[np.float64] | None = None
    points: Points | None = None
    chances: NDArray[np.float64] | None = None
    doubtful: NDArray[np.bool_] | None = None

    @property
    def size(self) -> int:
        """Number of fine codes."""
        return len(self.groups)

    def count_values(self) -> NDArray[np.float64]:
        """Return how many values each fine code holds, shape (size,); infinite for an interval of reals."""
        return np.ones(self.size)

    @abstractmethod
    def encode(self, columns: Columns) -> tuple[Codes, Counter[str]]:
        """Return the codes of the source values, shape (rows,), and how many values each repair changed.

        Total: any value of any readable type gets a code, and no value raises an error.
        """

    @abstractmethod
    def decode(self, codes: Codes, rng: np.random.Generator) -> dict[str, pa.Array]:
        """Return values of the source columns in their released types, shape (rows,); ``rng`` draws inside cells."""

    def decode_at(self, codes: Codes, places: NDArray[np.float64]) -> dict[str, pa.Array]:
        """Return the values at ``places`` in their cells, shape (rows,), each in [0, 1).

        Raises TypeError for a column without an order.
        """
        raise TypeError(f"{self.attribute!r} has no order")

    @property
    def rounds_at_places(self) -> bool:
        """Whether values can be rounded by its helpers and still follow places."""
        return False

    def decode_rounded_at(
        self, codes: Codes, places: NDArray[np.float64], rng: np.random.Generator, helpers: Mapping[str, Codes]
    ) -> dict[str, pa.Array]:
        """Return :meth:`decode_at` rounded as ``helpers`` say; ``rng`` settles ties.

        Raises TypeError for a column without this ability.
        """
        raise TypeError(f"values of {self.attribute!r} are not rounded at places")

    def with_slopes(self, slopes: NDArray[np.float64]) -> Self:
        """Return a codec that draws in each cell from a density with log slope ``slopes``, shape (cells,).

        A column whose values are always drawn uniformly returns itself.
        """
        return self

    @abstractmethod
    def labels(self) -> list[str]:
        """Return one readable label per fine code."""

    def bin_labels(self) -> list[str]:
        """Return one readable label per public bin, in the order of :attr:`groups`; a category is its own bin."""
        return self.labels()

    def values(self, *, fine: bool) -> NDArray[np.float64] | None:
        """Return the middle of each fine code (or public bin), NaN for null; None for an unordered attribute."""
        return None

    @abstractmethod
    def ranges(self) -> dict[str, ValueRange]:
        """Return the public domain of each released column, for the contract of the synthetic table."""

    def value_bounds(self) -> dict[str, pa.Array | Bounds]:
        """Map each released column to the value of each fine code, or to the lowest and highest value of each code."""
        return dict(self.decode(np.arange(self.size), np.random.default_rng(0)))

    def counted_bounds(self) -> dict[str, pa.Array | Bounds]:
        """Return :meth:`value_bounds` of the private values counted in each fine code.

        Released values may be rounded out of their code.
        """
        return self.value_bounds()

    def read(self, columns: Columns, codes: Codes | None = None) -> dict[str, pa.Array]:
        """Return the source values as counted, for evaluating rules over private rows.

        ``codes``: the encoded columns, if the caller has them.
        """
        return self.decode(self.encode(columns)[0] if codes is None else codes, np.random.default_rng(0))

    def inspect(self, columns: Columns) -> dict[str, int]:
        """Return how many values each repair would change, for ``spec check`` (private)."""
        return dict(self.encode(columns)[1])


class UnreleasedCodec(Codec):
    """Base of codecs of attributes that follow from columns, and are counted but not released; every code has a name.

    ``kind``: what it is, for people.
    """

    kind: str

    def __init__(self, attribute: str, sources: tuple[str, ...], names: Sequence[str]) -> None:
        self.attribute, self.sources, self._names = attribute, sources, names
        self.groups = np.arange(len(names), dtype=np.int32)

    @abstractmethod
    def derive(self, columns: Columns) -> NDArray[Any]:
        """Return the code of each row, shape (rows,)."""

    def encode(self, columns: Columns) -> tuple[Codes, Counter[str]]:
        """See :class:`Codec`; repairs are counted by the columns' own codecs."""
        return self.derive(columns).astype(choose_code_dtype(self.size)), Counter()

    def labels(self) -> list[str]:
        """Return the name of each code."""
        return list(self._names)

    def decode(self, codes: Codes, rng: np.random.Generator) -> dict[str, pa.Array]:
        """Return nothing: no column is released."""
        return {}

    def ranges(self) -> dict[str, ValueRange]:
        """Return nothing."""
        return {}
