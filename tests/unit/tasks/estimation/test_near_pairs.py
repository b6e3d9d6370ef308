"""Which pairs of a wide table are scored: all of a narrow one, blocks of names and neighbours of a wide one."""

from __future__ import annotations

from itertools import combinations

import pytest

from privsyn.data_contracts.presets import ALL_PAIRS_COLUMNS
from privsyn.tasks.estimation.pair_departures import (
    BLOCK_PART,
    MOST_PAIRS,
    is_wide,
    list_near_pairs,
    name_block,
)


def near(names: list[str], focus: tuple[str, ...] = (), most: int = MOST_PAIRS) -> list[tuple[str, ...]]:
    return list_near_pairs(names, {name: name for name in names}, focus, most)


def test_as_many_pairs_as_there_are_are_all() -> None:
    names = [f"a{i}" for i in range(ALL_PAIRS_COLUMNS)]
    assert near(names) == list(combinations(names, 2)) and not is_wide(names) and is_wide([*names, "b"])


@pytest.mark.parametrize(
    ("name", "block"),
    [("q12_1", "q12"), ("q12", "q"), ("q12b", "q12"), ("income.2020", "income"), ("age", "age"), ("part_a", "part")],
)
def test_a_block_is_a_name_without_its_last_number_or_letter(name: str, block: str) -> None:
    assert name_block(name) == block


def test_blocks_come_before_neighbours_and_neighbours_have_their_part() -> None:
    names = [f"q{block}_{item}" for item in range(8) for block in "abcdefgh"]  # members of a block stand 8 apart
    found, most = near(names, most=400), 400
    inside = {p for p in combinations(names, 2) if name_block(p[0]) == name_block(p[1])}
    assert inside < {*found} and len(found) == most and len(inside) == 224 <= BLOCK_PART * most
    others = [names.index(b) - names.index(a) for a, b in found if (a, b) not in inside]
    assert max(others) <= 4 and min(others) == 1
    assert found == sorted(found, key=lambda p: (names.index(p[0]), names.index(p[1])))


def test_every_column_is_in_some_pair_and_no_pair_is_there_twice() -> None:
    names = [f"q{i}" for i in range(1_000)]  # one block of names
    found = near(names)
    assert len({*found}) == len(found) == MOST_PAIRS and {a for pair in found for a in pair} == {*names}


def test_a_column_in_focus_is_scored_with_all() -> None:
    names = [f"q{i}" for i in range(400)]
    found = near(names, ("q7",))
    assert sum("q7" in pair for pair in found) == 399 and len(found) == MOST_PAIRS + 399


def test_attributes_of_one_column_stand_together() -> None:
    columns = {**{f"a{i}": f"a{i}" for i in range(50)}, "a0: weekday": "a0"}
    found = list_near_pairs(tuple(columns), columns, limit=60)
    assert ("a0", "a0: weekday") in found and ("a1", "a0: weekday") in found
