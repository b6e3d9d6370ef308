"""Which pairs of a wide table are scored: pairs of columns whose names are of one block, or that stand near.

Not in the paper, which scores all.  Of d attributes there are d (d - 1) / 2 pairs, and each more takes budget from the
others, time and memory.  Which are scored follows from the names and the order of the columns, both public, and from
no row.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import islice

from privsyn.data_contracts.domain import Clique
from privsyn.data_contracts.presets import ALL_PAIRS_COLUMNS

MOST_PAIRS = ALL_PAIRS_COLUMNS * (ALL_PAIRS_COLUMNS - 1) // 2
"""Pairs that are scored of a wider table, beside those of focus columns: as many as these attributes have."""

BLOCK_PART = 0.75
"""Part of the pairs that blocks of names have at most: columns beside each other are related across blocks, too."""

_LAST_PART = re.compile(r"([_.\- ]?[0-9]+|(?<=[0-9])[a-zA-Z]|[_.\- ][a-zA-Z])$")


def name_block(column: str) -> str:
    """Return the name without its last number or letter: columns of one block have the same, as q12_1 and q12_2."""
    return _LAST_PART.sub("", column)


def is_wide(attributes: Collection[str]) -> bool:
    """Return whether so many attributes have more pairs than are scored."""
    return len(attributes) > ALL_PAIRS_COLUMNS


def list_near_pairs(
    attributes: Sequence[str], columns: Mapping[str, str], focus: Collection[str] = (), most: int = MOST_PAIRS
) -> list[Clique]:
    """Return the pairs that are scored, in the order of the attributes: all where these are not wide.

    ``columns``: attribute -> the column that it is made of; ``focus``: attributes whose pairs are all among them.  The
    others are ``most`` at most: first those of one block, nearest in it first, up to BLOCK_PART of them, then those
    nearest in the table, where attributes of one column stand together.
    """
    number = {a: i for i, a in enumerate(attributes)}
    chosen = {_sort_pair(number[f], i) for f in focus for i in range(len(attributes)) if i != number[f]}
    first = {column: i for i, column in reversed(list(enumerate(columns[a] for a in attributes)))}
    order = sorted(range(len(attributes)), key=lambda i: (first[columns[attributes[i]]], i))
    blocks: dict[str, list[int]] = {}
    for i in order:
        blocks.setdefault(name_block(columns[attributes[i]]), []).append(i)
    within_blocks = islice(
        (p for p in _pair_by_distance(list(blocks.values())) if p not in chosen), int(BLOCK_PART * most)
    )
    pairs = list(within_blocks)
    chosen.update(pairs)
    chosen.update(islice((p for p in _pair_by_distance([order]) if p not in chosen), most - len(pairs)))
    return [(attributes[i], attributes[j]) for i, j in sorted(chosen)]


def _pair_by_distance(lines: Sequence[Sequence[int]]) -> Iterator[tuple[int, int]]:
    """Yield the pairs of numbers that stand in one line, neighbours first, then those two apart, and so on."""
    for apart in range(1, max(map(len, lines), default=0)):
        for line in lines:
            yield from map(_sort_pair, line, line[apart:])


def _sort_pair(first: int, second: int) -> tuple[int, int]:
    return (first, second) if first < second else (second, first)
