"""Streams whose next item is made while the one before is used."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from privsyn.tasks.kernels.blocks import read_ahead


def test_the_next_item_is_made_while_one_is_used() -> None:
    made = threading.Event()

    def numbers() -> Iterator[int]:
        yield 1
        made.set()
        yield 2

    stream = read_ahead(numbers(), 2)
    assert next(stream) == 1
    assert made.wait(10)
    assert list(stream) == [2]


@pytest.mark.parametrize("threads", [1, 2])
def test_items_come_in_order_and_an_error_in_its_place(threads: int) -> None:
    def numbers() -> Iterator[int]:
        yield from range(5)
        raise ValueError("the sixth")

    found = []
    with pytest.raises(ValueError, match="the sixth"):
        for number in read_ahead(numbers(), threads):
            found.append(number)
    assert found == list(range(5))


def test_on_one_thread_nothing_is_made_ahead() -> None:
    asked = []
    stream = read_ahead((asked.append(i) or i for i in range(3)), 1)
    assert next(stream) == 0
    assert asked == [0]


def test_a_stream_that_is_left_early_ends_its_thread() -> None:
    before = threading.active_count()
    stream = read_ahead(iter(range(100)), 2)
    assert next(stream) == 0
    stream.close()
    assert threading.active_count() == before
