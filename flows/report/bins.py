"""Bins as a picture can show them: long columns in fewer, wider bins.

Belongs here: merging neighbouring bins of parallel sequences for drawing.  Does not belong here: the public bins of the
spec (tasks/codecs/) and any chart.
"""

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
        if most < 1:
            raise ValueError(f"a picture needs at least one bin: {most}")
        n = len(self.labels)
        if n <= most:
            return self
        edges = [i * n // most for i in range(most + 1)]
        runs = [slice(a, b) for a, b in pairwise(edges)]
        return Bins(
            tuple(_span(self.labels[r]) for r in runs),
            tuple(sum(self.first[r]) for r in runs),
            tuple(sum(self.second[r]) for r in runs),
            None if self.noise_sd is None else tuple(sqrt(sum(s * s for s in self.noise_sd[r])) for r in runs),
        )


def _span(labels: Sequence[str]) -> str:
    return labels[0] if len(labels) == 1 else f"{labels[0]} … {labels[-1]}"
