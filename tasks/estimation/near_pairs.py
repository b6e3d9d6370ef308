"""The pairs of a wide table that are scored: columns whose names form a block, or that are near in the table.

Not in the paper, which scores all pairs.  d attributes have d (d - 1) / 2 pairs, and each scored pair takes budget from
the others, time and memory.  The choice depends on the public names and order of the columns, and on no row.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import islice

from privsyn.data_contracts.domain import Clique
from privsyn.data_contracts.presets import ALL_PAIRS_COLUMNS

MOST_PAIRS = ALL_PAIRS_COLUMNS * (ALL_PAIRS_COLUMNS - 1) // 2
"""Scored pairs of a wider table, besides pairs of focus columns: all pairs of ALL_PAIRS_COLUMNS attributes."""

BLOCK_PART = 0.75
"""Largest share of the pairs within name blocks: neighbouring columns are related across blocks, too."""

_LAST_PART = re.compile(r"([_.\- ]?[0-9]+|(?<=[0-9])[a-zA-Z]|[_.\- ][a-zA-Z])$")


def name_block(column: str) -> str:
    """Return the name without its last number or letter, which is the same within a block (q12_1 and q12_2)."""
    return _LAST_PART.sub("", column)


def is_wide(attributes: Collection[str]) -> bool:
    """Return whether the attributes have too many pairs to score all."""
    return len(attributes) > ALL_PAIRS_COLUMNS


def list_near_pairs(
    attributes: Sequence[str], columns: Mapping[str, str], focus: Collection[str] = (), limit: int = MOST_PAIRS
) -> list[Clique]:
    """Return the pairs to score, in attribute order: all pairs if there are at most ``limit``.

    ``columns``: attribute -> its source column; ``focus``: attributes whose pairs are all scored.  At most ``limit``
    other pairs follow.  Pairs within a block come first, nearest first, up to BLOCK_PART of them.  Then come the
    nearest pairs in the table, where attributes of one column are adjacent.
    """
    number = {a: i for i, a in enumerate(attributes)}
    chosen = {_sort_pair(number[f], i) for f in focus for i in range(len(attributes)) if i != number[f]}
    first = {column: i for i, column in reversed(list(enumerate(columns[a] for a in attributes)))}
    order = sorted(range(len(attributes)), key=lambda i: (first[columns[attributes[i]]], i))
    blocks: dict[str, list[int]] = {}
    for i in order:
        blocks.setdefault(name_block(columns[attributes[i]]), []).append(i)
    within_blocks = islice(
        (p for p in _pair_by_distance(list(blocks.values())) if p not in chosen), int(BLOCK_PART * limit)
    )
    pairs = list(within_blocks)
    chosen.update(pairs)
    chosen.update(islice((p for p in _pair_by_distance([order]) if p not in chosen), limit - len(pairs)))
    return [(attributes[i], attributes[j]) for i, j in sorted(chosen)]


def _pair_by_distance(lines: Sequence[Sequence[int]]) -> Iterator[tuple[int, int]]:
    """Yield the pairs of numbers within each line: neighbours first, then pairs two apart, and so on."""
    for apart in range(1, max(map(len, lines), default=0)):
        for line in lines:
            yield from map(_sort_pair, line, line[apart:])


def _sort_pair(first: int, second: int) -> tuple[int, int]:
    return (first, second) if first < second else (second, first)
