"""The domain: the attributes and their numbers of codes."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np
from numpy.typing import NDArray

Clique = tuple[str, ...]
"""Attributes of one marginal, in domain order."""

Merge = NDArray[np.int64]
"""The merged code of each code of an attribute."""

Merges = Sequence[Merge | None]
"""A marginal's merges, one per attribute; None for an attribute in its own codes."""


@dataclass(frozen=True)
class Domain:
    """Attributes and their numbers of codes, in table order."""

    attributes: tuple[str, ...]
    sizes: tuple[int, ...]

    def __post_init__(self) -> None:
        """Raise ValueError for mismatched lengths, repeated names, and attributes without codes."""
        if len(self.attributes) != len(self.sizes):
            raise ValueError("attributes and sizes differ in length")
        if len(set(self.attributes)) != len(self.attributes):
            raise ValueError("an attribute stands twice in the domain")
        if any(size < 1 for size in self.sizes):
            raise ValueError("every attribute needs at least one code")
        object.__setattr__(self, "_size_of", dict(zip(self.attributes, self.sizes, strict=True)))
        object.__setattr__(self, "_index_of", {a: i for i, a in enumerate(self.attributes)})

    @classmethod
    def of(cls, sizes: Mapping[str, int]) -> Domain:
        """Return a domain from a mapping attribute -> size, in its order."""
        return cls(tuple(sizes), tuple(int(s) for s in sizes.values()))

    def size(self, attribute: str) -> int:
        """Return the number of codes of ``attribute``; raises KeyError if unknown."""
        return self._size_of[attribute]  # type: ignore[attr-defined]

    def index(self, attribute: str) -> int:
        """Return the position of ``attribute``; raises KeyError if unknown."""
        return self._index_of[attribute]  # type: ignore[attr-defined]

    def shape(self, clique: Iterable[str]) -> tuple[int, ...]:
        """Return the sizes of the clique's attributes, in the clique's order."""
        return tuple(self.size(a) for a in clique)

    def cells(self, clique: Iterable[str]) -> int:
        """Return the number of cells of the marginal on ``clique`` (1 for the empty clique); an exact int."""
        return prod(self.shape(clique))

    def ordered(self, attributes: Iterable[str]) -> Clique:
        """Return the attributes as a clique: unique, in domain order."""
        return tuple(sorted(set(attributes), key=self.index))


def drop_attributes(domain: Domain, names: Collection[str]) -> Domain:
    """Return the domain without these attributes."""
    return Domain.of({a: domain.size(a) for a in domain.attributes if a not in names})


def choose_code_dtype(size: int) -> np.dtype:
    """Return the smallest unsigned dtype that holds the codes 0 .. size - 1."""
    if size <= 1 << 8:
        return np.dtype(np.uint8)
    if size <= 1 << 16:
        return np.dtype(np.uint16)
    return np.dtype(np.uint32 if size <= 1 << 32 else np.uint64)
