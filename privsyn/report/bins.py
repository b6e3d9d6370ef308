"""Bins as a picture can show them: long columns in fewer, wider bins."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import sqrt

SHOWN_BINS = 60
"""Most bins that one small picture shows; more are merged, neighbour with neighbour."""


@dataclass(frozen=True)
class Bins:
    """Parallel sequences, one position a bin: labels, shares of two tables (0..1), and the noise's sd of a share."""

    labels: tuple[str, ...]
    first: tuple[float, ...]
    second: tuple[float, ...]
    noise_sd: tuple[float, ...] | None

    def __post_init__(self) -> None:
        """Refuse sequences of different lengths (ValueError)."""
        others = [self.first, self.second, *([] if self.noise_sd is None else [self.noise_sd])]
        if any(len(other) != len(self.labels) for other in others):
            raise ValueError("labels, shares and noise must have one entry for each bin")

    def merged(self, most: int = SHOWN_BINS) -> Bins:
        """At most ``most`` bins: runs of neighbours become one, as even in number as they can be.

        Shares add up; independent noise adds up in variance.  A run's label is its first and its last one.
        Raises ValueError for ``most`` below 1.
        """
        n = len(self.labels)
        if self._fits(most):
            return self
        edges = [i * n // most for i in range(most + 1)]
        runs = [slice(a, b) for a, b in pairwise(edges)]
        return Bins(
            tuple(_format_span(self.labels[r]) for r in runs),
            tuple(sum(self.first[r]) for r in runs),
            tuple(sum(self.second[r]) for r in runs),
            None if self.noise_sd is None else tuple(sqrt(sum(s * s for s in self.noise_sd[r])) for r in runs),
        )

    def largest(self, most: int) -> Bins:
        """At most ``most`` bins of a column without an order: the largest ones in their order, the rest as one.

        Raises ValueError for ``most`` below 1.
        """
        n = len(self.labels)
        if self._fits(most):
            return self
        size = [max(a, b) for a, b in zip(self.first, self.second, strict=True)]
        kept = sorted(sorted(range(n), key=lambda i: (-size[i], i))[: most - 1])
        rest = sorted(set(range(n)) - set(kept))
        sd = self.noise_sd
        return Bins(
            (*(self.labels[i] for i in kept), f"{len(rest):,} others"),
            (*(self.first[i] for i in kept), sum(self.first[i] for i in rest)),
            (*(self.second[i] for i in kept), sum(self.second[i] for i in rest)),
            None if sd is None else (*(sd[i] for i in kept), sqrt(sum(sd[i] ** 2 for i in rest))),
        )

    def _fits(self, most: int) -> bool:
        if most < 1:
            raise ValueError(f"a picture needs at least one bin: {most}")
        return len(self.labels) <= most


def _format_span(labels: Sequence[str]) -> str:
    return labels[0] if len(labels) == 1 else f"{labels[0]} … {labels[-1]}"
